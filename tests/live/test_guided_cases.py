"""Guided decoding: faults that people met with servers of this kind, on every backend at once."""

import itertools
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tests.live.guided_texts import (
    BACKENDS,
    RECORD,
    WITH_GRAMMARS,
    Asked,
    at_once,
    begins_json,
    by_choice,
    by_object,
    by_regex,
    by_schema,
    on_each,
    sums,
)
from tests.live.server import Reply, Server, error_of
from tests.live.test_cases import chat

pytestmark = pytest.mark.live


def asks_each(
    server: Server, asked: Asked, backends: tuple[str, ...] = BACKENDS, **fields: Any
) -> dict[str, Reply]:
    """The answers of each backend, streamed the same, all of them holding the constraint."""
    replies = on_each(
        backends,
        lambda name: server.both(**asked.fields, **fields, guided_decoding_backend=name),
    )
    for name, reply in replies.items():
        asked.check(reply.choices)
        assert reply.headers["x-guided-decoding"] == served_by(name, asked)
    return replies


def served_by(backend: str, asked: Asked) -> str:
    """The backend that the header names: for grammars and any JSON object llguidance stands in, as
    docs/guided-decoding.md says."""
    (field,) = asked.fields
    any_object = asked.fields[field] == {"type": "json_object"}
    if backend == "auto" or (any_object and backend != "xgrammar"):
        return "guidance"
    return "guidance" if backend == "outlines" and field == "guided_grammar" else backend


def refusal(server: Server, fields: dict[str, Any], *names: str) -> dict[str, Any]:
    """The error of a request that is refused in 5 s, with `stream` too; a field of `names` is at
    fault, and the message says so."""
    errors = []
    for stream in (False, True):
        started = time.monotonic()
        response = server.post(**fields, stream=stream)
        assert response.status_code == 400, response.text[:500]
        assert time.monotonic() - started < 5
        errors.append(error_of(response))
    assert errors[0] == errors[1]
    named = [name for name in names if errors[0]["param"].startswith(name)]
    assert named, errors[0]
    assert named[0] in errors[0]["message"]
    return errors[0]


# --- what is honoured


def test_json_schema_is_honoured(server: Server) -> None:
    """guided_json gives a document, where the model alone would give prose."""
    prompt = "Describe a small boat."
    prose = server.greedy(prompt, 60)
    fields: dict[str, Any] = {"prompt": prompt, "max_tokens": 60, "temperature": 0}
    for reply in asks_each(server, by_schema(RECORD), **fields).values():
        assert reply.text.startswith("{")
        assert reply.text != prose


def test_choice_of_characters_of_several_tokens(server: Server) -> None:
    """Emoji and ideographs come whole, in a stream too, and a stop string cuts between them."""
    fields: dict[str, Any] = {"prompt": "Copy:", "max_tokens": 24, "temperature": 0}
    asked = by_choice("🐈🌶日本")
    for reply in asks_each(server, asked, **fields).values():
        assert (reply.text, reply.finish_reason) == ("🐈🌶日本", "stop")
    stopped = on_each(
        BACKENDS,
        lambda name: server.both(
            **asked.fields, **fields, stop=["🌶"], guided_decoding_backend=name
        ),
    )
    for reply in stopped.values():
        assert (reply.text, reply.finish_reason) == ("🐈", "stop")
    asked = by_choice("🐈", "🦑🦑")
    for reply in asks_each(server, asked, **{**fields, "prompt": "Animal:"}).values():
        assert reply.finish_reason == "stop"


def test_two_constraints_are_refused(server: Server) -> None:
    """Two constraints are refused by both names; response_format text is none."""
    fields: dict[str, Any] = {"prompt": "Hi", "max_tokens": 8, "guided_regex": "[0-9]{2}"}
    for other, value in {
        "guided_choice": ["x"],
        "guided_json": RECORD,
        "guided_grammar": 'root ::= "x"',
        "response_format": {"type": "json_object"},
    }.items():
        error = refusal(server, {**fields, other: value}, other, "guided_regex")
        assert other in error["message"]
        assert "guided_regex" in error["message"]
    reply = server.both(**fields, seed=1, response_format={"type": "text"})
    assert reply.finish_reason == "stop"
    by_regex("[0-9]{2}").check(reply.choices)


# --- backends side by side

PETS = by_regex("(cat|dog) [0-9]{2}")
FIVES = by_schema(
    {
        "type": "object",
        "properties": {"m": {"type": "integer", "multipleOf": 5}},
        "required": ["m"],
        "additionalProperties": False,
    }
)


