"""Guided decoding on a real engine: all kinds and backends mixed, other fields, blanks, hostile
constraints, and vLLM's own structured outputs beside it."""

import math
import random
import re
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import regex
from tokenizers import Tokenizer

from tests.live.guided_texts import (
    BACKENDS,
    RECORD,
    at_once,
    blank_runs,
    by_choice,
    by_object,
    by_regex,
    by_schema,
    on_each,
    satisfies,
    sums,
)
from tests.live.server import Server, error_of, sse_events, strict_json

pytestmark = pytest.mark.live

each_backend = pytest.mark.parametrize("backend", BACKENDS)

DAYS = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"]

NESTED = {
    "type": "object",
    "properties": {
        "day": {"enum": DAYS},
        "at": {"type": "array", "items": {"type": "integer"}, "minItems": 1, "maxItems": 3},
        "note": {"anyOf": [{"type": "string", "maxLength": 8}, {"type": "null"}]},
    },
    "required": ["day", "at", "note"],
    "additionalProperties": False,
}

PLAIN = ["10, 20, 30, 40,", "a, b, c, d, e,", "one, two, three, four,"]


# --- everything at once

KINDS = [
    by_schema(RECORD),
    by_schema(NESTED),
    by_schema({"type": "array", "items": {"type": "boolean"}, "maxItems": 4}, "response_format"),
    by_schema(RECORD, "response_format"),
    by_object(),
    by_regex("(cat|dog) [0-9]{2}"),
    by_regex("^[A-F]{3}-[0-9]{3}$"),
    by_regex("[a-z]+( [a-z]+){0,4}[.!]?"),
    by_regex("[а-я]{2,6}|[0-9]*"),
    by_choice(*DAYS),
    by_choice("New", "New York", "New York City"),
    by_choice("🐈", "🦑🦑", "日本"),
    sums("ebnf"),
    sums("lark"),
]

REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"guided_regex": "ab**"}, "guided_regex"),
    ({"guided_json": {"$ref": "#"}}, "guided_json"),
    ({"guided_grammar": "root ::= missing"}, "guided_grammar"),
    ({"guided_choice": ["a"], "guided_decoding_backend": "nonsense"}, "guided_decoding_backend"),
    ({"guided_choice": ["a"], "guided_regex": "a"}, "guided_choice"),
]


def request_of_any_kind(server: Server, pick: random.Random, solo: list[str]) -> Callable[[], str]:
    """A request that checks its own answer, and says what it was."""
    kind = pick.random()
    stream = pick.random() < 0.5
    ask = answer_streamed if stream else answer_whole
    if kind < 0.12:
        index = pick.randrange(len(PLAIN))

        def plain() -> str:
            (choice,) = ask(server, prompt=PLAIN[index], max_tokens=8, temperature=0)
            assert choice["text"] == solo[index]
            return "plain"

        return plain
    if kind < 0.2:
        fields, field = pick.choice(REFUSED)

        def refused() -> str:
            response = server.post(prompt="Hi", max_tokens=8, stream=stream, **fields)
            assert response.status_code == 400, response.text
            assert field in error_of(response)["message"]
            return "refused"

        return refused
    asked = pick.choice(KINDS)
    backend = pick.choice(asked.backends)
    fields = {
        "prompt": pick.choice(["Record:", "A list of days:", "1 + 1 =", "Say something:"]),
        "max_tokens": pick.choice([8, 12, 16, 24, 40]),
        "temperature": pick.choice([0, 0.5, 1.0, 1.5]),
        "n": pick.choice([1, 1, 1, 2, 4]),
        "seed": pick.randint(0, 10**6),
        "guided_decoding_backend": backend,
        **asked.fields,
    }

    def guided() -> str:
        choices = ask(server, **fields)
        assert len(choices) == fields["n"]
        asked.check(choices)
        return f"{backend} {next(iter(asked.fields))}"

    return guided


def answer_whole(server: Server, **fields: Any) -> list[dict[str, Any]]:
    """The choices of a whole answer."""
    return server.ask(**fields).choices


