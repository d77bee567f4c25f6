"""The process that runs vLLM's benchmark, and what is added to it."""

import asyncio
import io
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks.endpoint import vllm_bench
from benchmarks.running.process import BenchmarkError, last_lines


def test_each_run_is_a_process_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """What one changes, prints or breaks does not reach the next; its exit status does."""
    state = []

    def run(flags: Sequence[str]) -> None:
        state.append(flags)
        print(f"run {len(state)} of {flags}")
        if flags[0] == "wrong":
            sys.exit(2)
        if flags[0] == "broken":
            raise ValueError("no such server")

    monkeypatch.setattr(vllm_bench, "run", run)
    names = ["fine", "wrong", "broken", "again"]
    requests = [json.dumps({"flags": [n], "log": str(tmp_path / n)}) + "\n" for n in names]
    answers = io.StringIO()
    assert vllm_bench.run_many(io.StringIO("".join(requests)), answers) == 0
    assert answers.getvalue().split() == ["0", "2", "1", "0"]
    assert (tmp_path / "again").read_text() == "run 1 of ['again']\n"
    assert "ValueError: no such server" in last_lines(tmp_path / "broken")
    assert capfd.readouterr().out == ""


def test_a_client_that_ends_is_told_with_its_log(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vllm_bench, "PROGRAM", "benchmarks.no_such_module")
    with (
        vllm_bench.running_client() as running,
        pytest.raises(BenchmarkError, match=r"No module named benchmarks\.no_such_module"),
    ):
        running.run(["--flag"], Path("log"))


def test_the_clients_cpu_is_measured_around_the_load(tmp_path: Path) -> None:
    async def load(seconds: float, *, answer: str) -> str:
        until = time.process_time() + seconds
        while time.process_time() < until:
            pass
        await asyncio.sleep(0.2)
        return answer

    file = tmp_path / "usage.json"
    measured = vllm_bench.with_usage(load, file)
    assert asyncio.run(measured(0.3, answer="done")) == "done"
    usage = json.loads(file.read_text())
    assert usage["user_seconds"] + usage["system_seconds"] == pytest.approx(0.3, abs=0.1)
    assert usage["wall_seconds"] > 0.45


class Session:
    """Of aiohttp, with one answer."""

    def __init__(self, status: int, text: str) -> None:
        self.status = status
        self.text = text
        self.asked: dict[str, Any] = {}

    def post(self, url: str, *, json: dict[str, Any], headers: dict[str, str]) -> "Session":
        self.asked = {"url": url, **json}
        return self

    async def read(self) -> bytes:
        await asyncio.sleep(0.01)
        return self.text.encode()

    async def __aenter__(self) -> "Session":
        return self

    async def __aexit__(self, *_: object) -> None: ...


def asked_whole(session: Session) -> Any:
    asked = SimpleNamespace(
        model="m",
        model_name=None,
        prompt="a",
        output_len=8,
        logprobs=None,
        ignore_eos=True,
        extra_body={"best_of": 4, "stream": True},
        extra_headers=None,
        request_id=None,
        api_url="http://host/v2/completions",
        prompt_len=1,
    )
    return asyncio.run(vllm_bench.request_whole(asked, session))


@pytest.mark.needs_vllm
def test_an_answer_in_one_piece_is_timed_as_a_whole() -> None:
    usage = {"prompt_tokens": 3, "completion_tokens": 32}
    session = Session(200, json.dumps({"choices": [{"text": "b"}], "usage": usage}))
    output = asked_whole(session)
    assert session.asked["stream"] is False
    assert session.asked["ignore_eos"] is True
    assert session.asked["best_of"] == 4
    assert (output.success, output.output_tokens, output.prompt_len) == (True, 32, 3)
    assert output.latency == output.ttft >= 0.01


@pytest.mark.needs_vllm
@pytest.mark.parametrize(
    ("status", "text", "reason"),
    [(400, '{"error": "no"}', '400: {"error": "no"}'), (200, "not JSON", "JSONDecodeError")],
)
def test_an_answer_that_is_none_has_failed(status: int, text: str, reason: str) -> None:
    output = asked_whole(Session(status, text))
    assert not output.success
    assert reason in output.error
