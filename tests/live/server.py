"""A real server for the live tests: started once a session, asked over HTTP, ended by its pid."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import jsonschema

from adapter.contract.answer import CompletionV2Chunk, CompletionV2Error, CompletionV2Response

DATA = Path(__file__).parent.parent / "data"
RESPONSE_SCHEMA = json.loads((DATA / "completion-response.schema.json").read_text())
START_SECONDS = 600


def free_port() -> int:
    """A loopback port that nobody listens on."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port


@dataclass
class Reply:
    """One whole answer."""

    body: dict[str, Any]
    headers: httpx.Headers

    @property
    def choices(self) -> list[dict[str, Any]]:
        choices: list[dict[str, Any]] = self.body["choices"]
        return choices

    @property
    def text(self) -> str:
        text: str = self.choices[0]["text"]
        return text

    @property
    def texts(self) -> list[str]:
        return [choice["text"] for choice in self.choices]

    @property
    def finish_reason(self) -> str:
        reason: str = self.choices[0]["finish_reason"]
        return reason

    @property
    def logprobs(self) -> dict[str, Any]:
        logprobs: dict[str, Any] = self.choices[0]["logprobs"]
        return logprobs

    @property
    def usage(self) -> dict[str, int]:
        usage: dict[str, int] = self.body["usage"]
        return usage


@dataclass
class Stream:
    """A finished stream, its pieces joined by index."""

    chunks: list[dict[str, Any]]
    headers: httpx.Headers
    choices: dict[int, dict[str, Any]] = field(default_factory=dict)
    usage: dict[str, int] | None = None

    def __post_init__(self) -> None:
        for chunk in self.chunks:
            CompletionV2Chunk.model_validate(chunk)
            if not chunk["choices"]:
                self.usage = chunk["usage"]
            for piece in chunk["choices"]:
                self._join(piece)

    def _join(self, piece: dict[str, Any]) -> None:
        index = piece["index"]
        choice = self.choices.setdefault(
            index, {"index": index, "text": "", "logprobs": None, "finish_reason": None}
        )
        assert choice["finish_reason"] is None, "a piece came after its choice had finished"
        choice["text"] += piece["text"]
        choice["finish_reason"] = piece["finish_reason"]
        if piece["logprobs"] is not None:
            joined = choice["logprobs"] or {name: [] for name in piece["logprobs"]}
            choice["logprobs"] = {
                name: joined[name] + values for name, values in piece["logprobs"].items()
            }

    def in_order(self) -> list[dict[str, Any]]:
        """The joined choices, as a whole answer would list them."""
        return [self.choices[index] for index in sorted(self.choices)]


class Server:
    """A running server and the ways the tests ask it."""

    def __init__(self, url: str, model: str, key: str | None, process: Any, log: Path) -> None:
        self.url = url
        self.model = model
        self.process = process
        self.log = log
        headers = {"authorization": f"Bearer {key}"} if key else {}
        self.http = httpx.Client(base_url=url, headers=headers, timeout=300)

    def post(self, path: str = "/v2/completions", **fields: Any) -> httpx.Response:
        """The raw reply to a body of these fields; the model is filled in."""
        return self.http.post(path, json={"model": self.model, **fields})

    def ask(self, **fields: Any) -> Reply:
        """A whole answer, checked against the contract's schema and ours."""
        response = self.post(**fields)
        assert response.status_code == 200, response.text
        assert response.headers["content-type"] == "application/json"
        body = strict_json(response.text)
        CompletionV2Response.model_validate(body)
        jsonschema.validate(without_first_nulls(body), RESPONSE_SCHEMA)
        assert [choice["index"] for choice in body["choices"]] == list(range(len(body["choices"])))
        return Reply(body, response.headers)

    def stream(self, **fields: Any) -> Stream:
        """A whole stream: every event checked, [DONE] once and last."""
        body = {"model": self.model, "stream": True, **fields}
        with self.http.stream("POST", "/v2/completions", json=body) as response:
            raw = response.read()
        assert response.status_code == 200, raw
        assert response.headers["content-type"].startswith("text/event-stream")
        events = list(sse_events(raw))
        assert events.count("[DONE]") == 1
        assert events[-1] == "[DONE]"
        stream = Stream([strict_json(event) for event in events[:-1]], response.headers)
        assert all(choice["finish_reason"] for choice in stream.choices.values())
        return stream

    def both(self, **fields: Any) -> Reply:
        """A whole answer, after checking that the streamed one is the same to the character."""
        whole = self.ask(**fields)
        streamed = self.stream(**fields, stream_options={"include_usage": True})
        assert streamed.usage == whole.usage
        assert_same_choices(streamed.in_order(), whole.choices)
        return whole

    def greedy(self, prompt: Any, max_tokens: int) -> str:
        """The greedy continuation of a prompt, asked alone."""
        return self.ask(prompt=prompt, max_tokens=max_tokens, temperature=0).text

    def refuses(self, field: str, **fields: Any) -> dict[str, Any]:
        """The error of a refused request, the same with `stream`; then the server is alive."""
        error = self.refuses_whole(field, **fields)
        self.refuses_whole(field, **{"stream": True, **fields})
        return error

    def refuses_whole(self, field: str, **fields: Any) -> dict[str, Any]:
        """The error of a refused request: 400 within 5 s, in the contract's form, naming the field;
        then the server is as alive as before."""
        started = time.monotonic()
        response = self.post(**fields)
        assert response.status_code == 400, response.text
        assert time.monotonic() - started < 5
        error = error_of(response)
        assert field in error["message"]
        assert error["param"].startswith(field)
        self.check_alive()
        return error

    def check_alive(self) -> None:
        """/health and a plain request are answered."""
        assert self.http.get("/health").status_code == 200
        assert self.post(prompt="x", max_tokens=1).status_code == 200

    def check_idle(self) -> None:
        """No token is generated any more, and nothing runs or waits; then the server is alive."""
        before = self.metric("vllm:generation_tokens_total")
        time.sleep(1)
        assert self.metric("vllm:generation_tokens_total") == before
        self.check_alive()
        assert self.metric("vllm:num_requests_running") == 0
        assert self.metric("vllm:num_requests_waiting") == 0

    def metric(self, name: str) -> float:
        """The sum of a Prometheus metric over its labels."""
        lines = self.http.get("/metrics").text.splitlines()
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(f"{name}{{"))