def answer_streamed(server: Server, **fields: Any) -> list[dict[str, Any]]:
    """The choices of a stream."""
    return server.stream(**fields).in_order()


def test_everything_at_once(server: Server) -> None:
    """300 requests of all kinds on all backends, 24 at a time, among plain and refused ones: each
    gets what it asked for, and the engine is idle afterwards."""
    solo = [server.greedy(prompt, 8) for prompt in PLAIN]
    pick = random.Random(12)
    requests = [request_of_any_kind(server, pick, solo) for _ in range(300)]
    seen = set(at_once(requests, workers=24))
    guided = {
        f"{backend} {next(iter(asked.fields))}" for asked in KINDS for backend in asked.backends
    }
    assert seen == guided | {"plain", "refused"}
    server.check_idle()


# --- beside other fields


def test_ignore_eos_ends_where_only_the_end_can_come(server: Server) -> None:
    """With ignore_eos a complete constraint still ends; one that can go on goes on."""
    fields: dict[str, Any] = {"prompt": "PIN:", "max_tokens": 12, "temperature": 1.0, "seed": 2}

    def call(name: str) -> None:
        ask = {**fields, "n": 3, "ignore_eos": True, "guided_decoding_backend": name}
        three = server.both(**ask, guided_regex="[0-9]{3}")
        assert all(re.fullmatch("[0-9]{3}", text) for text in three.texts)
        assert {choice["finish_reason"] for choice in three.choices} == {"stop"}
        many = server.both(**ask, guided_regex="[0-9]*")
        assert all(re.fullmatch("[0-9]{12,}", text) for text in many.texts)
        assert {choice["finish_reason"] for choice in many.choices} == {"length"}
        assert many.usage["completion_tokens"] == 36

    on_each(BACKENDS, call)


def test_stop_strings_and_stop_tokens(server: Server) -> None:
    """A constrained text is cut by stop strings and stop tokens like any other."""
    fields: dict[str, Any] = {"prompt": "one, two, three, four,", "max_tokens": 16}
    fields |= {"temperature": 0, "guided_regex": "[a-z, ]*"}
    assert " six" in server.greedy("one, two, three, four,", 16)

    def call(name: str) -> None:
        ask = {**fields, "guided_decoding_backend": name}
        cut = server.both(**ask, stop=["ix", "!"])
        assert (cut.text, cut.finish_reason) == (" five, s", "stop")
        kept = server.both(**ask, stop=["ix"], include_stop_str_in_output=True)
        assert (kept.text, kept.finish_reason) == (" five, six", "stop")
        by_token = server.both(**ask, stop_token_ids=[2976], logprobs=0)
        assert (by_token.text, by_token.finish_reason) == (" five, six", "stop")

    on_each(BACKENDS, call)


def test_logit_bias_moves_within_the_constraint(server: Server) -> None:
    """A bias chooses among what is allowed, and cannot bring in what is not."""
    fields: dict[str, Any] = {"prompt": "x", "max_tokens": 8, "temperature": 0}
    fields["logit_bias"] = {"7042": 100}  # " Paris"

    def call(name: str) -> None:
        ask = {**fields, "guided_decoding_backend": name}
        assert server.both(**ask, guided_regex=" [A-Z][a-z]{4}").text == " Paris"
        assert server.both(**ask, guided_choice=["good", "bad"]).text in ("good", "bad")
        # Nor can the end of the text be forced where it is not allowed, or banned where it is due.
        for value in (100, -100):
            ask["logit_bias"] = {"2": value}
            assert server.both(**ask, guided_choice=["good", "bad"]).text in ("good", "bad")

    on_each(BACKENDS, call)


