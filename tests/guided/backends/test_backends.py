"""Each library, as a program uses it: the texts that the constraint asks for, or a refusal."""

import json
import re
from collections.abc import Callable
from random import Random
from typing import Any

import jsonschema
import pytest

from adapter.guided.backends.registry import Libraries
from adapter.guided.compile.compiler import Compiled, ConstraintCompiler, Refused
from adapter.guided.constraint import Constraint, Kind
from adapter.guided.matcher import Guide
from adapter.guided.program import Part
from tests.guided.texts import VOCABULARY, allowed, ids, language, several, takes, tokenized

NAMED = ("guidance", "xgrammar", "outlines", "lm-format-enforcer")
BACKENDS = ("auto", *NAMED)
FIELDS = {
    Kind.JSON: "guided_json",
    Kind.JSON_OBJECT: "response_format",
    Kind.REGEX: "guided_regex",
    Kind.CHOICE: "guided_choice",
    Kind.GRAMMAR: "guided_grammar",
}

Compile = Callable[..., Compiled]
Make = Callable[..., Callable[[], Guide]]


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest) -> str:
    """A backend's name, skipped where its library is not installed."""
    name: str = request.param
    if name == "lm-format-enforcer":
        pytest.importorskip("adapter.guided.backends.lm_format_enforcer", exc_type=ImportError)
    return name


@pytest.fixture
def compiled(compiler: ConstraintCompiler) -> Compile:
    """Compiles a constraint."""

    def compile_one(
        kind: Kind,
        value: Any,
        backend: str,
        whitespace: str | None = None,
        *,
        relaxed: bool = True,
    ) -> Compiled:
        text = json.dumps(value) if kind in (Kind.JSON, Kind.CHOICE) else value
        constraint = Constraint(FIELDS[kind], kind, text, backend, whitespace)
        return compiler.compile(constraint, relaxed=relaxed)

    return compile_one


@pytest.fixture
def make(compiled: Compile, libraries: Libraries) -> Make:
    """Makes texts of a constraint."""

    def made(*asked: Any, **options: Any) -> Callable[[], Guide]:
        program = compiled(*asked, **options).program
        makers = [libraries.compile(part) for part in program.parts]
        return lambda: libraries.guide(program, makers)

    return made


def holds(guide: Guide, text: str) -> bool:
    """Whether a text may be made, whichever way it is cut into tokens."""
    cuts = [ids(text), *(tokenized(text, Random(seed)) for seed in (1, 2))]
    answers = {takes(guide, cut, exact=False) for cut in cuts}
    assert len(answers) == 1, text
    return answers.pop()


# --- choices and regular expressions ------------------------------------------------------------

CHOICES = {
    "prefixes": ["a", "ab", "abc"],
    "empty": ["", "x"],
    "empty alone": [""],
    "twice": ["a", "a"],
    "quotes": ['"', "'", '\\"', "\\", '""'],
    "lines": ["a\nb", "a\n", "\n", "\r\n", "\t"],
    "signs": ["a.c", "(a", "[b]", "a|b", "a*", "^a$", "{2}", "\\d", "$", "#", "/", "-"],
    "scripts": ["日本", "日", "é", "e\u0301", "😀", "😀😁", "ß"],
    "blanks": [" ", "  ", " a", "a "],
    "like code": ["<[1]>", "%json {}", 'root ::= "a"', "{{a}}", "\\u0041", "</s>"],
}


def test_choices_with_nul(make: Make, backend: str) -> None:
    """A NUL in a choice is a character as any other, but for outlines, whose requests refuse it."""
    texts = ["a\0b", "\0", "ab"]
    if backend != "outlines":
        assert language(make(Kind.CHOICE, texts, backend)()) == {text.encode() for text in texts}


def test_many_choices_are_exact(make: Make, backend: str) -> None:
    """Of those that would cost a library too much, the guard holds what it is not told."""
    random = Random(0)
    texts = ["".join(random.choices("abcdefgh é", k=random.randint(5, 30))) for _ in range(600)]
    start = make(Kind.CHOICE, texts, backend)
    for text in texts[:50]:
        guide = start()
        assert holds(guide, text)
        for other in (text[:-1], text + "a", text[::-1], "z" + text):
            assert holds(guide, other) == (other in texts)


