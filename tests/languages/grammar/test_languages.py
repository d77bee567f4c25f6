"""A grammar's text keeps its language on its way to llguidance and to xgrammar.

The oracles are Lark itself on what the caller wrote, and both engines on what is made of it.
"""

import gc
import itertools
import random
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pytest

from adapter.languages.grammar.check import MAX_CHAIN
from adapter.languages.grammar.read import Dialect, dialect
from adapter.languages.grammar.rules import GrammarError
from adapter.languages.grammar.write import as_ebnf, as_lark

llguidance = pytest.importorskip("llguidance")
xgrammar = pytest.importorskip("xgrammar")
lark = pytest.importorskip("lark")

END = 256


class ByteTokenizer:
    """A vocabulary of all bytes and one end, as llguidance asks for it."""

    eos_token_id = END
    bos_token_id = None
    tokens: Sequence[bytes] = (*(bytes([byte]) for byte in range(256)), b"<eos>")
    special_token_ids: Sequence[int] = (END,)

    def __call__(self, text: bytes) -> list[int]:
        return list(text)


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


@dataclass(frozen=True)
class Case:
    """A grammar with texts in its language and texts outside of it."""

    text: str
    inside: tuple[str, ...]
    outside: tuple[str, ...]
    dialect: Dialect


def of_lark(text: str, inside: Sequence[str], outside: Sequence[str]) -> Case:
    return Case(text, tuple(inside), tuple(outside), Dialect.LARK)


def of_ebnf(text: str, inside: Sequence[str], outside: Sequence[str]) -> Case:
    return Case(text, tuple(inside), tuple(outside), Dialect.EBNF)