def test_echo_and_scores(server: Server) -> None:
    """echo puts the prompt before the constrained text; all scores are finite."""
    prompt = "The sky is"
    fields: dict[str, Any] = {"prompt": prompt, "max_tokens": 40, "echo": True, "logprobs": 3}

    def call(name: str) -> None:
        ask = {**fields, "temperature": 1.0, "seed": 8, "n": 2, "guided_decoding_backend": name}
        for asked in (by_choice(" blue.", " grey."), by_schema(RECORD)):
            reply = server.both(**ask, **asked.fields)
            assert all(text.startswith(prompt) for text in reply.texts)
            asked.check(
                {**choice, "text": choice["text"].removeprefix(prompt)} for choice in reply.choices
            )
            for choice in reply.choices:
                logprobs = choice["logprobs"]
                assert "".join(logprobs["tokens"]).startswith(choice["text"])
                assert logprobs["token_logprobs"][0] is None
                tops = [value for top in logprobs["top_logprobs"][1:] for value in top.values()]
                assert all(map(math.isfinite, logprobs["token_logprobs"][1:] + tops))

    on_each(BACKENDS, call)


@each_backend
def test_seeds_repeat(server: Server, backend: str) -> None:
    """A seed repeats its constrained answers, and another gives others."""
    fields: dict[str, Any] = {"prompt": "ID:", "max_tokens": 12, "temperature": 1.5, "n": 4}
    fields |= {"guided_regex": "[A-Z]{3}-[0-9]{4}", "guided_decoding_backend": backend}
    first = server.both(**fields, seed=5).texts
    assert len(set(first)) > 1
    assert server.ask(**fields, seed=6).texts != first


def test_best_of(server: Server) -> None:
    """The best of several constrained answers hold the constraint, best first, all counted."""
    fields: dict[str, Any] = {"prompt": "Pet:", "max_tokens": 12, "temperature": 1.5, "seed": 4}
    asked = by_regex("(cat|dog|axolotl) [0-9]{2}")

    def call(name: str) -> None:
        ask = {**fields, **asked.fields, "logprobs": 0, "guided_decoding_backend": name}
        reply = server.ask(**ask, n=2, best_of=5)
        asked.check(reply.choices)
        scores = [choice["logprobs"]["token_logprobs"] for choice in reply.choices]
        means = [sum(values) / len(values) for values in scores]
        assert means == sorted(means, reverse=True)
        assert reply.usage["completion_tokens"] > sum(map(len, scores))

    on_each(BACKENDS, call)


def test_many_prompts(server: Server) -> None:
    """Texts or token ids, one or several, each n times: every answer is constrained."""
    asked = by_choice("yes", "no", "maybe")
    fields: dict[str, Any] = {"max_tokens": 8, "temperature": 1.2, "seed": 3, "n": 2}
    prompts: list[Any] = [[504, 3575, 282], ["Is it?", "Was it?", "Will it?"], [[455], [9298]]]

    def call(name: str) -> None:
        for prompt, count in zip(prompts, (2, 6, 4), strict=True):
            reply = server.both(
                **fields, **asked.fields, prompt=prompt, guided_decoding_backend=name
            )
            assert len(reply.choices) == count
            assert {choice["finish_reason"] for choice in reply.choices} == {"stop"}
            asked.check(reply.choices)

    on_each(BACKENDS, call)


def test_beams(server: Server) -> None:
    """Every beam is held to the constraint on each backend, and the model's scores rank them."""
    colours = {"enum": ["red", "green", "blue", "yellow"]}
    schema = {
        "type": "object",
        "properties": {"colour": colours},
        "required": ["colour"],
        "additionalProperties": False,
    }
    fields: dict[str, Any] = {"prompt": "The colour of grass:", "max_tokens": 40, "logprobs": 1}
    fields |= {"guided_whitespace_pattern": "", "use_beam_search": True, "n": 2, "best_of": 3}

    def call(name: str) -> None:
        reply = server.ask(**fields, guided_json=schema, guided_decoding_backend=name)
        for choice in reply.choices:
            assert choice["finish_reason"] == "stop"
            assert satisfies(schema, choice["text"])
        best, second = (sum(choice["logprobs"]["token_logprobs"]) for choice in reply.choices)
        lengths = [len(choice["logprobs"]["tokens"]) for choice in reply.choices]
        assert best / lengths[0] >= second / lengths[1] - 1e-4

    on_each(BACKENDS, call)


