"""Servers: one over HTTP wherever it runs, and one of the benchmark's own on the loopback."""

import json
import socket
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from benchmarks.running.process import BenchmarkError, last_lines, running

HOST = "127.0.0.1"

Route = Literal["v1", "v2"]
ROUTES: tuple[Route, Route] = ("v1", "v2")
PATHS: dict[Route, str] = {"v1": "/v1/completions", "v2": "/v2/completions"}

ENGINE_ENVIRONMENT = {
    "VLLM_CPU_KVCACHE_SPACE": "2",  # GiB
    "VLLM_NO_USAGE_STATS": "1",
    "HF_HUB_OFFLINE": "1",
    # A machine that stands still for seconds (virtual ones do) ends no connection between requests.
    "VLLM_HTTP_TIMEOUT_KEEP_ALIVE": "600",  # seconds
}

_START_SECONDS = 400.0
_ANSWER_SECONDS = 600.0
_RESET_SECONDS = 10.0
_RESET_PATH = "/reset_prefix_cache"
_HEALTH_PATH = "/health"
_HEALTH_SECONDS = 5.0
_POLL_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class Answer:
    """To one HTTP request."""

    status: int
    headers: Mapping[str, str]
    text: str


@dataclass(frozen=True, slots=True)
class Site:
    """A server over HTTP."""

    base_url: str
    """Without a slash at its end."""
    command: str = ""
    """The command line of a server that this program started."""
    headers: Mapping[str, str] = field(default_factory=dict)

    def get(self, path: str) -> Any:
        """The JSON at a path.

        Raises:
            BenchmarkError: there is none.
        """
        answer = self._ask(path)
        if answer.status != 200:
            raise BenchmarkError(f"GET {path} was answered {answer.status}: {answer.text}")
        return json.loads(answer.text)

    def post(self, path: str, body: Mapping[str, Any] | None = None) -> Answer:
        """The answer to a body of JSON."""
        return self._ask(path, b"" if body is None else json.dumps(body).encode())

    def _ask(
        self, path: str, data: bytes | None = None, seconds: float = _ANSWER_SECONDS
    ) -> Answer:
        headers = {"content-type": "application/json", **self.headers}
        request = urllib.request.Request(self.base_url + path, data, headers)
        try:
            with _opener(self.base_url).open(request, timeout=seconds) as reply:
                return Answer(reply.status, dict(reply.headers), reply.read().decode())
        except urllib.error.HTTPError as error:
            return Answer(error.code, dict(error.headers), error.read().decode(errors="replace"))
        except OSError as error:
            raise BenchmarkError(f"{self.base_url} cannot be reached: {error}") from error

    def forgets_prefixes(self) -> bool:
        """Empty the prefix cache; False where the server has no route for it.

        Raises:
            BenchmarkError: it has one, and it did not work.
        """
        deadline = time.monotonic() + _RESET_SECONDS
        while True:
            answer = self.post(_RESET_PATH)
            if answer.status in {404, 405}:
                return False
            # A route that answers with nothing has done it; a busy engine says false.
            if answer.status == 200 and (not answer.text or json.loads(answer.text)["success"]):
                return True
            if time.monotonic() > deadline:
                raise BenchmarkError(f"{_RESET_PATH}: {answer.status} {answer.text}")
            time.sleep(0.1)

    def wait(self, seconds: float, lives: Callable[[], bool] = lambda: True) -> None:
        """Wait until the server is ready, at most so long, and only as long as it lives.

        Raises:
            BenchmarkError: it is not, with the reason of the last try.
        """
        deadline = time.monotonic() + seconds
        while (reason := self._unready()) is not None:
            if time.monotonic() >= deadline or not lives():
                raise BenchmarkError(reason)
            time.sleep(min(_POLL_SECONDS, max(deadline - time.monotonic(), 0)))

    def _unready(self) -> str | None:
        """Why the server is not ready yet: it may be loading its model."""
        try:
            status = self._ask(_HEALTH_PATH, seconds=_HEALTH_SECONDS).status
        except BenchmarkError as error:
            return str(error)
        return None if status == 200 else f"GET {_HEALTH_PATH} was answered {status}"


def _opener(base_url: str) -> urllib.request.OpenerDirector:
    """Past any proxy to this machine itself."""
    own = urllib.request.ProxyHandler({} if f"//{HOST}" in base_url else None)
    return urllib.request.build_opener(own)


@dataclass(frozen=True, slots=True)
class Completion:
    """An answer in one piece."""

    choices: list[dict[str, Any]]
    usage: dict[str, int]

    @property
    def texts(self) -> list[str]:
        """The choices' texts."""
        return [choice["text"] for choice in self.choices]


@dataclass(frozen=True, slots=True)
class Server:
    """A running server."""

    pid: int
    """Of the API server process, which also started the engine's processes."""
    port: int
    model: str

    @property
    def site(self) -> Site:
        """What it serves."""
        return Site(f"http://{HOST}:{self.port}")

    def ask(self, path: str = PATHS["v2"], /, **fields: Any) -> Completion:
        """POST the fields to a completions route, and wait for the answer.

        Raises:
            BenchmarkError: the answer is not a success.
        """
        answer = self.site.post(path, {"model": self.model, **fields})
        if answer.status != 200:
            raise BenchmarkError(f"The server answered {answer.status}: {answer.text}")
        content = json.loads(answer.text)
        return Completion(content["choices"], content["usage"])

    def cpu_seconds(self) -> float:
        """CPU seconds, user and system, of the API server process since it started.

        All its threads, those that ended included; not the engine's processes.
        """
        return cpu_seconds(self.pid)


def cpu_seconds(pid: int) -> float:
    """CPU seconds of one process, without its children. To the nanosecond.

    The process's own CPU clock (Linux, clock_getcpuclockid): /proc counts in steps of 10 ms.
    """
    return time.clock_gettime((~pid << 3) | 2)


@contextmanager
def running_server(
    model_folder: Path,
    model: str,
    flags: Sequence[str] = (),
    *,
    module: str = "adapter.serve",
    environment: Mapping[str, str] | None = None,
) -> Iterator[Server]:
    """Serve the model of a folder under the name `model`; stop the server on leaving.

    flags: more flags of the module, which takes those of vLLM's own server.
    environment: more variables.

    Raises:
        BenchmarkError: it did not start; the end of its log is in the message.
    """
    port = free_port()
    own = ["--served-model-name", model, "--host", HOST, "--port", str(port)]
    arguments = ["-m", module, str(model_folder), *own, *flags]
    variables = ENGINE_ENVIRONMENT | dict(environment or {})
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder, "log")
        with running(arguments, log, environment=variables) as process:
            server = Server(process.pid, port, model)
            try:
                server.site.wait(_START_SECONDS, lambda: process.poll() is None)
            except BenchmarkError as error:
                words = last_lines(log)
                raise BenchmarkError(f"The server did not start: {error}\n{words}") from error
            yield server


def free_port() -> int:
    """A port of the loopback that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port