def test_a_backend_for_each_request(server: Server) -> None:
    """Requests of one engine name different backends, in any order and at the same time."""

    def ask(asked: Asked, backend: str | None) -> Callable[[], None]:
        def call() -> None:
            prompt = "Num:" if asked is FIVES else "Pet:"
            reply = server.ask(
                prompt=prompt, max_tokens=24, **asked.fields, guided_decoding_backend=backend
            )
            asked.check(reply.choices)
            assert asked is FIVES or reply.finish_reason == "stop"

        return call

    three = [ask(PETS, "outlines"), ask(PETS, "lm-format-enforcer"), ask(FIVES, None)]
    for call in itertools.chain.from_iterable(itertools.permutations(three)):
        call()
    others = [ask(PETS, name) for name in ("auto", "guidance", "xgrammar")]
    at_once((three + others) * 2)


def test_unknown_backend(server: Server) -> None:
    """A backend that does not exist is refused, whatever stands beside it."""
    fields: dict[str, Any] = {"prompt": "Pet:", "guided_decoding_backend": "nonsense"}
    error = server.refuses("guided_decoding_backend", guided_regex="[a-z]{3}", **fields)
    assert all(name in error["message"] for name in BACKENDS)


# --- JSON schemas


def test_recursive_schema(server: Server) -> None:
    """A schema that holds itself is served, or refused by a backend that cannot recurse."""
    schema = {
        "$ref": "#/$defs/node",
        "$defs": {
            "node": {
                "type": "object",
                "properties": {
                    "v": {"type": "integer"},
                    "next": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]},
                },
                "required": ["v", "next"],
                "additionalProperties": False,
            }
        },
    }
    asked = by_schema(schema)
    fields: dict[str, Any] = {"prompt": "Tree:", "max_tokens": 40, "temperature": 0}

    def call(name: str) -> None:
        request = {**fields, **asked.fields, "guided_decoding_backend": name}
        response = server.post(**request)
        if response.status_code == 400:
            assert name not in ("auto", "guidance")
            refusal(server, request, "guided_json", "guided_decoding_backend")
            return
        reply = server.both(**request)
        asked.check(reply.choices)
        assert reply.text.startswith("{")

    on_each(BACKENDS, call)
    server.check_alive()


@pytest.mark.parametrize("reference", ["#", "#/$defs/missing"])
def test_reference_to_itself_or_to_nothing(server: Server, reference: str) -> None:
    """A reference that can never be resolved is refused before anything is generated."""
    fields: dict[str, Any] = {
        "prompt": "Tree:",
        "max_tokens": 8,
        "guided_json": {"$ref": reference},
    }
    on_each(
        BACKENDS,
        lambda name: refusal(server, {**fields, "guided_decoding_backend": name}, "guided_json"),
    )
    server.check_alive()


def test_bounds_of_lists_and_numbers(server: Server) -> None:
    """Ten hot answers hold minItems, maxItems, minimum and maximum, or the keyword is refused."""
    schema = {
        "type": "array",
        "items": {"type": "integer", "minimum": 10, "maximum": 20},
        "minItems": 3,
        "maxItems": 3,
    }
    asked = by_schema(schema)
    keywords = ("minItems", "maxItems", "minimum", "maximum")

    def call(name: str) -> None:
        request: dict[str, Any] = {"prompt": "Lucky numbers:", "max_tokens": 40}
        request |= {"temperature": 1.2, "seed": 2, "n": 10, "guided_decoding_backend": name}
        response = server.post(**request, **asked.fields)
        if response.status_code == 400:
            assert name not in ("auto", "guidance")
            error = error_of(response)
            assert error["param"] in ("guided_json", "guided_decoding_backend")
            assert any(keyword in error["message"] for keyword in keywords), error
            return
        asked.check(response.json()["choices"])

    on_each(BACKENDS, call)


def test_numbers_are_json(server: Server) -> None:
    """At a high temperature numbers have no leading zero and no exponent without digits."""
    schema = {
        "type": "object",
        "properties": {"x": {"type": "number"}},
        "required": ["x"],
        "additionalProperties": False,
    }
    asked = by_schema(schema)
    fields: dict[str, Any] = {"prompt": "Value in scientific notation:", "max_tokens": 24}
    fields |= {"temperature": 1.8, "seed": 5, **asked.fields}

    def call(name: str) -> None:
        # The one that once let them through gives more of them.
        count = 25 if name == "lm-format-enforcer" else 6
        reply = server.ask(**fields, n=count, guided_decoding_backend=name)
        asked.check(reply.choices)

    on_each(BACKENDS, call)


