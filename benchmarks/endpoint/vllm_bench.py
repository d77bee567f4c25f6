"""vLLM's `vllm bench serve`, run as a module: the CPU build has no `vllm` command.

`python -m benchmarks.endpoint.vllm_bench FLAGS` is one run. It takes all flags of `vllm bench
serve`, and `--client-usage FILE` for the CPU that the client itself used; the backend
`openai-whole` asks for answers in one piece.

`python -m benchmarks.endpoint.vllm_bench` without flags does many runs, each in a process of its
own that is forked from one which has imported vLLM (seconds): a line of JSON on stdin,
`{"flags": [...], "log": FILE}`, is a run, and its exit status comes back as a line on stdout.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import IO, Any

from benchmarks.endpoint.plan import PROGRAM, WHOLE_BACKEND
from benchmarks.running.process import BenchmarkError, claim_stdout, last_lines, running
from benchmarks.running.server import ENGINE_ENVIRONMENT


def main() -> int:
    """One run, or those that stdin asks for."""
    if sys.argv[1:]:
        run(sys.argv[1:])
        return 0
    # What vLLM prints must not mix with the answers.
    answers = claim_stdout()
    import_client()
    return run_many(sys.stdin, answers)


def run_many(requests: IO[str], answers: IO[str]) -> int:
    """A forked process for each line of requests, one after another."""
    for line in requests:
        request = json.loads(line)
        child = os.fork()
        if child == 0:
            os._exit(_run_logged(request["flags"], Path(request["log"])))
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), file=answers, flush=True)
    return 0


def _run_logged(flags: Sequence[str], log: Path) -> int:
    with log.open("w", encoding="utf-8") as output:
        # Python's own streams, and what libraries write past them.
        os.dup2(output.fileno(), 1)
        os.dup2(output.fileno(), 2)
        with redirect_stdout(output), redirect_stderr(output):
            try:
                run(flags)
            except SystemExit as leaving:  # wrong flags
                return leaving.code if isinstance(leaving.code, int) else 1
            except BaseException:
                traceback.print_exc()
                return 1
    return 0


def import_client() -> None:
    """Load what every run needs."""
    import transformers  # noqa: F401
    import vllm.benchmarks.serve
    import vllm.utils.argparse_utils  # noqa: F401


def parse(flags: Sequence[str]) -> argparse.Namespace:
    """The options of `vllm bench serve`, and client_usage."""
    from vllm.benchmarks import serve
    from vllm.benchmarks.lib import endpoint_request_func as functions
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    functions.ASYNC_REQUEST_FUNCS[WHOLE_BACKEND] = request_whole
    if WHOLE_BACKEND not in functions.OPENAI_COMPATIBLE_BACKENDS:
        functions.OPENAI_COMPATIBLE_BACKENDS.append(WHOLE_BACKEND)
    parser = FlexibleArgumentParser(prog="vllm bench serve")
    serve.add_cli_args(parser)
    parser.add_argument("--client-usage", type=Path)
    options: argparse.Namespace = parser.parse_args(list(flags))
    return options


def run(flags: Sequence[str]) -> None:
    """One run of `vllm bench serve`."""
    from vllm.benchmarks import serve

    options = parse(flags)
    if options.client_usage is not None:
        serve.benchmark = with_usage(serve.benchmark, options.client_usage)
    serve.main(options)


Measured = Callable[..., Coroutine[Any, Any, Any]]


def with_usage(function: Measured, file: Path) -> Measured:
    """The same coroutine function; it also writes the CPU and wall seconds that it took.

    Of the whole process, all threads. It is put around the sending of requests, so that starting
    up and making prompts do not count.
    """

    async def measured(*args: Any, **named: Any) -> Any:
        before, started = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
        result = await function(*args, **named)
        after, wall = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter() - started
        _write_usage(file, after.ru_utime - before.ru_utime, after.ru_stime - before.ru_stime, wall)
        return result

    return measured


def _write_usage(file: Path, user: float, system: float, wall: float) -> None:
    usage = {"user_seconds": user, "system_seconds": system, "wall_seconds": wall}
    file.write_text(json.dumps(usage) + "\n", encoding="utf-8")


async def request_whole(request_func_input: Any, session: Any, pbar: Any = None) -> Any:
    """One completion that is not streamed; vLLM's benchmark has only streamed ones.

    Its time to the first token is that of the whole answer, so figures between the two mean
    nothing.
    """
    from vllm.benchmarks.lib.endpoint_request_func import RequestFuncOutput

    asked = request_func_input
    body = {
        "model": asked.model_name or asked.model,
        "prompt": asked.prompt,
        "max_tokens": asked.output_len,
        "repetition_penalty": 1.0,
        "logprobs": asked.logprobs,
        **({"ignore_eos": True} if asked.ignore_eos else {}),
        **(asked.extra_body or {}),
        "stream": False,
    }
    headers = dict(asked.extra_headers or {})
    if key := os.environ.get("OPENAI_API_KEY"):
        headers["Authorization"] = f"Bearer {key}"
    if asked.request_id:
        headers["x-request-id"] = asked.request_id
    output = RequestFuncOutput(prompt_len=asked.prompt_len, start_time=time.perf_counter())
    try:
        async with session.post(asked.api_url, json=body, headers=headers) as response:
            answer = await response.read()
            output.latency = output.ttft = time.perf_counter() - output.start_time
            if response.status == 200:
                content = json.loads(answer)
                output.output_tokens = content["usage"]["completion_tokens"]
                output.prompt_len = content["usage"]["prompt_tokens"]
                output.generated_text = content["choices"][0]["text"]
                output.success = True
            else:
                output.error = f"{response.status}: {answer.decode(errors='replace')}"
    except Exception:
        output.error = traceback.format_exc()
    if pbar is not None:
        pbar.update(1)
    return output


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


if __name__ == "__main__":
    sys.exit(main())