@pytest.mark.parametrize("name", CHOICES)
def test_choices_are_exact(make: Make, backend: str, name: str) -> None:
    """A text is one of the choices, each of which can be made."""
    texts = CHOICES[name]
    guide = make(Kind.CHOICE, texts, backend)()
    assert language(guide) == {text.encode() for text in texts}
    assert all(holds(guide, text) for text in texts)


SMALL = {
    "a|ab": ["a", "ab"],
    "ab|a": ["a", "ab"],
    "(a|ab)(c|bcd)?": ["a", "ab", "ac", "abc", "abcd", "abbcd"],
    "a{0,3}?": ["", "a", "aa", "aaa"],
    "a??b": ["b", "ab"],
    "^a{1,2}?b$": ["ab", "aab"],
    "^(?:a|ab)$": ["a", "ab"],
    "(a?b){2}": ["bb", "abb", "bab", "abab"],
    "": [""],
    "x?|yy": ["", "x", "yy"],
    "(?i:k)": ["k", "K"],
    r"\.\*\\": [".*\\"],
    "[é日😀]": ["é", "日", "😀"],
    "(?=.*b)[ab]{1,2}": ["b", "ab", "ba", "bb"],
    "(?!ab|c)[a-c]{2}": ["aa", "ac", "ba", "bb", "bc"],
    "[ab]{2}(?<!aa)c?": ["ab", "ba", "bb", "abc", "bac", "bbc"],
    r"(?:\bab\b ?){1,2}": ["ab", "ab ", "ab ab", "ab ab "],
    "(?:a(?!a)|b){3}": ["aba", "abb", "bab", "bba", "bbb"],
    "(?>a|ab)(?:c|bc)": ["ac", "abc"],
    "(?>ab|a)(?:c|bc)": ["ac", "abc", "abbc"],
    "a?+[ab]": ["aa", "ab", "b"],
    "x?(?:^a|b)": ["a", "b", "xb"],
}


@pytest.mark.parametrize("pattern", SMALL, ids=repr)
def test_regexes_are_exact(make: Make, backend: str, pattern: str) -> None:
    """A text matches the whole of a regular expression, and each that matches can be made."""
    expected = SMALL[pattern]
    assert all(re.fullmatch(pattern, text) for text in expected)
    assert language(make(Kind.REGEX, pattern, backend)()) == {text.encode() for text in expected}


def test_text_without_a_choice_is_not_cut_into_bytes(make: Make, backend: str) -> None:
    """Where there is one text left, it can be made of the longer tokens that fit."""
    guide = make(Kind.CHOICE, ["zab ab", "q"], backend)()
    assert guide.accept(ids("z"))
    assert max(len(VOCABULARY.tokens[token]) for token in allowed(guide)) > 1


@pytest.mark.parametrize(
    ("pattern", "texts"),
    [
        (r"[^a]+", ["é", "日本", "b\n", "a", "", "ba"]),
        (r".*?b", ["b", "ab", "a\nb", "bab", "a", "日b"]),
        (r"\d{3}-\d+", ["123-4", "12-4", "123-", "123-45678"]),
        (r"[\w-]+@\w+\.com", ["a-b@c.com", "a@b.co", "@b.com"]),
        (r"(\s*\w+,)*end", ["end", " a,end", "a, b,end", "a,,end"]),
        (r"(?=.*\d)(?!.*aa)[a-z\d]{2,}", ["a1", "aa1", "ab", "1", "1ba"]),
        (r"(?:(?!-)[a-z-]{1,3}(?<!-)\.)+de", ["a.de", "a-b.c.de", "-a.de", "a-.de", "abcd.de"]),
        (r"(?:(?!\*/).)*\*/", ["*/", "a*b*/", "a*/b*/", "/*/"]),
        (r".*\bat\b.*", ["at", "an at", "cat", "at-", "at_", "eat at"]),
    ],
    ids=str,
)
def test_regexes_hold(make: Make, backend: str, pattern: str, texts: list[str]) -> None:
    """A text can be made where re.fullmatch takes it."""
    guide = make(Kind.REGEX, pattern, backend)()
    for text in texts:
        assert holds(guide, text) == bool(re.fullmatch(pattern, text)), text