@pytest.mark.parametrize("field", ["guided_json", "response_format"])
def test_keys_and_values_beyond_ascii(server: Server, field: str) -> None:
    """Keys and values in other scripts come as they are."""
    words = ["müßig", "東京", "😀"]
    schema = {
        "type": "object",
        "properties": {"größe": {"enum": words}},
        "required": ["größe"],
        "additionalProperties": False,
    }
    fields: dict[str, Any] = {"prompt": "Wahl:", "max_tokens": 64, "temperature": 0}
    fields["guided_whitespace_pattern"] = "[ ]?"
    for reply in asks_each(server, by_schema(schema, field), **fields).values():
        assert reply.finish_reason == "stop"
        assert "\\\\" not in reply.text


def test_empty_schema(server: Server) -> None:
    """{} asks for JSON, whichever; it is not the same as no constraint."""
    prompt = "Give a short greeting."
    fields: dict[str, Any] = {"prompt": prompt, "max_tokens": 40, "temperature": 0}
    prose = server.greedy(prompt, 40)
    for reply in asks_each(server, by_schema({}), **fields).values():
        assert reply.text != prose
        assert begins_json(reply.text)


def test_min_tokens_adds_nothing_to_a_complete_value(server: Server) -> None:
    """min_tokens cannot make a finished value longer."""
    fields: dict[str, Any] = {"prompt": "Flag:", "max_tokens": 32, "temperature": 0}
    asked = by_schema({"type": "boolean"})
    for reply in asks_each(server, asked, **fields, min_tokens=20).values():
        assert reply.text.strip() in ("true", "false")
    asked = by_choice("yes", "no")
    for reply in asks_each(server, asked, **fields, min_tokens=20).values():
        assert reply.text in ("yes", "no")


# --- response_format


def test_json_object(server: Server) -> None:
    """json_object gives an object, though the prompt does not ask for JSON."""
    asked = by_object()
    fields: dict[str, Any] = {"prompt": "List two fruits.", "max_tokens": 40}
    for reply in asks_each(server, asked, **fields, temperature=0).values():
        assert reply.text.startswith("{")
    asks_each(server, asked, **fields, temperature=0.7, seed=3, n=2)


def test_json_schema_as_response_format(server: Server) -> None:
    """json_schema is used on this route; without a schema it is json_object; text is free."""
    asked = by_schema(RECORD, "response_format")
    fields: dict[str, Any] = {"prompt": "List two fruits.", "max_tokens": 40}
    asks_each(server, asked, **fields, temperature=0)
    asks_each(server, asked, **fields, temperature=0.7, seed=3, n=2)
    bare = {"type": "json_schema", "json_schema": {"name": "f"}}
    reply = server.ask(**fields, temperature=0, response_format=bare)
    by_object().check(reply.choices)
    free = server.both(
        prompt="List two fruits.", max_tokens=12, temperature=0, response_format={"type": "text"}
    )
    assert free.text == server.greedy("List two fruits.", 12)
    assert "x-guided-decoding" not in free.headers


# --- choices


def test_choices_that_begin_one_another(server: Server) -> None:
    """Each choice can be taken, whatever begins like it, and the order of the list says nothing."""
    choices = ["New", "New York", "New York City"]
    prompt = "I moved to New York City. The place is called"
    fields: dict[str, Any] = {"prompt": prompt, "max_tokens": 12}
    for reply in asks_each(
        server, by_choice(*choices), **fields, temperature=1.3, seed=1, n=10
    ).values():
        assert {choice["finish_reason"] for choice in reply.choices} == {"stop"}
    greedy = [
        asks_each(server, by_choice(*order), **fields, temperature=0)
        for order in (choices, choices[::-1])
    ]
    assert len({reply.text for replies in greedy for reply in replies.values()}) == 1
    for choice in choices:
        single = asks_each(server, by_choice(choice), **fields, temperature=1.3, seed=2)
        for reply in single.values():
            assert (reply.text, reply.finish_reason) == (choice, "stop")
    question = chat("Answer yes or no: is red a colour?")
    longer = by_choice("No", "No.", "No. Yes.")
    for reply in asks_each(server, longer, prompt=question, max_tokens=8, n=40, seed=1).values():
        assert len(set(reply.texts)) > 1


