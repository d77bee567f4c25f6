"""Faults that people met with servers of this kind, on a real server with real weights."""

import asyncio
import time
from typing import Any

import httpx
import pytest

from tests.live.server import Server, error_of, strict_json

pytestmark = pytest.mark.live

DAYS = "The seven days of the week are: Monday, Tuesday, Wednesday,"


def chat(question: str) -> str:
    """A question in the built-in model's chat form."""
    return f"<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n"


# --- echo, logprobs, text_offset


def test_scores_a_prompt_without_generating(server: Server) -> None:
    """echo with max_tokens 0 and logprobs scores each prompt token and generates none."""
    prompt = "Paris is the capital of France"
    reply = server.both(prompt=prompt, max_tokens=0, echo=True, logprobs=1, temperature=0)
    logprobs = reply.logprobs
    assert reply.text == prompt == "".join(logprobs["tokens"])
    lengths = {len(values) for values in logprobs.values()}
    assert lengths == {reply.usage["prompt_tokens"]}
    assert logprobs["token_logprobs"][0] is logprobs["top_logprobs"][0] is None
    assert all(value <= 0 for value in logprobs["token_logprobs"][1:])
    assert logprobs["text_offset"][0] == 0
    assert reply.usage["completion_tokens"] == 0
    assert reply.finish_reason == "length"


def test_scores_prompts_of_token_ids(server: Server) -> None:
    """The same for lists of token ids, one choice a prompt."""
    prompt = [[504, 3575, 282, 4649, 314], [10539]]
    reply = server.both(prompt=prompt, max_tokens=0, echo=True, logprobs=5, temperature=0)
    assert reply.texts == ["The capital of France is", "Yes"]
    assert [len(choice["logprobs"]["tokens"]) for choice in reply.choices] == [5, 1]


def test_max_tokens_0_without_scores(server: Server) -> None:
    """max_tokens 0 alone gives an empty text, with echo the prompt, and costs nothing."""
    reply = server.both(prompt=["a b", "c"], max_tokens=0, n=2)
    assert reply.texts == [""] * 4
    assert reply.usage["completion_tokens"] == 0
    assert server.both(prompt="a b", max_tokens=0, echo=True).text == "a b"


@pytest.mark.parametrize(
    "fields",
    [
        {"prompt": "purple ladder monkey soup", "max_tokens": 4, "top_k": 1, "echo": True},
        {"prompt": "Hi", "max_tokens": 6, "temperature": 0.01, "top_p": 0.1, "min_p": 0.5},
    ],
    ids=["top_k", "min_p"],
)
def test_logprobs_are_finite(server: Server, fields: dict[str, Any]) -> None:
    """Filtered tokens do not make the JSON infinite (every answer is parsed strictly)."""
    logprobs = server.ask(**fields, logprobs=5).logprobs
    own = [value for value in logprobs["token_logprobs"] if value is not None]
    top = [value for entry in logprobs["top_logprobs"] if entry for value in entry.values()]
    assert all(-10_000 < value <= 0 for value in own + top)


def test_filters_do_not_change_the_scores_of_the_prompt(server: Server) -> None:
    """top_k acts on sampling, not on the scores of an echoed prompt."""
    fields: dict[str, Any] = {"prompt": "purple ladder monkey soup", "max_tokens": 0}
    plain = server.ask(**fields, echo=True, logprobs=1).logprobs["token_logprobs"][1:]
    filtered = server.ask(**fields, echo=True, logprobs=1, top_k=1).logprobs["token_logprobs"][1:]
    assert filtered == pytest.approx(plain, abs=1e-3)


def test_logprobs_0_is_not_none(server: Server) -> None:
    """logprobs 0 gives the sampled tokens' own scores; null gives no logprobs."""
    reply = server.both(prompt="Once upon a", max_tokens=5, temperature=0, logprobs=0)
    assert "".join(reply.logprobs["tokens"]) == reply.text
    assert len(reply.logprobs["token_logprobs"]) == 5
    assert [list(top) for top in reply.logprobs["top_logprobs"]] == [
        [token] for token in reply.logprobs["tokens"]
    ]
    assert server.ask(prompt="Once", max_tokens=1, logprobs=None).choices[0]["logprobs"] is None


