"""Which rules of an EBNF grammar llguidance may match whole, as terminals.

EBNF has no terminals: as it stands, all would be matched by characters, in rules. But a mask costs
llguidance little inside a terminal, whose states its lexer knows, and much where its parser has to
be asked of each token what the rules allow. On the two grammars of `python -m
benchmarks.grammar_masks` a mask falls from 582 to 14 and from 336 to 74 microseconds where what may
be a terminal is one.

What may be one is a question because llguidance cuts a text into terminals greedily: it takes the
longest one and never reconsiders. So a rule stays a rule where that could lose a text.
"""

from collections.abc import Iterable, Iterator
from functools import reduce
from operator import or_

from adapter.languages.budget import Budget, BudgetExceededError
from adapter.languages.grammar.first_follow import FirstFollow
from adapter.languages.grammar.rules import Element, Rule, Rules, led_to, settled
from adapter.languages.regex.automaton import Alphabet, Automaton, States
from adapter.languages.regex.tree import Chars, Choice, Node, Repeat, Sequence

LEXEME_STEPS = 100_000
"""What may be spent on finding the lexemes of a grammar: a tenth of a second or two."""

MAX_LEXEME_DEPTH = 60
"""Rules inside one another in a lexeme."""


def lexemes(rules: Rules) -> set[str]:
    """The rules that llguidance may match whole, with no text lost; none where that takes too long.

    rules: with each literal a rule of its own.

    A text is lost where one lexeme is complete, what may follow it comes next, and another lexeme
    goes on with just that: llguidance then takes the longer one. Such a longer one is taken apart.
    """
    trees = _trees(rules)
    whole = set(trees)
    budget = Budget(LEXEME_STEPS)
    try:
        while "root" not in whole and (greedy := _Lexer(rules, trees, whole, budget).greedy()):
            whole -= greedy
    except BudgetExceededError:
        return set()
    return whole


def rules_beside(rules: Rules, whole: set[str]) -> list[Rule]:
    """The rules that stay rules: those that root leads to, not by way of a lexeme."""
    return led_to(rules, {"root"} - whole, whole)


def _trees(rules: Rules) -> dict[str, Node]:
    """What the rules match in which nothing recurses and little is nested; they share parts."""
    trees: dict[str, Node] = {}
    depths: dict[str, int] = {}
    for name in settled((rule.name, {p.text for p in rule.names()}) for rule in rules.values()):
        inner = [depths[part.text] for part in rules[name].names()]
        depths[name] = max(inner, default=-1) + 1
        if depths[name] <= MAX_LEXEME_DEPTH:
            trees[name] = _tree(rules[name], trees)
    return trees


# The functions that keep a tree in its normal form would take it apart where parts are shared.


def _tree(rule: Rule, known: dict[str, Node]) -> Node:
    options = [_sequence(parts, known) for parts in rule.alternatives]
    return options[0] if len(options) == 1 else Choice(tuple(options))


def _sequence(parts: list[Element], known: dict[str, Node]) -> Node:
    nodes = [_repeat(part, known) for part in parts]
    return nodes[0] if len(nodes) == 1 else Sequence(tuple(nodes))


def _repeat(part: Element, known: dict[str, Node]) -> Node:
    node = known[part.text] if part.kind == "name" else Chars(part.chars)
    return node if part.low == part.high == 1 else Repeat(node, part.low, part.high)


class _Lexer:
    """What llguidance's lexer meets, where the rules in whole are lexemes, and single characters.

    Sets of lexemes are bits, in the order in which they were found.
    """

    def __init__(
        self, rules: Rules, trees: dict[str, Node], whole: set[str], budget: Budget
    ) -> None:
        self._trees, self._whole = trees, whole
        grammar = rules_beside(rules, whole)
        parts = [part for rule in rules.values() for part in rule.parts()]
        alphabet = Alphabet(Chars(part.chars) for part in parts if part.kind == "class")
        self._automaton = Automaton(alphabet, budget)
        self._names: dict[str, int] = {}
        """The number of each lexeme."""
        self._starts: list[int] = []
        self._ends: list[int] = []
        self._owner: list[int] = []
        """The lexeme of each state."""
        for part in (part for rule in grammar for part in rule.parts()):
            self._add(part)
        numbers = self._names.items()
        empty = {name for name, number in numbers if self._ends[number] in self._begin(number)}
        sets = FirstFollow(grammar, self._names, empty, budget)
        self._root = sets.first["root"]
        self._follow = [sets.follow[name] for name in self._names]

    def greedy(self) -> set[str]:
        """The lexemes that would be taken where a shorter one should have been."""
        found = 0
        pending, seen = [self._root], set()
        while pending:
            allowed = pending.pop()
            if allowed not in seen:
                seen.add(allowed)
                for states in self._runs(allowed):
                    after = self._after(states)
                    pending.append(after)
                    found |= self._going_on(states, after)
        names = list(self._names)
        return {names[lexeme] for lexeme in _bits(found)}

    def _add(self, part: Element) -> None:
        is_rule = part.kind == "name" and part.text not in self._whole
        if part.text in self._names or is_rule:
            return
        number = self._names[part.text] = len(self._names)
        node = self._trees[part.text] if part.kind == "name" else Chars(part.chars)
        start, end = self._automaton.add(node)
        self._starts.append(start)
        self._ends.append(end)
        self._owner += [number] * (len(self._automaton) - len(self._owner))

    def _begin(self, *lexemes: int) -> States:
        return self._automaton.closure(self._starts[lexeme] for lexeme in lexemes)

    def _runs(self, allowed: int) -> Iterator[States]:
        """All sets of states that characters lead to from the start of some lexemes."""
        start = self._begin(*_bits(allowed))
        pending, seen = [start], {start}
        while pending:
            for targets in self._automaton.leads(pending.pop()):
                states = self._automaton.closure(targets)
                if states not in seen:
                    seen.add(states)
                    pending.append(states)
                    yield states

    def _after(self, states: States) -> int:
        """The lexemes that may follow those that are complete."""
        owners = {self._owner[state] for state in states}
        return _union(self._follow[owner] for owner in owners if self._ends[owner] in states)

    def _going_on(self, states: States, after: int) -> int:
        """The lexemes that go on with what may follow those that are complete."""
        following = _union(self._first_chars(lexeme) for lexeme in _bits(after))
        moves = self._automaton.moves
        return _union(
            1 << self._owner[state]
            for state in states
            if any(chars & following for chars, _ in moves[state])
        )

    def _first_chars(self, lexeme: int) -> int:
        moves = self._automaton.moves
        return _union(chars for state in self._begin(lexeme) for chars, _ in moves[state])


def _union(sets: Iterable[int]) -> int:
    return reduce(or_, sets, 0)


def _bits(number: int) -> Iterator[int]:
    """The places of the bits that are set."""
    while number:
        yield (number & -number).bit_length() - 1
        number &= number - 1
