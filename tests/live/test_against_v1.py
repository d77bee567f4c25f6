"""On the fields that both have, /v2/completions answers as vLLM's own /v1/completions does.

Where they differ on purpose:
- n > 1 at temperature 0 and top_p 0: /v1 refuses them;
- max_tokens 0: /v1 makes a token and counts it;
- a plain stop token stays in the text here, and is left out there;
- seed -1 is random there;
- entries of top_logprobs that print alike: here each has a name of its own, there one hides the
  others;
- text_offset: counts what stands in the text here, and the names of hidden tokens too there;
- a prompt that ends inside a character: the repair of vLLM's detokenizer serves both routes;
- tokens that are parts of a character at the beginning of an echoed prompt: there the first one
  prints U+FFFD and the character is lost, here the last one prints the character;
- the contract's `model` is the name that was asked for, there the first served name.
"""

import random
from typing import Any

import pytest

from tests.live.server import Server, sse_events, strict_json
from tests.live.test_against_transformers import PROMPTS

pytestmark = pytest.mark.live


def _mixed_requests(count: int) -> list[dict[str, Any]]:
    """Requests that mix the shared fields, each greedy or seeded; always the same ones."""
    pick = random.Random(20)
    requests = []
    for _ in range(count):
        request: dict[str, Any] = {
            "prompt": pick.choice([*PROMPTS, [504, 3575, 282], [[455], [9298]], PROMPTS[:2]]),
            "max_tokens": pick.randint(1, 20),
        }
        if pick.random() < 0.5:
            request["temperature"] = 0
        else:
            request |= {
                "temperature": pick.choice([0.3, 0.8, 1.0, 1.7]),
                "seed": pick.randint(0, 10**6),
                "top_p": pick.choice([1, 0.9, 0.5]),
                "top_k": pick.choice([-1, 5, 50]),
                "min_p": pick.choice([0, 0.05]),
                "n": pick.choice([1, 1, 3]),
            }
        rarer: dict[str, list[Any]] = {
            "logprobs": [0, 1, 5],
            "echo": [True],
            "stop": ["\n", [" the", "."]],
            "frequency_penalty": [-1, 1.5],
            "presence_penalty": [-0.5, 2],
            "repetition_penalty": [0.9, 1.3],
            "logit_bias": [{"28": 5, "30": -100}],
            "min_tokens": [1],
            "include_stop_str_in_output": [True],
            "ignore_eos": [True],
            "skip_special_tokens": [False],
        }
        for name, values in rarer.items():
            if pick.random() < 0.25:
                request[name] = pick.choice(values)
        requests.append(request)
    return requests


def _comparable(choice: dict[str, Any]) -> dict[str, Any]:
    logprobs = choice["logprobs"]
    return {
        "text": choice["text"],
        "finish_reason": choice["finish_reason"],
        "tokens": logprobs and logprobs["tokens"],
        "token_logprobs": logprobs
        and [None if value is None else round(value, 3) for value in logprobs["token_logprobs"]],
    }


@pytest.mark.parametrize("request_", _mixed_requests(50), ids=range(50))
def test_same_as_vllm(server: Server, request_: dict[str, Any]) -> None:
    """Texts, reasons, tokens, scores and usage are those of /v1/completions."""
    theirs = server.post("/v1/completions", **request_)
    assert theirs.status_code == 200, theirs.text
    body = theirs.json()
    ours = server.ask(**request_)
    for one, other in zip(ours.choices, body["choices"], strict=True):
        mine, its = _comparable(one), _comparable(other)
        scores, its_scores = mine.pop("token_logprobs"), its.pop("token_logprobs")
        if "\ufffd" in "".join(its["tokens"] or ()):
            assert len(mine.pop("tokens")) == len(its.pop("tokens"))
        assert mine == its
        if scores is not None:
            assert [s is None for s in scores] == [s is None for s in its_scores]
            assert [s or 0 for s in scores] == pytest.approx([s or 0 for s in its_scores], abs=2e-3)
    assert ours.usage["prompt_tokens"] == body["usage"]["prompt_tokens"]
    assert ours.usage["completion_tokens"] == body["usage"]["completion_tokens"]


def test_same_stream_as_vllm(server: Server) -> None:
    """The streamed text of a plain request is that of /v1/completions."""
    fields: dict[str, Any] = {"prompt": "The capital of France is", "max_tokens": 12}
    fields |= {"temperature": 0, "stream": True}
    raw = server.post("/v1/completions", **fields).content
    pieces = [strict_json(event) for event in sse_events(raw) if event != "[DONE]"]
    text = "".join(piece["choices"][0]["text"] for piece in pieces if piece["choices"])
    del fields["stream"]
    assert server.stream(**fields).choices[0]["text"] == text
