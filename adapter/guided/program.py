"""What crosses to the engine: a constraint translated for the libraries that enforce it."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
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
class Shape:
    """What is known of the arrays and objects at a place of a JSON text.

    Places are merged over the branches of a schema, so that a text alone says where it stands.
    Places below are indices into Members.shapes, None where nothing is known of them.
    """

    members: tuple[tuple[str, int | None], ...] = ()
    """Of names that are declared, the places of their values."""
    others: int | None = None
    """Of all other names."""
    items: int | None = None
    """Of the items."""
    unique: bool = False
    """No two items are equal."""
    containers: bool = False
    """Items may be arrays or objects."""
    bounded_names: bool = False
    """Behind some beginning of a name only so many can follow that all may be there already."""
    bounded_items: bool = False
    """The same of items that are strings, numbers or words."""

    @classmethod
    def of(cls, fields: Mapping[str, Any]) -> "Shape":
        """The shape whose fields were read from JSON."""
        return cls(**{**fields, "members": tuple(map(tuple, fields["members"]))})


@dataclass(frozen=True, slots=True)
class Members:
    """What the names and items of a JSON text are held to: no name comes twice in an object."""

    shapes: tuple[Shape, ...] = ()
    """The first is the root's; without any, nothing is known."""
    bounded_names: bool = False
    """What Shape.bounded_names says, of the objects of which nothing is known."""

    @property
    def exact(self) -> bool:
        """Whether all is held; arrays and objects as unique items may come twice."""
        return not any(shape.unique and shape.containers for shape in self.shapes)

    @classmethod
    def of(cls, fields: Mapping[str, Any]) -> "Members":
        """The members whose fields were read from JSON."""
        return cls(tuple(map(Shape.of, fields["shapes"])), fields["bounded_names"])


@dataclass(frozen=True, slots=True)
class Program:
    """A constraint as the engine runs it."""

    parts: tuple[Part, ...]
    """The first holds the constraint; the others narrow it further, and yield where they cannot."""
    whitespace: Whitespace | None = None
    members: Members | None = None
    """Set for every JSON text."""
    eos_token_ids: tuple[int, ...] = ()
    """The tokens that end a text."""
    eos_last: bool = False
    """An end of text is allowed only where nothing else is (ignore_eos)."""

    def dumps(self) -> str:
        """As text, without a line end."""
        return json.dumps(self, default=_fields, ensure_ascii=False, separators=(",", ":"))

    @classmethod
    def loads(cls, text: str) -> "Program":
        """Read what dumps() wrote."""
        given = json.loads(text)
        whitespace, members = given["whitespace"], given["members"]
        return cls(
            parts=tuple(Part(**part) for part in given["parts"]),
            whitespace=None if whitespace is None else Whitespace.of(whitespace),
            members=None if members is None else Members.of(members),
            eos_token_ids=tuple(given["eos_token_ids"]),
            eos_last=given["eos_last"],
        )


def _fields(value: Any) -> dict[str, Any]:
    """What a dataclass holds; unlike asdict() without a copy of what is inside."""
    return {field.name: getattr(value, field.name) for field in fields(value)}


@dataclass(frozen=True, slots=True)
class Focus:
    """Which tokens are asked about, where a text is made one token a request."""

    begun: tuple[int, ...] = ()
    """The text's tokens so far, which are in the request's prompt."""
    among: tuple[int, ...] | None = None
    """Tokens beside which none is asked about; None for all."""
    but: tuple[int, ...] = ()
    """Tokens that are not asked about."""

    def before(self, program: str) -> str:
        """A program's text with this before it; read by read_request()."""
        if self == NO_FOCUS:
            return program
        return json.dumps(asdict(self), separators=(",", ":")) + "\n" + program


NO_FOCUS = Focus()


def read_request(text: str) -> tuple[Focus, str]:
    """What a request is focused on, and its program's text."""
    head, _, program = text.rpartition("\n")
    if not head:
        return NO_FOCUS, program
    given = json.loads(head)
    among = given["among"]
    focus = Focus(
        tuple(given["begun"]), None if among is None else tuple(among), tuple(given["but"])
    )
    return focus, program
