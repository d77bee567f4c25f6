"""What llguidance may match whole becomes a terminal, and nothing else.

What that is worth is measured by benchmarks/grammar_masks.py.
"""

import random
import re

import pytest

from adapter.languages.grammar import lexemes
from adapter.languages.grammar.rules import GrammarError
from adapter.languages.grammar.write import as_lark
from tests.languages.grammar.judges import WORDS, guidance_takes, random_grammar

JSON = r"""
root ::= value
value ::= object | array | string | number | "true" | "null"
object ::= "{" (member ("," member)*)? "}"
member ::= string ":" value
array ::= "[" (value ("," value)*)? "]"
string ::= "\"" ([^"\\\n] | "\\" [nt"\\])* "\""
number ::= "-"? ([0-9] | [1-9] [0-9]*) ("." [0-9]+)?
"""


def terminals(text: str) -> set[str]:
    """The rules of an EBNF grammar that are terminals in Lark, by the names that it gave them.

    A literal is a rule of its own, and named by what it says.
    """
    written = re.findall(r"^R_(.*)_\d+:", as_lark(text), re.MULTILINE)
    return {name.strip("_").lower() for name in written}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (JSON, {"string", "number", "true", "null"}),
        ('root ::= "(" root ")" | word\nword ::= letter+\nletter ::= [a-z]', {"word"}),
        # The whole is one where nothing recurses.
        ("root ::= word (sep word)*\nword ::= [a-z]+\nsep ::= [,;]", {"root", "word", "sep"}),
    ],
)
def test_regular_rules_are_terminals(text: str, expected: set[str]) -> None:
    """What does not recurse and cannot be mistaken is matched whole."""
    assert expected <= terminals(text)
    assert not re.search(r"^r_(string|number|word)", as_lark(text), re.MULTILINE)


@pytest.mark.parametrize(
    ("text", "rule", "word"),
    [
        # A name would be taken up to the end of the suffix.
        ('root ::= name "_id" | "(" root ")"\nname ::= [a-z_]+', "name", "user_id"),
        # Of "ab", the longer one, nothing is left for "b".
        ('root ::= one "b" | "(" root ")" | one\none ::= "a" "b"?', "one", "ab"),
        ('root ::= "(" root ")" | root ws "." | "x"\nws ::= [ ]+ | [ ] "."', "ws", "x .."),
    ],
)
def test_greedy_rules_stay_rules(text: str, rule: str, word: str) -> None:
    """A rule that could take what should come behind it is matched by characters."""
    assert rule not in terminals(text)
    assert guidance_takes(as_lark(text))(word)


def test_recursive_rules_are_no_terminals() -> None:
    """What holds itself, if by way of others, is no regular language."""
    assert terminals(JSON).isdisjoint({"root", "value", "object", "member", "array"})


def test_without_lexemes_there_are_no_terminals() -> None:
    """The search can be left out, and then all is matched by characters."""
    assert "R_" in as_lark(JSON)
    assert "R_" not in as_lark(JSON, with_lexemes=False)


def test_terminals_change_no_language() -> None:
    """With terminals llguidance takes what it takes by characters, in random grammars."""
    judged = with_terminals = 0
    for seed in range(100, 140):
        text = random_grammar(random.Random(seed))
        try:
            written = [as_lark(text), as_lark(text, with_lexemes=False)]
        except GrammarError:
            continue
        judged += 1
        with_terminals += written[0] != written[1]
        one, other = (list(filter(guidance_takes(lark), WORDS)) for lark in written)
        assert one == other, text
    assert judged > 20
    assert with_terminals > 10


def test_the_search_has_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """A grammar that would take too long is matched by characters, and keeps its language."""
    monkeypatch.setattr(lexemes, "LEXEME_STEPS", 10)
    assert "R_" not in as_lark(JSON)
    assert guidance_takes(as_lark(JSON))('{"a":[1,"b"]}')


def test_deep_rules_are_no_terminals() -> None:
    """Rules inside one another are matched whole up to a depth, and by characters beyond it."""

    def nested(depth: int) -> str:
        links = "".join(f'r{at} ::= "x" r{at + 1}? "y"\n' for at in range(depth))
        return f'root ::= "(" root ")" | r0\n{links}r{depth} ::= "z"'

    limit = lexemes.MAX_LEXEME_DEPTH
    assert "r0" in terminals(nested(limit - 1))
    deep = terminals(nested(limit))
    assert "r0" not in deep
    assert "r1" in deep
