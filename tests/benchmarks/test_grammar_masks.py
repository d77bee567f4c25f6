"""benchmarks/grammar_masks.py: its texts are of its grammars, and the two forms differ."""

import re

import pytest

from adapter.languages.grammar.write import as_lark
from benchmarks.grammar_masks import CASES
from tests.languages.grammar.judges import guidance_takes


@pytest.mark.parametrize("name", CASES)
def test_both_forms_take_the_text(name: str) -> None:
    """With terminals and without, the text is walked to its end."""
    grammar, text = CASES[name]
    for with_lexemes in (True, False):
        lark = as_lark(grammar, with_lexemes=with_lexemes)
        assert bool(re.search("^R_", lark, re.MULTILINE)) == with_lexemes
        assert guidance_takes(lark)(text)