def test_combinations_that_are_refused(server: Server) -> None:
    """What cannot be done beside a constraint is refused by name."""
    fields: dict[str, Any] = {"prompt": "Hi", "max_tokens": 4, "guided_choice": ["a", "b"]}
    server.refuses("guided_whitespace_pattern", **fields, guided_whitespace_pattern="[ ]?")
    server.refuses("suffix", **fields, suffix="!")


@pytest.mark.parametrize("pattern", ["[a-z]?", "(", "x*"])
def test_whitespace_patterns_that_are_refused(server: Server, pattern: str) -> None:
    """What is no pattern of blanks is refused, whichever backend is named."""
    on_each(
        BACKENDS,
        lambda name: server.refuses(
            "guided_whitespace_pattern",
            prompt="Hi",
            guided_json=RECORD,
            guided_whitespace_pattern=pattern,
            guided_decoding_backend=name,
        ),
    )


def test_long_prompts(server: Server) -> None:
    """A prompt prefilled in pieces, and then found in the prefix cache, gives the same text."""
    prompt = "alpha beta gamma delta " * 380

    def call(name: str) -> None:
        asked = by_schema(RECORD)
        ask = {**asked.fields, "prompt": prompt, "max_tokens": 24, "temperature": 0}
        first = server.ask(**ask, guided_decoding_backend=name)
        assert first.usage["prompt_tokens"] > 1500
        asked.check(first.choices)
        assert server.both(**ask, guided_decoding_backend=name).text == first.text

    for name in ("auto", "xgrammar"):  # one after the other: the first one fills the cache
        call(name)


# --- blanks


@pytest.mark.parametrize("pattern", ["", "[ ]?", r"[\n ]{0,3}", r"\s*"])
def test_whitespace_pattern(server: Server, pattern: str) -> None:
    """Every run of blanks outside of strings is what the pattern says, on every backend."""
    asked = by_schema(NESTED)
    fields: dict[str, Any] = {**asked.fields, "prompt": "Record:", "max_tokens": 120}
    fields["guided_whitespace_pattern"] = pattern

    def call(name: str) -> None:
        ask = {**fields, "guided_decoding_backend": name}
        greedy = server.both(**ask, temperature=0).choices
        hot = [
            choice
            for seed in (1, 2)
            for choice in server.ask(**ask, temperature=1.0, seed=seed, n=4).choices
        ]
        asked.check(greedy + hot)
        assert any(choice["finish_reason"] == "stop" for choice in hot) or pattern == r"\s*"
        for choice in greedy + hot:
            finished = choice["finish_reason"] == "stop"
            runs = blank_runs(choice["text"], finished=finished)
            assert all(re.fullmatch(pattern, run) for run in runs), choice["text"]
            if not finished:
                tail = re.search(r"\s*\Z", choice["text"])
                assert tail
                in_string = choice["text"].replace('\\"', "").count('"') % 2
                assert in_string or regex.fullmatch(pattern, tail[0], partial=True)

    on_each(BACKENDS, call)


@pytest.mark.parametrize("blank", ["Ġ", "Ċ", "ĊĊ"])
def test_blanks_end_by_themselves(server: Server, model_folder: Path, blank: str) -> None:
    """Without a pattern, no bias makes a run of more than 20 blanks."""
    token = Tokenizer.from_file(str(model_folder / "tokenizer.json")).token_to_id(blank)
    asked = by_schema({"type": "array", "items": {"const": 1}, "minItems": 1, "maxItems": 1})
    fields: dict[str, Any] = {"prompt": "x", "max_tokens": 80, "logit_bias": {str(token): 30}}
    fields |= {"temperature": 0, **asked.fields}
    for reply in on_each(
        BACKENDS, lambda name: server.ask(**fields, guided_decoding_backend=name)
    ).values():
        assert reply.finish_reason == "stop"
        asked.check(reply.choices)
        assert all(len(run) <= 20 for run in blank_runs(reply.text, finished=True))
    anything = server.ask(**{**fields, "guided_json": {"type": "object"}})
    runs = blank_runs(anything.text, finished=anything.finish_reason == "stop")
    assert all(len(run) <= 20 for run in runs)