def test_streaming_with_echo_and_logprobs(server: Server) -> None:
    """The prompt comes once, in the first chunk of its index, and offsets count on from it."""
    fields: dict[str, Any] = {"prompt": "San Marino is a", "max_tokens": 7, "temperature": 0}
    reply = server.both(**fields, echo=True, logprobs=2)
    offsets = reply.logprobs["text_offset"]
    for token, offset in zip(reply.logprobs["tokens"], offsets, strict=True):
        assert reply.text[offset : offset + len(token)] == token
    stream = server.stream(**fields, echo=True, logprobs=2)
    assert stream.chunks[0]["choices"][0]["text"].startswith("San Marino is a")
    assert stream.choices[0]["text"].count("San Marino") == 1


def test_stop_string_and_logprobs_agree(server: Server) -> None:
    """A text cut at a stop string still has one logprobs entry for each token it cost."""
    whole = server.greedy(DAYS, 24)
    assert "Saturday" in whole
    reply = server.both(prompt=DAYS, max_tokens=24, temperature=0, stop=["Saturday"], logprobs=1)
    assert reply.text == whole[: whole.index("Saturday")]
    logprobs = reply.logprobs
    assert {len(values) for values in logprobs.values()} == {reply.usage["completion_tokens"]}
    joined = "".join(logprobs["tokens"])
    assert joined.startswith(reply.text)
    assert logprobs["text_offset"][-1] < len(reply.text) + len("Saturday")


