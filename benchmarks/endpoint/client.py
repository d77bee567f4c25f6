"""The process that runs `vllm bench serve`, one run after another."""

import json
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from benchmarks.endpoint.plan import PROGRAM
from benchmarks.running.process import BenchmarkError, last_lines, running
from benchmarks.running.server import ENGINE_ENVIRONMENT

LOG_LINES = 8


class Client:
    """A process that has imported vLLM and runs its benchmark when asked."""

    def __init__(self, process: "subprocess.Popen[bytes]", own_log: Path) -> None:
        self._process = process
        self._own_log = own_log

    def run(self, flags: Sequence[str], log: Path) -> int:
        """The exit status of one run; what it prints goes to the log.

        Raises:
            BenchmarkError: the client itself ended.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        request = json.dumps({"flags": list(flags), "log": str(log.resolve())})
        try:
            self._process.stdin.write(f"{request}\n".encode())
            self._process.stdin.flush()
            answer = self._process.stdout.readline()
        except BrokenPipeError:
            answer = b""
        if not answer:
            raise BenchmarkError(f"vLLM's benchmark ended:\n{last_lines(self._own_log, LOG_LINES)}")
        return int(answer)


@contextmanager
def running_client() -> Iterator[Client]:
    """Start the client; end it and its run on leaving."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder, "log")
        with running(
            ["-m", PROGRAM],
            log,
            environment={"VLLM_NO_USAGE_STATS": ENGINE_ENVIRONMENT["VLLM_NO_USAGE_STATS"]},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        ) as process:
            yield Client(process, log)
