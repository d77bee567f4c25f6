"""best_of and beam search on real weights."""

import itertools
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from benchmarks.search_agreement import Case, Oracle, disagreement
from tests.live.server import Server
from tests.live.test_against_transformers import PROMPTS
from tests.live.test_cases import DAYS, chat

pytestmark = pytest.mark.live

COUNTING = "one, two, three, four,"


def means(choices: list[dict[str, Any]]) -> list[float]:
    """The mean log-probability of each choice's tokens."""
    scores = [choice["logprobs"]["token_logprobs"] for choice in choices]
    return [sum(values) / len(values) for values in scores]


# --- best_of


@pytest.mark.parametrize("prompt", PROMPTS[:20], ids=range(20))
def test_best_of_returns_the_best(server: Server, prompt: str) -> None:
    """best_of 5 with n 2 gives the two best by mean log-probability of the five seeded answers."""
    fields: dict[str, Any] = {"prompt": prompt, "max_tokens": 12, "temperature": 1.0, "seed": 9}
    five = server.ask(**fields, n=5, logprobs=1).choices
    ranked = sorted(zip(means(five), five, strict=True), key=lambda pair: -pair[0])
    best = server.ask(**fields, n=2, best_of=5, logprobs=1)
    assert best.texts == [choice["text"] for _, choice in ranked[:2]]
    assert means(best.choices) == pytest.approx([mean for mean, _ in ranked[:2]], abs=1e-3)
    tokens = [len(choice["logprobs"]["tokens"]) for choice in five]
    assert best.usage["completion_tokens"] == sum(tokens)


def test_best_of_has_an_effect(server: Server) -> None:
    """Of two likely words, best_of 20 always gives the likelier one, and counts all twenty."""
    fields: dict[str, Any] = {
        "prompt": "Question: will it rain tomorrow?\nAnswer:",
        "max_tokens": 1,
        "logit_bias": {"9230": 100, "2838": 100},
        "logprobs": 0,
    }
    plain = [server.ask(**fields, seed=seed) for seed in range(40)]
    scores = {reply.text: reply.logprobs["token_logprobs"][0] for reply in plain}
    assert set(scores) == {" Yes", " No"}
    likelier = max(scores, key=lambda text: scores[text])
    for _ in range(10):
        reply = server.ask(**fields, best_of=20)
        assert reply.text == likelier
        assert reply.usage["completion_tokens"] == 20


@pytest.mark.parametrize("prompt", ["My favourite food is", chat("Name a food.")])
def test_best_of_is_ordered(server: Server, prompt: str) -> None:
    """Answers come best first, whatever their lengths; the loser is counted."""
    reply = server.ask(
        prompt=prompt, max_tokens=24, temperature=1.2, n=5, best_of=6, logprobs=0, seed=4
    )
    order = means(reply.choices)
    assert order == sorted(order, reverse=True)
    shown = sum(len(choice["logprobs"]["tokens"]) for choice in reply.choices)
    assert reply.usage["completion_tokens"] > shown


def test_best_of_of_many_prompts(server: Server) -> None:
    """Each prompt gets its own best answers, in its own places, echoed."""
    fields: dict[str, Any] = {"max_tokens": 6, "seed": 3, "n": 2, "best_of": 4, "echo": True}
    prompts = ["red", "green", "blue"]
    together = server.ask(prompt=prompts, **fields)
    for index, prompt in enumerate(prompts):
        alone = server.ask(prompt=prompt, **fields)
        assert together.texts[2 * index : 2 * index + 2] == alone.texts
        assert all(text.startswith(prompt) for text in alone.texts)


def test_best_of_limits(server: Server) -> None:
    """Too small and streamed are refused; null, 0 and 1 mean not asked for; greedy counts all."""
    server.refuses("best_of", prompt="Hi", max_tokens=4, best_of=2, n=3)
    for stream in (True,):
        response = server.post(prompt="Hi", max_tokens=4, best_of=3, stream=stream)
        assert response.status_code == 400
        assert response.json()["error"]["param"] == "best_of"
    for value in (None, 0, 1):
        assert len(server.both(prompt="Hi", max_tokens=4, n=3, best_of=value, seed=1).choices) == 3
    streamed = server.stream(prompt="Hi", max_tokens=4, n=2, best_of=2, seed=1)
    assert len(streamed.choices) == 2
    greedy = server.ask(prompt=COUNTING, max_tokens=4, temperature=0, best_of=4, n=2)
    assert greedy.texts == [server.greedy(COUNTING, 4)] * 2
    assert greedy.usage["completion_tokens"] == 16


# --- beam search


@pytest.fixture(scope="module")
def oracle(model_folder: Path) -> Oracle:
    """transformers' own beam search on the same weights in float32."""
    return Oracle(model_folder)


