"""The openai Python client, pointed at .../v2, does completions.create in every combination."""

import itertools
from collections.abc import Iterator
from typing import Any

import openai
import pytest

from tests.live.conftest import KEY
from tests.live.guided_texts import BACKENDS, by_choice
from tests.live.server import Server

pytestmark = pytest.mark.live


@pytest.fixture(scope="module")
def client(server: Server) -> Iterator[openai.OpenAI]:
    """The client, without retries of its own."""
    with openai.OpenAI(base_url=f"{server.url}/v2", api_key=KEY, max_retries=0) as client:
        yield client


@pytest.mark.parametrize(
    ("n", "echo", "logprobs"), list(itertools.product([1, 3], [False, True], [None, 0, 3]))
)
def test_create(
    server: Server, client: openai.OpenAI, n: int, echo: bool, logprobs: int | None
) -> None:
    """Whole and streamed answers are read by the client's own models, and agree."""
    fields: dict[str, Any] = {"prompt": "Blue and", "max_tokens": 5, "seed": 11, "n": n}
    fields |= {"echo": echo, "logprobs": logprobs, "model": server.model, "temperature": 0.9}
    whole = client.completions.create(**fields)
    assert [choice.index for choice in whole.choices] == list(range(n))
    assert all(choice.text.startswith("Blue and") for choice in whole.choices) is echo
    assert all((choice.logprobs is None) is (logprobs is None) for choice in whole.choices)
    assert whole.usage is not None
    joined = [""] * n
    reasons: list[str | None] = [None] * n
    for chunk in client.completions.create(**fields, stream=True):
        for choice in chunk.choices:
            joined[choice.index] += choice.text
            reasons[choice.index] = choice.finish_reason
    assert joined == [choice.text for choice in whole.choices]
    assert reasons == [choice.finish_reason for choice in whole.choices]


@pytest.mark.parametrize("backend", BACKENDS)
def test_guided(server: Server, client: openai.OpenAI, backend: str) -> None:
    """A constraint in extra_body is held, streamed or not, and the raw reply names the backend."""
    asked = by_choice("red", "green", "light blue")
    fields: dict[str, Any] = {"model": server.model, "prompt": "Colour:", "seed": 4, "n": 2}
    fields["extra_body"] = {**asked.fields, "guided_decoding_backend": backend}
    raw = client.completions.with_raw_response.create(**fields)
    assert raw.headers["x-guided-decoding"] == ("guidance" if backend == "auto" else backend)
    whole = [choice.text for choice in raw.parse().choices]
    asked.check(choice.model_dump() for choice in raw.parse().choices)
    joined = ["", ""]
    for chunk in client.completions.create(**fields, stream=True):
        for choice in chunk.choices:
            joined[choice.index] += choice.text
    assert joined == whole


def test_errors(server: Server, client: openai.OpenAI) -> None:
    """Refusals become the client's own exceptions, with the field."""
    with pytest.raises(openai.BadRequestError) as refused:
        client.completions.create(model=server.model, prompt="x", max_tokens=-1)
    assert refused.value.param == "max_tokens"
    with pytest.raises(openai.BadRequestError) as refused:
        client.completions.create(
            model=server.model,
            prompt="x",
            stream=True,
            extra_body={"guided_decoding_backend": "nonsense"},
        )
    assert refused.value.param == "guided_decoding_backend"
    with pytest.raises(openai.NotFoundError):
        client.completions.create(model="another", prompt="x")
    with pytest.raises(openai.AuthenticationError):
        openai.OpenAI(base_url=f"{server.url}/v2", api_key="wrong").completions.create(
            model=server.model, prompt="x"
        )
