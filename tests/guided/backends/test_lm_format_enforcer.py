"""lm-format-enforcer behind our masks: exact or beside a guard, never stuck, ended by no fault."""

import json
import random
import re
from collections.abc import Callable
from functools import cache
from typing import Any

import jsonschema
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("lmformatenforcer")

from lmformatenforcer import JsonSchemaParser

from adapter.guided.backends import lm_format_enforcer_json, lm_format_enforcer_regex
from adapter.guided.backends.guidance import GuidanceBackend
from adapter.guided.backends.lm_format_enforcer import LmFormatEnforcerBackend
from adapter.guided.matcher import Guide, Matcher
from adapter.guided.program import Part
from adapter.guided.token_trie import TokenRuns
from adapter.guided.vocabulary import Vocabulary
from adapter.guided.yielding import YieldingMatcher
from tests.guided.backends.test_backends import SCHEMAS
from tests.guided.faults import FAULTS

PIECES = ['{"', '":', ' "', '",', "ab", " a", "true", "12", "\n  ", "é", "日本", '\\"', '"}']
TOKENS = (
    *(bytes([byte]) for byte in range(256)),
    *(piece.encode() for piece in PIECES),
    *(b"\xf0\x9f", b"a\xf0\x9f", b"\x99\x82", b"\x82b", b'"\xe6', b"\xff"),
    b"",
)
END = len(TOKENS) - 1
VOCABULARY = Vocabulary(TOKENS, (END,), None)


@cache
def backends() -> tuple[GuidanceBackend, LmFormatEnforcerBackend]:
    return GuidanceBackend(VOCABULARY), LmFormatEnforcerBackend(VOCABULARY)


@cache
def maker(form: str, text: str) -> Callable[[], Matcher]:
    return backends()[1].compile(Part("lm-format-enforcer", form, text))


def guarded(schema: Any) -> Guide:
    """A JSON schema as the engine enforces it."""
    return beside(guard(schema), maker("json", json.dumps(schema))())


def alone(form: str, text: str) -> YieldingMatcher:
    return YieldingMatcher(maker(form, text)(), [], TokenRuns(VOCABULARY))


def beside(guard: Matcher, library: Matcher) -> Guide:
    return Guide([guard, YieldingMatcher(library, [guard], TokenRuns(VOCABULARY))], [END])


def guard(schema: Any) -> Matcher:
    return backends()[0].compile(Part("guidance", "json", json.dumps(schema)))()


def allowed(fill: Callable[[Any], None]) -> set[int]:
    mask = np.full(VOCABULARY.words, -1, np.int32)
    fill(mask)
    bits = np.unpackbits(mask.view(np.uint8), bitorder="little", count=len(TOKENS))
    return set(np.flatnonzero(bits).tolist())


def takes(guide: Guide, text: str) -> bool:
    return guide.accept([*text.encode(), END])


def write(guide: Guide, seed: int, liked: bytes = b'"}]', most: int = 300) -> str | None:
    """A random text, None where it did not come to its end; an end is taken when it can be."""
    choose, text = random.Random(seed), b""
    for _ in range(most):
        tokens = allowed(guide.fill)
        assert guide.failure is None, (text, guide.failure)
        # Ends, quotes and brackets more often than the many letters.
        closing = [t for t in sorted(tokens) if t == END or TOKENS[t][:1] in liked]
        token = choose.choice(closing if closing and choose.random() < 0.4 else sorted(tokens))
        if token == END:
            return text.decode()
        assert guide.accept([token])
        text += TOKENS[token]
    return None


# --- regular expressions ---

LETTERS = "abcé日🙂\n\U0010ffff"
ATOMS = st.sampled_from(
    [
        "a",
        "b",
        "é",
        "日",
        "🙂",
        "[a-c]",
        "[^a]",
        "[^é🙂]",
        "[日-本]",
        "[\U0001f600-\U0001f64f]",
        ".",
    ]
)
PATTERNS = st.recursive(
    ATOMS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(lambda each: "(?:" + "|".join(each) + ")"),
        st.lists(inner, min_size=2, max_size=3).map("".join),
        st.builds("(?:{}){}".format, inner, st.sampled_from(["*", "+", "?", "{2}", "{1,3}"])),
    ),
    max_leaves=6,
)