AGREEMENT = [
    Case(chat("Is the sky blue? Answer yes or no."), 2, 1.0, False),
    Case(chat("Is the sky blue? Answer yes or no."), 4, -1.0, True),
    Case(chat("Name a colour."), 4, 2.0, False),
    Case("The capital of France is", 1, 1.0, False),
    Case("The capital of France is", 8, 0.0, True),
    Case("日本の首都は", 4, 1.0, False),
    Case("Q: What is 2 + 2?\nA:", 2, 0.0, False),
    Case("The capital of France is", 4, 1.0, False, "repetition 1.3"),
    Case("1, 2, 3, 4, 5,", 2, 2.0, True, "repetition 0.8"),
    Case("Water boils at", 4, 1.0, True, "frequency -1"),
    Case("Water boils at", 2, 1.0, False, "bias"),
    Case("1, 2, 3, 4, 5,", 4, 1.0, False, "digits"),
    Case(chat("Spell cat."), 4, 2.0, False, "letters and penalties"),
]


@pytest.mark.parametrize("case", AGREEMENT, ids=range(len(AGREEMENT)))
def test_same_beams_as_transformers(server: Server, oracle: Oracle, case: Case) -> None:
    """The beams are transformers', in its order, or have its scores where two tie."""
    assert disagreement(server.ask, oracle, case) is None


def test_beams_stop_at_stop_strings(server: Server) -> None:
    """A stop string ends a beam and is cut off, or kept where that is asked for."""
    fields: dict[str, Any] = {"prompt": COUNTING, "max_tokens": 24, "use_beam_search": True}
    reply = server.ask(**fields, best_of=3, n=1, stop=["six"], logprobs=0)
    assert "six" not in reply.text
    if len(reply.logprobs["tokens"]) < 24:
        assert reply.finish_reason == "stop"
    kept = server.ask(**fields, best_of=3, n=3, stop=["six"], include_stop_str_in_output=True)
    ended = [c["text"] for c in kept.choices if c["finish_reason"] == "stop" and "six" in c["text"]]
    assert ended
    assert all(text.endswith("six") for text in ended)


def test_beams_stop_at_a_control_token_that_shows(server: Server) -> None:
    """A stop string that is a control token ends a beam where such tokens are shown."""
    fields: dict[str, Any] = {"prompt": chat("Is the sky blue? Answer yes or no.")}
    reply = server.ask(
        **fields,
        max_tokens=12,
        use_beam_search=True,
        n=3,
        ignore_eos=True,
        skip_special_tokens=False,
        stop=["<|im_end|>"],
    )
    assert all("<|im_end|>" not in text for text in reply.texts)
    assert "stop" in [choice["finish_reason"] for choice in reply.choices]


def test_beams_stop_at_stop_tokens(server: Server) -> None:
    """A plain stop token ends a beam and stays in its text."""
    reply = server.ask(
        prompt=COUNTING,
        max_tokens=24,
        use_beam_search=True,
        best_of=3,
        n=2,
        stop_token_ids=[2976],
        logprobs=0,
    )
    for choice in reply.choices:
        if " six" in choice["text"]:
            assert choice["text"].endswith(" six")
            assert choice["finish_reason"] == "stop"
    assert any(" six" in text for text in reply.texts)


def test_beams_show_no_control_tokens(server: Server) -> None:
    """Ends of text print nothing, and echo shows the prompt once."""
    fields: dict[str, Any] = {"prompt": chat("What is the capital of France?"), "max_tokens": 20}
    reply = server.ask(**fields, use_beam_search=True, best_of=4, n=2, logprobs=0)
    assert all("<|" not in text for text in reply.texts)
    for choice in reply.choices:
        if len(choice["logprobs"]["tokens"]) < 20:
            assert choice["finish_reason"] == "stop"
    server.ask(**fields, use_beam_search=True, best_of=4, n=2, skip_special_tokens=False)
    echoed = server.ask(
        prompt="Count: 1 2", max_tokens=6, use_beam_search=True, best_of=2, n=1, echo=True
    )
    assert echoed.text.startswith("Count: 1 2")
    assert echoed.text.count("Count: 1 2") == 1


@pytest.mark.parametrize("penalty", [2.0, 0.0, 1.0, -1.0])
@pytest.mark.parametrize("padding", [25, 0])
@pytest.mark.parametrize(
    "question", ["My favourite colour is", chat("Answer yes or no: is red a colour?")]
)
def test_length_penalty_leaves_out_the_prompt(
    server: Server, penalty: float, padding: int, question: str
) -> None:
    """Choices are ordered by their scores over their own lengths, however long the prompt is."""
    reply = server.ask(
        prompt="The list of colours is long. " * padding + question,
        max_tokens=12,
        use_beam_search=True,
        best_of=4,
        n=4,
        length_penalty=penalty,
        logprobs=0,
    )
    scores = [
        sum(values) / len(values) ** penalty
        for values in (choice["logprobs"]["token_logprobs"] for choice in reply.choices)
    ]
    assert all(a >= b - 1e-3 for a, b in itertools.pairwise(scores))