@pytest.mark.parametrize(
    "pattern",
    [r"[^a]*", r"(\w+ ?)+\.", r"(?s:.){0,9}", r"(?!.*b\b)(?:a|b|\s)+", r"a(?:b(?! )| )*+\."],
)
def test_made_texts_match(make: Make, backend: str, pattern: str) -> None:
    """Whatever is made from the masks matches, and is UTF-8."""
    texts = list(several(make(Kind.REGEX, pattern, backend), 12, b"ab .\n\xe6\x97"))
    assert texts
    assert all(re.fullmatch(pattern, text) for text in texts), texts


# --- JSON ---------------------------------------------------------------------------------------

POINT = {
    "type": "object",
    "properties": {"x": {"enum": [1, 10]}, "y": {"type": "boolean"}},
    "required": ["x", "y"],
    "additionalProperties": False,
}
SCHEMAS: dict[str, Any] = {
    "point": POINT,
    "strings": {"type": "string", "minLength": 1, "maxLength": 8},
    "numbers": {"type": "array", "items": {"type": "number"}, "minItems": 1, "maxItems": 3},
    "integers": {"type": "array", "items": {"type": "integer"}, "maxItems": 2},
    "union": {"type": "array", "items": {"anyOf": [{"type": "integer"}, {"type": "null"}]}},
    "optional": {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "string"}},
        "additionalProperties": False,
    },
    "tree": {
        "$ref": "#/$defs/n",
        "$defs": {
            "n": {
                "type": "object",
                "properties": {"v": {"const": 1}, "next": {"anyOf": [{"type": "null"}]}},
                "required": ["v"],
                "additionalProperties": False,
            }
        },
    },
}


@pytest.mark.parametrize("name", SCHEMAS)
def test_made_json_is_valid(make: Make, backend: str, name: str) -> None:
    """Whatever is made from the masks is JSON, strictly read, and satisfies the schema."""
    texts = list(several(make(Kind.JSON, SCHEMAS[name], backend), 8, b'"ab01},:]-.e\\'))
    assert texts
    for text in texts:
        value = json.loads(text, parse_constant=pytest.fail)
        jsonschema.validate(value, SCHEMAS[name])


@pytest.mark.parametrize(
    ("schema", "right", "wrong"),
    [
        ({"enum": [1, 10]}, ["1", "10"], ["100", "0", "1.0e1"]),
        ({"enum": ["a", "ab", 'q"']}, ['"a"', '"ab"', '"q\\""'], ['"abc"', '""', "a"]),
        (
            {"anyOf": [{"type": "integer"}, {"type": "number"}]},
            ["1", "-1", "1.5", "0", "1.5e+5"],
            ["01", "1.", ".5", "+1", "-"],
        ),
        (
            {"type": "object", "properties": {"a": {}}, "required": ["a"]},
            ['{"a":1}', '{"a":"b"}', '{"a":null}'],
            ["{}", "[]", '{"a"}', '{"a":}'],
        ),
        (
            {"type": "string", "minLength": 2},
            ['"ab"', '"éé"'],
            ['"a\n"', '"a\tb"', '"a"'],
        ),
        ({"const": None}, ["null"], ["nul", '"null"']),
        ({"type": ["integer", "null"]}, ["3", "null"], ["3.5", '"3"']),
    ],
    ids=["enum", "strings", "anyOf", "any value", "control characters", "const", "types"],
)
def test_json_texts(
    make: Make, backend: str, schema: Any, right: list[str], wrong: list[str]
) -> None:
    """Compact texts that satisfy a schema can be made, and others cannot."""
    guide = make(Kind.JSON, schema, backend)()
    assert [text for text in right if not holds(guide, text)] == []
    assert [text for text in wrong if holds(guide, text)] == []


WIDE = [
    ({"type": "string", "minLength": 2}, ['"a\\n"', '"\\"\\""']),
    ({"anyOf": [{"type": "integer"}, {"type": "number"}]}, ["1e5", "1E-5", "-0"]),
    ({"type": "object"}, ['{"\\n":1}', '{"a":{"b":[]}}']),
]