@given(pattern=PATTERNS, texts=st.lists(st.text(LETTERS, max_size=5), min_size=5, max_size=5))
@settings(max_examples=50, deadline=None)
def test_a_regular_expression_allows_what_it_matches(pattern: str, texts: list[str]) -> None:
    """The language is re.fullmatch's."""
    make = backends()[1].compile(Part("lm-format-enforcer", "regex", pattern))
    for text in texts:
        took = Guide([make()], [END]).accept([*text.encode(), END])
        assert took == bool(re.fullmatch(pattern, text)), text


@given(pattern=PATTERNS, seed=st.integers(0, 99))
@settings(max_examples=25, deadline=None)
def test_what_the_masks_of_a_regular_expression_draw_matches(pattern: str, seed: int) -> None:
    """No mask is without a token, and no text has broken UTF-8."""
    guide = Guide([backends()[1].compile(Part("lm-format-enforcer", "regex", pattern))()], [END])
    text = write(guide, seed, most=40)
    assert text is None or re.fullmatch(pattern, text)


@pytest.mark.parametrize(
    ("text", "written"), [("(?:[^a]|a🙂)*", 'é日"🙂a🙂\n'), ("[日-本]+🙂?", "日本🙂")]
)
def test_a_mask_has_the_tokens_that_can_be_taken(text: str, written: str) -> None:
    """At each byte of a text, all tokens are tried."""
    matcher = maker("regex", text)()
    for byte in written.encode():
        taken = set()
        for token in range(len(TOKENS)):
            if matcher.advance(token):
                taken.add(token)
                matcher.rollback(1)
        assert taken == allowed(matcher.narrow) - {END}
        assert matcher.advance(byte)
    assert matcher.can_end()


@pytest.mark.parametrize(("text", "fits"), [("", True), ("a", True), ("ab", True), ("b", False)])
def test_a_choice_may_be_the_beginning_of_another(text: str, fits: bool) -> None:
    """An empty choice, too."""
    assert takes(Guide([maker("regex", "(?:a|ab|)")()], [END]), text) is fits


def test_no_surrogate_and_no_overlong_character() -> None:
    """What is not UTF-8 is no character, however it begins."""
    for text in (b"\xed\xa0\x80", b"\xc0\x80", b"\xe0\x80\x80", b"\xf0\x80\x80\x80", b"\xf4\x90"):
        for guide in (Guide([maker("regex", ".*")()], [END]), guarded({"type": "string"})):
            assert guide.accept([ord('"')])
            assert not all(guide.accept([byte]) for byte in text)


# --- JSON schemas ---

