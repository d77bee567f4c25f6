"""outlines_core: a regular expression (which a JSON schema becomes) as an index over the tokens.

The index is built elsewhere, in a process that can be stopped, and comes here as a file; it is
read at 2 ms a megabyte under the interpreter's lock, so a large one is built again instead, which
holds up nobody.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import outlines_core
from outlines_core.json_schema import build_regex_from_schema

from adapter.guided.matcher import Mask, Matcher
from adapter.guided.program import Part
from adapter.guided.vocabulary import Vocabulary
from adapter.languages import exact_json
from adapter.languages.json_schema.schema import Schema, rewrite

# A property or item of any value: the library's own reading of `{}` is not one alternative but
# several that fall apart ("null" alone would do for a whole object). A value without inner ones
# keeps the automaton finite.
_ANY_VALUE = {
    "anyOf": [{"type": name} for name in ("string", "number", "boolean", "null")],
}

LARGEST_FILE = 4 * 2**20

_LONGEST_ROLLBACK = 256  # tokens that speculative decoding may take back at once, and to spare

# outlines_core's automaton takes the first alternative that matches ("1|10" never gives 10), but
# for an anchored one, which matches at the end alone. It cannot start at an anchor, though: so each
# text starts with a NUL that the matcher takes before the first token.
_START = b"\0"


class OutlinesBackend:
    """Compiles for one vocabulary."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._words = vocabulary.words
        self._start = len(vocabulary.tokens)  # an id that no mask has
        texts = {text: ids for text, ids in vocabulary.by_bytes.items() if b"\0" not in text}
        end = vocabulary.eos_token_ids[0]
        self._vocabulary = outlines_core.Vocabulary(end, {**texts, _START: [self._start]})

    def compile(self, part: Part) -> Callable[[], Matcher]:
        """A maker of matchers.

        Raises:
            ValueError: outlines_core cannot read the expression, or nothing matches it.
        """
        index = _read(part.artifact) or self._build(part.text)
        return lambda: OutlinesMatcher(index, self._start, self._words)

    def prepare(self, regex: str, path: Path) -> None:
        """Compile a regular expression into a file, for a part's `artifact`.

        Raises:
            ValueError: as compile().
        """
        _, (content,) = self._build(regex).__reduce__()
        path.write_bytes(bytes(content))

    def _build(self, regex: str) -> outlines_core.Index:
        return outlines_core.Index(f"\\x00(?:{regex})$", self._vocabulary)


def regex_of_schema(schema: Schema, whitespace: str | None) -> str:
    """The regular expression of a JSON schema; whitespace: one between its tokens, `[ ]?` without.

    Raises:
        ValueError: outlines_core cannot express the schema.
    """
    plain = _ANY_VALUE if _is_any(schema) else rewrite(schema, _mended)
    return str(build_regex_from_schema(exact_json.dumps(plain), whitespace))


def _mended(node: dict[str, Any]) -> dict[str, Any]:
    """A schema object with its any-value schemas spelt out."""
    node = dict(node)
    for name in ("items", "additionalProperties"):
        if _is_any(node.get(name)) and (name in node):
            node[name] = _ANY_VALUE
    for name in ("prefixItems", "anyOf", "oneOf"):
        if isinstance(node.get(name), list):
            node[name] = [_ANY_VALUE if _is_any(item) else item for item in node[name]]
    if isinstance(node.get("properties"), dict):
        node["properties"] = {
            key: _ANY_VALUE if _is_any(value) else value
            for key, value in node["properties"].items()
        }
    return node


def _is_any(schema: Any) -> bool:
    """Whether a schema says nothing about the value's kind."""
    return schema is True or (isinstance(schema, dict) and not _SAYS.intersection(schema))


_SAYS = frozenset(
    (
        "$ref",
        "allOf",
        "anyOf",
        "const",
        "enum",
        "items",
        "oneOf",
        "prefixItems",
        "properties",
        "type",
    )
)


def _read(path: str | None) -> outlines_core.Index | None:
    try:
        file = Path(path or "")
        if path is None or file.stat().st_size > LARGEST_FILE:
            return None
        return outlines_core.Index.from_binary(file.read_bytes())
    except OSError:  # made on another machine, or left out of the cache since
        return None


class OutlinesMatcher:
    """outlines_core's state of one text."""

    def __init__(self, index: outlines_core.Index, start: int, words: int) -> None:
        self._guide = outlines_core.Guide(index, max_rollback=_LONGEST_ROLLBACK)
        self._guide.advance(start, return_tokens=False)
        self._allowed = np.zeros(words, np.int32)
        self._buffer = (self._allowed.ctypes.data, words, self._allowed.itemsize)

    def narrow(self, mask: Mask) -> None:
        """Clear what may not come next."""
        self._guide.write_mask_into(*self._buffer)
        np.bitwise_and(mask, self._allowed, out=mask)

    def advance(self, token: int) -> bool:
        """Take the next token, False where it is not allowed."""
        if not self._guide.accepts_tokens([token]):
            return False
        self._guide.advance(token, return_tokens=False)
        return True

    def rollback(self, count: int) -> None:
        """Take back the last tokens."""
        self._guide.rollback_state(count)

    def can_end(self) -> bool:
        """Whether the text may end here."""
        return bool(self._guide.is_finished())