# --- schemas that no backend holds

DISTINCT = by_schema(
    {
        "type": "array",
        "items": {"type": "array", "items": {"enum": [1, 2]}, "minItems": 1, "maxItems": 1},
        "minItems": 2,
        "maxItems": 2,
        "uniqueItems": True,
    }
)


def test_finished_texts_are_checked(server: Server) -> None:
    """Where no backend holds the schema, auto checks the text, and makes one that fails again."""
    fields: dict[str, Any] = {**DISTINCT.fields, "prompt": "Two numbers:", "max_tokens": 40}
    fields |= {"temperature": 1.0, "guided_whitespace_pattern": ""}

    def whole(seed: int) -> str:
        response = server.post(**fields, seed=seed)
        assert response.status_code == 200, response.text
        DISTINCT.check(response.json()["choices"])
        assert response.json()["choices"][0]["finish_reason"] == "stop"
        # Two numbers are nine tokens and an end; a text that was thrown away is as long.
        held, _, retries = response.headers["x-guided-decoding"].partition("; retries=")
        assert held == "guidance; checked"
        made = response.json()["usage"]["completion_tokens"]
        assert made > 9 * int(retries or 0)
        return retries

    def streamed(seed: int) -> str:
        body = {"model": server.model, "stream": True, **fields, "seed": seed}
        with server.http.stream("POST", "/v2/completions", json=body) as response:
            raw = response.read()
        event, end = sse_events(raw)
        assert end == "[DONE]"
        assert satisfies(DISTINCT.fields["guided_json"], strict_json(event)["choices"][0]["text"])
        return response.headers["x-guided-decoding"].partition("; retries=")[2]

    calls = [lambda seed=seed: (whole(seed), streamed(seed)) for seed in range(20)]
    outcomes = at_once(calls)
    assert {bool(of_whole) for of_whole, _ in outcomes} == {True, False}
    assert all(of_whole == of_stream for of_whole, of_stream in outcomes)


@pytest.mark.parametrize("backend", BACKENDS[1:])
def test_named_backend_refuses_what_it_cannot_hold(server: Server, backend: str) -> None:
    """A backend that is named refuses the keyword by its name, and says who can."""
    error = server.refuses(
        "guided_json",
        **DISTINCT.fields,
        prompt="x",
        max_tokens=8,
        guided_decoding_backend=backend,
    )
    assert "uniqueItems" in error["message"]
    assert '"auto"' in error["message"]


# --- vLLM's own structured outputs


def test_vllm_s_own_route_says_the_same(server: Server) -> None:
    """At temperature 0 vLLM's own xgrammar and ours write the same text.

    In JSON that holds where what has to be said is said in one way: beside xgrammar stands
    llguidance here, which spells forced names as the tokenizer would ("day", not "d" and "ay").
    """
    pairs = [
        ("Phone:", by_regex("[0-9]{3}-[0-9]{4}")),
        ("Word:", by_regex("(red|green|blue) [a-z]{2,8}")),
        ("Record:", by_schema(RECORD)),
    ]
    for prompt, asked in pairs:
        fields: dict[str, Any] = {"prompt": prompt, "max_tokens": 40, "temperature": 0}
        structured = {name.removeprefix("guided_"): asked.fields[name] for name in asked.fields}
        theirs = server.post("/v1/completions", **fields, structured_outputs=structured)
        assert theirs.status_code == 200, theirs.text
        ours = server.both(**fields, **asked.fields, guided_decoding_backend="xgrammar")
        asked.check(ours.choices)
        assert ours.text == theirs.json()["choices"][0]["text"]


