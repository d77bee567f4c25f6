"""A caller's regular expression, read once and written for each library that enforces it.

The libraries read four dialects (Rust's regex-syntax, xgrammar's EBNF, interegular's Python), and
the same text means different things in them. So Python's own parser reads it, as vLLM's does, and
what it means is written out in the few forms that all of them read alike: characters by their
numbers, sequence, choice, repeat. The language is that of re.fullmatch, but for characters that no
generated text has (surrogates, NUL), and for classes: a class holds the characters that it holds
both with and without re.ASCII, for whoever checks the text may read it either way.
"""

import re
import warnings
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache, lru_cache
from itertools import chain, groupby, pairwise, takewhile
from re import _constants as code  # type: ignore[attr-defined]
from re import _parser  # type: ignore[attr-defined]
from typing import Any, TypeAlias

Ranges: TypeAlias = tuple[tuple[int, int], ...]
"""Inclusive ranges of code points: sorted, apart from one another."""

MAX_DEPTH = 100
"""Nodes inside one another. regex-syntax refuses 250 levels, of which a node takes up to two."""

MAX_POSITIONS = 100_000
"""Characters of a pattern with its repeats written out; outlines_core takes seconds for as many."""

MAX_RANGES = 100_000
"""Ranges of all classes together, and letters in any case: a byte can stand for 700 of them."""

# A level of the trie makes up to three nodes: sequence, choice, and the repeat of an optional one.
_TRIE_DEPTH = 30
# A second of work, about.
_MAX_STEPS = 4_000_000


class PatternError(ValueError):
    """What is wrong with a pattern, in words for the caller."""


@dataclass(frozen=True, slots=True)
class Chars:
    """One character of a set that is not empty."""

    ranges: Ranges


@dataclass(frozen=True, slots=True)
class Sequence:
    """One after the other; with no parts, the empty text."""

    parts: "tuple[Node, ...]"


@dataclass(frozen=True, slots=True)
class Choice:
    """One of two or more; none of them is the empty text, which is an optional Repeat."""

    options: "tuple[Node, ...]"


@dataclass(frozen=True, slots=True)
class Repeat:
    """low to high times; high is None where there is no bound."""

    node: "Node"
    low: int
    high: int | None


Node: TypeAlias = Chars | Sequence | Choice | Repeat

EMPTY = Sequence(())


def parse(pattern: str) -> Node:
    """What a pattern means to re.fullmatch.

    Raises:
        PatternError: it is not a regular expression, or has what not all libraries can enforce
            (look-around, references to groups, word boundaries, atomic groups, anchors between
            characters), or a class that holds no character, or is too deep or too large.
    """
    try:
        items = _parsed(pattern)
        flags = _known_flags(items.state.flags)
        return _bounded(_tree(items, _Place(flags, True, True, 0, _Budget())))
    except RecursionError:
        raise PatternError(_TOO_DEEP) from None


def choices(texts: Iterable[str]) -> Node:
    """Exactly these texts, which share the prefixes that they have in common.

    Raises:
        PatternError: there are none, or one has a character that no generated text has.
    """
    ordered = sorted(set(texts))
    if not ordered:
        raise PatternError("there are no texts to choose from")
    return _trie(ordered, 0, 0)


def blanks(node: Node) -> Node:
    """A whitespace pattern, with each class narrowed to JSON's blanks: space, tab, \\n, \\r.

    Raises:
        PatternError: a class has what is no blank, or none of JSON's blanks.
    """
    match node:
        case Chars(ranges):
            return Chars(_blank_ranges(ranges))
        case Sequence(parts):
            return _sequence(map(blanks, parts))
        case Choice(options):
            return _choice(map(blanks, options))
        case Repeat(inner, low, high):
            return _repeat(blanks(inner), low, high)


