"""An automaton accepts the texts that its pattern matches."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adapter.languages.budget import Budget, BudgetExceededError
from adapter.languages.characters import only
from adapter.languages.regex.automaton import Alphabet, Automaton, States
from adapter.languages.regex.parse import parse
from adapter.languages.regex.tree import Chars, Node, classes
from tests.languages.conftest import COUNTED, Share
from tests.languages.regex.patterns import PATTERNS, TEXTS, matches, meaning, near


def accepts(node: Node, texts: list[str]) -> list[bool]:
    """Whether each text leads from an automaton's first state to its last."""
    letters = {char: Chars(only(char)) for char in "".join(texts)}
    alphabet = Alphabet([*classes(node), *letters.values()])
    automaton = Automaton(alphabet, Budget(100_000))
    start, end = automaton.add(node)
    found = []
    for text in texts:
        states = automaton.closure([start])
        for char in text:
            states = automaton.after(states, alphabet.bits(letters[char]))
        found.append(end in states)
    return found


@settings(deadline=None, max_examples=80, suppress_health_check=COUNTED)
@given(pattern=PATTERNS, texts=st.lists(TEXTS, max_size=6), seed=st.integers())
def test_what_matches_is_accepted(share: Share, pattern: str, texts: list[str], seed: int) -> None:
    """As Python's own matcher has it, of patterns of all sorts."""
    node = meaning(pattern)
    share.count(node)
    if node is not None:
        texts = [text for text in [*texts, *near(node, seed)] if "\0" not in text]
        assert accepts(node, texts) == [matches(node, text) for text in texts]


@pytest.mark.parametrize("pattern", ["a+b*", "(a*b)*a", "(a|b)*abb", "[ab]{2,3}", "(ab?){2,}|"])
def test_leads_finds_all_sets_of_states(pattern: str) -> None:
    """The sets of states that some character leads to are those that each letter leads to."""
    node = parse(pattern)
    letters = [Chars(only(char)) for char in "ab"]
    alphabet = Alphabet([*classes(node), *letters])
    automaton = Automaton(alphabet, Budget(10_000))
    start, _ = automaton.add(node)
    seen: set[States] = set()
    pending = [automaton.closure([start])]
    while pending:
        states = pending.pop()
        one_by_one = {automaton.after(states, alphabet.bits(letter)) for letter in letters}
        at_once = {automaton.closure(targets) for targets in automaton.leads(states)}
        assert at_once == one_by_one - {frozenset()}
        pending += at_once - seen
        seen |= at_once
    assert len(seen) > 1


def test_expressions_share_no_state() -> None:
    """Of several expressions in one automaton, each has states of its own."""
    nodes = [parse("a*b"), parse("a"), parse("")]
    automaton = Automaton(Alphabet(each for node in nodes for each in classes(node)), Budget(100))
    reached = []
    for node in nodes:
        first = len(automaton)
        start, end = automaton.add(node)
        reached.append(automaton.closure([start]))
        assert first <= min(start, end)
        assert min(reached[-1]) >= first
    assert not reached[0] & reached[1]


@pytest.mark.parametrize("pattern", ["a{500}", "(a{20}){20}", "(ab|b){0,200}"])
def test_the_number_of_states_is_bounded(pattern: str) -> None:
    """An expression with more states than the budget has is not made."""
    node = parse(pattern)
    with pytest.raises(BudgetExceededError):
        Automaton(Alphabet(classes(node)), Budget(300)).add(node)
