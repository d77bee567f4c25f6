"""adapter/guided/members.py: no name comes twice in an object, and no text is led astray by it."""

import json
import re
from collections import Counter
from random import Random
from typing import Any

import numpy as np
import pytest

from adapter.guided.backends.registry import Libraries
from adapter.guided.matcher import Guide
from adapter.guided.member_tokens import MemberTokens
from adapter.guided.members import MemberMatcher
from adapter.guided.program import Members, Part, Program
from adapter.guided.vocabulary import Vocabulary
from adapter.guided.whitespace import DEFAULT
from adapter.json_language.grammar.write import held
from tests.guided.texts import VOCABULARY as PLAIN

# Tokens in which names end, begin and follow each other.
_MORE = [
    *(b'"a"', b'"b"', b'","', b'":1,"a"', b'{"a":', b'"a":1,"a"', b'},"a"', b'},{"a":1', b'"],["'),
    *(b'{"a":1,"', b'":{"', b'":"', b'""', b',"', b',"a', b'a":', b'b"', b"}}", b'1,"', b'"a":{"'),
    *(
        b'\\"',
        b'\\":1',
        b'\\\\":',
        b'":1,"b":',
        b'{"b":{"b":',
        b"1}",
        b'"},"',
        b'":[],"',
        b'1,"a":',
    ),
]
_TEXTS = list(dict.fromkeys([*(text for text in PLAIN.tokens if text), *_MORE]))
END = len(_TEXTS)
VOCABULARY = Vocabulary((*_TEXTS, b"", b""), (END,), None)
LIKED = b'"":,ab{}1\\'

RECORD = {"type": "object", "additionalProperties": {"type": "integer"}}
FREE = {"type": "object"}
DEEP = {
    "type": "object",
    "properties": {"a": {"$ref": "#"}, "b": {"type": "array", "items": {"$ref": "#"}}},
}
FEW = {
    "type": "object",
    "patternProperties": {"^[ab]$": {"type": "integer"}},
    "additionalProperties": False,
}
SPECIAL = {
    "type": "object",
    "patternProperties": {"^(special|[ab]{1,2})$": {"type": "integer"}},
    "additionalProperties": False,
}
NESTED = {
    "type": "object",
    "patternProperties": {"^a$": {"$ref": "#"}, "^[bé]$": {"type": "string"}},
    "additionalProperties": False,
}
BESIDE = {**FEW, "properties": {"a": {"minimum": 5}, "c": {"type": "boolean"}}}


@pytest.fixture(scope="module")
def own() -> Libraries:
    """All libraries over the vocabulary of this file."""
    return Libraries(VOCABULARY)


def program(schema: Any, *, few: bool = False) -> Program:
    part = Part("guidance", "lark", held(schema).lark)
    return Program((part,), DEFAULT, Members(bounded_names=few))


def guides(libraries: Libraries, schema: Any, *, few: bool) -> tuple[Guide, Guide]:
    """A text that is held, and one whose names are not."""
    held = program(schema, few=few)
    makers = [libraries.compile(part) for part in held.parts]
    return libraries.guide(held, makers), libraries.guide(Program(held.parts, DEFAULT), makers)


def masked(guide: Guide, text: bytes = b"") -> set[int]:
    mask = np.zeros(VOCABULARY.words, np.int32)
    guide.fill(mask)
    assert guide.failure is None, (text, guide.failure)
    return set(np.flatnonzero(np.unpackbits(mask.view(np.uint8), bitorder="little")).tolist())


def repeats(text: bytes) -> bool:
    """Whether Python's own reader finds a name twice in the beginning of a text."""
    found = False

    def pairs(members: list[tuple[str, Any]]) -> None:
        nonlocal found
        found |= len(dict(members)) < len(members)

    start = text.decode(errors="replace")
    outside = re.sub(r'"(?:[^"\\]|\\.)*("|$|\\$)', "", start)
    opened: list[str] = []
    for sign in outside:
        if sign in "{[":
            opened.append("}" if sign == "{" else "]")
        elif sign in "}]":
            opened.pop()
    close = "".join(reversed(opened))
    words = ("rue", "ue", "e", "alse", "lse", "se", "ull", "ll", "l")
    for more in ("", "0", ":0", '"~":0', '~":0', 'n~":0', '~"', 'n~"', *words):
        found = False
        try:
            json.loads(start + more + close, object_pairs_hook=pairs)
        except ValueError:
            continue
        return found
    raise AssertionError(text)