def matches_empty(node: Node) -> bool:
    """Whether the empty text matches."""
    match node:
        case Chars():
            return False
        case Sequence(parts):
            return all(map(matches_empty, parts))
        case Choice(options):
            return any(map(matches_empty, options))
        case Repeat(inner, low, _):
            return low == 0 or matches_empty(inner)


def positions(node: Node) -> int:
    """The characters of a pattern with its repeats written out; an unbounded one counts once."""
    match node:
        case Chars():
            return 1
        case Sequence(inner) | Choice(inner):
            return sum(map(positions, inner))
        case Repeat(inner, low, high):
            return positions(inner) * (max(low, 1) if high is None else high)


# Reading: from Python's parse tree to nodes.

_TOO_DEEP = f"it is nested too deeply, more than {MAX_DEPTH} levels"

_UNSUPPORTED = {
    code.ASSERT: "look-around assertions are not supported",
    code.ASSERT_NOT: "look-around assertions are not supported",
    code.GROUPREF: "back-references are not supported",
    code.GROUPREF_EXISTS: "conditional groups are not supported",
    code.ATOMIC_GROUP: "atomic groups are not supported",
    code.POSSESSIVE_REPEAT: "possessive quantifiers are not supported",
}

_ANCHORS = {
    code.AT_BEGINNING: "^",
    code.AT_BEGINNING_STRING: r"\A",
    code.AT_END: "$",
    code.AT_END_STRING: r"\Z",
    code.AT_BOUNDARY: r"\b",
    code.AT_NON_BOUNDARY: r"\B",
}
_STARTS = (code.AT_BEGINNING, code.AT_BEGINNING_STRING)
_ENDS = (code.AT_END, code.AT_END_STRING)

_FLAGS = re.IGNORECASE | re.DOTALL | re.VERBOSE | re.ASCII | re.MULTILINE | re.UNICODE
_CLASS_FLAGS = re.ASCII | re.UNICODE


@dataclass(slots=True)
class _Budget:
    """What the classes of a pattern may still cost."""

    left: int = MAX_RANGES

    def spend(self, ranges: int) -> None:
        self.left -= ranges
        if self.left < 0:
            raise PatternError("its character classes are too large together")


@dataclass(frozen=True, slots=True)
class _Place:
    """Where an item stands: what its meaning depends on."""

    flags: int
    at_start: bool
    """No character can come before it."""
    at_end: bool
    depth: int
    budget: _Budget

    def inside(self, first: bool, last: bool) -> "_Place":
        """The place of an item of the sequence that stands here."""
        start, end = self.at_start and first, self.at_end and last
        return _Place(self.flags, start, end, self.depth + 1, self.budget)

    def with_flags(self, add: int, remove: int) -> "_Place":
        kept = self.flags & ~_CLASS_FLAGS if add & _CLASS_FLAGS else self.flags
        flags = (kept | _known_flags(add)) & ~remove
        return _Place(flags, self.at_start, self.at_end, self.depth, self.budget)


