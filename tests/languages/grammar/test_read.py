"""A grammar's dialect is told by its beginning, and what cannot be honoured is refused."""

import gc
import time
from contextlib import suppress

import pytest

from adapter.languages.grammar.check import MAX_CHAIN
from adapter.languages.grammar.read import Dialect, dialect
from adapter.languages.grammar.rules import GrammarError
from adapter.languages.grammar.write import as_ebnf, as_lark
from tests.languages.grammar.judges import guidance_takes


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("# note: x\n// y\n\n?start: a", Dialect.LARK),
        ('// root ::= x\nstart : "a"', Dialect.LARK),
        ("%import common.INT\nstart: INT", Dialect.LARK),
        ("!start.2: A", Dialect.LARK),
        ("TERMINAL: /::=/", Dialect.LARK),
        ("# start: x\nroot::=a", Dialect.EBNF),
        ('\ufeffroot\t::= "start: x"', Dialect.EBNF),
        ("my-rule ::= [:]", Dialect.EBNF),
    ],
)
def test_dialect(text: str, expected: Dialect) -> None:
    """The first definition or directive tells the dialect."""
    assert dialect(text) is expected


REFUSED = {
    "": "empty",
    "  # only\n// comments": "empty",
    'start: "a\0"': "NUL",
    'start: "\ud800"': "surrogate",
    'root = "a"': "neither",
    "{}": "neither",
    'root ::= "a': "line 1: a literal is not closed",
    'root ::= "a"\nx ::= "b\n"': "line 2: a literal is not closed",
    "root ::= [a": "a class is not closed",
    "start: /a": "a regular expression is not closed",
    'root ::= ("a"\nx ::= "b"': "line 1: a bracket is not closed",
    'start: ("a"\n "b")': "line 1: a bracket is not closed",
    'root ::= "a")': "closes nothing",
    "root ::= * x": "line 1: \\* is out of place",
    "root ::= 'a'": "has no meaning here",
    "start: undefined_rule": "line 1: undefined_rule is not defined",
    'start: "a"\nb: UNDEFINED': "line 2: UNDEFINED is not defined",
    'root ::= "a" |\n  nowhere': "line 2: nowhere is not defined",
    'a: "b"': "no rule start",
    'start ::= "b"': "no rule root",
    'start: "a"\nstart: "b"': "line 2: start is defined twice",
    'start: A\nA: b\nb: "c"': "the rule b cannot stand in a terminal",
    'start: A\nA: "a" B\nB: A?': "holds itself",
    'start: aB\naB: "c"': "aB is neither",
    'start: pair{"a"}\npair{x}: x x': "line 1: pair has arguments: templates",
    'start: "a"\npair{x}: x x': "line 2: pair has parameters: templates",
    "%declare FOO\nstart: FOO": "%declare is not supported",
    '%override start: "a"': "%override is not supported",
    '%extend start: "a"': "%extend is not supported",
    'start: %lark { start: "a" }': "%lark is not supported",
    "%import python.NAME\nstart: NAME": "common library only",
    "%import .own.NAME\nstart: NAME": "out of place",
    "%import common.INT.X\nstart: INT": "out of place",
    "%import common.NOTHING\nstart: NOTHING": "common.NOTHING is not in",
    'start: <|end|> "a"': "special tokens",
    "start: <[12-14]>": "special tokens",
    "root ::= !<[12]>": "special tokens",
    "start: @other": "other grammars",
    'start: %json {"type": "integer"}': "guided_json",
    "start: /a\\Z./": "anchor",
    "start: /(?=a)b/": "look-around",
    "start: %json {'a'}": "JSON that can be read",
    "start: %json []": "JSON object",
    '%llguidance {"allow_invalid_utf8": true}\nstart: "a"': "allow_invalid_utf8",
    'start: a\na[max_tokens=3]: "b"': "max_tokens",
    'start: "\\/"': r"escape \\/",
    'root ::= "\\d"': r"escape \\d",
    "root ::= [\\w]": r"escape \\w",
    "root ::= []": "no character",
    "root ::= [z-a]": "ends before it starts",
    'root ::= "a"{3,2}': "ends below its start",
    'root ::= "a"{9999999}': "more than",
    'root ::= "a"{,}': "no repetition",
    'root ::= "a" root': "root derives no finite text",
    'start: "a" start "b"': "start derives no finite text",
    'root ::= "a" | b\nb ::= "x" b': "line 2: b derives no finite text",
    'root ::= "a" b*\nb ::= "x" c\nc ::= (b | c)': "b derives no finite text",
    'root ::= "a" | ("b" | c{1,2})\nc ::= "x" c': "c derives no finite text",
    "root ::= x\nx ::= (x{0,2})": "leads to nothing but itself",
    "root ::= " + "(" * 300: "within each other",
}


@pytest.mark.parametrize("text", REFUSED)
def test_refused(text: str) -> None:
    """What cannot be honoured is named, with its line where there is one."""
    for reading in (as_lark, as_ebnf):
        if reading is as_lark or "::=" in text:
            with pytest.raises(GrammarError, match=REFUSED[text]):
                reading(text)


def test_long_chains() -> None:
    """References one after the other stay below what llguidance's stack holds."""

    def chain(length: int) -> str:
        links = "".join(f'r{at} ::= "x" r{at + 1} | root\n' for at in range(length))
        return f'root ::= "y" | "(" r0\n{links}r{length} ::= "a"'

    longest = as_lark(chain(MAX_CHAIN - 2))
    assert guidance_takes(longest)("(y")
    with pytest.raises(GrammarError, match="lead one to the next"):
        as_lark(chain(MAX_CHAIN))


HOSTILE = ["(", "[", '"', '"a" ', "a ", '"a"|', "{ ", "/a", "<", "#", "\\", " ", "a:\n", "%json {"]


@pytest.mark.parametrize("opening", ["root ::= ", "start: ", "%", ""])
def test_hostile_texts_take_linear_time(opening: str) -> None:
    """Twice the text takes about twice the time, whatever it repeats."""
    for piece in HOSTILE:
        small, large = (opening + piece * (size // len(piece)) for size in (3_000, 24_000))
        assert seconds(large) < 0.05 + 24 * seconds(small), piece


def seconds(text: str) -> float:
    """How long the processor takes to read or refuse a text."""
    # The collector's time is that of all that is loaded, torch among it.
    gc.disable()
    start = time.process_time()
    with suppress(GrammarError):
        as_lark(text)
    took = time.process_time() - start
    gc.enable()
    return took
