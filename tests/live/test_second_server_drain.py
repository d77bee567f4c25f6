"""SIGTERM with --shutdown-timeout: what runs is finished, what comes is refused.

On the first server, which these tests end before the second one starts. vLLM drains with one API
server alone; deploy/README.md says what it does with several.
"""

import contextlib
import signal
import threading
import time
from dataclasses import dataclass
from functools import partial
from typing import Any

import httpx
import pytest

from tests.live.conftest import KEY
from tests.live.guided_texts import at_once
from tests.live.server import Server, error_of, sse_events, strict_json

pytestmark = pytest.mark.live

TOKENS = 200
DRAINING = "[shutdown] EngineCore: draining in-flight requests"
LATE: dict[str, dict[str, Any]] = {
    "text": {"prompt": "Once"},
    "text, streamed": {"prompt": "Once", "stream": True},
    "ids": {"prompt": [5, 6]},
    "ids, streamed": {"prompt": [5, 6], "stream": True},
    "two prompts": {"prompt": ["Once", "Twice"], "n": 2},
    "guided": {"prompt": "Once", "guided_regex": "[a-z]{2}"},
}


@dataclass
class Drain:
    """What the clients of a draining server saw."""

    events: list[str]
    late: dict[str, httpx.Response]
    last: list[httpx.Response]
    """Of requests one after another, until nobody listened any more."""
    in_time: bool
    """Whether all late requests were sent while the stream still ran."""
    status: int
    seconds: float
    """From SIGTERM to the end of the process."""


@pytest.fixture(scope="module")
def drained(server: Server) -> Drain:
    """A stream, SIGTERM in the middle of it, requests that come after, and the end."""
    server.ask(prompt="Once", max_tokens=1)
    raw = bytearray()
    begun, ended = threading.Event(), threading.Event()

    def read() -> None:
        body = {"model": server.model, "prompt": "Once", "max_tokens": TOKENS, "ignore_eos": True}
        body |= {"stream": True, "stream_options": {"include_usage": True}}
        try:
            with server.http.stream("POST", "/v2/completions", json=body) as response:
                for piece in response.iter_raw():
                    raw.extend(piece)
                    begun.set()
        finally:
            ended.set()

    def ask(fields: dict[str, Any]) -> httpx.Response:
        body = {"model": server.model, "max_tokens": 4, **fields}
        headers = {"authorization": f"Bearer {KEY}"}
        url = f"{server.url}/v2/completions"
        return httpx.post(url, json=body, headers=headers, timeout=60)

    reader = threading.Thread(target=read)
    reader.start()
    assert begun.wait(60)
    started = time.monotonic()
    server.process.send_signal(signal.SIGTERM)
    while DRAINING not in server.log.read_text(errors="replace") and not ended.is_set():
        time.sleep(0.02)
    in_time = not ended.is_set()
    answers = at_once([partial(ask, fields) for fields in LATE.values()])
    last = []
    with contextlib.suppress(httpx.ConnectError, httpx.ReadError, httpx.RemoteProtocolError):
        while True:
            last.append(ask(LATE["ids"]))
    reader.join()
    status = server.process.wait(60)
    return Drain(
        events=list(sse_events(bytes(raw))),
        late=dict(zip(LATE, answers, strict=True)),
        last=last,
        in_time=in_time,
        status=status,
        seconds=time.monotonic() - started,
    )


def test_what_runs_is_finished(drained: Drain) -> None:
    """The stream has all its tokens, its reason, its usage, and its end."""
    assert drained.events[-1] == "[DONE]"
    *chunks, usage = map(strict_json, drained.events[:-1])
    assert usage["usage"]["completion_tokens"] == TOKENS
    assert [chunk["choices"][0]["finish_reason"] for chunk in chunks][-1] == "length"


@pytest.mark.parametrize("kind", LATE)
def test_what_comes_is_refused(drained: Drain, kind: str) -> None:
    """503 before the first byte, with retry-after and the contract's error; no "abort"."""
    assert drained.in_time
    response = drained.late[kind]
    assert response.status_code == 503, response.text
    assert response.headers["retry-after"] == "1"
    error = error_of(response)
    assert (error["type"], error["code"]) == ("server_error", "engine_unavailable")


def test_nobody_waits_for_an_engine_that_left(drained: Drain) -> None:
    """Each request gets its 503, also one that reached the engine as it ended."""
    assert drained.last
    assert {response.status_code for response in drained.last} == {503}


def test_the_process_ends(drained: Drain, server: Server) -> None:
    """With status 0, within --shutdown-timeout, and nobody listens any more."""
    assert drained.status == 0
    assert drained.seconds < 60
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{server.url}/health", timeout=5)
