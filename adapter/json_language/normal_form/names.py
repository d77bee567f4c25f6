"""Sets of member names: finite ones, patterns, and what union, intersection and complement make."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

from adapter.languages.regex.choices import choices
from adapter.languages.regex.language import Language
from adapter.languages.regex.tree import ANY_TEXT, Node, choice, every, negation


@dataclass(frozen=True, slots=True)
class Listed:
    """These names."""

    names: frozenset[str]


@dataclass(frozen=True)
class Matching:
    """The names of a regular language."""

    tree: Node

    @cached_property
    def _language(self) -> Language:
        return Language(self.tree)

    @cached_property
    def _known(self) -> dict[str, bool]:
        return {}

    def has(self, name: str) -> bool:
        """Whether a name is in it."""
        if name not in self._known:
            self._known[name] = self._language.matches(name)
        return self._known[name]


@dataclass(frozen=True, slots=True)
class Either:
    """The names of any of the sets."""

    parts: "tuple[Names, ...]"


@dataclass(frozen=True, slots=True)
class Other:
    """All names but those of the set."""

    than: "Names"


Names: TypeAlias = Listed | Matching | Either | Other

NO_NAMES = Listed(frozenset())
ALL_NAMES = Other(NO_NAMES)


def listed(*names: str) -> Names:
    """The set of these names."""
    return Listed(frozenset(names))


def either(sets: Iterable[Names]) -> Names:
    """The union."""
    flat = [part for one in sets for part in (one.parts if isinstance(one, Either) else (one,))]
    if ALL_NAMES in flat:
        return ALL_NAMES
    finite = [part.names for part in flat if isinstance(part, Listed)]
    rest = dict.fromkeys(part for part in flat if not isinstance(part, Listed))
    names = frozenset[str]().union(*finite)
    parts = ((Listed(names),) if names else ()) + tuple(rest)
    if not parts:
        return NO_NAMES
    return parts[0] if len(parts) == 1 else Either(parts)


def other(names: Names) -> Names:
    """The complement."""
    return names.than if isinstance(names, Other) else Other(names)


def has(names: Names, name: str) -> bool:
    """Whether a name is in the set."""
    match names:
        case Listed(finite):
            return name in finite
        case Matching():
            return names.has(name)
        case Either(parts):
            return any(has(part, name) for part in parts)
        case Other(than):
            return not has(than, name)


def mentioned(names: Names) -> Iterator[str]:
    """The names that are listed anywhere in a set."""
    match names:
        case Listed(finite):
            yield from finite
        case Matching():
            pass
        case Either(parts):
            for part in parts:
                yield from mentioned(part)
        case Other(than):
            yield from mentioned(than)


def patterns(names: Names) -> Iterator[Matching]:
    """The regular languages anywhere in a set."""
    match names:
        case Listed():
            pass
        case Matching():
            yield names
        case Either(parts):
            for part in parts:
                yield from patterns(part)
        case Other(than):
            yield from patterns(than)


def has_region(names: Names, inside: frozenset[Matching]) -> bool:
    """Whether a set has the names that no set lists, and that of all patterns match `inside`."""
    match names:
        case Listed():
            return False
        case Matching():
            return names in inside
        case Either(parts):
            return any(has_region(part, inside) for part in parts)
        case Other(than):
            return not has_region(than, inside)


def region_tree(
    inside: Iterable[Matching], outside: Iterable[Matching], without: Iterable[str]
) -> Node:
    """The names that match all of some patterns, none of others, and are none of a list."""
    barred = [pattern.tree for pattern in outside]
    if taken := sorted(without):
        barred.append(choices(taken))
    parts = [ANY_TEXT, *(pattern.tree for pattern in inside)]
    return every([*parts, negation(choice(barred))] if barred else parts)
