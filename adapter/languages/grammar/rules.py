"""A grammar as flat rules, in which no group stands inside a rule but as a rule of its own.

So nothing recurses here, and brackets may nest deeper than the 29 that llguidance takes.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from adapter.languages.characters import Ranges
from adapter.languages.regex.write import quantifier


class GrammarError(ValueError):
    """The grammar cannot be used; the message is for the caller who wrote it."""

    def __init__(self, message: str, line: int | None = None) -> None:
        super().__init__(message if line is None else f"line {line}: {message}")


@dataclass(slots=True)
class Element:
    """One part of a sequence, low to high times (None: any number)."""

    kind: str
    """name; literal and class of EBNF, as both engines read them; lark, as it is."""
    text: str
    line: int
    low: int = 1
    high: int | None = 1
    chars: Ranges = ()
    """What a class allows; of a literal, each character in turn."""

    def times(self) -> str:
        """Its quantifier, as all engines read it."""
        return quantifier(self.low, self.high)


@dataclass(slots=True)
class Rule:
    """What a name derives: a choice of sequences."""

    name: str
    line: int
    is_terminal: bool = False
    closer: str = ""
    """The bracket that ends a group."""
    options: str = ""
    directive: str = ""
    """What stands in Lark instead of a definition: %ignore, or a whole line."""
    alternatives: list[list[Element]] = field(default_factory=lambda: [[]])

    def parts(self) -> Iterator[Element]:
        """The parts of all alternatives, in order."""
        return (part for parts in self.alternatives for part in parts)

    def names(self) -> Iterator[Element]:
        """The references of all alternatives, in order."""
        return (part for part in self.parts() if part.kind == "name")


Rules = dict[str, Rule]
"""Rules by name, groups and directives among them."""


def led_to(rules: Rules, roots: Iterable[str], without: set[str]) -> list[Rule]:
    """What roots lead to, themselves included, not by way of the rules in `without`."""
    found: Rules = {}
    pending = sorted(roots)
    while pending:
        name = pending.pop()
        if name not in found and name not in without:
            found[name] = rules[name]
            pending += [part.text for part in rules[name].names()]
    return list(found.values())


def settled(entries: Iterable[tuple[str, set[str]]]) -> list[str]:
    """The names with an entry all of whose needs are such names, behind what they need."""
    found: dict[str, None] = {}
    ready: list[str] = []
    missing: list[int] = []
    users: defaultdict[str, list[tuple[int, str]]] = defaultdict(list)
    for name, needs in entries:
        for need in needs:
            users[need].append((len(missing), name))
        missing.append(len(needs))
        ready += [] if needs else [name]
    while ready:
        name = ready.pop()
        uses = [] if name in found else users[name]
        found[name] = None
        for entry, user in uses:
            missing[entry] -= 1
            ready += [] if missing[entry] else [user]
    return list(found)
