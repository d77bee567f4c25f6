"""Who can say what a grammar's language is: Lark on what the caller wrote, both engines on what is
made of it."""

import itertools
import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from adapter.languages.grammar.write import as_ebnf, as_lark
from tests.languages.byte_tokenizer import END, ByteTokenizer

llguidance = pytest.importorskip("llguidance")
xgrammar = pytest.importorskip("xgrammar")
lark = pytest.importorskip("lark")

GUIDANCE = llguidance.LLTokenizer(llguidance.TokenizerWrapper(ByteTokenizer()))
XGRAMMAR = xgrammar.GrammarCompiler(
    xgrammar.TokenizerInfo(
        list(ByteTokenizer.tokens), xgrammar.VocabType.RAW, stop_token_ids=[END]
    ),
    max_threads=1,
)


def guidance_takes(text: str) -> Callable[[str], bool]:
    """llguidance's judgement of whole texts."""
    grammar = llguidance.LLMatcher.grammar_from_lark(text)
    fresh = llguidance.LLMatcher(GUIDANCE, grammar, log_level=0)
    assert not fresh.get_error(), f"{fresh.get_error()}\n{text}"

    def takes(word: str) -> bool:
        matcher = fresh.deep_copy()
        return bool(matcher.consume_tokens(list(word.encode())) and matcher.is_accepting())

    return takes


def xgrammar_takes(compiled: Any) -> Callable[[str], bool]:
    """xgrammar's judgement of whole texts."""

    def takes(word: str) -> bool:
        matcher = xgrammar.GrammarMatcher(compiled)
        return bool((not word or matcher.accept_string(word)) and matcher.is_completed())

    return takes


def lark_takes(text: str) -> Callable[[str], bool]:
    """Lark's own judgement of whole texts."""
    parser = lark.Lark(text, parser="earley", ambiguity="resolve")

    def takes(word: str) -> bool:
        try:
            parser.parse(word)
        except lark.exceptions.LarkError:
            return False
        return True

    return takes


def judges(text: str) -> dict[str, Callable[[str], bool]]:
    """All that can say what a grammar's language is."""
    found = {"guidance": guidance_takes(as_lark(text))}
    ebnf = as_ebnf(text)
    if ebnf is not None:
        return found | {"xgrammar": xgrammar_takes(XGRAMMAR.compile_grammar(ebnf))}
    compiled = XGRAMMAR.compile_lark(as_lark(text))
    return found | {"xgrammar": xgrammar_takes(compiled), "lark": lark_takes(text)}


WORDS = ["".join(word) for length in range(5) for word in itertools.product("ab", repeat=length)]
"""What random grammars are asked for."""


def random_grammar(dice: random.Random) -> str:
    """An EBNF grammar over a and b, which may be refused."""
    names = ["x", "y", "z"]
    return "\n".join(f"{name} ::= {_random_rule(dice, names)}" for name in ["root", *names])


def _random_rule(dice: random.Random, names: Sequence[str], depth: int = 0) -> str:
    """The body of an EBNF rule over a and b."""

    def part() -> str:
        kind = dice.random()
        if kind < 0.4:
            return f'"{"".join(dice.choices("ab", k=dice.choice([0, 1, 2, 2, 3])))}"'
        if kind < 0.55:
            return dice.choice(["[a]", "[ab]", "[^a]"])
        if kind < 0.8 or depth == 2:
            return dice.choice(names)
        return f"({_random_rule(dice, names, depth + 1)})"

    def sequence() -> str:
        times = ["", "", "", "", "*", "+", "?", "{2}", "{0,2}"]
        return " ".join(part() + dice.choice(times) for _ in range(dice.choice([1, 2, 2, 3])))

    return " | ".join(sequence() for _ in range(dice.choice([1, 2, 2])))
