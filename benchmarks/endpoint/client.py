"""The process that runs `vllm bench serve`, one run after another."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from benchmarks.endpoint.plan import PROGRAM
from benchmarks.server import ENGINE_ENVIRONMENT, REPOSITORY, BenchmarkError, stop

_LOG_LINES = 8


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
            raise BenchmarkError(f"vLLM's benchmark ended:\n{last_lines(self._own_log)}")
        return int(answer)


@contextmanager
def running_client() -> Iterator[Client]:
    """Start the client; end it and its run on leaving."""
    # A session of its own, so that a run that is under way is ended with it.
    with tempfile.TemporaryDirectory() as folder, (Path(folder) / "log").open("wb") as own_log:
        process = subprocess.Popen(
            [sys.executable, "-m", PROGRAM],
            cwd=REPOSITORY,
            env=os.environ | {"VLLM_NO_USAGE_STATS": ENGINE_ENVIRONMENT["VLLM_NO_USAGE_STATS"]},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=own_log,
            start_new_session=True,
        )
        try:
            yield Client(process, Path(own_log.name))
        finally:
            stop(process)
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    pipe.close()


def last_lines(log: Path) -> str:
    """The end of a run's log."""
    if not log.is_file():
        return "(no log)"
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    return "\n".join(lines[-_LOG_LINES:])