def closed(**properties: Any) -> dict[str, Any]:
    """A closed object with these properties, all required."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def test_vllm_s_own_backends_change_between_requests(server: Server) -> None:
    """vLLM's route resolves "auto" for each request, and each has its own backend, beside ours."""
    schemas: list[dict[str, Any]] = [
        closed(a={"type": "boolean"}),  # xgrammar
        closed(m={"type": "integer", "multipleOf": 5}),  # guidance
        {**closed(a={"type": "boolean"}), "patternProperties": {"^b": {"type": "integer"}}},
    ]

    def theirs(schema: dict[str, Any]) -> None:
        response = server.post(
            "/v1/completions",
            prompt="Record:",
            max_tokens=60,
            seed=1,
            structured_outputs={"json": schema},
        )
        assert response.status_code == 200, response.text
        by_schema(schema).check(response.json()["choices"])

    def ours(schema: dict[str, Any]) -> None:
        asked = by_schema(schema)
        reply = server.ask(**asked.fields, prompt="Record:", max_tokens=60, seed=1)
        asked.check(reply.choices)

    for schema in schemas + schemas[::-1]:
        theirs(schema)
        ours(schema)
    at_once([partial(ask, schema) for ask in (theirs, ours) for schema in schemas * 3])


# --- hostile constraints


def _large_schema() -> dict[str, Any]:
    count = 14_000
    names = [f"property number {index}" for index in range(count)]
    return closed(**{name: {"type": "string", "maxLength": 9} for name in names})


# Seconds: 5 of CPU, which may take twice as long, a grace of 2, and what ten requests at once do to
# two cores that may have other work.
LONGEST = 20

HOSTILE: dict[str, dict[str, Any]] = {
    "nested repeats": {"guided_regex": "((a|b){0,300}c){0,300}"},
    "fewer repeats": {"guided_regex": "((a|b){0,60}c){0,60}"},
    "20,000 choices": {"guided_choice": [f"item {index * 7919}" for index in range(20_000)]},
    "900 kB of schema": {"guided_json": _large_schema()},
}


def worker_seconds(server: Server) -> dict[int, float]:
    """The CPU time of each process that compiles constraints for the server."""
    children: dict[int, list[int]] = {}
    seconds: dict[int, float] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            values = stat.read_text().rsplit(")", 1)[1].split()
            command = (stat.parent / "cmdline").read_text()
        except (OSError, IndexError):
            continue
        process = int(stat.parent.name)
        children.setdefault(int(values[1]), []).append(process)
        if "adapter.guided.compile.worker" in command:
            seconds[process] = (int(values[11]) + int(values[12])) / 100
    ours: list[int] = []
    waiting = [server.process.pid]
    while waiting:
        process = waiting.pop()
        waiting += children.get(process, [])
        ours.append(process)
    return {process: seconds[process] for process in ours if process in seconds}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_constraint(server: Server, name: str) -> None:
    """On each backend it is answered or refused while plain requests go on, and nothing is left
    at work."""
    fields = HOSTILE[name]
    (field,) = fields
    solo = [server.greedy(prompt, 8) for prompt in PLAIN]

    def hostile(backend: str) -> None:
        started = time.monotonic()
        response = server.post(prompt="Hi", max_tokens=6, guided_decoding_backend=backend, **fields)
        assert time.monotonic() - started < LONGEST
        if response.status_code == 400:
            error = error_of(response)
            assert error["param"] == field
            assert field in error["message"]
            return
        assert response.status_code == 200, response.text
        choice = response.json()["choices"][0]
        if field == "guided_regex":
            by_regex(fields[field]).check([choice])
        elif field == "guided_choice":
            by_choice(*fields[field]).check([choice])
        else:
            assert choice["finish_reason"] == "length"
            assert choice["text"].startswith("{")

    def plain(index: int) -> None:
        started = time.monotonic()
        prompt = PLAIN[index % len(PLAIN)]
        assert server.greedy(prompt, 8) == solo[index % len(PLAIN)]
        assert time.monotonic() - started < LONGEST

    at_once(
        [partial(hostile, backend) for backend in BACKENDS]
        + [partial(plain, index) for index in range(5)]
    )
    time.sleep(0.5)
    before = worker_seconds(server)
    assert 0 < len(before) <= 16
    time.sleep(1)
    after = worker_seconds(server)
    assert all(after[process] - before.get(process, 0) < 0.1 for process in after)
    server.check_alive()