@pytest.mark.parametrize("backend", ["auto", "guidance"])
@pytest.mark.parametrize(("schema", "texts"), WIDE, ids=["escapes", "numbers", "names"])
def test_guidance_holds_every_spelling(
    make: Make, backend: str, schema: Any, texts: list[str]
) -> None:
    """No library is narrower than the schema where none was named; named ones may be."""
    guide = make(Kind.JSON, schema, backend)()
    for text in texts:
        jsonschema.validate(json.loads(text), schema)
        assert holds(guide, text), text


@pytest.mark.parametrize("whitespace", ["", "[ ]?", r"[\n ]{0,2}", r"\s{2}", r"\n( {2})?"])
def test_whitespace_patterns_are_exact(make: Make, backend: str, whitespace: str) -> None:
    """Every run of blanks between tokens matches the pattern, and each that does can be made."""
    guide = make(Kind.JSON, POINT, backend, whitespace)()
    tokens = ["{", '"x"', ":", "10", ",", '"y"', ":", "true", "}"]
    blanks = ["", " ", "  ", "\n", "\n ", "\n  ", "\t"]
    fitting = [run for run in blanks if re.fullmatch(whitespace, run)]
    for place in range(len(tokens) - 1):
        for run in blanks:
            runs = [fitting[(place + i) % len(fitting)] for i in range(len(tokens) - 1)]
            runs[place] = run
            text = tokens[0] + "".join(a + b for a, b in zip(runs, tokens[1:], strict=True))
            assert takes(guide, ids(text)) == (run in fitting), (place, run)


def test_no_endless_blanks(make: Make, backend: str) -> None:
    """Without a pattern there may be blanks, but no more than 20 in a row."""
    guide = make(Kind.JSON, POINT, backend)()
    runs = [
        blank
        for blank in ("", " ", " " * 20, " " * 21)
        if takes(guide, ids(f'{{{blank}"x":1,"y":true}}'))
    ]
    assert "" in runs
    assert " " * 21 not in runs


@pytest.mark.parametrize("text", ["{}", '{"a": [1, {"b": null}]}', '{"a":"b"}'])
def test_json_object(make: Make, backend: str, text: str) -> None:
    """response_format json_object holds any object, and nothing else."""
    guide = make(Kind.JSON_OBJECT, '{"type": "object"}', backend)()
    assert holds(guide, text)
    assert not holds(guide, f"[{text}]")


# --- grammars -----------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", ["auto", "guidance", "xgrammar", "outlines"])
@pytest.mark.parametrize(
    "grammar",
    [
        'root ::= "a" rest?\nrest ::= "b" | "c"',
        'start: "a" rest?\nrest: "b" | "c"',
    ],
    ids=["gbnf", "lark"],
)
def test_grammars_are_exact(make: Make, backend: str, grammar: str) -> None:
    """A text is one of the grammar's, in either notation."""
    assert language(make(Kind.GRAMMAR, grammar, backend)()) == {b"a", b"ab", b"ac"}


# --- what is compiled -----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [Kind.JSON, Kind.JSON_OBJECT])
def test_llguidance_guards_every_schema(compiled: Compile, backend: str, kind: Kind) -> None:
    """A schema is held by llguidance first, and then by the library that was named."""
    value = POINT if kind is Kind.JSON else '{"type": "object"}'
    libraries = [part.library for part in compiled(kind, value, backend).program.parts]
    assert libraries[0] == "guidance"
    assert libraries[1:] in ([], [backend])
    if kind is Kind.JSON:
        assert (len(libraries) == 2) == (backend not in ("auto", "guidance"))


def test_outcome_names_who_serves(compiled: Compile, backend: str) -> None:
    """The caller is told the backend that was named, and guidance for auto."""
    for kind, value in [(Kind.JSON, POINT), (Kind.REGEX, "a+"), (Kind.CHOICE, ["a"])]:
        found = compiled(kind, value, backend)
        assert found.backend == ("guidance" if backend == "auto" else backend)
        assert not found.checked