CASES = {
    "two words in Lark": of_lark('start: "left" | "right"', ["left", "right"], ["", "lef", "up"]),
    "two words in EBNF": of_ebnf('root ::= "left" | "right"', ["left", "right"], ["", "leftright"]),
    "a sum in EBNF": of_ebnf(
        'root ::= sum\nsum ::= num ("+" num)*\nnum ::= [0-9] [0-9]?',
        ["1", "12", "1+23+4"],
        ["", "123", "1+", "+1", "1++2"],
    ),
    "a sum in Lark": of_lark(
        'start: num ("+" num)*\nnum: /[0-9]{1,2}/', ["1", "12", "1+23+4"], ["", "123", "1+", "+1"]
    ),
    "arithmetic with left recursion": of_lark(
        """
        ?start: sum
        ?sum: product | sum "+" product -> add | sum "-" product -> sub
        ?product: atom
            | product "*" atom -> mul   // and no division
            | product "/" atom -> div
        ?atom: NUMBER -> number | "-" atom -> neg | "(" sum ")"
        %import common.NUMBER
        %import common.WS_INLINE
        %ignore WS_INLINE
        """,
        ["1", "1+2*3", "(1 + 2) * -3.5", "--1", "((7))/2"],
        ["", "1+", "(1", "1 2", "*2"],
    ),
    "arithmetic in EBNF": of_ebnf(
        "root ::= expr\n"
        'expr ::= expr [-+] term | term # left recursion\nterm ::= term "*" atom | atom\n'
        'atom ::= [0-9]+ | "(" expr ")"',
        ["1", "1+2*3", "((1)-20)*3", "(((((((1)))))))"],
        ["", "1+", "()", "1**2", "(1"],
    ),
    "JSON in Lark": of_lark(
        r"""
        ?start: value
        ?value: object | array | string | SIGNED_NUMBER -> number
              | "true" | "false" | "null"
        array: "[" [value ("," value)*] "]"
        object: "{" [pair ("," pair)*] "}"
        pair: string ":" value
        !string: /"[^"\\]*"/
        %import common.SIGNED_NUMBER
        %ignore /[ \t\n]+/
        """,
        ['{"a": [1, -2.5, {"b": null}], "c": "d"}', "[]", "{}", '"x"', "[[ ] , true]"],
        ["", "{", '{"a"}', "[1,]", "nul", '{"a":1,}'],
    ),
    "JSON in EBNF": of_ebnf(
        r"""
        root ::= value
        value ::= object | array | string | number | ("true" | "false" | "null") ws

        object ::=
          "{" ws (
            string ":" ws value
            ("," ws string ":" ws value)*
          )? "}" ws
        array ::= "[" ws ( value ("," ws value)* )? "]" ws
        string ::= "\"" (
            [^"\\\x7F\x00-\x1F] |
            "\\" (["\\bfnrt] | "u" [0-9a-fA-F]{4}) # escapes
          )* "\"" ws
        number ::= "-"? ([0-9] | [1-9] [0-9]{0,15}) ("." [0-9]+)? ws
        # little space
        ws ::= | " " | "\n" [ \t]{0,20}
        """,
        ['{"a": [1, -2.5, {"b": null}], "c": "\\u00e9é"}', "[]", "{ }", '"\\n"', "[\n\t1]"],
        ["", "{", '{"a"}', "[1,]", "nul", '"\\x"', '"\n"', "[  1]"],
    ),
    "SQL in Lark": of_lark(
        """
        start: "SELECT"i columns "FROM"i NAME [where] ";"
        columns: "*" | NAME ("," NAME)*
        where: "WHERE"i cond
        ?cond: cond "AND"i test | test
        !test.2: NAME ("=" | "<>" | "->" | "::=") (NAME | INT | STRING)
        NAME: /[a-z_]+/
        STRING: "'" /[^']/* "'"
        %import common (INT, WS)
        %ignore WS
        """,
        [
            "SELECT * FROM t;",
            "select a,b FROM t where a = 1 AND b <> 'x y';",
            "SELECT a FROM t WHERE a -> b;",
            "SELECT a FROM t WHERE a ::= 'b';",
        ],
        ["", "SELECT FROM t;", "SELECT * FROM t", "SELECT * FROM t WHERE;", "SELECT a b FROM t;"],
    ),
    "SQL in EBNF": of_ebnf(
        'root ::= "SELECT " cols " FROM " ident (" WHERE " cond)? ";"\n'
        'cols ::= "*" | expr (", " expr)*\nexpr ::= ident | [0-9]+ | "(" expr ")"\n'
        'cond ::= expr " = " expr | "NOT " cond\nident ::= [a-zA-Z_] [a-zA-Z0-9_]*',
        [
            "SELECT * FROM t;",
            "SELECT a, (b1) FROM t WHERE NOT a = 1;",
            "SELECT NOT FROM FROM WHERE NOT = NOT;",
        ],
        ["", "SELECT FROM t;", "SELECT * FROM t WHERE NOT;", "SELECT (a FROM t;"],
    ),
    "terminals of terminals": of_lark(
        'start: WORD+\n// a word\nWORD.3: LETTER~2..3 ("-" | "_")? DIGIT\n'
        'LETTER: "a".."c" | "x"i\nDIGIT: /[0-9]/',
        ["ab1", "abX_2", "xX-3ab1"],
        ["", "a1", "abca1", "ab__1", "dd1"],
    ),
    "literals like syntax in Lark": of_lark(
        'start: a* "#" "//" "::=" ":" "->" "|" /#?\\/\\/:/ "?!" "\\\\" "\\""\n'
        'a: "a: b" | "%ignore" | "root ::= x" | "(" | "}" # a comment: "x\n',
        ['#//::=:->|#//:?!\\"', 'a: b%ignoreroot ::= x(}#//::=:->|//:?!\\"'],
        ["", '#//::=:->|#//:?!"', '//::=:->|#//:?!\\"'],
    ),
    "literals like syntax in EBNF": of_ebnf(
        'root ::= a* "#" "//" "start: x" [#:>] [\\]"^-] "->" "?" # root ::= "\na ::= "::=" | [|(]',
        ["#//start: x#]->?", "::=|(#//start: x:^->?", '#//start: x>"->?', "#//start: x>-->?"],
        ["", "#//start: x##->?", "#//start: x", "//start: x#]->?"],
    ),
    "repeats, classes and dots": of_ebnf(
        'root ::= .{2} "x"{0,1} ("ab" | ){2,} ([^a-c\\]]{1,3})? ""\n# the end',
        ["é\n", "ab", "  xab", "\U0001f600\0ababab", "..xzz"],
        ["", "a", "ab]", "..xx]", "ababzzzz"],
    ),
    "characters by number": of_ebnf(
        'root ::= "\\x41B\\u00e9\\U0001F600" [\\u4e00-\\u9fff\\x0A\\-]',
        ["ABé\U0001f600中", "ABé\U0001f600\n", "ABé\U0001f600-"],
        ["ABé\U0001f600", "ABé\U0001f600a", "Bé\U0001f600-"],
    ),
    "characters by number in Lark": of_lark(
        'start: "\\x41B\\u00e9\\U0001F600" /[\\u4e00-\\u9fff\\n-]/ "\\t\\f\x7f"',
        ["ABé\U0001f600中\t\f\x7f", "ABé\U0001f600-\t\f\x7f"],
        ["ABé\U0001f600", "ABé\U0001f600a\t\f\x7f"],
    ),
    "names of all sorts": of_ebnf(
        'root ::= foo-bar foo_bar Foo-Bar start true\nfoo-bar ::= "a"\nfoo_bar ::= "b"\n'
        'Foo-Bar ::= "c"\nstart ::= "d"\ntrue ::= "e"',
        ["abcde"],
        ["abcd", "ABCDE"],
    ),
    "empty alternatives": of_lark(
        'start: a b~0..2 | \na: ("x" | ) "y"~2 -> two\n  | "z"~3\nb:\n  | "w" // or nothing\n',
        ["", "yy", "xyyww", "zzz", "zzzw"],
        ["x", "y", "xyywww", "zz"],
    ),
    "what a greedy lexer would lose": of_ebnf(
        'root ::= name "_id" | "a" "b" "!" root | "ab" "?"\nname ::= [a-z_]+',
        ["x_id", "user_id", "_id_id", "ab!ab?", "ab?"],
        ["", "_id", "ab", "user", "ab!"],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_every_judge_agrees(name: str) -> None:
    """Lark, llguidance and xgrammar take the same texts."""
    case = CASES[name]
    assert dialect(case.text) is case.dialect
    for judge, takes in judges(case.text).items():
        taken = [word for word in case.inside + case.outside if takes(word)]
        assert taken == list(case.inside), judge


def random_rule(dice: random.Random, names: Sequence[str], depth: int = 0) -> str:
    """The body of an EBNF rule over a and b."""

    def part() -> str:
        kind = dice.random()
        if kind < 0.4:
            return f'"{"".join(dice.choices("ab", k=dice.choice([0, 1, 2, 2, 3])))}"'
        if kind < 0.55:
            return dice.choice(["[a]", "[ab]", "[^a]"])
        if kind < 0.8 or depth == 2:
            return dice.choice(names)
        return f"({random_rule(dice, names, depth + 1)})"

    def sequence() -> str:
        times = ["", "", "", "", "*", "+", "?", "{2}", "{0,2}"]
        return " ".join(part() + dice.choice(times) for _ in range(dice.choice([1, 2, 2, 3])))

    return " | ".join(sequence() for _ in range(dice.choice([1, 2, 2])))


def test_engines_agree_on_random_grammars() -> None:
    """However rules overlap, llguidance takes what xgrammar takes, which has no lexer."""
    words = ["".join(w) for n in range(5) for w in itertools.product("ab", repeat=n)]
    judged = 0
    for seed in range(45):
        dice = random.Random(seed)
        names = ["x", "y", "z"]
        text = "\n".join(f"{name} ::= {random_rule(dice, names)}" for name in ["root", *names])
        try:
            takes = judges(text)
        except GrammarError:
            continue
        judged += 1
        taken = [[word for word in words if judge(word)] for judge in takes.values()]
        assert taken[0] == taken[1], text
    assert judged > 20


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


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ('root ::= "a" x{0}\nx ::= "b"', "a"),
        ('root ::= "a" | root "b"\nc ::= "x" c', "ab"),
        ('%llguidance {}\nstart: "a"', "a"),
        ('%llguidance {"no_forcing": true}\nstart: "a"', "a"),
        ('start: with_lazy\nwith_lazy[lazy]: (/[a-z]/ | "-")* "!"', "a-b!"),
        ("start: A\nA: ~(/a+/ | /b/) & /[ab]{2}/", "ba"),
        ("start: " + "(" * 150 + '"a"' + ")" * 150, "a"),
        ("start: INT-1\n%import common.INT -> INT-1", "12"),
    ],
)
def test_llguidance_reads(text: str, word: str) -> None:
    """llguidance's own additions that leave a grammar a grammar are kept; rules may be idle."""
    assert guidance_takes(as_lark(text))(word)


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