def test_beams_with_logprobs_and_echo(server: Server) -> None:
    """Arrays have one length and join to the text; the prompt's part is that of a plain request."""
    fields: dict[str, Any] = {"prompt": DAYS, "echo": True, "logprobs": 3, "temperature": 0}
    beams = server.ask(**fields, max_tokens=6, use_beam_search=True, best_of=3, n=3)
    scored = server.ask(**fields, max_tokens=0).logprobs
    count = len(scored["tokens"])
    for choice in beams.choices:
        logprobs = choice["logprobs"]
        assert "".join(logprobs["tokens"]) == choice["text"]
        assert {len(values) for values in logprobs.values()} == {count + 6}
        assert logprobs["token_logprobs"][1:count] == pytest.approx(
            scored["token_logprobs"][1:], abs=1e-3
        )
        for top, token in zip(logprobs["top_logprobs"][1:], logprobs["tokens"][1:], strict=True):
            assert token in top


def test_beams_of_many_prompts(server: Server) -> None:
    """A list of prompts gives each prompt's own beams, in order."""
    prompts = ["The capital of France is", COUNTING]
    fields: dict[str, Any] = {"max_tokens": 6, "use_beam_search": True, "n": 2}
    together = server.ask(prompt=prompts, **fields)
    alone = [text for prompt in prompts for text in server.ask(prompt=prompt, **fields).texts]
    assert together.texts == alone


def test_beam_min_tokens_and_ignore_eos(server: Server) -> None:
    """min_tokens holds back the ends of text, and ignore_eos ignores them."""
    question = chat("Answer yes or no: is red a colour?")
    fields: dict[str, Any] = {"prompt": question, "use_beam_search": True, "n": 3, "logprobs": 0}
    for choice in server.ask(**fields, max_tokens=12, min_tokens=10).choices:
        assert len(choice["logprobs"]["tokens"]) > 10
    for choice in server.ask(**fields, max_tokens=12, ignore_eos=True).choices:
        assert len(choice["logprobs"]["tokens"]) == 12
        assert choice["finish_reason"] == "length"


def test_wide_beams(server: Server) -> None:
    """The contract's widest beam is served: the start command raised vLLM's limit."""
    reply = server.ask(prompt="Hi", max_tokens=2, use_beam_search=True, n=128)
    assert len(set(reply.texts)) > 64


def test_beam_refusals(server: Server) -> None:
    """What beam search cannot do is refused by name."""
    streamed = server.post(prompt="Hi", use_beam_search=True, stream=True)
    assert streamed.status_code == 400
    assert streamed.json()["error"]["param"] == "use_beam_search"
    few = server.post(prompt="Hi", use_beam_search=True, n=3, guided_regex="a|b")
    assert few.status_code == 400
    assert few.json()["error"]["param"] == "n"
    for name, value in {"length_penalty": 2.0, "early_stopping": True}.items():
        server.refuses(name, prompt="Hi", max_tokens=1, **{name: value})
    response = server.post(prompt="Hi", use_beam_search=True, early_stopping="never")
    assert response.status_code == 400


def test_suffix_is_refused_by_a_model_without_infilling(server: Server) -> None:
    """The built-in model's tokenizer has no fill-in-the-middle tokens."""
    server.refuses("suffix", prompt="def add(a, b):\n", suffix="\n    return total\n")


@pytest.mark.parametrize(
    "fields",
    [
        {"max_tokens": 2000, "best_of": 4},
        {"max_tokens": 500, "use_beam_search": True, "best_of": 4},
    ],
    ids=["best_of", "beam"],
)
def test_a_client_that_leaves_stops_the_search(server: Server, fields: dict[str, Any]) -> None:
    """Two seconds after the client left, none of its candidates or beams goes on."""
    body = {"model": server.model, "prompt": "Write on and on.", "ignore_eos": True, **fields}
    with pytest.raises(httpx.ReadTimeout):
        server.http.post("/v2/completions", json=body, timeout=1)
    time.sleep(2)
    server.check_idle()


@pytest.mark.parametrize("search", [{"best_of": 3}, {"use_beam_search": True, "best_of": 2}])
@pytest.mark.parametrize(
    ("field", "value"),
    [("prompt", [999999]), ("prompt", [[-1]]), ("stop_token_ids", [49152])],
    ids=["prompt", "negative", "stop_token_ids"],
)
def test_search_refuses_ids_outside_the_vocabulary(
    server: Server, search: dict[str, Any], field: str, value: Any
) -> None:
    """Ids that the model does not have are refused before any candidate or beam is made."""
    server.refuses_whole(field, **{"prompt": "Hi", "max_tokens": 4, **search, field: value})