def _parsed(pattern: str) -> Any:
    """Python's parse tree."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return _parser.parse(pattern)
        except re.error as error:
            where = "" if error.pos is None else f" at position {error.pos}"
            raise PatternError(f"{error.msg}{where}") from None
        except (OverflowError, ValueError) as error:
            raise PatternError(str(error).partition(";")[0]) from None


def _known_flags(flags: int) -> int:
    if flags & ~_FLAGS:
        raise PatternError("inline flags other than i, s, x, a, m and u are not supported")
    return flags


def _tree(items: Any, place: _Place) -> Node:
    """A list of items, one after the other."""
    if place.depth > MAX_DEPTH:
        raise PatternError(_TOO_DEEP)
    wide = [index for index in range(len(items)) if _is_wide(items[index : index + 1])]
    first, last = (wide[0], wide[-1]) if wide else (len(items), -1)
    return _sequence(
        [
            _item(op, value, place.inside(index <= first, index >= last))
            for index, (op, value) in enumerate(items.data)
        ]
    )


def _is_wide(items: Any) -> bool:
    """Whether they can match more than the empty text."""
    _, longest = items.getwidth()
    return bool(longest)


def _item(op: Any, value: Any, place: _Place) -> Node:
    if op in _UNSUPPORTED:
        raise PatternError(_UNSUPPORTED[op])
    return _READERS[op](value, place)


def _read_literal(value: int, place: _Place) -> Node:
    if value == 0:
        raise PatternError("NUL characters are not supported")
    return _read_class([(code.LITERAL, value)], place)


def _read_class(items: list[tuple[Any, Any]], place: _Place) -> Node:
    flags = place.flags & (re.IGNORECASE | re.ASCII)
    if flags & re.IGNORECASE:
        place.budget.spend(_count_cased(_named_members(items)))
    chars = _class(tuple(items), flags)
    place.budget.spend(len(chars.ranges))
    return chars


def _read_dot(place: _Place) -> Node:
    if place.flags & re.DOTALL:
        return Chars(_TEXT)
    return _read_class([(code.NEGATE, None), (code.LITERAL, ord("\n"))], place)


def _read_group(value: tuple[Any, int, int, Any], place: _Place) -> Node:
    _, add, remove, items = value
    return _tree(items, place.with_flags(add, remove))


def _read_repeat(value: tuple[int, int, Any], place: _Place) -> Node:
    low, high, items = value
    # Of more than one round, one is not the first and one not the last.
    once = high <= 1 or not _is_wide(items)
    node = _tree(items, place.inside(once, once))
    return _repeat(node, int(low), None if high == code.MAXREPEAT else int(high))


def _read_anchor(value: Any, place: _Place) -> Node:
    name = _ANCHORS[value]
    if (value in _STARTS and place.at_start) or (value in _ENDS and place.at_end):
        return EMPTY
    if value in _STARTS:
        raise PatternError(f"the anchor {name} is supported at the start of the pattern only")
    if value in _ENDS:
        raise PatternError(f"the anchor {name} is supported at the end of the pattern only")
    raise PatternError(f"word boundaries ({name}) are not supported")


_READERS: dict[Any, Callable[[Any, _Place], Node]] = {
    code.LITERAL: _read_literal,
    code.NOT_LITERAL: lambda value, place: _read_class(
        [(code.NEGATE, None), (code.LITERAL, value)], place
    ),
    code.IN: _read_class,
    code.ANY: lambda _, place: _read_dot(place),
    code.BRANCH: lambda value, place: _choice([_tree(option, place) for option in value[1]]),
    code.SUBPATTERN: _read_group,
    code.MAX_REPEAT: _read_repeat,
    # Lazy or greedy, the language is the same.
    code.MIN_REPEAT: _read_repeat,
    code.AT: _read_anchor,
}


def _bounded(node: Node) -> Node:
    """The node, if the libraries can take it."""
    level = [node]
    for _ in range(MAX_DEPTH):
        level = [inner for outer in level for inner in _inside(outer)]
        if not level:
            break
    else:
        raise PatternError(_TOO_DEEP)
    if positions(node) > MAX_POSITIONS:
        raise PatternError(f"its repeats add up to more than {MAX_POSITIONS} characters")
    return node


def _inside(node: Node) -> "tuple[Node, ...]":
    match node:
        case Chars():
            return ()
        case Sequence(inner) | Choice(inner):
            return inner
        case Repeat(inner, _, _):
            return (inner,)


# Nodes in a normal form, which spares the libraries what they are bad at.


def _sequence(parts: Iterable[Node]) -> Node:
    flat: list[Node] = []
    for part in parts:
        flat.extend(part.parts if isinstance(part, Sequence) else (part,))
    return flat[0] if len(flat) == 1 else Sequence(tuple(flat))


def _choice(options: Iterable[Node]) -> Node:
    flat: list[Node] = []
    for option in options:
        flat.extend(option.options if isinstance(option, Choice) else (option,))
    wide = [option for option in flat if option != EMPTY]
    if len(wide) < len(flat):
        return _repeat(_choice(wide), 0, 1) if wide else EMPTY
    sets = [option.ranges for option in wide if isinstance(option, Chars)]
    if len(sets) > 1:
        wide = [option for option in wide if not isinstance(option, Chars)]
        wide.append(Chars(_union(*sets)))
    return wide[0] if len(wide) == 1 else Choice(tuple(wide))


def _repeat(node: Node, low: int, high: int | None) -> Node:
    if high == 0 or node == EMPTY:
        return EMPTY
    if matches_empty(node):
        low = 0
    if isinstance(node, Repeat) and node.low <= 1:
        # The counts that add up leave no gap: (a+){2,3} is a{2,}, but (aa){2,3} is not a{4,6}.
        low, high, node = low * node.low, _times(high, node.high), node.node
    if high == 1 and (low == 1 or matches_empty(node)):
        return node
    return Repeat(node, low, high)


def _times(one: int | None, other: int | None) -> int | None:
    return None if one is None or other is None else one * other


# Sets of characters.


def _union(*sets: Ranges) -> Ranges:
    merged: list[tuple[int, int]] = []
    for low, high in sorted(chain(*sets)):
        if merged and low <= merged[-1][1] + 1:
            merged[-1] = merged[-1][0], max(merged[-1][1], high)
        else:
            merged.append((low, high))
    return tuple(merged)


def _complement(ranges: Ranges) -> Ranges:
    """All other code points, surrogates and NUL too."""
    edges = [(-1, -1), *ranges, (0x110000, 0x110000)]
    return tuple(
        (before + 1, after - 1) for (_, before), (after, _) in pairwise(edges) if after > before + 1
    )


def _intersection(one: Ranges, other: Ranges) -> Ranges:
    return _complement(_union(_complement(one), _complement(other)))


_SURROGATES = (0xD800, 0xDFFF)
_TEXT = _complement(((0, 0), _SURROGATES))

_ASCII_CLASSES: dict[Any, Ranges] = {
    "d": ((0x30, 0x39),),
    "s": ((0x09, 0x0D), (0x20, 0x20)),
    "w": ((0x30, 0x39), (0x41, 0x5A), (0x5F, 0x5F), (0x61, 0x7A)),
}

_CATEGORIES = {
    code.CATEGORY_DIGIT: ("d", False),
    code.CATEGORY_NOT_DIGIT: ("d", True),
    code.CATEGORY_SPACE: ("s", False),
    code.CATEGORY_NOT_SPACE: ("s", True),
    code.CATEGORY_WORD: ("w", False),
    code.CATEGORY_NOT_WORD: ("w", True),
}


@lru_cache(64)
def _class(items: tuple[tuple[Any, Any], ...], flags: int) -> Chars:
    """The characters of text that a set in brackets holds under both readings."""
    categories = frozenset(value for op, value in items if op is code.CATEGORY)
    members = _union(_named_members(items))
    ignore_case = flags & re.IGNORECASE
    if items[0][0] is code.NEGATE:
        members = _folded(members) if ignore_case else members
        held = _complement(_union(members, _in_either_reading(categories)))
    else:
        members = _paired(members, bool(flags & re.ASCII)) if ignore_case else members
        held = _union(members, _in_both_readings(categories))
    ranges = _intersection(held, _TEXT)
    if not ranges:
        raise PatternError("a character class matches no character, or none but NUL and surrogates")
    return Chars(ranges)


def _named_members(items: Iterable[tuple[Any, Any]]) -> Ranges:
    """What a set names one by one, as it stands there."""
    literals = ((value, value) for op, value in items if op is code.LITERAL)
    return (*literals, *(value for op, value in items if op is code.RANGE))


# What \d, \w and the like stand for together.


@lru_cache(64)
def _in_both_readings(categories: frozenset[Any]) -> Ranges:
    return _intersection(
        _categories(categories, _ASCII_CLASSES), _categories(categories, _unicode_classes())
    )


@lru_cache(64)
def _in_either_reading(categories: frozenset[Any]) -> Ranges:
    return _union(
        _categories(categories, _ASCII_CLASSES), _categories(categories, _unicode_classes())
    )


def _categories(categories: frozenset[Any], classes: dict[Any, Ranges]) -> Ranges:
    return _union(*(_category(value, classes) for value in categories))


def _category(value: Any, classes: dict[Any, Ranges]) -> Ranges:
    name, negated = _CATEGORIES[value]
    return _complement(classes[name]) if negated else classes[name]


@cache
def _unicode_classes() -> dict[Any, Ranges]:
    """What Python reads a class as, from Python itself."""
    every = "".join(map(chr, range(0x110000)))
    return {
        name: tuple((run.start(), run.end() - 1) for run in re.finditer(rf"\{name}+", every))
        for name in _ASCII_CLASSES
    }


# Upper and lower case.


@cache
def _cased() -> list[int]:
    """The characters with another case, in order. Scripts that have cases are in planes 0 and 1."""
    letters = map(chr, range(0x20000))
    return [ord(c) for c in letters if c.lower() != c or c.upper() != c]


def _cased_in(ranges: Ranges) -> Iterator[int]:
    cased = _cased()
    for low, high in ranges:
        yield from cased[bisect_left(cased, low) : bisect_right(cased, high)]


def _count_cased(ranges: Ranges) -> int:
    cased = _cased()
    return sum(bisect_right(cased, high) - bisect_left(cased, low) for low, high in ranges)


@cache
def _pairs() -> dict[int, int]:
    """The other case of the characters that have exactly one, which leads back."""
    pairs: dict[int, int] = {}
    for upper in _cased():
        lower = chr(upper).lower()
        if len(lower) == 1 and ord(lower) != upper and lower.upper() == chr(upper):
            pairs[upper], pairs[ord(lower)] = ord(lower), upper
    return pairs


def _paired(ranges: Ranges, ascii_only: bool) -> Ranges:
    """With the other case of each letter: less than Python matches, never more.

    What Python takes beside them (the sign of Kelvin for k) other readers of (?i) may not.
    """
    pairs = _pairs()
    others = [pairs[char] for char in _cased_in(ranges) if char in pairs]
    return _union(ranges, tuple((char, char) for char in others if not ascii_only or char < 0x80))


def _fold_key(char: int) -> str:
    """The same for all characters that re.IGNORECASE may take for one another."""
    return chr(char).lower()[0].upper()


@cache
def _folds() -> dict[str, tuple[int, ...]]:
    by_key = groupby(sorted(_cased(), key=_fold_key), _fold_key)
    return {key: tuple(chars) for key, chars in by_key}


def _folded(ranges: Ranges) -> Ranges:
    """With all that Python may take for one of them: for a set of what is left out."""
    folds = _folds()
    alike = chain.from_iterable(folds[_fold_key(char)] for char in _cased_in(ranges))
    return _union(ranges, tuple((char, char) for char in alike))


# Choices.


@lru_cache(4096)
def _char(char: str) -> Node:
    point = ord(char)
    if not _intersection(((point, point),), _TEXT):
        raise PatternError("texts with NUL characters or surrogates are not supported")
    return Chars(((point, point),))


def _literal(text: str) -> Node:
    return _sequence(map(_char, text))


def _trie(texts: list[str], start: int, depth: int) -> Node:
    """The rests behind `start` of sorted texts, which are the same up to there."""
    if depth == _TRIE_DEPTH:
        return _choice([_literal(text[start:]) for text in texts])
    # In a sorted list, what the first and the last have in common, all have.
    both = zip(texts[0][start:], texts[-1][start:], strict=False)
    fork = start + sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], both))
    prefix = _literal(texts[0][start:fork])
    if len(texts) == 1:
        return prefix
    branches = groupby(texts, lambda text: text[fork : fork + 1])
    options = [_trie(list(group), fork, depth + 1) if char else EMPTY for char, group in branches]
    return _sequence([prefix, _choice(options)])


# Writing.


@dataclass(frozen=True, slots=True)
class _Dialect:
    chars: Callable[[Chars], str]
    join: Callable[[list[str]], str]
    bar: str
    group: str
    empty: str


def to_rust(node: Node) -> str:
    """For Rust's regex-syntax (llguidance, outlines_core), unanchored; ASCII."""
    return _write(node, _RUST)