POINT = {"type": "object", "properties": {"x": {"type": "number"}}, "required": ["x"]}
FOLDER = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "in": {"type": "array", "items": {"$ref": "#"}}},
    "required": ["name"],
    "additionalProperties": False,
}
FITTING: list[tuple[Any, list[Any]]] = [
    ({"type": "object", "properties": {"self": {"type": "integer"}}}, [{"self": 1}, {"b": "c"}]),
    ({"self": 1, "extras": [], "type": "boolean"}, [True, False]),
    ({"type": "array", "items": {"type": "integer"}}, [[*range(25)], [], [0]]),
    ({"type": "array", "items": {"type": "boolean"}, "minItems": 4, "maxItems": 4}, [[True] * 4]),
    ({"type": "array", "items": {"type": "array", "minItems": 3, "maxItems": 3}}, [[[1, 2, 3]]]),
    ({"type": "string", "minLength": 2, "maxLength": 2}, ["  ", "ab", "日🙂", '"\\']),
    ({"type": "string", "pattern": "^ a|b$", "maxLength": 9}, [" ab", "b", "日b"]),
    ({"type": "string", "pattern": '"'}, ['"', 'a"\\']),
    ({"enum": [" a", 'q"\\', "日🙂", "\n", 1, 10, None, True, 2.5, [1, {}], {"a": [None]}]},
     [" a", 'q"\\', "日🙂", "\n", 1, 10, None, True, 2.5, [1, {}], {"a": [None]}]),
    ({"const": {"a": {"b": 1}}}, [{"a": {"b": 1}}]),
    ({}, [{"a": [1, {"b": None}]}, [[], [[]], 0], "🙂", -0.5, 1e21, True]),
    ({"properties": {"a": {"type": "null"}}}, [{"a": None}, 3, [], {"b": {}}]),
    ({"type": "object", "properties": {'a"é\n': {"type": "integer"}}, "required": ['a"é\n'],
      "additionalProperties": {"type": "string"}}, [{'a"é\n': 1, "c\nd": "e"}]),
    ({"type": "object", "properties": {'a"é\n': {"type": "integer"}}, "required": ['a"é\n'],
      "additionalProperties": False}, [{'a"é\n': 1}]),
    ({"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["b"]},
     [{"a": 1, "b": "c"}, {"b": 0}]),
    ({"anyOf": [{"type": "array", "items": {"type": "integer"}},
                {"type": "array", "items": {"type": "string"}}]}, [[1, 2], ["a"], []]),
    ({"anyOf": [POINT, {"type": "object", "properties": {"y": POINT}, "required": ["y"]}]},
     [{"x": 1}, {"y": {"x": 2}}]),
    ({"allOf": [POINT, {"properties": {"x": {"type": "integer"}}}]}, [{"x": 1}]),
    (FOLDER, [{"name": "a", "in": [{"name": "b"}, {"name": "c", "in": []}]}]),
    ({"$defs": {"a": {"$ref": "#/$defs/b/a~1b"}, "b": {"a/b": {"type": "integer"}, "a": {}}},
      "$ref": "#/$defs/a"}, [7]),
    ({"type": "object", "patternProperties": {"^a": {"type": "integer"}},
      "additionalProperties": False}, [{"ab": 1}, {}]),
    ({"type": "object", "additionalProperties": {"type": "integer"}, "minProperties": 2},
     [{"a": 1, "b": 2}]),
    ({"type": "integer", "minimum": 0, "multipleOf": 5}, [0, 5, 100]),
]  # fmt: skip


@pytest.mark.parametrize(("schema", "documents"), FITTING)
def test_a_fitting_document_is_allowed(schema: Any, documents: list[Any]) -> None:
    """As Python writes it, and with no end before it is whole."""
    for document in documents:
        text = json.dumps(document, ensure_ascii=False)
        guide = guarded(schema)
        assert guide.accept([*text.encode()]), document
        assert END in allowed(guide.fill)
        assert takes(guarded(schema), text)


WALKED = [
    *(schema for schema, _ in FITTING),
    *SCHEMAS.values(),
    # Of keywords that llguidance's own reader of schemas, the guard here, knows.
    *(
        fault.schema
        for fault in FAULTS
        if fault.outcome != "refused" and not fault.schema.keys() & {"not", "uniqueItems"}
    ),
]
# Ends, closers, digits and letters that words are made of: the likeliest, or seldom or never.
LIKED = (b'"}]', b"", b'{[ \n:,"', b"0123456789.eE-+", b"\\u\xc3\xa9")


@pytest.mark.parametrize("schema", WALKED, ids=json.dumps)
def test_what_is_drawn_is_valid(schema: Any) -> None:
    """No mask is without a token, whatever is drawn, and what is finished satisfies the schema."""
    finished = 0
    for seed in range(10):
        text = write(guarded(schema), seed, LIKED[seed % len(LIKED)])
        if text is not None:
            finished += 1
            jsonschema.validate(json.loads(text, parse_constant=pytest.fail), schema)
    assert finished


def test_many_schemas_are_walked() -> None:
    """At least thirty different ones."""
    assert len({json.dumps(schema, sort_keys=True) for schema in WALKED}) >= 30


RECORD = {
    "type": "object",
    "properties": {"ab": {"type": "integer"}, "true": {"enum": ["ab", "12"]}},
    "required": ["ab"],
}


@pytest.mark.parametrize("written", ['{"ab": 12, "true": "ab"}', '{ "true":"12","ab":0 }'])
def test_a_mask_is_the_librarys(written: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """At each character, the tokens are those that its parser, asked by itself, can follow."""
    monkeypatch.setattr(lm_format_enforcer_json, "_MOST_CHECKS", len(TOKENS))
    matcher, parser = maker("json", json.dumps(RECORD))(), JsonSchemaParser(RECORD)
    for character in written:
        expected = {token for token, text in enumerate(TOKENS) if text and follows(parser, text)}
        assert allowed(matcher.narrow) - {END} == expected
        assert matcher.advance(ord(character))
        parser = parser.add_character(character)


def follows(parser: Any, text: bytes) -> bool:
    try:
        for character in text.decode():
            if character not in parser.get_allowed_characters():
                return False
            parser = parser.add_character(character)
    except UnicodeDecodeError:
        return False
    return True


@pytest.mark.parametrize(
    ("text", "token"),
    [('{"a', "x"), ('{"ab":', '"'), ('{"ab":1', "}"), ('{"ab":1,"true":"a', "1"), ("", "[")],
)
def test_the_library_narrows_beside_the_guard(text: str, token: str) -> None:
    """It closes objects that declare names, and knows types, enums and required names itself."""
    free = {"anyOf": [{"type": name} for name in ("object", "array")]}
    guide = beside(guard(free), maker("json", json.dumps(RECORD))())
    assert guide.accept([*text.encode()])
    mask = allowed(guide.fill)
    assert guide.failure is None
    assert (ord(token) in mask) == (token == "}")


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        # Names that must come, though the library ends at the declared ones.
        ({"properties": {"a": {"type": "integer"}}, "minProperties": 2, "required": ["a", "a b"],
          "type": "object"}, '{"a":1,"a b":2}'),
        # It counts an escaped quote as the end of the string.
        ({"enum": ["a"], "$defs": {}}, '"a"'),
        ({"type": "object", "properties": {"a": {"const": " b"}}, "required": ["a"]}, '{"a":" b"}'),
        ({"anyOf": [{"type": "array", "items": {"type": "integer"}},
                    {"type": "array", "items": {"type": "string"}}], "minItems": 2}, '[1,2]'),
    ],
)  # fmt: skip
def test_where_the_library_is_stuck_the_text_goes_on(schema: Any, text: str) -> None:
    """By masks alone: the guard holds the rest of the text."""
    guide = guarded(schema)
    for byte in text.encode():
        assert byte in allowed(guide.fill)
        assert guide.accept([byte])
    assert END in allowed(guide.fill)
    assert guide.accept([END])