# Arrays and objects as items that differ are told apart at the end of the text alone.
UNIQUE = {"type": "array", "uniqueItems": True}


def test_auto_checks_what_no_library_holds(compiled: Compile) -> None:
    """A schema beyond the libraries is served by a check where that is allowed, for auto alone."""
    found = compiled(Kind.JSON, UNIQUE, "auto")
    assert (found.backend, found.checked) == ("guidance", True)


@pytest.mark.parametrize(
    ("backend", "relaxed", "way"),
    [("auto", False, ""), *((name, True, '"auto" can') for name in NAMED), ("outlines", False, "")],
)
def test_named_backends_refuse_what_they_cannot_hold(
    compiled: Compile, backend: str, relaxed: bool, way: str
) -> None:
    """A refusal names the field, the keyword and, where there is one, a way out."""
    with pytest.raises(Refused) as caught:
        compiled(Kind.JSON, UNIQUE, backend, relaxed=relaxed)
    message = caught.value.message
    assert message.startswith("guided_json: ")
    assert "uniqueItems" in message
    assert way in message
    assert ("auto" in message) == bool(way)


def test_refusal_names_a_backend_that_can(
    compiled: Compile, libraries: Libraries, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where only the named library cannot do it, another one is named."""

    def fails(_part: Part) -> None:
        raise ValueError("too wide")

    monkeypatch.setattr(libraries.backend("xgrammar"), "compile", fails)
    why = r"^guided_json: xgrammar cannot hold this schema: too wide. guidance can: "
    with pytest.raises(Refused, match=why):
        compiled(Kind.JSON, {"type": "string", "format": "ipv6"}, "xgrammar")


NESTED: Any = {"type": "integer"}
for _ in range(70):
    NESTED = {"type": "array", "items": NESTED}

HOSTILE: dict[str, tuple[Kind, Any, str]] = {
    "endless": (
        Kind.JSON,
        {
            "$ref": "#/$defs/a",
            "$defs": {
                "a": {
                    "type": "object",
                    "properties": {"a": {"$ref": "#/$defs/a"}},
                    "required": ["a"],
                }
            },
        },
        "finite",
    ),
    "missing": (Kind.JSON, {"$ref": "#/$defs/none"}, "leads to nothing"),
    "remote": (Kind.JSON, {"$ref": "http://127.0.0.1:9/a.json"}, "nothing is fetched"),
    "options": (Kind.JSON, {"x-guidance": {"lenient": True}}, "x-guidance"),
    "deep": (Kind.JSON, NESTED, "deeper"),
    "no schema": (Kind.JSON, {"type": "no such type"}, "type"),
    "false": (Kind.JSON, {"allOf": [{"type": "integer"}, {"type": "string"}]}, ""),
    "look ahead": (Kind.REGEX, "(?=a)b", "no text"),
    "look ahead, behind it": (Kind.REGEX, "a(?<=(?=b).)", "look"),
    "many states": (Kind.REGEX, "(?:a(?=.{12}b)|b)*", "look"),
    "atomic group": (Kind.REGEX, "(?>a*b?)c", "atomic"),
    "back-reference": (Kind.REGEX, r"(a)\1", "reference"),
    "unbalanced": (Kind.REGEX, "(a", ""),
    "large": (Kind.REGEX, "(a{1000}){1000}", ""),
    "undefined rule": (Kind.GRAMMAR, "start: other", "other"),
    "undefined gbnf": (Kind.GRAMMAR, "root ::= other", "other"),
    "empty grammar": (Kind.GRAMMAR, "", ""),
    "no grammar": (Kind.GRAMMAR, "nothing of the kind", ""),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_constraints_are_refused(compiled: Compile, backend: str, name: str) -> None:
    """What cannot be, or cannot be held, is refused with its field named, whoever is asked."""
    kind, value, part = HOSTILE[name]
    if (kind, backend) == (Kind.GRAMMAR, "lm-format-enforcer"):
        pytest.skip("refused before it is compiled")
    with pytest.raises(Refused) as caught:
        compiled(kind, value, backend)
    assert caught.value.message.startswith(FIELDS[kind])
    assert part in caught.value.message
    assert "\n" not in caught.value.message
    assert len(caught.value.message) < 800


def test_what_no_text_satisfies_names_its_field(compiled: Compile, backend: str) -> None:
    """A schema that a library reads, and then finds without a text, is refused by its field too."""
    loop = {"$ref": "#a", "$defs": {"a": {"$anchor": "a", "$ref": "#a"}}}
    with pytest.raises(Refused) as caught:
        compiled(Kind.JSON, loop, backend)
    assert caught.value.message.startswith("guided_json: ")


def test_nested_quantifiers_are_harmless(make: Make, backend: str) -> None:
    """What makes a backtracking matcher run for ever is an automaton like any other."""
    guide = make(Kind.REGEX, "(a+)+b|(a|a)*c", backend)()
    assert takes(guide, ids("a" * 40 + "b"))
    assert not takes(guide, ids("a" * 40))


# --- what the guard alone would let through -----------------------------------------------------


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        ({"properties": {"a": {"type": "integer"}}}, '{"\\u0061":"x"}'),
        ({"properties": {"a": {"type": "integer"}}}, '{"a":1,"\\u0061":"x"}'),
        ({"properties": {"a": False}}, '{"\\u0061":1}'),
        ({"properties": {"a/b": {"type": "integer"}}}, '{"a\\/b":"x"}'),
        ({"properties": {"a\nb": {"type": "integer"}}}, '{"a\\u000ab":"x"}'),
        ({"patternProperties": {"^x_": {"type": "integer"}}}, '{"\\u0078_":"s"}'),
    ],
)
def test_no_name_hides_behind_escapes(make: Make, schema: dict[str, Any], text: str) -> None:
    """A property's schema holds for its name however JSON could write it."""
    guide = make(Kind.JSON, {"type": "object", **schema}, "auto")()
    assert not takes(guide, ids(text), exact=False)


def test_a_name_twice_is_no_second_property(make: Make) -> None:
    """Members are counted, and none comes twice."""
    schema = {"type": "object", "minProperties": 2}
    assert takes(make(Kind.JSON, schema, "guidance")(), ids('{"a":1,"b":1}'), exact=False)
    for text in ('{"a":1}', '{"a":1,"a":1}', '{"a":1,"a":2,"b":1}'):
        assert not takes(make(Kind.JSON, schema, "guidance")(), ids(text), exact=False)


@pytest.mark.parametrize(
    "schema", [{"type": [{}], "properties": {"a": {"$ref": "#"}}}, {"$schema": 5, "type": "null"}]
)
def test_what_is_no_schema_is_refused(compiled: Compile, backend: str, schema: Any) -> None:
    """By its field, whichever code is the first to stumble over it."""
    with pytest.raises(Refused, match="guided_json"):
        compiled(Kind.JSON, schema, backend)


def test_many_alternatives_may_begin_in_one_place(make: Make) -> None:
    """Objects with many names each, told apart by one of them that may come last."""
    names = {f"name{number}": {"type": "integer"} for number in range(60)}
    options = [
        {"type": "object", "properties": {**names, "kind": {"const": kind}}, "required": ["kind"]}
        for kind in range(40)
    ]
    guide = make(Kind.JSON, {"oneOf": options}, "auto")()
    assert takes(guide, ids('{"name7":1,"kind":39}'), exact=False)


def test_control_characters_in_values(make: Make, backend: str) -> None:
    """They are held as their escapes, whoever is named, in values and in names."""
    schema = {
        "type": "object",
        "properties": {"a\x01": {"const": "\0\x1f\n"}, "b": {"type": "string"}},
        "required": ["a\x01"],
        "additionalProperties": False,
    }
    guide = make(Kind.JSON, schema, backend)()
    assert holds(guide, json.dumps({"a\x01": "\0\x1f\n"}, separators=(",", ":")))
    assert holds(guide, json.dumps({"a\x01": "\0\x1f\n", "b": "x"}, separators=(",", ":")))
    for wrong in ({"a\x01": "\0\x1f"}, {"a": "\0\x1f\n"}, {}):
        assert not holds(guide, json.dumps(wrong, separators=(",", ":")))
