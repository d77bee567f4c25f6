"""The FIRST and FOLLOW sets of a grammar over terminals, as bits of numbers."""

from collections import defaultdict
from collections.abc import Mapping, Sequence

from adapter.languages.budget import Budget
from adapter.languages.grammar.rules import Element, Rule


class FirstFollow:
    """What each rule and terminal may begin with, and what may come behind it."""

    def __init__(
        self,
        grammar: Sequence[Rule],
        terminals: Mapping[str, int],
        empty: set[str],
        budget: Budget,
    ) -> None:
        """terminals: the number of each; empty: those that match the empty text.

        Raises:
            BudgetExceededError: the grammar has more parts, looked at again and again, than are
                left.
        """
        self._grammar, self._budget = grammar, budget
        self._empty = set(empty)
        self.first: defaultdict[str, int] = defaultdict(int)
        self.follow: defaultdict[str, int] = defaultdict(int)
        self.first.update({name: 1 << number for name, number in terminals.items()})
        while self._grow_first():
            pass
        while self._grow_follow():
            pass

    def _grow_first(self) -> bool:
        """One more round of what each rule may begin with; whether anything was new."""
        before = _size(self.first), len(self._empty)
        for rule in self._grammar:
            for parts in rule.alternatives:
                self._budget.spend(len(parts) + 1)
                self._begin(rule.name, parts)
        return before != (_size(self.first), len(self._empty))

    def _begin(self, name: str, parts: list[Element]) -> None:
        for part in parts:
            self.first[name] |= self.first[part.text]
            if not self._may_be_empty(part):
                return
        self._empty.add(name)

    def _grow_follow(self) -> bool:
        """One more round of what may come after each part; whether anything was new."""
        before = _size(self.follow)
        for rule in self._grammar:
            for parts in rule.alternatives:
                self._budget.spend(len(parts) + 1)
                self._continue(self.follow[rule.name], parts)
        return before != _size(self.follow)

    def _continue(self, after: int, parts: list[Element]) -> None:
        for part in reversed(parts):
            first = self.first[part.text]
            self.follow[part.text] |= after | (first if part.high != 1 else 0)
            after = first | (after if self._may_be_empty(part) else 0)

    def _may_be_empty(self, part: Element) -> bool:
        return part.low == 0 or part.text in self._empty


def _size(sets: Mapping[str, int]) -> int:
    return sum(map(int.bit_count, sets.values()))
