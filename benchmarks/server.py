"""A server of the benchmark's own, on a free port of the loopback."""

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

REPOSITORY = Path(__file__).resolve().parents[1]
HOST = "127.0.0.1"
PATH = "/v2/completions"

ENGINE_ENVIRONMENT = {
    "VLLM_CPU_KVCACHE_SPACE": "2",  # GiB
    "VLLM_NO_USAGE_STATS": "1",
    "HF_HUB_OFFLINE": "1",
    # A machine that stands still for seconds (virtual ones do) ends no connection between requests.
    "VLLM_HTTP_TIMEOUT_KEEP_ALIVE": "600",  # seconds
}

_START_SECONDS = 400.0
_STOP_SECONDS = 60.0
_ANSWER_SECONDS = 600.0
_LOG_LINES = 30


class BenchmarkError(RuntimeError):
    """A run that cannot be measured, or whose figures would mean nothing."""


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

    def ask(self, path: str = PATH, /, **fields: Any) -> Completion:
        """POST the fields to a completions route, and wait for the answer.

        Raises:
            BenchmarkError: the answer is not a success.
        """
        connection = http.client.HTTPConnection(HOST, self.port, timeout=_ANSWER_SECONDS)
        try:
            body = json.dumps({"model": self.model, **fields})
            connection.request("POST", path, body, {"content-type": "application/json"})
            response = connection.getresponse()
            text = response.read().decode()
        finally:
            connection.close()
        if response.status != 200:
            raise BenchmarkError(f"The server answered {response.status}: {text}")
        answer = json.loads(text)
        return Completion(answer["choices"], answer["usage"])

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
    model_folder: Path, model: str, flags: Sequence[str] = (), *, module: str = "adapter.serve"
) -> Iterator[Server]:
    """Serve the model of a folder under the name `model`; stop the server on leaving.

    flags: more flags of the module, which takes those of vLLM's own server.

    Raises:
        BenchmarkError: it did not start; the end of its log is in the message.
    """
    port = free_port()
    own = ["--served-model-name", model, "--host", HOST, "--port", str(port)]
    command = [sys.executable, "-m", module, str(model_folder), *own, *flags]
    with tempfile.TemporaryFile() as log:
        # A session of its own, so that its processes can be ended together, and Ctrl-C reaches
        # only the benchmark, which then stops the server.
        process = subprocess.Popen(
            command,
            cwd=REPOSITORY,
            env=os.environ | ENGINE_ENVIRONMENT,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            _wait_until_ready(process, port, log)
            yield Server(process.pid, port, model)
        finally:
            stop(process)


def free_port() -> int:
    """A port of the loopback that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port


def stop(process: "subprocess.Popen[bytes]", seconds: float = _STOP_SECONDS) -> None:
    """End a process that leads a session, and whatever it left behind.

    seconds: how long it may take to end by itself.
    """
    process.terminate()
    with suppress(subprocess.TimeoutExpired):
        process.wait(seconds)
    # Its process group outlives it where an engine process does.
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _wait_until_ready(process: "subprocess.Popen[bytes]", port: int, log: IO[bytes]) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while not _is_healthy(port):
        if process.poll() is not None:
            raise BenchmarkError(f"The server ended while starting:\n{_last_lines(log)}")
        if time.monotonic() > deadline:
            raise BenchmarkError(
                f"The server was not ready after {_START_SECONDS:.0f} s:\n{_last_lines(log)}"
            )
        time.sleep(0.5)


def _is_healthy(port: int) -> bool:
    connection = http.client.HTTPConnection(HOST, port, timeout=5)
    try:
        connection.request("GET", "/health")
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()


def _last_lines(log: IO[bytes]) -> str:
    log.seek(0)
    lines = log.read().decode(errors="replace").splitlines()
    return "\n".join(lines[-_LOG_LINES:])