def to_lark(node: Node) -> str:
    """What stands between the slashes of a Lark grammar, for llguidance and xgrammar alike."""
    return _write(_written_out(node), _LARK)


def to_python(node: Node) -> str:
    """For re.fullmatch and interegular.

    interegular knows no \\u, so characters beyond U+00FF stand as they are. A surrogate, which no
    text has, may match.
    """
    return _write(node, _PYTHON)


def to_ebnf(node: Node) -> str:
    """A grammar for xgrammar; ASCII."""
    return f"root ::= {_write(_written_out(node), _EBNF)}\n"


# Copies of a group that are written out, and characters of all together.
_MOST_COPIES = 128
_MOST_OPTIONAL = 16  # each is a group inside the one before it
_MOST_WRITTEN = 20_000


def _written_out(node: Node) -> Node:
    """Counted groups as so many groups: a mask costs xgrammar 7 ms with 80 counted ones, and a
    hundredth of one when they are written out."""
    return _copied(node) if positions(node) <= _MOST_WRITTEN else node


def _copied(node: Node) -> Node:
    match node:
        case Sequence(parts):
            return _flat(map(_copied, parts))
        case Choice(options):
            return Choice(tuple(map(_copied, options)))
        case Repeat(inner, low, high) if not isinstance(inner, Chars):
            return _copies(_copied(inner), low, high)
    return node