def pick(choices: set[int], random: Random, liked: bytes) -> int:
    """A token, most often one that is more of what was written."""
    ordered = sorted(choices)
    fitting = [i for i in ordered if i != END and set(VOCABULARY.tokens[i]) <= set(liked)]
    if fitting and random.random() < 0.9:
        return random.choice(fitting)
    return random.choice(ordered)


@pytest.mark.parametrize("schema", [FREE, RECORD, DEEP], ids=["any", "record", "deep"])
def test_mask_is_without_repeated_names(own: Libraries, schema: Any) -> None:
    """The mask lacks a token exactly where a name is there twice behind it."""
    happened: Counter[str] = Counter()
    for seed in range(30):
        random = Random(seed)
        held, free = guides(own, schema, few=False)
        text = b""
        for _ in range(40):
            some, more = masked(held), masked(free)
            for token in more - {END}:
                twice = repeats(text + VOCABULARY.tokens[token])
                assert (token in some) != twice, (text, VOCABULARY.tokens[token])
                happened["refused"] += twice
            assert some <= more
            token = pick(some, random, LIKED)
            if token == END:
                break
            assert held.accept([token])
            assert free.accept([token])
            text += VOCABULARY.tokens[token]
        happened["long"] += len(text) > 40
    assert happened["refused"] > 100, happened
    assert happened["long"] >= 3, happened


@pytest.mark.parametrize(
    "schema", [FREE, RECORD, FEW, SPECIAL, NESTED, BESIDE], ids=lambda schema: str(len(str(schema)))
)
def test_texts_come_to_their_end(own: Libraries, schema: Any) -> None:
    """Whatever tokens are taken there is a next one, and no finished text has a name twice."""
    ended, used = 0, 0
    for seed in range(40):
        random = Random(seed)
        held, _ = guides(own, schema, few="patternProperties" in schema)
        text = b""
        for step in range(120):
            choices = masked(held, text)
            if len(choices) > 1 and step < 60:
                choices.discard(END)
            token = END if END in choices and step > 60 else pick(choices, random, LIKED)
            assert held.accept([token]), (text, token)
            if token == END:
                assert not repeats(text), text
                ended += 1
                used = max(used, text.count(b":"))
                break
            text += VOCABULARY.tokens[token]
    assert ended >= 5
    assert used >= 2


def test_all_of_few_names(own: Libraries) -> None:
    """Where all names are there only the end of the object is left."""
    held, _ = guides(own, FEW, few=True)
    assert held.accept(list(b'{"a":1,"b":'))
    assert held.accept(list(b"1"))
    texts = {VOCABULARY.tokens[token] for token in masked(held)}
    assert not any(b"," in text for text in texts)
    assert b"}" in texts


def test_same_name_in_other_objects() -> None:
    """A name may come again in another object, inside, outside or beside the first."""
    for text in ('{"a":{"a":{"a":1}},"b":[{"a":1},{"a":1}]}', '[{"a":1},{"a":1}]'):
        assert matcher_takes(text)
    for text in ('{"a":{},"a', '{"a":{"a":1},"b":[{"a":1}],"a', r'{"\"a":1,"\"a', '{"":1,"'):
        assert matcher_takes(text)
        assert not matcher_takes(text + '"')
    assert matcher_takes('{"a":"a","b":"\\"a","c":"a\\\\"}')


def matcher_takes(text: str) -> bool:
    matcher = MemberMatcher(MemberTokens(VOCABULARY), Members())
    return all(matcher.advance(token) for token in text.encode())


def test_rollback(own: Libraries) -> None:
    """Tokens that are taken back leave no trace."""
    happened: Counter[str] = Counter()
    for seed in range(40):
        random = Random(seed)
        held, _ = guides(own, FREE, few=False)
        kept: list[int] = []
        for _ in range(60):
            if random.random() < 0.3:
                count = random.randint(0, min(len(kept), 6))
                held.rollback(count)
                del kept[len(kept) - count :]
                happened["taken back"] += count
            choices = masked(held) - {END}
            if not choices:
                break
            token = pick(choices, random, LIKED)
            assert held.accept([token])
            kept.append(token)
        fresh, _ = guides(own, FREE, few=False)
        assert fresh.accept(kept)
        assert masked(fresh) == masked(held)
    assert happened["taken back"] > 200