def test_repeated_prompt_keeps_its_scores(server: Server) -> None:
    """A prompt whose blocks are cached is scored as the first time."""
    prompt = "alpha beta gamma delta " * 30
    fields: dict[str, Any] = {"max_tokens": 1, "temperature": 0, "echo": True, "logprobs": 1}
    replies = [server.ask(prompt=prompt, **fields) for _ in range(3)]
    server.ask(prompt=prompt[: len(prompt) // 2] + "something else", **fields)
    replies.append(server.ask(prompt=prompt, **fields))
    first = replies[0].logprobs["token_logprobs"]
    assert first.count(None) == 1
    for reply in replies[1:]:
        assert reply.logprobs["token_logprobs"][0] is None
        assert reply.logprobs["token_logprobs"][1:] == pytest.approx(first[1:], abs=1e-2)


# --- stop conditions


def test_stop_string_inside_a_token(server: Server) -> None:
    """A stop string that begins inside a token cuts the text there."""
    whole = server.greedy(DAYS, 24)
    assert "urs" in whole
    reply = server.both(prompt=DAYS, max_tokens=24, temperature=0, stop=["urs"])
    assert reply.text == whole[: whole.index("urs")]
    assert reply.finish_reason == "stop"


def test_stream_never_shows_the_beginning_of_a_stop_string(server: Server) -> None:
    """A long stop string is held back until it is certain."""
    stop = "Thursday, Friday, Saturday"
    whole = server.greedy(DAYS, 40)
    assert stop in whole
    reply = server.both(prompt=DAYS, max_tokens=40, temperature=0, stop=[stop])
    assert reply.text == whole[: whole.index(stop)]


@pytest.mark.parametrize("include", [True, False, None])
def test_include_stop_str_in_output(server: Server, include: bool | None) -> None:
    """The text ends with the stop string that completes first, or just before it."""
    stops = ["Sat", "urday"]
    whole = server.greedy(DAYS, 24)
    end, start = min(
        (whole.index(stop) + len(stop), whole.index(stop)) for stop in stops if stop in whole
    )
    reply = server.both(
        prompt=DAYS, max_tokens=24, temperature=0, stop=stops, include_stop_str_in_output=include
    )
    assert reply.text == whole[: end if include else start]


def test_min_tokens_holds_back_end_and_stop_tokens(server: Server) -> None:
    """Neither EOS nor a stop token ends an answer before min_tokens."""
    for biased, fields in (({"2": 100}, {}), ({"7042": 100}, {"stop_token_ids": [7042]})):
        asked: dict[str, Any] = {"prompt": "x", "max_tokens": 12, "temperature": 0, **fields}
        reply = server.both(**asked, logit_bias=biased, min_tokens=5)
        assert reply.finish_reason == "stop"
        assert 5 <= reply.usage["completion_tokens"] <= 6
        assert server.ask(**asked, logit_bias=biased).usage["completion_tokens"] <= 1
    server.refuses("min_tokens", prompt="x", max_tokens=4, min_tokens=5)


def test_ignore_eos(server: Server) -> None:
    """ignore_eos goes on to max_tokens; the end tokens print nothing."""
    reply = server.both(
        prompt="x", max_tokens=12, temperature=0, logit_bias={"2": 100}, ignore_eos=True
    )
    assert reply.usage["completion_tokens"] == 12
    assert (reply.finish_reason, reply.text) == ("length", "")


def test_plain_stop_token_stays_in_the_text(server: Server) -> None:
    """A stop token that is not special stays in the text; a special one does not."""
    prompt = "one, two, three, four,"
    assert " six" in server.greedy(prompt, 24)
    reply = server.both(
        prompt=prompt, max_tokens=24, temperature=0, stop_token_ids=[2976], logprobs=0
    )
    assert reply.text.endswith(" six")
    assert reply.finish_reason == "stop"
    assert "".join(reply.logprobs["tokens"]) == reply.text
    ended = server.both(
        prompt="x", max_tokens=4, temperature=0, logit_bias={"1": 100}, stop_token_ids=[1]
    )
    assert (ended.text, ended.finish_reason) == ("", "stop")


def test_stop_string_that_ends_in_a_stop_token(server: Server) -> None:
    """Where a kept stop token completes a stop string, the string's rule holds."""
    reply = server.both(
        prompt="one, two, three, four,",
        max_tokens=24,
        temperature=0,
        stop_token_ids=[2976],
        stop=["six"],
    )
    assert reply.text.endswith(", ")
    assert "six" not in reply.text


def test_special_tokens_show_when_asked_for(server: Server) -> None:
    """skip_special_tokens false shows the control tokens that were generated."""
    fields: dict[str, Any] = {"prompt": "x", "max_tokens": 3, "temperature": 0}
    forced = server.both(**fields, logit_bias={"1": 100}, skip_special_tokens=False)
    assert forced.text.count("<|im_start|>") == 3
    joined = server.both(
        **fields,
        logit_bias={"1": 100},
        skip_special_tokens=False,
        spaces_between_special_tokens=False,
        logprobs=1,
    )
    assert joined.text == "<|im_start|>" * 3
    assert server.both(**fields, logit_bias={"1": 100}).text == ""


# --- protocol, prompts, numbers

UNICODE_PROMPTS = [
    "Copy this: 🐈🌶日本 -> 🐈🌶日本. Copy this: 🦑🦑🐧 ->",
    "日本語の文章:",
    "Ünïcödé naïve café — “quotes” …",
    "Привет, как",
    "👩‍👩‍👧‍👦 family emoji, e\u0301 combining",
]


@pytest.mark.parametrize("prompt", UNICODE_PROMPTS)
def test_characters_of_several_tokens(server: Server, prompt: str) -> None:
    """Text and offsets are right where characters take several tokens."""
    reply = server.both(prompt=prompt, max_tokens=24, temperature=0, echo=True, logprobs=3)
    logprobs = reply.logprobs
    assert reply.text.startswith(prompt)
    assert "\ufffd" not in reply.text
    for token, offset in zip(logprobs["tokens"], logprobs["text_offset"], strict=True):
        if not token.startswith("<|"):
            assert reply.text[offset : offset + len(token)] == token
    assert all(len(top) >= 3 for top in logprobs["top_logprobs"][1:])


def test_prompt_that_ends_inside_a_character_leaks_nothing(server: Server) -> None:
    """A completion after half a character holds nothing of the prompt."""
    ids = [19556, 905, 10813, 234]  # "Hello world", then the first bytes of an emoji
    for fields in ({"seed": 5}, {"logit_bias": {"226": 100}}, {"logit_bias": {"504": 100}}):
        asked: dict[str, Any] = {"prompt": ids, "max_tokens": 8, "temperature": 0, **fields}
        reply = server.both(**asked)
        assert "Hello" not in reply.text
        assert "\ufffd" not in reply.text[:1]
        assert server.both(**asked, echo=True).text == "Hello world" + reply.text
    finished = server.both(prompt=ids, max_tokens=1, temperature=0, logit_bias={"226": 100})
    assert finished.text == "🐈"
    # A stop string that stands in the prompt stops nothing.
    stopped = server.both(
        prompt=ids, max_tokens=3, temperature=0, stop=["Hello"], logit_bias={"504": 100}
    )
    assert (stopped.text, stopped.finish_reason) == ("TheTheThe", "length")


@pytest.mark.parametrize("prompts", [["red", "green", "blue"], [[455], [9298], [16591]]])
def test_order_of_prompts_and_answers(server: Server, prompts: list[Any]) -> None:
    """Choice j belongs to prompt j // n, streamed and not."""
    fields: dict[str, Any] = {"prompt": prompts, "n": 2, "max_tokens": 3, "seed": 1, "echo": True}
    names = ["red", "green", "blue"]
    reply = server.ask(**fields)
    stream = server.stream(**fields)
    assert len(reply.choices) == len(stream.choices) == 6
    for choices in (reply.choices, stream.in_order()):
        for index, choice in enumerate(choices):
            assert choice["text"].startswith(names[index // 2])


def test_usage_in_a_stream(server: Server) -> None:
    """The last chunk has the totals, every other one usage null; not asked for: no usage key."""
    fields: dict[str, Any] = {"prompt": ["one", "two"], "n": 3, "max_tokens": 5, "ignore_eos": True}
    stream = server.stream(**fields, stream_options={"include_usage": True})
    assert stream.chunks[-1]["choices"] == []
    assert stream.chunks[-1]["usage"] == {
        "prompt_tokens": 2,
        "completion_tokens": 30,
        "total_tokens": 32,
    }
    assert all(chunk["usage"] is None for chunk in stream.chunks[:-1])
    plain = server.stream(**fields)
    assert all(chunk["choices"] and "usage" not in chunk for chunk in plain.chunks)


def test_seed_with_several_answers(server: Server) -> None:
    """n seeded answers differ from one another, and repeat; another seed gives others."""
    fields: dict[str, Any] = {"prompt": "Once", "n": 4, "temperature": 1.5, "max_tokens": 24}
    first = server.ask(**fields, seed=42, ignore_eos=True).texts
    assert len(set(first)) >= 2
    assert server.ask(**fields, seed=42, ignore_eos=True).texts == first
    assert server.ask(**fields, seed=43, ignore_eos=True).texts != first


@pytest.mark.parametrize("seed", [-1, 0, -(2**63), 2**64 + 1, -(10**30)])
def test_every_integer_is_a_seed(server: Server, seed: int) -> None:
    """Seeds outside the engine's range repeat like others."""
    fields: dict[str, Any] = {"prompt": "Once", "temperature": 1.5, "max_tokens": 12, "seed": seed}
    assert server.ask(**fields).text == server.ask(**fields).text


@pytest.mark.parametrize("stream", [False, True])
def test_temperature_0_with_several_answers(server: Server, stream: bool) -> None:
    """n greedy answers are the same text, and all of them count."""
    fields: dict[str, Any] = {"prompt": "10, 20, 30, 40,", "max_tokens": 8, "temperature": 0}
    reply = server.both(**fields, n=3, logprobs=1)
    assert reply.texts == [server.greedy(fields["prompt"], 8)] * 3
    assert reply.usage["completion_tokens"] == 24


OPTIONAL = [
    *("best_of", "top_k", "min_p", "use_beam_search", "length_penalty", "repetition_penalty"),
    *("early_stopping", "stop_token_ids", "include_stop_str_in_output", "ignore_eos"),
    *("min_tokens", "skip_special_tokens", "spaces_between_special_tokens"),
    *("add_special_tokens", "response_format", "guided_json", "guided_regex", "guided_choice"),
    *("guided_grammar", "guided_decoding_backend", "guided_whitespace_pattern", "echo"),
    *("frequency_penalty", "logit_bias", "logprobs", "max_tokens", "n", "presence_penalty"),
    *("stop", "stream", "stream_options", "suffix", "temperature", "top_p", "user"),
]


def test_null_equals_absent(server: Server) -> None:
    """All optional fields null, together and each alone, change nothing."""
    plain = server.ask(prompt="Hello there", seed=3)
    assert plain.usage["completion_tokens"] == 16 or plain.finish_reason == "stop"
    nulls = dict.fromkeys(OPTIONAL)
    assert server.ask(prompt="Hello there", seed=3, **nulls).text == plain.text
    for name in OPTIONAL:
        assert server.ask(prompt="Hello there", seed=3, **{name: None}).text == plain.text
        if name != "stream":
            streamed = server.stream(prompt="Hello there", seed=3, **{name: None})
            assert streamed.choices[0]["text"] == plain.text
    assert server.post(prompt="Hello there", seed=None).status_code == 200


def test_unknown_fields_are_named(server: Server) -> None:
    """Unknown fields change nothing and are named in a header; `user` is not unknown."""
    plain = server.ask(prompt="Hello there", seed=3)
    assert not plain.headers.get("x-ignored-fields")
    extras = {"max_completion_tokens": 50, "service_tier": "auto", "guided_grammer": "x"}
    reply = server.ask(prompt="Hello there", seed=3, user="u-1", **extras)
    assert reply.text == plain.text
    assert reply.headers["x-ignored-fields"] == ", ".join(extras)
    stream = server.stream(prompt="Hello there", seed=3, user="u-1", **extras)
    assert stream.choices[0]["text"] == plain.text
    assert stream.headers["x-ignored-fields"] == ", ".join(extras)


def test_empty_prompts_start_a_new_document(server: Server) -> None:
    """null and "" are the document separator alone; empty lists are refused."""
    fields: dict[str, Any] = {"max_tokens": 4, "temperature": 0}
    separator = server.both(prompt=[0], **fields)
    for prompt in ("", [""], None):
        reply = server.both(prompt=prompt, **fields)
        assert reply.text == separator.text
        assert reply.usage["prompt_tokens"] == 1
        assert server.both(prompt=prompt, **fields, echo=True, logprobs=1).text == reply.text
    empty: list[list[Any]] = [[], [[]], ["ok", [5, 6]]]
    for wrong in empty:
        server.refuses("prompt", prompt=wrong, max_tokens=4)
    assert server.both(prompt="<|endoftext|>", **fields).text == separator.text
    missing = server.http.post("/v2/completions", json={"model": server.model})
    assert (missing.status_code, error_of(missing)["param"]) == (400, "prompt")
    missing = server.http.post("/v2/completions", json={"prompt": "x"})
    assert (missing.status_code, error_of(missing)["param"]) == (400, "model")


@pytest.mark.parametrize(
    ("field", "fields"),
    [
        ("prompt", {"prompt": [999999], "max_tokens": 2}),
        ("prompt", {"prompt": [[-1]], "max_tokens": 2}),
        ("logit_bias", {"prompt": "Hi", "max_tokens": 2, "logit_bias": {"49152": 1}}),
        (
            "stop_token_ids",
            {"prompt": "Hi", "max_tokens": 4, "min_tokens": 2, "stop_token_ids": [49152]},
        ),
        ("logit_bias", {"prompt": "Hi", "max_tokens": 2, "logit_bias": {"-1": 5}}),
    ],
    ids=["prompt", "negative", "logit_bias", "stop_token_ids", "negative logit_bias"],
)
def test_ids_outside_the_vocabulary(server: Server, field: str, fields: dict[str, Any]) -> None:
    """Ids that the model does not have are refused by the field that holds them."""
    server.refuses(field, **fields)


def test_logit_bias_forces_and_bans(server: Server) -> None:
    """A bias of 100 forces a token, one of -100 bans it, {} does nothing."""
    forced = server.both(prompt="x", max_tokens=4, temperature=0, logit_bias={"7042": 100})
    assert forced.text == " Paris Paris Paris Paris"
    question = "The capital of France is"
    banned = server.ask(prompt=question, max_tokens=8, temperature=0, logit_bias={"7042": -100})
    assert " Paris" not in banned.text
    fields: dict[str, Any] = {"prompt": "Hi", "max_tokens": 2, "temperature": 0}
    assert server.ask(**fields, logit_bias={}).text == server.ask(**fields).text
    for bias in ({"cat": 5}, {"5": 0.5}, {"5": 101}, {"5": -101}):
        server.refuses("logit_bias", prompt="Hi", max_tokens=2, logit_bias=bias)
    endless = server.ask(
        prompt=chat("What is the capital of France?"),
        max_tokens=40,
        temperature=0,
        logit_bias={"2": -100},
    )
    assert endless.finish_reason == "length"


OVER_THE_LIMIT = [
    *(("temperature", value) for value in (-0.1, 2.1)),
    *(("top_p", value) for value in (-0.1, 1.1)),
    *(("top_k", value) for value in (-2, 1.5)),
    *(("min_p", value) for value in (-0.1, 1.1)),
    *(("n", value) for value in (0, 129)),
    *(("best_of", value) for value in (-1, 21)),
    *(("logprobs", value) for value in (-1, 6)),
    ("max_tokens", -1),
    *(("frequency_penalty", value) for value in (2.1, -2.1)),
    *(("presence_penalty", value) for value in (2.1, -2.1)),
    *(("repetition_penalty", value) for value in (0, -1)),
    ("stop", ["a", "b", "c", "d", "e"]),
    ("guided_json", "{}"),
    ("stream", "x"),
]


@pytest.mark.parametrize(("field", "value"), OVER_THE_LIMIT)
def test_values_over_the_limits(server: Server, field: str, value: Any) -> None:
    """A value outside its field's bounds is refused by the field's name."""
    response = server.post(prompt="Hi", **{"max_tokens": 1, field: value})
    assert response.status_code == 400
    error = error_of(response)
    assert error["param"] == field
    assert field in error["message"]


AT_THE_LIMIT = [
    *(("temperature", value) for value in (0, 2)),
    *(("top_p", value) for value in (0, 1)),
    *(("top_k", value) for value in (-1, 0, 10**12)),
    *(("min_p", value) for value in (0, 1)),
    *(("n", value) for value in (1, 128)),
    *(("best_of", value) for value in (0, 1)),
    *(("logprobs", value) for value in (0, 5)),
    ("max_tokens", 0),
    *(("frequency_penalty", value) for value in (2, -2)),
    *(("presence_penalty", value) for value in (2, -2)),
    *(("stop", value) for value in (["a", "b", "c", "d"], [], "")),
]


@pytest.mark.parametrize(("field", "value"), AT_THE_LIMIT)
def test_values_on_the_limits(server: Server, field: str, value: Any) -> None:
    """A value exactly on its field's bound is accepted."""
    reply = server.ask(prompt="Hi", **{"max_tokens": 1, field: value})
    assert len(reply.choices) == (value if field == "n" else 1)


def test_limits_together(server: Server) -> None:
    """top_p 0 is greedy; no stop is no stop; extreme values together are served."""
    prompt = "10, 20, 30, 40,"
    greedy = server.greedy(prompt, 8)
    assert server.both(prompt=prompt, max_tokens=8, temperature=1, top_p=0).text == greedy
    none: tuple[list[str], str] = ([], "")
    for stop in none:
        assert server.both(prompt=prompt, max_tokens=8, temperature=0, stop=stop).text == greedy
    extreme: dict[str, Any] = {"top_k": 0, "min_p": 0, "temperature": 2, "frequency_penalty": -2}
    extreme |= {"presence_penalty": 2, "logprobs": 5, "stop": ["a", "b", "c", "d"]}
    server.ask(prompt="Hi", max_tokens=1, **extreme)


def test_too_long_for_the_context(server: Server) -> None:
    """The message states the limit and the counts that were asked for."""
    error = server.refuses("prompt", prompt="word " * 9000, max_tokens=5)
    assert "8192" in error["message"]
    assert "900" in error["message"]
    error = server.refuses("max_tokens", prompt="Hi", max_tokens=100000)
    assert "8192" in error["message"]
    assert "100000" in error["message"]


def test_unknown_model(server: Server) -> None:
    """Another model's name is a 404 that names the field; every served name is answered."""
    for stream in (False, True):
        response = server.post(prompt="Hi", max_tokens=2, model="no-such-model", stream=stream)
        assert response.status_code == 404
        assert error_of(response)["param"] == "model"
    assert server.ask(prompt="Hi", max_tokens=2, model="second-name").body["model"] == "second-name"


def test_add_special_tokens(server: Server) -> None:
    """Ids are never changed; this model's tokenizer adds nothing to texts."""
    counts = [
        server.ask(prompt="Hello world", max_tokens=1, add_special_tokens=add).usage
        for add in (True, False)
    ]
    assert counts[0]["prompt_tokens"] == counts[1]["prompt_tokens"] == 2
    ids = server.ask(prompt=[19556, 905], max_tokens=1, add_special_tokens=True)
    assert ids.usage["prompt_tokens"] == 2


def test_near_zero_temperature_is_told(server: Server) -> None:
    """A temperature that vLLM raises to 0.01 is named in a header."""
    fields: dict[str, Any] = {"prompt": "Hi", "max_tokens": 2}
    assert server.ask(**fields, temperature=0.001).headers["x-adjusted-fields"] == "temperature"
    for exact in (0, 0.01, 1):
        assert "x-adjusted-fields" not in server.ask(**fields, temperature=exact).headers


# --- bad bodies

BAD_BODIES = [
    pytest.param(b"{", id="cut"),
    pytest.param(b"", id="empty"),
    pytest.param(b"[]", id="list"),
    pytest.param(b'"text"', id="string"),
    pytest.param(b'{"model": "m", "prompt": NaN}', id="NaN"),
    pytest.param(b'{"model": "m", "prompt": "\xff"}', id="not UTF-8"),
    pytest.param(b"[" * 100_000, id="deep"),
]


@pytest.mark.parametrize("body", BAD_BODIES)
def test_bodies_that_are_no_json_object(server: Server, body: bytes) -> None:
    """What is no JSON object is a 400 in the contract's form."""
    headers = {"content-type": "application/json"}
    response = server.http.post("/v2/completions", content=body, headers=headers)
    assert response.status_code == 400
    error_of(response)


def _quoted(server: Server, prompt: str) -> bytes:
    return f'{{"model": "{server.model}", "prompt": {prompt}}}'.encode()


def test_hostile_bodies_name_the_field_quickly(server: Server) -> None:
    """Lone surrogates, huge prompts, huge lists: a 400 naming prompt within a second or so."""
    bodies = {
        "surrogate": _quoted(server, '"\\ud83d"'),
        "10 MB": _quoted(server, '"' + "word " * 2_000_000 + '"'),
        "10 MB of ids": _quoted(server, "[" + "1," * 5_000_000 + "1]"),
        "10,000 prompts": _quoted(server, "[" + '"a",' * 9_999 + '"a"]'),
        "10 MB of prompts": _quoted(server, "[" + f'"{"word " * 200}",' * 9_999 + '"a"]'),
    }
    for name, body in bodies.items():
        started = time.monotonic()
        response = server.http.post(
            "/v2/completions", content=body, headers={"content-type": "application/json"}
        )
        assert response.status_code == 400, name
        assert error_of(response)["param"] == "prompt", name
        assert time.monotonic() - started < 2.5, name
    server.check_alive()


def test_wrong_content_type(server: Server) -> None:
    """A form is refused, and told what to send."""
    response = server.http.post("/v2/completions", data={"prompt": "x"})
    assert response.status_code == 400
    assert error_of(response)["param"] == "content-type"


def test_wrong_key(server: Server) -> None:
    """No key and a wrong key are a 401 in the contract's form."""
    for headers in ({}, {"authorization": "Bearer wrong"}):
        response = httpx.post(
            f"{server.url}/v2/completions",
            json={"model": server.model, "prompt": "x"},
            headers=headers,
        )
        assert response.status_code == 401
        assert error_of(response)["code"] == "invalid_api_key"


def test_request_id_is_taken_and_returned(server: Server) -> None:
    """x-request-id comes back, and is the answer's id; without one, one is made."""
    response = server.http.post(
        "/v2/completions",
        json={"model": server.model, "prompt": "x", "max_tokens": 1},
        headers={"x-request-id": "abc-123"},
    )
    assert response.headers["x-request-id"] == "abc-123"
    assert "abc-123" in response.json()["id"]
    assert server.post(prompt="x", max_tokens=1).headers["x-request-id"]
    refused = server.http.post("/v2/completions", json={}, headers={"x-request-id": "abc-124"})
    assert refused.headers["x-request-id"] == "abc-124"


def test_user_is_logged_and_not_answered(server: Server) -> None:
    """`user` is in the log line of its request, and nowhere in the answer."""
    reply = server.ask(prompt="x", max_tokens=1, user="user-of-the-live-tests")
    assert "user-of-the-live-tests" not in str(reply.body)
    deadline = time.monotonic() + 5
    while "user-of-the-live-tests" not in server.log.read_text(errors="replace"):
        assert time.monotonic() < deadline
        time.sleep(0.1)


# --- leaving


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("prompts", [1, 3])
def test_a_client_that_leaves_stops_its_work(server: Server, stream: bool, prompts: int) -> None:
    """Two seconds after the client left, its request makes no more tokens."""
    body = {
        "model": server.model,
        "prompt": ["Write on and on."] * prompts,
        "max_tokens": 4000,
        "ignore_eos": True,
        "stream": stream,
    }
    headers = dict(server.http.headers)

    async def ask_and_leave() -> None:
        async with httpx.AsyncClient(base_url=server.url, headers=headers, timeout=60) as client:
            if not stream:
                with pytest.raises(httpx.ReadTimeout):
                    await client.post("/v2/completions", json=body, timeout=1)
                return
            async with client.stream("POST", "/v2/completions", json=body) as response:
                seen = 0
                async for _ in response.aiter_lines():
                    seen += 1
                    if seen == 3:
                        return

    asyncio.run(ask_and_leave())
    time.sleep(2)
    server.check_idle()


def test_others_are_not_disturbed(server: Server) -> None:
    """A stream that runs while bad requests arrive ends as if it were alone."""
    alone = server.ask(prompt="10, 20, 30, 40,", max_tokens=40, temperature=0, ignore_eos=True).text
    body: dict[str, Any] = {"model": server.model, "prompt": "10, 20, 30, 40,", "max_tokens": 40}
    body |= {"temperature": 0, "ignore_eos": True, "stream": True}
    with server.http.stream("POST", "/v2/completions", json=body) as response:
        lines = response.iter_lines()
        text, refused = "", list[int]()
        for line in lines:
            if line.startswith("data: {"):
                text += strict_json(line.removeprefix("data: "))["choices"][0]["text"]
                if len(text) < 30:
                    refused.append(server.post(prompt=[999999], max_tokens=2).status_code)
    assert set(refused) == {400}
    assert text == alone


def test_seed_and_prompts_read_in_pieces(server: Server) -> None:
    """More prompt than one step reads: the seeded answers are those that each prompt gets alone."""
    prompts = [[1000 + start, *range(2000, 3600)] for start in range(4)]
    fields: dict[str, Any] = {"max_tokens": 6, "temperature": 1.0, "seed": 11}
    together = server.ask(prompt=prompts, **fields).texts
    assert together == [server.ask(prompt=prompt, **fields).text for prompt in prompts]
    server.check_alive()