def error_of(response: httpx.Response) -> dict[str, Any]:
    """The error object of a refusal, checked for its form."""
    assert response.headers["content-type"] == "application/json"
    body = strict_json(response.text)
    CompletionV2Error.model_validate(body)
    error: dict[str, Any] = body["error"]
    assert error["message"]
    assert "Traceback" not in response.text
    return error


def strict_json(text: str) -> Any:
    """JSON without NaN and Infinity."""

    def refuse(name: str) -> None:
        raise AssertionError(f"{name} is no JSON")

    return json.loads(text, parse_constant=refuse)


def sse_events(raw: bytes) -> Iterator[str]:
    """The data of each event; every line is UTF-8, and nothing else is in the stream."""
    for block in raw.decode("utf-8").split("\n\n"):
        if block:
            assert block.startswith("data: ")
            assert "\n" not in block
            yield block.removeprefix("data: ")


def without_first_nulls(body: dict[str, Any]) -> dict[str, Any]:
    """The body as the schema has it, which does not know of the first token's null."""
    copy: dict[str, Any] = json.loads(json.dumps(body))
    for choice in copy["choices"]:
        logprobs = choice["logprobs"]
        if logprobs and logprobs["token_logprobs"] and logprobs["token_logprobs"][0] is None:
            logprobs["token_logprobs"][0] = 0.0
            logprobs["top_logprobs"][0] = {}
    return copy


def assert_same_choices(
    one: list[dict[str, Any]], other: list[dict[str, Any]], tolerance: float = 1e-3
) -> None:
    """Texts, reasons and logprobs of two lists of choices are the same."""
    assert [c["text"] for c in one] == [c["text"] for c in other]
    assert [c["finish_reason"] for c in one] == [c["finish_reason"] for c in other]
    for a, b in zip(one, other, strict=True):
        assert_same_logprobs(a["logprobs"], b["logprobs"], tolerance)


def assert_same_logprobs(
    one: dict[str, Any] | None, other: dict[str, Any] | None, tolerance: float = 1e-3
) -> None:
    """Two logprobs objects agree: strings and offsets exactly, numbers within the tolerance."""
    if one is None or other is None:
        assert one is None
        assert other is None
        return
    assert one["tokens"] == other["tokens"]
    assert one["text_offset"] == other["text_offset"]
    for a, b in zip(one["token_logprobs"], other["token_logprobs"], strict=True):
        assert (a is None) == (b is None)
        assert a is None or abs(a - b) <= tolerance
    for top_a, top_b in zip(one["top_logprobs"], other["top_logprobs"], strict=True):
        assert (top_a is None) == (top_b is None)
        if top_a is not None:
            assert top_a.keys() == top_b.keys()
            assert all(abs(top_a[name] - top_b[name]) <= tolerance for name in top_a)


def start(
    arguments: list[str],
    log: Path,
    key: str | None = None,
    program: Sequence[str] = (sys.executable, "-m", "adapter.serve"),
    **environment: str,
) -> Server:
    """Start a server and wait until it answers.

    Raises:
        RuntimeError: it ended, or did not come up; with the end of its log.
    """
    port = free_port()
    model = arguments[arguments.index("--served-model-name") + 1]
    command = [*program, *arguments, "--port", str(port)]
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, "VLLM_CPU_KVCACHE_SPACE": "2", **environment},
            start_new_session=True,
        )
    server = Server(f"http://127.0.0.1:{port}", model, key, process, log)
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        if process.poll() is not None:
            break
        try:
            if server.http.get("/health").status_code == 200:
                return server
        except httpx.TransportError:
            time.sleep(0.5)
    stop(server)
    raise RuntimeError("the server did not start:\n" + log.read_text(errors="replace")[-4000:])


def stop(server: Server) -> int:
    """End the server by its own process id; its exit status."""
    server.http.close()
    if server.process.poll() is None:
        server.process.send_signal(signal.SIGTERM)
        try:
            server.process.wait(60)
        except subprocess.TimeoutExpired:
            os.killpg(server.process.pid, signal.SIGKILL)
            server.process.wait()
    status: int = server.process.returncode
    return status
