"""Clients that leave, and processes that are killed or told to stop under load.

On servers of their own with the tiny model, which these tests end; they come last.
"""

import contextlib
import json
import signal
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import psutil
import pytest

from adapter.builtin_model.model import ensure_tiny_model
from tests.live.faults import (
    KINDS,
    Load,
    compilers,
    engine_core,
    left,
    processes,
    soon,
)
from tests.live.guided_texts import at_once
from tests.live.server import Server, error_of, start, stop

pytestmark = pytest.mark.live

PHASES = ("no body", "half a body", "a whole body", "the first bytes")
# It takes outlines about a second to compile.
SLOW_REGEX = "[ab]*a[ab]{11}"


def tiny_server(folder: Path, *flags: str) -> Server:
    """A server with the tiny model, whose words are random."""
    arguments = [
        str(ensure_tiny_model()),
        *("--served-model-name", "tiny", "--load-format", "dummy", "--enforce-eager"),
        *("--host", "127.0.0.1", "--max-model-len", "2048", *flags),
    ]
    return start(arguments, folder / "log.txt")


@pytest.fixture(scope="module")
def third(no_other_server: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server where every kind of request was served once."""
    running = tiny_server(tmp_path_factory.mktemp("third"), "--guided-timeout", "30")
    for fields in KINDS.values():
        assert running.post(**{**fields, "max_tokens": 4}).status_code == 200
    yield running
    stop(running)


# --- clients that leave


def connected(server: Server, receive_buffer: int | None = None) -> socket.socket:
    """A connection of its own; receive_buffer: bytes that are taken before the client reads."""
    host = urlsplit(server.url)
    connection = socket.socket()
    connection.settimeout(60)
    if receive_buffer is not None:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    connection.connect((host.hostname, host.port))
    return connection


def raw_request(server: Server, fields: dict[str, Any]) -> tuple[bytes, bytes]:
    """The head and the body of a request, as they are sent."""
    body = json.dumps({**fields, "model": server.model}).encode()
    head = f"POST /v2/completions HTTP/1.1\r\nhost: {urlsplit(server.url).netloc}\r\n"
    head += f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    return head.encode(), body


def leave(server: Server, kind: str, phase: str) -> None:
    """Send a request as far as the phase says, and reset the connection."""
    head, body = raw_request(server, KINDS[kind])
    sent = {"no body": b"", "half a body": body[: len(body) // 2]}.get(phase, body)
    with connected(server) as connection:
        connection.sendall(head + sent)
        if phase == "the first bytes" and "stream" in KINDS[kind]:
            assert connection.recv(4096)
        else:
            time.sleep(0.2)
        # With a time of 0 to linger, close() resets instead of ending in order.
        linger = (1).to_bytes(4, "little") + (0).to_bytes(4, "little")
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)


def test_clients_that_leave_leave_nothing(third: Server) -> None:
    """After clients reset in every phase, nothing runs, and nothing is held for them."""

    def all_leave() -> None:
        at_once(
            [
                lambda kind=kind, phase=phase: leave(third, kind, phase)  # type: ignore[misc]
                for kind in KINDS
                for phase in PHASES
                for _ in range(6)
            ],
            workers=24,
        )
        assert soon(lambda: third.metric("vllm:num_requests_running") == 0, 30)
        third.check_idle()

    all_leave()
    before = left(third)
    all_leave()
    all_leave()
    assert soon(lambda: left(third).within(before), 30), (left(third), before)


def test_slow_reader_holds_up_nobody(third: Server) -> None:
    """A client that reads nothing of a long answer: others are served, and it is given up."""
    head, body = raw_request(third, {**KINDS["many prompts"], "n": 16, "logprobs": 5})
    with connected(third, receive_buffer=4096) as connection:
        connection.sendall(head + body)
        assert soon(lambda: third.metric("vllm:num_requests_running") >= 32, 30)
        served = third.stream(prompt="Twice", max_tokens=64, ignore_eos=True)
        assert served.in_order()[0]["finish_reason"] == "length"
    assert soon(lambda: third.metric("vllm:num_requests_running") == 0, 30)
    third.check_idle()


# --- the processes that compile


def test_compilers_killed_at_work(third: Server) -> None:
    """A constraint whose compiling processes are all killed is compiled by others, or can be asked
    for again; the next one is served."""

    def ask() -> httpx.Response:
        return third.post(
            prompt="x", max_tokens=4, guided_regex=SLOW_REGEX, guided_decoding_backend="outlines"
        )

    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(ask)
        time.sleep(0.5)
        for process in compilers(third):
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
    answer = asked.result()
    assert answer.status_code == 200 or error_of(answer)["code"] == "engine_unavailable"
    assert ask().status_code == 200
    third.check_idle()


# --- the engine


def test_engine_killed_under_load(third: Server) -> None:
    """Each request ends in an error within seconds, and the server ends, as vLLM's does."""
    load = Load(third)
    everything = processes(third)
    engine_core(third).kill()
    killed = time.monotonic()
    for seen in load.seen():
        assert not seen.cut, seen
        assert seen.ended - killed < 10, seen
        error = seen.error()
        assert error is not None, seen
        assert (error["type"], error["code"]) == ("server_error", "engine_unavailable"), seen
    with contextlib.suppress(httpx.TransportError):  # it ends within seconds
        assert third.http.get("/health").status_code == 503
    third.process.wait(30)
    _, alive = psutil.wait_procs(everything, timeout=30)
    assert not alive


# --- SIGTERM


@pytest.mark.parametrize(
    ("flags", "seconds"),
    [(["--shutdown-timeout", "0"], 0), ([], 3), (["--api-server-count", "2"], 3)],
    ids=["at once", "after the default", "two API servers"],
)
def test_told_to_stop_under_load(
    no_other_server: None, tmp_path: Path, flags: list[str], seconds: int
) -> None:
    """What there is no time for ends in an error, not without a word, and the process ends."""
    server = tiny_server(tmp_path, *flags)
    try:
        load = Load(server)
        everything = processes(server)
        server.process.send_signal(signal.SIGTERM)
        told = time.monotonic()
        for seen in load.seen():
            assert not seen.cut, seen
            assert seen.ended - told < seconds + 10, seen
            error = seen.error()
            assert error is not None, seen
            assert (error["type"], error["code"]) == ("server_error", "engine_unavailable"), seen
        server.process.wait(30)
        _, alive = psutil.wait_procs(everything, timeout=30)
        assert not alive
    finally:
        stop(server)
