"""The texts of a tree, character by character, by Brzozowski's derivatives.

A state is a term: what may still follow. Terms are numbers, and equal ones are the same number. A
counted repeat is one term a count, made when it is come to: nothing is written out before. A move
takes a set of characters, as bits of an alphabet, from one term to another.
"""

from collections.abc import Iterable
from itertools import chain
from math import inf
from typing import Any, TypeAlias

from adapter.languages.budget import Budget
from adapter.languages.characters import TEXT
from adapter.languages.regex.automaton import Alphabet
from adapter.languages.regex.tree import (
    All,
    Chars,
    Choice,
    Node,
    Not,
    Repeat,
    Sequence,
    classes,
)

Moves: TypeAlias = tuple[tuple[int, int], ...]
"""Characters, as bits, and the term behind them; no character stands in two."""

NOTHING, EMPTY, ANY = range(3)
"""The terms of no text, the empty text and all texts."""

_CHARS, _THEN, _CHOICE, _ALL, _NOT, _REPEAT = range(6)


class Terms:
    """The terms of some trees."""

    def __init__(self, nodes: Iterable[Node], budget: Budget) -> None:
        """nodes: all that will be read; budget: of terms and moves."""
        text = Chars(TEXT)
        self.alphabet = Alphabet([text, *chain.from_iterable(map(classes, nodes))])
        self._full = self.alphabet.bits(text)
        self._budget = budget
        self._numbers: dict[tuple[Any, ...], int] = {}
        self._terms: list[tuple[Any, ...]] = []
        self._accepts: list[bool] = []
        self._lengths: list[tuple[int, float]] = []
        """For each term, lengths that its texts have at least and at most."""
        self._moves: dict[int, Moves] = {}
        any_character = (_CHARS, self._full)
        self._new((_CHOICE, frozenset()), False, (0, 0))
        self._new((_ALL, frozenset()), True, (0, 0))
        self._new((_REPEAT, 3, 0, None), True, (0, inf))
        self._new(any_character, False, (1, 1))

    def accepts(self, term: int) -> bool:
        """Whether the text may end here."""
        return self._accepts[term]

    def moves(self, term: int) -> Moves:
        """Where characters lead; those that lead to no text at all are left out.

        Raises:
            BudgetExceededError: there are more than are left.
        """
        found = self._moves.get(term)
        if found is None:
            found = self._moves[term] = self._found(term)
            self._budget.spend(1 + len(found))
        return found

    # --- terms

    def _new(self, key: tuple[Any, ...], accepts: bool, lengths: tuple[int, float]) -> int:
        number = self._numbers.get(key)
        if number is None:
            self._budget.spend()
            number = self._numbers[key] = len(self._terms)
            self._terms.append(key)
            self._accepts.append(accepts)
            self._lengths.append(lengths)
        return number

    def read(self, node: Node) -> int:
        """The term of a tree."""
        match node:
            case Chars():
                bits = self.alphabet.bits(node) & self._full
                return self._new((_CHARS, bits), False, (1, 1)) if bits else NOTHING
            case Sequence(parts):
                term = EMPTY
                for part in reversed(parts):
                    term = self._then(self.read(part), term)
                return term
            case Choice(options):
                return self.choice(map(self.read, options))
            case Repeat(inner, low, high):
                return self._repeat(self.read(inner), low, high)
            case All(parts):
                return self.every(map(self.read, parts))
            case Not(inner):
                return self._not(self.read(inner))

    def _then(self, first: int, second: int) -> int:
        if NOTHING in (first, second):
            return NOTHING
        if EMPTY in (first, second):
            return second if first == EMPTY else first
        accepts = self._accepts[first] and self._accepts[second]
        (low, high), (more_low, more_high) = self._lengths[first], self._lengths[second]
        return self._new((_THEN, first, second), accepts, (low + more_low, high + more_high))

    def choice(self, terms: Iterable[int]) -> int:
        """What one of the terms matches."""
        options = self._flat(_CHOICE, terms)
        options.discard(NOTHING)
        if EMPTY in options and any(self._accepts[each] for each in options if each != EMPTY):
            options.discard(EMPTY)
        if ANY in options or any(self._not(each) in options for each in self._nots(options)):
            return ANY
        if len(options) == 1:
            return options.pop()
        if not options:
            return NOTHING
        accepts = any(self._accepts[each] for each in options)
        lows, highs = zip(*(self._lengths[each] for each in options), strict=True)
        return self._new((_CHOICE, frozenset(options)), accepts, (min(lows), max(highs)))

    def every(self, terms: Iterable[int]) -> int:
        """What all of the terms match."""
        parts = self._flat(_ALL, terms)
        parts.discard(ANY)
        if NOTHING in parts or any(self._not(each) in parts for each in self._nots(parts)):
            return NOTHING
        accepts = all(self._accepts[each] for each in parts)
        if EMPTY in parts:
            return EMPTY if accepts else NOTHING
        if len(parts) == 1:
            return parts.pop()
        if not parts:
            return ANY
        lows, highs = zip(*(self._lengths[each] for each in parts), strict=True)
        # Else counts that never meet would be counted down together, in all ways.
        if max(lows) > min(highs):
            return NOTHING
        return self._new((_ALL, frozenset(parts)), accepts, (max(lows), min(highs)))

    def _flat(self, kind: int, terms: Iterable[int]) -> set[int]:
        flat: set[int] = set()
        for term in terms:
            key = self._terms[term]
            # The terms of no text and the empty text are written as such, of no parts.
            flat.update(key[1] if key[0] == kind and key[1] else (term,))
        return flat

    def _nots(self, terms: Iterable[int]) -> list[int]:
        return [term for term in terms if self._terms[term][0] == _NOT]

    def _not(self, term: int) -> int:
        if term in (NOTHING, ANY):
            return ANY if term == NOTHING else NOTHING
        key = self._terms[term]
        if key[0] == _NOT:
            return int(key[1])
        accepts = not self._accepts[term]
        return self._new((_NOT, term), accepts, (0 if accepts else 1, inf))

    def _repeat(self, term: int, low: int, high: int | None) -> int:
        if high == 0 or term == EMPTY:
            return EMPTY
        if term == NOTHING:
            return NOTHING if low else EMPTY
        low = 0 if self._accepts[term] else low
        if (low, high) == (1, 1):
            return term
        shortest, longest = self._lengths[term]
        lengths = (shortest * low, inf if high is None else longest * high)
        return self._new((_REPEAT, term, low, high), low == 0, lengths)

    # --- moves

    def _found(self, term: int) -> Moves:
        key = self._terms[term]
        if key[0] == _CHARS:
            return ((key[1], EMPTY),)
        if key[0] == _THEN:
            return self._joined(self._along(term))
        if key[0] == _CHOICE:
            return self._joined(list(chain.from_iterable(map(self.moves, key[1]))))
        if key[0] == _ALL:
            return self._common(key[1]) if key[1] else ()
        if key[0] == _NOT:
            return self._other(self.moves(key[1]))
        return self._round(*key[1:])

    def _along(self, term: int) -> list[tuple[int, int]]:
        """The moves of a sequence, of its first parts up to one that has to match something."""
        moves: list[tuple[int, int]] = []
        while self._terms[term][0] == _THEN:
            _, first, rest = self._terms[term]
            moves += [(bits, self._then(target, rest)) for bits, target in self.moves(first)]
            if not self._accepts[first]:
                return moves
            term = rest
        return moves + list(self.moves(term))

    def _round(self, inner: int, low: int, high: int | None) -> Moves:
        more = self._repeat(inner, max(low - 1, 0), None if high is None else high - 1)
        return _gathered((bits, self._then(to, more)) for bits, to in self.moves(inner))

    def _joined(self, moves: list[tuple[int, int]]) -> Moves:
        """Moves whose characters may stand in several, as a choice of their terms."""
        parts: dict[int, tuple[int, ...]] = {}
        covered = 0
        for bits, target in _gathered(moves):
            if covered & bits:
                self._budget.spend(len(parts))
                parts = _split(parts, bits, target)
            if rest := bits & ~covered:
                parts[rest] = (target,)
            covered |= bits
        return _gathered((bits, self.choice(targets)) for bits, targets in parts.items())

    def _common(self, terms: Iterable[int]) -> Moves:
        """What all of some terms can go on with."""
        common: list[tuple[int, tuple[int, ...]]] = [(self._full, ())]
        for term in terms:
            moves = self.moves(term)
            self._budget.spend(len(common))
            common = [
                (both, (*targets, target))
                for known, targets in common
                for bits, target in moves
                if (both := known & bits)
            ]
        return _gathered((bits, self.every(targets)) for bits, targets in common)

    def _other(self, moves: Moves) -> Moves:
        """The moves of the complement."""
        rest = self._full
        for bits, _ in moves:
            rest &= ~bits
        others = [(bits, self._not(target)) for bits, target in moves]
        return _gathered([*others, (rest, ANY)] if rest else others)


def _split(parts: dict[int, tuple[int, ...]], bits: int, target: int) -> dict[int, tuple[int, ...]]:
    """The targets by characters, one more for some characters."""
    outside = {known & ~bits: targets for known, targets in parts.items() if known & ~bits}
    inside = {known & bits: (*targets, target) for known, targets in parts.items() if known & bits}
    return outside | inside


def _gathered(moves: Iterable[tuple[int, int]]) -> Moves:
    """The moves, those to the same term as one, those to no text left out."""
    by_target: dict[int, int] = {}
    for bits, target in moves:
        if target != NOTHING:
            by_target[target] = by_target.get(target, 0) | bits
    return tuple((bits, target) for target, bits in by_target.items())
