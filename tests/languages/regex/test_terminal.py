"""A terminal of llguidance holds a tree with intersections and complements, and has no dead end."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings

from adapter.languages.characters import TEXT, only
from adapter.languages.regex import language
from adapter.languages.regex.choices import choices
from adapter.languages.regex.json_text import json_string
from adapter.languages.regex.language import Language
from adapter.languages.regex.parse import parse
from adapter.languages.regex.tree import ANY_TEXT, Chars, Node, every, negation, repeat, sequence
from adapter.languages.regex.write import to_lark_terminal
from tests.languages.byte_tokenizer import ByteTokenizer
from tests.languages.regex.trees import SHORT_TEXTS, SKETCHES, Sketch

llguidance = pytest.importorskip("llguidance")

Begin = Callable[[Node], Any]


@pytest.fixture(scope="module")
def begin() -> Begin:
    """A matcher of a tree, at its start."""
    tokenizer = llguidance.LLTokenizer(llguidance.TokenizerWrapper(ByteTokenizer()))

    def begin(node: Node) -> Any:
        grammar = f"start: T\nT: {to_lark_terminal(node)}\n"
        matcher = llguidance.LLMatcher(
            tokenizer, llguidance.LLMatcher.grammar_from_lark(grammar), log_level=0
        )
        assert not matcher.is_error(), (grammar, matcher.get_error())
        return matcher

    return begin


def check(matcher: Any, known: Language, texts: list[str]) -> None:
    """Each text goes as far as it is the beginning of a word, and may end where it is one."""
    for text in texts:
        tokens = list(text.encode())
        walker = matcher.deep_copy()
        assert (walker.try_consume_tokens(tokens) == len(tokens)) == known.begins(text), text
        if known.begins(text):
            assert walker.is_accepting() == known.matches(text), text


@settings(deadline=None, max_examples=200)
@given(sketch=SKETCHES)
def test_a_terminal_holds_a_tree(begin: Begin, sketch: Sketch) -> None:
    """What is written is what the tree means, and a beginning is allowed if a word begins so."""
    node = sketch.node()
    if not language.is_empty(node):
        check(begin(node), Language(node), [text for text in SHORT_TEXTS if len(text) < 4])


@settings(deadline=None, max_examples=100)
@given(sketch=SKETCHES)
def test_strings_are_spelled_as_json(begin: Begin, sketch: Sketch) -> None:
    """The JSON texts of a tree are json.dumps's of the strings that it matches."""
    node = json_string(sketch.node())
    known = Language(node)
    for text in SHORT_TEXTS:
        assert known.matches(json.dumps(text)) == sketch.matches(text), text
    if not known.is_empty():
        spelled = [json.dumps(text) for text in SHORT_TEXTS if len(text) < 4]
        others = [f'"{text}"' for text in SHORT_TEXTS if len(text) < 3]
        check(begin(node), known, spelled + others)


def test_a_string_has_one_spelling() -> None:
    """Every character is spelled as json.dumps does it, all but control characters."""
    known = Language(json_string(ANY_TEXT))
    for point in [*range(1, 0x100), 0x2028, 0xD7FF, 0xE000, 0xFFFF, 0x10000, 0x10FFFF]:
        char = chr(point)
        spelled = json.dumps(char, ensure_ascii=False)
        assert known.matches(spelled) == (not spelled.startswith('"\\u00')), spelled
    for other in [r'"\/"', r'"\u0061"', '"\n"', '"\\"', '"""', "a", '"', r'"\a"', '"\t"']:
        assert not known.matches(other)


def test_common_strings_are_one_regular_expression() -> None:
    """Any string, and classes with lengths, are written without operators."""
    letters = Chars(only("abc"))
    assert to_lark_terminal(json_string(repeat(letters, 2, 5))) == r"/\x{22}[a-c]{2,5}\x{22}/"
    any_string = to_lark_terminal(json_string(ANY_TEXT))
    assert any_string == (
        r"/\x{22}(?:[\x{20}-\x{21}\x{23}-\x{5b}\x{5d}-\x{d7ff}\x{e000}-\x{10ffff}]"
        r"|\x{5c}[\x{22}\x{5c}bfnrt])*\x{22}/"
    )
    bounded = to_lark_terminal(json_string(repeat(Chars(TEXT), 3, 9)))
    assert bounded == any_string.replace("*", "{3,9}")


REAL = {
    "all but two names": every([parse("[a-z]{3,8}"), negation(choices(["admin", "root"]))]),
    "password": every(
        [parse(".*[A-Z].*"), parse(r".*\d.*"), parse(".*[^0-9A-Za-z].*"), parse(".{8,64}")]
    ),
    "no double point": negation(sequence([ANY_TEXT, parse(r"\.\."), ANY_TEXT])),
    "not a number": negation(parse("-?(0|[1-9][0-9]*)")),
}
NEAR = [
    "",
    "admi",
    "admin",
    "admins",
    "roo",
    "root",
    "Pass-w0rd",
    "passw0rd",
    "a.b..c",
    "-0",
    "-",
    "é\n",
]


@pytest.mark.parametrize("node", REAL.values(), ids=REAL)
def test_what_people_ask_for(begin: Begin, node: Node) -> None:
    """Strings of the usual kinds are held, as texts and as JSON."""
    texts = [text[:length] for text in NEAR for length in range(len(text) + 1)]
    check(begin(node), Language(node), texts)
    spelled = [json.dumps(text, ensure_ascii=False) for text in texts]
    check(begin(json_string(node)), Language(json_string(node)), spelled)
