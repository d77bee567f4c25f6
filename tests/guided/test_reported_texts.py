"""Patterns, grammars and choices that other servers were reported to hold wrongly."""

import pytest

from adapter.guided.backends.registry import Libraries
from adapter.guided.compile.compiler import ConstraintCompiler
from adapter.guided.constraint import BACKENDS, Kind
from tests.guided.reported import Row, check, is_refused, pairs


def pattern(what: str, text: str, good: list[str], bad: list[str]) -> Row:
    return Row(what, text, good, bad, kind=Kind.REGEX)


def grammar(what: str, text: str, good: list[str], bad: list[str]) -> Row:
    return Row(what, text, good, bad, kind=Kind.GRAMMAR)


PATTERNS = [
    pattern(
        "a brace that counts nothing", '{"k":[0-9]{3}}', ['{"k":427}'], ['{"k":42}', '{"k":4}']
    ),
    pattern("no lower count", "p{,2}q", ["q", "pq", "ppq"], ["p{,2}q", "pppq"]),
    pattern("a range from a minus", "[0-9--3]{3}", ["5/-", "123", ".-9"], ["ab1", "12:"]),
    pattern("flags of a group", "(?i:ja|nein)[.]", ["JA.", "nEiN."], ["ja!", "doch."]),
    pattern("a bracket first, a minus last", "[]x-]{2}", ["]-", "x]"], ["y]", "]"]),
    pattern("four kinds of escapes", r"\x4b\u004c\U0000004d\116", ["KLMN"], ["KLM6", "klmn"]),
    pattern(
        "ranges by escape",
        r"[a\u0410-\u044F\uD7B0-\uD7FF\n.\']{1,6}",
        ["Жук.", "a'\n", "\ud7ff"],
        ["xyz", "\ue000", "Ѣ"],
    ),
    pattern("a range beyond the plane", "[🌀-🌟]{2}", ["🌀🌟", "🌈🌈"], ["🌀", "🌠🌀"]),
    pattern("lines", r"^(A leaf\nA bud|A seed\nA pod)$", ["A leaf\nA bud"], [r"A leaf\nA bud"]),
]

GRAMMARS = [
    grammar(
        "a bar begins the line",
        'root ::= word\nword ::= one\n       | two\none ::= "up"\ntwo ::= "down"',
        ["up", "down"],
        ["one", "updown"],
    ),
    grammar("a class of one backslash", 'root ::= [\\\\] "t"', ["\\t"], ["\t", "t"]),
    grammar(
        "an empty first way, counts and quotes",
        'root ::= "<" gap item (";" gap item){1,2} ">"\n'
        'item ::= "\\"" [a-c]{1,2} "\\"" gap\ngap ::= | " " | "\\n" [ \\t]{0,3}',
        ['<"a";"bc">', '< "a"\n ;"b";"c">'],
        ['<"a">', "<a;b>", '<"a";"b";"c";"a">'],
    ),
    grammar(
        "a blank before a count, and a repeat of nothing",
        'root ::= part {1, 2} "z"?\npart ::= ("m" | [no] {3,}) | ""',
        ["mm", "z", "nonm", "", "mz"],
        ["mmm", "no"],
    ),
    grammar("left recursion", 'root ::= root "n" | "m"', ["m", "mn", "mnn"], ["nm", ""]),
    grammar(
        "left recursion round a corner",
        'root ::= p\np ::= q "1" | "2"\nq ::= p "3" | "4"',
        ["2", "41", "231"],
        ["31", "4"],
    ),
    grammar("a star under a star", 'root ::= ("p"*)* "q"', ["ppq", "q"], ["r", "p"]),
    grammar(
        "where a greedy lexer sees no boundary",
        'root ::= stem "er!"\nstem ::= "bak" | "baker"',
        ["baker!", "bakerer!"],
        ["bak!"],
    ),
    grammar("a class before its own member", 'root ::= [xy]+ "y."', ["xy.", "xyyy."], ["x.", "y."]),
    grammar(
        "SQL in Lark, rules inlined",
        'start: query\n?query: "GET " names " OF " name (where)?\n?names: name ("," name)*\n'
        '?where: " IF " name "=" value\n?value: TEXT | INT\n?name: /[a-z_]{1,6}/\n'
        "TEXT: /'[^']{0,5}'/\nINT: /[0-9]{1,2}/\n",
        ["GET a,b OF t IF a=12", "GET a OF t", "GET a OF t IF b='x y'"],
        ["GET * OF t", "GET a OF t IF b=x"],
    ),
    grammar(
        "a number of Lark's library",
        '?start: SIGNED_NUMBER ("," SIGNED_NUMBER)*\n%import common.SIGNED_NUMBER',
        ["3,-4.5e+2", "17", "+1,2"],
        ["3,", "3, 4"],
    ),
    grammar(
        "letters of either case",
        'start: WORD BLANK NAME\nWORD: "drop"i\nNAME: /[a-z]{1,3}/\nBLANK: " "',
        ["DrOp ab", "drop a"],
        ["dro ab", "drop AB"],
    ),
    grammar(
        "priorities, comments, rules that nobody uses",
        "start: CODE\nCODE.3: /[k-m]/ /[0-9]{2}/\n// nothing\n_spare: CODE",
        ["k42"],
        ["k4", "a42"],
    ),
    grammar(
        "characters of several bytes",
        "root ::= letter{1,4}\nletter ::= [ぁ-ゟ] | [ァ-ヿ] | [一-鿿]",
        ["山ノかげ"],
        ["abc", "山a", ""],
    ),
    grammar(
        "a code point, not a byte", "root ::= [\\x62-\\xfe]{2}", ["bþ", "é~"], ["山b", "ab", "bÿ"]
    ),
    grammar(
        "special tokens' names",
        'root ::= "<|im_start|>" [k-m]{2} "<|im_end|>"',
        ["<|im_start|>km<|im_end|>"],
        ["km", "<|im_start|>km"],
    ),
    grammar(
        "free text up to a mark",
        'root ::= free "<|go|>" ("on" | "off")\nfree ::= ([^<] | "<" [^|]){0,20}',
        ["a <b <|go|>off", "<|go|>on"],
        ["a<|b<|go|>on", "a<|go|>"],
    ),
]

CHOICES = [
    Row(
        "characters of several bytes",
        ["好的", "不行", "看看"],
        ["好的", "看看"],
        ["好", "的"],
        kind=Kind.CHOICE,
    ),
    Row(
        "special tokens' names",
        ["<|im_start|>", "a<|im_end|>b"],
        ["<|im_start|>", "a<|im_end|>b"],
        ["", "ab", "a"],
        kind=Kind.CHOICE,
    ),
]


@pytest.mark.parametrize(("row", "backend"), pairs([*PATTERNS, *GRAMMARS, *CHOICES]))
def test_a_reported_text_is_held(
    libraries: Libraries, compiler: ConstraintCompiler, row: Row, backend: str
) -> None:
    """Masks let the good texts through under auto, and the bad ones nowhere."""
    check(libraries, compiler, row, backend)


@pytest.mark.parametrize("backend", BACKENDS)
def test_counts_in_the_wrong_order_are_refused(compiler: ConstraintCompiler, backend: str) -> None:
    """A pattern that Python's re refuses is refused, naming the field."""
    assert "the field" in is_refused(compiler, Kind.REGEX, "p{4,3}", backend)