def _copies(inner: Node, low: int, high: int | None) -> Node:
    more = 0 if high is None else high - low
    few = low <= _MOST_COPIES and more <= _MOST_OPTIONAL
    if not few or (low <= 1 and (high is None or high <= 1)):
        return Repeat(inner, low, high)
    rest: Node = Repeat(inner, 0, None) if high is None else EMPTY
    for _ in range(more):
        rest = Repeat(_flat((inner, rest)), 0, 1)
    return _flat((*[inner] * low, rest))


def _flat(parts: Iterable[Node]) -> Sequence:
    """A sequence, those inside it taken apart."""
    nested = (part.parts if isinstance(part, Sequence) else (part,) for part in parts)
    return Sequence(tuple(chain.from_iterable(nested)))


def _write(node: Node, dialect: _Dialect) -> str:
    match node:
        case Chars():
            return dialect.chars(node)
        case Sequence(parts):
            written = [_grouped(part, dialect, (Choice,)) for part in parts]
            return dialect.join(written) or dialect.empty
        case Choice(options):
            return dialect.bar.join([_write(option, dialect) for option in options])
        case Repeat(inner, low, high):
            atom = _grouped(inner, dialect, (Sequence, Choice, Repeat))
            return atom + _count(low, high)


def _grouped(node: Node, dialect: _Dialect, kinds: tuple[type[Node], ...]) -> str:
    text = _write(node, dialect)
    return dialect.group.format(text) if isinstance(node, kinds) else text


