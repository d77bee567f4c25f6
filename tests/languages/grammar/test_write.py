"""A grammar's text keeps its language on its way to llguidance and to xgrammar."""

import random
from collections.abc import Sequence
from dataclasses import dataclass

import pytest

from adapter.languages.grammar.read import Dialect, dialect
from adapter.languages.grammar.rules import GrammarError
from adapter.languages.grammar.write import as_lark
from tests.languages.grammar.judges import WORDS, guidance_takes, judges, random_grammar


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


def test_engines_agree_on_random_grammars() -> None:
    """However rules overlap, llguidance takes what xgrammar takes, which has no lexer."""
    judged = 0
    for seed in range(45):
        text = random_grammar(random.Random(seed))
        try:
            takes = judges(text)
        except GrammarError:
            continue
        judged += 1
        taken = [[word for word in WORDS if judge(word)] for judge in takes.values()]
        assert taken[0] == taken[1], text
    assert judged > 20


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
