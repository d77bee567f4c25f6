"""The files of the golden cases: where they are, what is in them, and how they are written.

README.md beside this file says what a case holds; case.schema.json says it to machines.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Json = dict[str, Any]

FOLDER = Path(__file__).parent
SERVER: Json = json.loads((FOLDER / "server.json").read_text("utf-8"))
"""What a case's server is like where the case says nothing else."""

_WIDTH = 100
_LINE_ENDS = {"\x7f": "\\u007f", "\x85": "\\u0085", "\u2028": "\\u2028", "\u2029": "\\u2029"}


@dataclass(frozen=True)
class Case:
    """One case, and the file that it stands in."""

    path: Path
    fields: Json

    @property
    def id(self) -> str:
        """Such as "fields/top_k/zero is all tokens"."""
        return f"{self.path.relative_to(FOLDER).with_suffix('')}/{self.fields['name']}"

    @property
    def server(self) -> Json:
        """All facts about the server."""
        differs: Json = self.fields.get("server", {})
        return SERVER | differs

    def raw_body(self, *, streamed: bool) -> str:
        """The body as text; lone surrogates in it are escaped.

        streamed: with `stream` set to true.
        """
        request = self.fields["request"]
        if "raw_body" in request:
            assert not streamed, "a raw body is sent as it is"
            text: str = request["raw_body"]
            return text
        return json.dumps(request["body"] | ({"stream": True} if streamed else {}))

    def reply(self, *, streamed: bool) -> Json:
        """What has to come back."""
        same = streamed and self.fields["streamed"] == "same as answer"
        reply: Json = self.fields["answer" if same or not streamed else "streamed"]
        return reply


def case_files() -> list[Path]:
    """All files that hold cases."""
    return sorted(FOLDER.glob("*/*.json"))


def cases_of(path: Path) -> list[Case]:
    """The cases of one file."""
    return [Case(path, fields) for fields in read(path)["cases"]]


def all_cases() -> list[Case]:
    """The cases of all files."""
    return [case for path in case_files() for case in cases_of(path)]


def read(path: Path) -> Json:
    """What a file holds.

    Raises:
        ValueError: a key stands twice in one object.
    """
    content: Json = json.loads(path.read_text("utf-8"), object_pairs_hook=_once)
    return content


def _once(pairs: list[tuple[str, Any]]) -> Json:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError(f"a key stands twice among {[key for key, _ in pairs]}")
    return found


def written(value: Any) -> str:
    """A file's text: what fits into a line stands in one."""
    return _written(value, 0) + "\n"


def _written(value: Any, depth: int, before: int = 0) -> str:
    """depth: of the line that the value begins in; before: characters before it in that line."""
    line = _escaped(json.dumps(value, ensure_ascii=False))
    if not isinstance(value, dict | list) or not value:
        return line
    if 2 * depth + before + len(line) < _WIDTH and depth > 1:
        return line
    inner = "\n" + "  " * (depth + 1)
    opening, closing = ("{", "}") if isinstance(value, dict) else ("[", "]")
    items = ",".join(inner + item for item in _items(value, depth + 1))
    return opening + items + "\n" + "  " * depth + closing


def _items(value: Mapping[str, Any] | list[Any], depth: int) -> Iterator[str]:
    if isinstance(value, list):
        for item in value:
            yield _written(item, depth)
        return
    for key, item in value.items():
        name = _escaped(json.dumps(key, ensure_ascii=False)) + ": "
        yield name + _written(item, depth, len(name))


def _escaped(text: str) -> str:
    for char, escape in _LINE_ENDS.items():
        text = text.replace(char, escape)
    # What is no character of its own has no place in a file of UTF-8.
    return text.encode("utf-8", "backslashreplace").decode()