_SHORT_COUNTS = {(0, None): "*", (1, None): "+", (0, 1): "?"}


def _count(low: int, high: int | None) -> str:
    if (low, high) in _SHORT_COUNTS:
        return _SHORT_COUNTS[low, high]
    if low == high:
        return f"{{{low}}}"
    return f"{{{low},{'' if high is None else high}}}"


def _escaped(point: int, escape: Callable[[int], str]) -> str:
    """The character itself where no dialect sees more in it."""
    char = chr(point)
    return char if char.isascii() and char.isalnum() else escape(point)


def _bracketed(ranges: Ranges, escape: Callable[[int], str], negation: str = "") -> str:
    inner = ["-".join(_escaped(point, escape) for point in dict.fromkeys(pair)) for pair in ranges]
    return f"[{negation}{''.join(inner)}]"


def _single(ranges: Ranges) -> int | None:
    """The only character of a set, if it is one."""
    return ranges[0][0] if len(ranges) == 1 and ranges[0][0] == ranges[0][1] else None


def _rust_escape(point: int) -> str:
    return f"\\x{{{point:x}}}"


def _rust_chars(chars: Chars) -> str:
    point = _single(chars.ranges)
    if point is not None:
        return _escaped(point, _rust_escape)
    return _bracketed(chars.ranges, _rust_escape)


