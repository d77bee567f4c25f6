"""Processes of Python: one that runs until it is ended, and one that is asked by JSON."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any

REPOSITORY = Path(__file__).resolve().parents[2]

_STOP_SECONDS = 60.0
_LAST_LINES = 30


class BenchmarkError(RuntimeError):
    """A run that cannot be measured, or whose figures would mean nothing."""


@contextmanager
def running(
    arguments: Sequence[str],
    log: Path,
    *,
    environment: Mapping[str, str] | None = None,
    stdin: int = subprocess.DEVNULL,
    stdout: int | IO[bytes] | None = None,
    stop_seconds: float = _STOP_SECONDS,
) -> Iterator["subprocess.Popen[bytes]"]:
    """Run `python ARGUMENTS` in the repository; end it, and all that it started, on leaving.

    It leads a session of its own: Ctrl-C reaches only this process, which then ends the other.

    log: what it prints; with stdout, its errors alone.
    environment: variables beside those of this process.
    """
    with log.open("wb") as errors:
        process = subprocess.Popen(
            [sys.executable, *arguments],
            cwd=REPOSITORY,
            env=os.environ | (environment or {}),
            stdin=stdin,
            stdout=errors if stdout is None else stdout,
            stderr=errors,
            start_new_session=True,
        )
        try:
            yield process
        finally:
            stop(process, stop_seconds)
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    pipe.close()


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


def ask(module: str, question: Any, *, environment: Mapping[str, str] | None = None) -> Any:
    """What a module answers that calls `answer`, in a process of its own. Both are JSON.

    Raises:
        BenchmarkError: with the end of what that process said.
    """
    done = subprocess.run(
        [sys.executable, "-m", module],
        cwd=REPOSITORY,
        env=os.environ | (environment or {}),
        input=json.dumps(question, default=asdict),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise BenchmarkError(f"{module} failed:\n{last_lines(done.stderr)}")
    return json.loads(done.stdout)


def answer(function: Callable[[Any], Any]) -> None:
    """The other side of `ask`: what the function makes of the JSON on stdin goes to stdout."""
    answers = claim_stdout()
    try:
        found = function(json.load(sys.stdin))
    except BenchmarkError as error:
        sys.exit(str(error))
    print(json.dumps(found, default=asdict), file=answers, flush=True)


def claim_stdout() -> IO[str]:
    """Stdout for this function's caller alone: what else is printed goes to stderr from now on."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return answers


def last_lines(log: str | Path, count: int = _LAST_LINES) -> str:
    """The end of a text or of a file, without empty lines.

    Each state of a progress bar, which overwrites the one before, is a line.
    """
    if isinstance(log, Path):
        if not log.is_file():
            return "(no log)"
        log = log.read_text(encoding="utf-8", errors="replace")
    return "\n".join([line for line in log.splitlines() if line.strip()][-count:])