def test_a_text_that_was_taken_back_can_be_taken_at_once() -> None:
    """What the masks of drafted tokens allowed is accepted after a rollback, without new masks."""
    schema = {"type": "object", "properties": {"a": {"const": " b"}}, "required": ["a"]}
    guide, tokens = guarded(schema), [*b'{"a":" b"}']
    for token in tokens:
        assert token in allowed(guide.fill)
        assert guide.accept([token])
    assert END in allowed(guide.fill)
    guide.rollback(len(tokens) - 1)
    assert guide.accept([*tokens[1:], END])


def test_a_mask_is_bounded_in_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some tokens are looked at, and the others are left to the guard, each time the same ones."""
    monkeypatch.setattr(lm_format_enforcer_json, "_MOST_CHECKS", 3)
    matcher = backends()[1].compile(Part("lm-format-enforcer", "json", '{"type": "array"}'))()
    assert matcher.advance(ord("["))
    first, second = allowed(matcher.narrow), allowed(matcher.narrow)
    assert first == second
    assert ord("}") not in first  # no text of the parser's begins with it
    assert TOKENS.index(b"12") in first


def test_a_slow_library_is_set_aside(monkeypatch: pytest.MonkeyPatch) -> None:
    """The text goes on without it, before the engine would end it."""
    monkeypatch.setattr(lm_format_enforcer_json, "_SECONDS", 0.0)
    guide = guarded({"type": "object", "properties": {"a": {}}, "title": "slow"})
    assert ord("{") in allowed(guide.fill)
    assert guide.failure is None
    assert guide.accept([*b'{"other":1}', END])


def test_no_trailing_comma() -> None:
    """The library allows one while a name is left."""
    guide = guarded({"type": "object", "properties": {"a": {}, "b": {}}})
    assert guide.accept([*b'{"a":1,'])
    assert not guide.accept([ord("}")])
    assert ord("}") not in allowed(guide.fill)


@pytest.mark.parametrize(
    ("form", "text"),
    [
        ("regex", "a("),
        ("regex", "a$"),
        ("regex", "a(?!b)(?=b)b"),
        ("regex", ".{2000}"),
        ("regex", "a(?=b)c"),
        ("json", "{"),
        ("json", '{"type":"text"}'),
        ("json", '{"type":["integer",3]}'),
        ("json", '{"allOf":3}'),
        ("json", '{"not":' * 900 + '{"items":' * 900 + "{}" + "}" * 1800),
    ],
)
def test_what_is_refused_is_a_value_error(
    form: str, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In one line, when it is compiled, and soon."""
    monkeypatch.setattr(lm_format_enforcer_regex, "_MOST_ROWS", 2_000)
    with pytest.raises(ValueError, match=r"^lm-format-enforcer cannot enforce this .*$"):
        backends()[1].compile(Part("lm-format-enforcer", form, text))