def _lark_chars(chars: Chars) -> str:
    point = _single(chars.ranges)
    if point is not None:
        return _escaped(point, _ebnf_escape)
    return _bracketed(chars.ranges, _ebnf_escape)


def _python_escape(point: int) -> str:
    return f"\\x{point:02x}" if point < 0x100 else chr(point)


def _python_chars(chars: Chars) -> str:
    point = _single(chars.ranges)
    if point is not None:
        return _escaped(point, _python_escape)
    if sum(high - low + 1 for low, high in chars.ranges) < 0x80000:
        return _bracketed(chars.ranges, _python_escape)
    # interegular makes a list of what stands here: name the smaller half.
    others = _complement(_union(chars.ranges, (_SURROGATES,)))
    return _bracketed(others, _python_escape, "^")


def _ebnf_escape(point: int) -> str:
    # All digits are written: xgrammar reads as many behind \x as there are.
    return f"\\u{point:04x}" if point < 0x10000 else f"\\U{point:08x}"


def _ebnf_chars(chars: Chars) -> str:
    point = _single(chars.ranges)
    if point is not None:
        return f'"{_escaped(point, _ebnf_escape)}"'
    return _bracketed(chars.ranges, _ebnf_escape)


def _ebnf_join(parts: list[str]) -> str:
    """Literals in a row become one; what is repeated or in brackets does not end with a quote."""
    runs = groupby(parts, lambda part: part.endswith('"'))
    return " ".join(
        f'"{"".join(part[1:-1] for part in run)}"' if literal else " ".join(run)
        for literal, run in runs
    )


_RUST = _Dialect(_rust_chars, "".join, "|", "(?:{})", "(?:)")
_LARK = _Dialect(_lark_chars, "".join, "|", "(?:{})", "(?:)")
_PYTHON = _Dialect(_python_chars, "".join, "|", "(?:{})", "(?:)")
_EBNF = _Dialect(_ebnf_chars, _ebnf_join, " | ", "({})", '""')


# Blanks.

_JSON_BLANKS = " \t\n\r"


def _blank_ranges(ranges: Ranges) -> Ranges:
    other = _intersection(ranges, _complement(_unicode_classes()["s"]))
    if other:
        raise PatternError(f"it must match blanks only: it can match {_named(other[0][0])}")
    kept = _intersection(ranges, _union(*(((ord(char), ord(char)),) for char in _JSON_BLANKS)))
    if not kept:
        raise PatternError(
            f"it must match JSON's blanks (space, tab, \\n, \\r): {_named(ranges[0][0])} is none"
        )
    return kept


def _named(point: int) -> str:
    return f"U+{point:04X} ({chr(point)!a})"


def blank_runs(node: Node, max_states: int = 4096) -> tuple[list[list[int]], list[bool]]:
    """The runs of blanks that match: a complete automaton, and which of its states accept.

    A row has the next state for a space, a tab, \\n and \\r; -1 is the dead state. State 0 is the
    empty run: nothing leads back to it.

    Raises:
        PatternError: as `blanks` does, or there are more states than max_states.
    """
    node = blanks(node)
    if positions(node) > max_states:
        raise PatternError(f"its repeats add up to more than {max_states} characters")
    automaton = _Automaton()
    ends = automaton.add(node)
    return automaton.determined(ends, max_states)