def test_scores_of_a_choice(server: Server) -> None:
    """logprobs beside a constraint are finite, one for each token, an end token included."""
    fields: dict[str, Any] = {"prompt": "Mood:", "max_tokens": 8, "temperature": 0, "logprobs": 5}
    for reply in asks_each(server, by_choice("good", "bad"), **fields).values():
        logprobs = reply.logprobs
        assert len({len(values) for values in logprobs.values()}) == 1
        assert "".join(logprobs["tokens"]).startswith(reply.text)
        top = [value for entry in logprobs["top_logprobs"] for value in entry.values()]
        assert all(-1e5 < value <= 0 for value in logprobs["token_logprobs"] + top)


# --- broken constraints

BROKEN: list[dict[str, Any]] = [
    {"guided_regex": "ab**"},
    {"guided_regex": "[a-"},
    {"guided_choice": []},
    {"guided_grammar": 'root ::= "a'},
    {"guided_grammar": ""},
    {"guided_json": {"type": "not-a-type"}},
    {"guided_json": {"type": "object", "properties": []}},
]


@pytest.mark.parametrize("fields", BROKEN, ids=str)
def test_broken_constraint_is_refused(server: Server, fields: dict[str, Any]) -> None:
    """What is no constraint is a 400 that names the field, also right after a good request."""
    (field,) = fields

    def call(name: str) -> None:
        request = {"prompt": "Hi", "max_tokens": 4, "guided_decoding_backend": name}
        refusal(server, {**request, **fields}, field, "guided_decoding_backend")
        server.ask(**request, guided_regex="[0-9]{2}")
        refusal(server, {**request, **fields}, field, "guided_decoding_backend")

    on_each(BACKENDS, call)
    server.check_alive()


# --- regular expressions


def test_anchors(server: Server) -> None:
    """^ and $ at the ends change nothing, round alternatives neither."""
    fields: dict[str, Any] = {"prompt": "Code:", "max_tokens": 8, "temperature": 0}
    texts = set()
    for pattern in ("^[0-9]{3}$", "[0-9]{3}"):
        for reply in asks_each(server, by_regex(pattern), **fields).values():
            assert reply.finish_reason == "stop"
            texts.add(reply.text)
    assert len(texts) == 1
    asks_each(server, by_regex("^(|[ab])$"), **fields)


def test_range_of_odd_characters(server: Server) -> None:
    """A class from a control character to the far end of the plane is a class like others."""
    asked = by_regex("[\u0001-\u2e7f]{1,5}")
    replies = asks_each(server, asked, prompt="Hi", max_tokens=6, temperature=1.0, seed=3, n=3)
    assert len(replies) == len(BACKENDS)


# --- grammars


def test_alternatives_in_both_dialects(server: Server) -> None:
    """A bar does not decide the dialect: Lark and EBNF of the same grammar say the same."""
    fields: dict[str, Any] = {"prompt": "Turn", "max_tokens": 8, "temperature": 0}
    texts = set()
    for grammar in ('start: "left" | "right"', 'root ::= "left" | "right"'):
        asked = replace(by_choice("left", "right"), fields={"guided_grammar": grammar})
        for reply in asks_each(server, asked, WITH_GRAMMARS, **fields).values():
            assert reply.finish_reason == "stop"
            texts.add(reply.text)
    assert len(texts) == 1


@pytest.mark.parametrize("dialect", ["ebnf", "lark"])
def test_grammar_of_sums(server: Server, dialect: str) -> None:
    """Rules, repetition and character classes, in both dialects."""
    fields: dict[str, Any] = {"prompt": "1+1:", "max_tokens": 16}
    asks_each(server, sums(dialect), WITH_GRAMMARS, **fields, temperature=0)
    asks_each(server, sums(dialect), WITH_GRAMMARS, **fields, temperature=1.5, seed=4, n=3)


def test_grammar_on_a_backend_without_grammars(server: Server) -> None:
    """lm-format-enforcer has no grammars, so it is refused, and others are named."""
    for grammar in ('start: "left" | "right"', 'root ::= "left" | "right"'):
        error = server.refuses(
            "guided_decoding_backend",
            prompt="Turn",
            guided_grammar=grammar,
            guided_decoding_backend="lm-format-enforcer",
        )
        assert "guidance" in error["message"]


# --- state


def test_several_answers_share_no_state(server: Server) -> None:
    """The answers of a request, of many at once, and of repeated ones each hold the constraint."""
    fields: dict[str, Any] = {"prompt": "ID:", "max_tokens": 10, "temperature": 1.2}
    asked = by_regex("[A-F]{3}-[0-9]{3}")
    for seed in (9, 9, 10):
        for reply in asks_each(server, asked, **fields, seed=seed, n=4).values():
            assert {choice["finish_reason"] for choice in reply.choices} == {"stop"}
            assert len(set(reply.texts)) > 1