# --- both ---

SAMPLES = [("regex", "(?:ab|é🙂|日*)+x"), ("json", json.dumps(FOLDER)), ("json", "{}")]


@given(sample=st.sampled_from(SAMPLES), seed=st.integers(0, 999), back=st.integers(0, 12))
@settings(max_examples=40, deadline=None)
def test_going_back_is_as_never_gone(sample: tuple[str, str], seed: int, back: int) -> None:
    """The masks after a rollback are those of a fresh matcher at the same place."""
    tokens: list[int] = []
    choose, matcher = random.Random(seed), alone(*sample)
    while len(tokens) < 12 and (possible := sorted(allowed(matcher.narrow) - {END})):
        tokens.append(choose.choice(possible))
        assert matcher.advance(tokens[-1])
    kept = max(0, len(tokens) - back)
    matcher.rollback(len(tokens) - kept)
    again = alone(*sample)
    assert all(again.advance(token) for token in tokens[:kept])
    assert allowed(matcher.narrow) == allowed(again.narrow)
    assert matcher.can_end() == again.can_end()


def test_a_fault_of_the_library_is_no_end_of_text(monkeypatch: pytest.MonkeyPatch) -> None:
    """The guard goes on alone."""
    schema = {"type": "array", "items": {"type": "number"}, "title": "fails"}
    guide = guarded(schema)
    assert guide.accept([*b"["])

    def fail(*_: Any) -> Any:
        raise RuntimeError("a fault")

    monkeypatch.setattr(JsonSchemaParser, "add_character", fail)
    assert ord("1") in allowed(guide.fill)
    assert guide.failure is None
    assert guide.accept([*b"1]", END])


def test_few_states_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was forgotten is found out again."""
    monkeypatch.setattr(lm_format_enforcer_json, "_MOST_STATES", 5)
    monkeypatch.setattr(lm_format_enforcer_json, "MOST_MASKS", 2)
    for schema in (FOLDER, {"enum": ["ab", "aé"]}):
        for seed in range(3):
            write(guarded({**schema, "title": "forgotten"}), seed, most=60)
    assert write(Guide([maker("regex", "a{7}b")()], [END]), 0) == "aaaaaaab"