@dataclass(frozen=True, slots=True)
class _Ends:
    """A part of Glushkov's automaton: sets of positions are the bits of a number."""

    empty: bool
    first: int
    last: int


@dataclass(slots=True)
class _Automaton:
    """Glushkov's: a position for each class, and which positions can follow it."""

    follow: list[int] = field(default_factory=list)
    holding: list[int] = field(default_factory=lambda: [0] * len(_JSON_BLANKS))
    """The positions whose class holds a blank."""

    def add(self, node: Node) -> _Ends:
        match node:
            case Chars(ranges):
                return self._position(ranges)
            case Sequence(parts):
                return self._chain(parts)
            case Choice(options):
                every = [self.add(option) for option in options]
                return _Ends(
                    any(ends.empty for ends in every),
                    _bits_of(ends.first for ends in every),
                    _bits_of(ends.last for ends in every),
                )
            case Repeat(inner, low, high):
                return self._rounds(inner, low, high)

    def _position(self, ranges: Ranges) -> _Ends:
        bit = 1 << len(self.follow)
        self.follow.append(0)
        for index, blank in enumerate(_JSON_BLANKS):
            if any(low <= ord(blank) <= high for low, high in ranges):
                self.holding[index] |= bit
        return _Ends(False, bit, bit)

    def _chain(self, parts: Iterable[Node]) -> _Ends:
        whole = _Ends(True, 0, 0)
        for part in parts:
            ends = self.add(part)
            self._link(whole.last, ends.first)
            whole = _Ends(
                whole.empty and ends.empty,
                whole.first | ends.first if whole.empty else whole.first,
                whole.last | ends.last if ends.empty else ends.last,
            )
        return whole

    def _rounds(self, node: Node, low: int, high: int | None) -> _Ends:
        """Each round leads to the next: optional ones are inside one another, not in a row."""
        rounds = [self.add(node) for _ in range(max(low, 1) if high is None else high)]
        for one, following in pairwise(rounds):
            self._link(one.last, following.first)
        if high is None:
            self._link(rounds[-1].last, rounds[-1].first)
        empty = low == 0 or rounds[0].empty
        last = _bits_of(ends.last for ends in (rounds if empty else rounds[low - 1 :]))
        return _Ends(empty, rounds[0].first, last)

    def _link(self, last: int, first: int) -> None:
        for position in _positions_of(last):
            self.follow[position] |= first

    def determined(self, ends: _Ends, max_states: int) -> tuple[list[list[int]], list[bool]]:
        """States are the positions that can come next, and whether the text may end."""
        states = [(ends.first, ends.empty)]
        # Without the first one, which stands for the empty run alone.
        known: dict[tuple[int, bool], int] = {}
        table: list[list[int]] = []
        steps = 0
        for coming, _ in states:
            row = [-1] * len(_JSON_BLANKS)
            for index, holding in enumerate(self.holding):
                if reached := coming & holding:
                    steps += reached.bit_count()
                    state = self._after(reached, ends)
                    row[index] = known.setdefault(state, len(states))
                    if row[index] == len(states):
                        states.append(state)
            table.append(row)
            if len(states) > max_states or steps > _MAX_STEPS:
                raise PatternError(f"its automaton has more than {max_states} states")
        return table, [accepts for _, accepts in states]

    def _after(self, reached: int, ends: _Ends) -> tuple[int, bool]:
        coming = _bits_of(self.follow[position] for position in _positions_of(reached))
        return coming, bool(reached & ends.last)


def _bits_of(sets: Iterable[int]) -> int:
    union = 0
    for positions_ in sets:
        union |= positions_
    return union


def _positions_of(bits: int) -> Iterator[int]:
    while bits:
        lowest = bits & -bits
        yield lowest.bit_length() - 1
        bits ^= lowest
