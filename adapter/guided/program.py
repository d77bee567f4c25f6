"""What crosses to the engine: a constraint translated for the libraries that enforce it."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

Library = Literal["guidance", "xgrammar", "outlines", "lm-format-enforcer"]


@dataclass(frozen=True, slots=True)
class Part:
    """What one library enforces."""

    library: Library
    form: str
    """What `text` is, in the library's own terms: "json", "regex", "lark", "ebnf"."""
    text: str
    artifact: str | None = None
    """A file with what was compiled already; where it is missing the text is compiled again."""
    artifact_bytes: int = 0
    """The file's size."""


@dataclass(frozen=True, slots=True)
class Whitespace:
    """The whitespace that may stand between the tokens of a JSON text: an automaton over it."""

    moves: tuple[tuple[int, int, int, int], ...]
    """For each state the next one after space, tab, newline, carriage return; -1 for none."""
    accepts: tuple[bool, ...]
    """Whether a run of whitespace may stop in a state; state 0 is an empty run."""

    @classmethod
    def of(cls, fields: Mapping[str, Any]) -> "Whitespace":
        """The automaton whose fields were read from JSON."""
        return cls(tuple(map(tuple, fields["moves"])), tuple(fields["accepts"]))


@dataclass(frozen=True, slots=True)
class Program:
    """A constraint as the engine runs it."""

    parts: tuple[Part, ...]
    """The first holds the constraint; the others narrow it further, and yield where they cannot."""
    whitespace: Whitespace | None = None
    eos_token_ids: tuple[int, ...] = ()
    """The tokens that end a text."""
    eos_last: bool = False
    """An end of text is allowed only where nothing else is (ignore_eos)."""

    def dumps(self) -> str:
        """As text."""
        return json.dumps(asdict(self), ensure_ascii=False, separators=(",", ":"))

    @classmethod
    def loads(cls, text: str) -> "Program":
        """Read what dumps() wrote."""
        fields = json.loads(text)
        whitespace = fields["whitespace"]
        return cls(
            parts=tuple(Part(**part) for part in fields["parts"]),
            whitespace=None if whitespace is None else Whitespace.of(whitespace),
            eos_token_ids=tuple(fields["eos_token_ids"]),
            eos_last=fields["eos_last"],
        )
