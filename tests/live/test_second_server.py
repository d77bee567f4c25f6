"""vLLM's own serve command with the plugin named, two API servers, LoRA, environment settings."""

import subprocess
import sys
from typing import Any

import pytest

from tests.live.conftest import ADAPTER
from tests.live.guided_texts import (
    BACKENDS,
    WITH_GRAMMARS,
    by_choice,
    by_regex,
    by_schema,
    sums,
)
from tests.live.server import Server, error_of

pytestmark = pytest.mark.live


def test_broken_constraint_as_the_first_request(second: Server) -> None:
    """A constraint that is none is refused by each API server before it has seen a good one."""
    for _ in range(6):
        error = second.refuses("guided_regex", prompt="x", max_tokens=4, guided_regex="ab**")
        assert error["code"] == "unsupported_value"


@pytest.mark.parametrize("backend", BACKENDS)
def test_guided_decoding_from_each_api_server(second: Server, backend: str) -> None:
    """Under vLLM's own command each API server compiles constraints, and the engine holds them."""
    schema = {"type": "array", "items": {"type": "boolean"}, "minItems": 2, "maxItems": 2}
    constraints = [by_regex("(cat|dog) [0-9]{2}"), by_choice("yes", "no"), by_schema(schema)]
    if backend in WITH_GRAMMARS:
        constraints.append(sums("ebnf"))
    for seed in range(4):  # connections of their own, so that both API servers get some
        for asked in constraints:
            fields: dict[str, Any] = {"prompt": "x", "max_tokens": 24, "seed": seed, "n": 2}
            fields |= {"guided_decoding_backend": backend, **asked.fields}
            headers = {"connection": "close"}
            body = {"model": second.model, **fields}
            response = second.http.post("/v2/completions", json=body, headers=headers)
            assert response.status_code == 200, response.text
            asked.check(response.json()["choices"])
            asked.check(second.stream(**fields).in_order())


def test_plain_serve_has_the_route(second: Server) -> None:
    """Named in VLLM_PLUGINS, the plugin serves under vLLM's own command, from each API server."""
    texts = {second.both(prompt="a b c", max_tokens=8, temperature=0).text for _ in range(8)}
    assert len(texts) == 1


def test_lora_adapter_is_a_model(second: Server) -> None:
    """An adapter is chosen by its name, and says something else than its base."""
    fields: dict[str, Any] = {"prompt": "The capital of France is", "max_tokens": 16}
    base = second.ask(**fields, temperature=0)
    adapted = second.both(**fields, temperature=0, model=ADAPTER)
    assert adapted.body["model"] == ADAPTER
    assert adapted.text != base.text
    unknown = second.post(prompt="x", model="another-adapter")
    assert unknown.status_code == 404
    assert ADAPTER in error_of(unknown)["message"]


def test_suffix_fills_the_gap(second: Server) -> None:
    """With a suffix the model sees its own infilling tokens, and echo shows the prompt alone."""
    fields: dict[str, Any] = {"prompt": "def add(a, b):\n", "max_tokens": 8, "temperature": 0}
    plain = second.both(**fields)
    assert second.both(**fields, suffix=None).text == plain.text
    filled = second.both(**fields, suffix="\n    return total\n")
    assert filled.text != plain.text
    assert "return total" not in filled.text
    sentinels = filled.usage["prompt_tokens"] - plain.usage["prompt_tokens"]
    assert sentinels > 3
    echoed = second.both(**fields, suffix="\n    return total\n", echo=True)
    assert echoed.text == "def add(a, b):\n" + filled.text
    beams = second.ask(**fields, suffix="\n    return total\n", use_beam_search=True, n=2)
    assert len(beams.choices) == 2


def test_infill_ends_before_its_end_tokens(second: Server) -> None:
    """A token that ends what is filled in ends the text, and is not in it."""
    fields: dict[str, Any] = {"prompt": "a = ", "max_tokens": 8, "temperature": 0, "suffix": "\n"}
    pad = 49152 + 3
    for skip in (True, False):
        ended = second.both(**fields, logit_bias={str(pad): 100}, skip_special_tokens=skip)
        assert (ended.text, ended.finish_reason) == ("", "stop")
        assert ended.usage["completion_tokens"] == 1


def test_suffix_goes_with_token_ids_and_scores(second: Server) -> None:
    """The prompt's own tokens, as ids or scored, are those that are asked for with the suffix."""
    fields: dict[str, Any] = {"max_tokens": 4, "temperature": 0, "suffix": "\n    return total\n"}
    text = "def add(a, b):\n"
    filled = second.both(prompt=text, **fields)
    scored = second.both(prompt=text, **fields, echo=True, logprobs=1)
    tokens, scores = scored.logprobs["tokens"], scored.logprobs["token_logprobs"]
    assert "".join(tokens) == scored.text == text + filled.text
    assert None not in scores[1:]
    ids = second.http.post("/tokenize", json={"model": second.model, "prompt": text}).json()
    again = second.both(prompt=ids["tokens"], **fields)
    assert (again.text, again.usage) == (filled.text, filled.usage)


def test_beams_within_the_server_s_limit(second: Server) -> None:
    """Under vLLM's own command a width that --max-logprobs forbids is refused, with the flag."""
    second.ask(prompt="a", max_tokens=2, use_beam_search=True, n=8)
    error = second.refuses_whole("use_beam_search", prompt="a", use_beam_search=True, best_of=20)
    assert "--max-logprobs" in error["message"]


def test_unknown_fields_can_be_refused(second: Server) -> None:
    """With the setting, an unknown field is refused by its name, nested ones too."""
    error = second.refuses("guided_grammer", prompt="x", max_tokens=1, guided_grammer="x")
    assert error["code"] == "unknown_field"
    second.refuses("stream_options.includ", prompt="x", stream_options={"includ": True})


def test_choices_are_bounded(second: Server) -> None:
    """Prompts times n is bounded by the setting."""
    assert len(second.ask(prompt=["a"] * 4, n=8, max_tokens=1).choices) == 32
    second.refuses("prompt", prompt=["a"] * 11, n=3, max_tokens=1)


def test_openapi_shows_the_contract(second: Server) -> None:
    """/openapi.json names the route, and its request is the contract's schema."""
    document = second.http.get("/openapi.json").json()
    operation = document["paths"]["/v2/completions"]["post"]
    reference = operation["requestBody"]["content"]["application/json"]["schema"]["$ref"]
    assert reference == "#/components/schemas/CompletionV2Request"
    assert len(document["components"]["schemas"]["CompletionV2Request"]["properties"]) == 38


def test_other_vllm_is_refused_at_start() -> None:
    """An untested vLLM ends the start with one line that says what to do."""
    code = (
        "from adapter import serve, vllm_version; "
        "vllm_version.installed = lambda: '0.99.0'; serve.main([])"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert ended.returncode == 1
    assert "0.99.0" in ended.stderr
    assert "Traceback" not in ended.stderr
