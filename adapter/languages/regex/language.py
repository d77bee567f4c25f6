"""Questions about the texts of a tree: are there any, which, how many, is this one of them."""

from collections.abc import Iterator

from adapter.languages.budget import Budget
from adapter.languages.characters import Ranges
from adapter.languages.regex import derivatives
from adapter.languages.regex.tree import NOTHING, Node, Not, children, is_plain

DEFAULT_WORK = 200_000
"""Terms and moves of a question that says nothing else: about a second."""


class Language:
    """The texts that a tree matches; what one question finds out, the next one knows.

    All methods raise BudgetExceededError where the budget is spent.
    """

    def __init__(self, node: Node, budget: Budget | None = None) -> None:
        """budget: of terms and moves, of all questions together."""
        self._node = node
        self._terms = derivatives.Terms([node], budget or Budget(DEFAULT_WORK))
        self._start = self._terms.read(node)
        self._live: set[int] = set()
        self._dead: set[int] = {derivatives.NOTHING}

    def is_empty(self) -> bool:
        """Whether no text matches."""
        return not self._is_live(self._start)

    def is_finite(self) -> bool:
        """Whether there is a longest text, or none at all."""
        if _is_bounded(self._node):
            return True
        return not self._is_live(self._start) or not self._has_circle(self._start)

    def matches(self, text: str) -> bool:
        """Whether a text is one of them."""
        return self._terms.accepts(self._behind(text))

    def begins(self, text: str) -> bool:
        """Whether one of them begins so."""
        return self._is_live(self._behind(text))

    def shortest(self) -> str | None:
        """The first in order of length, then of code points; None where there are none."""
        if not self._is_live(self._start):
            return None
        known = {self._start}
        layer = [("", self._start)]
        while True:
            for text, term in layer:
                if self._terms.accepts(term):
                    return text
            layer = list(self._first_reached(layer, known))

    def words(self, most: int) -> list[str] | None:
        """All of them, by length and then by code points; None where there are more than most."""
        found: list[str] = []
        layer = [("", self._start)] if self._is_live(self._start) else []
        while layer:
            found += sorted(text for text, term in layer if self._terms.accepts(term))
            # Each beginning leads to another text.
            longer = sum(
                sum(high - low + 1 for low, high in ranges)
                for _, term in layer
                for ranges, _ in self._live_moves(term)
            )
            if len(found) + longer > most:
                return None
            layer = [
                (text + chr(point), target)
                for text, term in layer
                for ranges, target in self._live_moves(term)
                for low, high in ranges
                for point in range(low, high + 1)
            ]
        return found

    def _behind(self, text: str) -> int:
        term = self._start
        for char in text:
            bit = self._terms.alphabet.bit(char)
            targets = (target for bits, target in self._terms.moves(term) if bits & bit)
            term = next(targets, derivatives.NOTHING)
        return term

    def _live_moves(self, term: int) -> Iterator[tuple[Ranges, int]]:
        for bits, target in self._terms.moves(term):
            if self._is_live(target):
                yield self._terms.alphabet.ranges(bits), target

    def _first_reached(
        self, layer: list[tuple[str, int]], known: set[int]
    ) -> Iterator[tuple[str, int]]:
        """Terms not known before, each with the first text that leads to it."""
        for text, term in layer:
            moves = sorted((ranges[0][0], target) for ranges, target in self._live_moves(term))
            for point, target in moves:
                if target not in known:
                    known.add(target)
                    yield text + chr(point), target

    def _is_live(self, term: int) -> bool:
        """Whether some text leads on from a term to its end."""
        if term in self._live or term in self._dead:
            return term in self._live
        before = {term: term}  # from which each was come to
        pending = [term]
        while pending:
            at = pending.pop()
            if self._terms.accepts(at) or at in self._live:
                self._mark(at, before)
                return True
            for _, target in self._terms.moves(at):
                if target not in before and target not in self._dead:
                    before[target] = at
                    pending.append(target)
        self._dead |= before.keys()
        return False

    def _mark(self, term: int, before: dict[int, int]) -> None:
        self._live.add(term)
        while before[term] != term:
            term = before[term]
            self._live.add(term)

    def _has_circle(self, start: int) -> bool:
        """Whether a live term leads back to itself."""
        path, done = {start}, set[int]()
        pending = [(start, self._live_targets(start))]
        while pending:
            term, targets = pending[-1]
            target = next(targets, None)
            if target is None:
                path.discard(term)
                done.add(term)
                pending.pop()
            elif target in path:
                return True
            elif target not in done:
                path.add(target)
                pending.append((target, self._live_targets(target)))
        return False

    def _live_targets(self, term: int) -> Iterator[int]:
        return (target for _, target in self._terms.moves(term) if self._is_live(target))


def is_empty(node: Node, budget: Budget | None = None) -> bool:
    """Whether no text matches.

    Raises:
        BudgetExceededError: it takes more than the budget to find out, or than DEFAULT_WORK.
    """
    return node == NOTHING or (not is_plain(node) and Language(node, budget).is_empty())


def is_finite(node: Node, budget: Budget | None = None) -> bool:
    """Whether there is a longest text, or none at all.

    Raises:
        BudgetExceededError: as `is_empty`.
    """
    return _is_bounded(node) or Language(node, budget).is_finite()


def shortest(node: Node, budget: Budget | None = None) -> str | None:
    """The first text in order of length, then of code points; None where there are none.

    Raises:
        BudgetExceededError: as `is_empty`.
    """
    return Language(node, budget).shortest()


def words(node: Node, most: int, budget: Budget | None = None) -> list[str] | None:
    """All texts, by length and then by code points; None where there are more than most.

    Raises:
        BudgetExceededError: as `is_empty`.
    """
    return Language(node, budget).words(most)


def matches(node: Node, text: str, budget: Budget | None = None) -> bool:
    """Whether a text matches.

    Raises:
        BudgetExceededError: as `is_empty`.
    """
    return Language(node, budget).matches(text)


def _is_bounded(node: Node) -> bool:
    """Whether a tree shows that there is a longest text."""
    if isinstance(node, Not) or getattr(node, "high", 0) is None:
        return node == NOTHING
    return all(map(_is_bounded, children(node)))
