"""The runs of a plan, on a server and a client that are not there."""

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from benchmarks.endpoint import measure
from benchmarks.endpoint.options import parse
from benchmarks.endpoint.runs import recorded_runs
from benchmarks.running.machine import Environment
from benchmarks.running.process import BenchmarkError
from benchmarks.running.server import Answer

RECORDED = Path(__file__).parents[1] / "data" / "endpoint" / "raw" / "tiny_plain_c1_1_v1.json"
QUICK = ["--quick", "--concurrency", "2", "--rates", "--repeats", "2"]


class FakeSite:
    """A server that has all routes, but for what `missing` says."""

    base_url = "http://127.0.0.1:1"
    command = ""

    def __init__(self) -> None:
        self.events: list[str] = []
        self.missing = ""
        self.length = 8192

    def get(self, path: str) -> Any:
        model = {"id": "m", "root": "m", "max_model_len": self.length}
        return {"/v1/models": {"data": [model]}, "/version": {"version": "0.32.0"}}[path]

    def post(self, path: str, body: Any) -> Answer:
        lacks = self.missing and self.missing in json.dumps(body) and path == "/v2/completions"
        return Answer(400 if lacks else 200, {}, '{"error": {"message": "no such backend"}}')

    def forgets_prefixes(self) -> bool:
        self.events.append("reset")
        return True


class FakeClient:
    """Records what it is to run, and writes a file as vLLM's benchmark does."""

    def __init__(self, site: FakeSite) -> None:
        self.site = site
        self.broken = ""

    def run(self, flags: Sequence[str], log: Path) -> int:
        given = list(flags)
        name = given[given.index("--result-filename") + 1]
        log.write_text("Traceback\nno such tokenizer\n")
        self.site.events.append(name.removesuffix(".json"))
        if name.removesuffix(".json") == self.broken:
            return 1
        at = given.index("--metadata") + 1
        facts = dict(fact.split("=") for fact in given[at : at + 5])
        folder = Path(given[given.index("--result-dir") + 1])
        folder.mkdir(exist_ok=True)
        content = json.loads(RECORDED.read_text()) | facts
        (folder / name).write_text(json.dumps(content))
        return 0


Measuring = Callable[..., tuple[Path, int]]


@pytest.fixture
def server() -> FakeSite:
    return FakeSite()


@pytest.fixture
def client(server: FakeSite) -> FakeClient:
    return FakeClient(server)


@pytest.fixture
def measuring(
    server: FakeSite, client: FakeClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Measuring:
    """Measures into a folder of the test's, by the command line."""

    @contextmanager
    def site(*_: object) -> Iterator[tuple[FakeSite, None]]:
        yield server, None

    @contextmanager
    def running() -> Iterator[FakeClient]:
        yield client

    monkeypatch.setattr(measure, "site", site)
    monkeypatch.setattr(measure, "running_client", running)

    def run(*arguments: str) -> tuple[Path, int]:
        options = parse([*QUICK, "--out", str(tmp_path / "out"), *arguments])
        options.environment = Environment(2, "CPU", 1.0, 0.0, {})
        server.events.clear()
        return measure.measure(options)

    return run


def test_both_routes_are_warmed_up_and_then_measured_in_turn(
    measuring: Measuring, server: FakeSite
) -> None:
    """The prefix cache is emptied before each, so that the second finds no prompt computed."""
    folder, failures = measuring("--variants", "plain")
    runs = [event for event in server.events if event != "reset"]
    pairs = [f"tiny_plain_c2_{repeat}_v{route}" for repeat in (1, 2) for route in (1, 2)]
    assert runs == [*pairs[:2], *pairs]
    first = server.events.index(runs[0])
    assert server.events[first - 1 :: 2] == ["reset"] * len(runs)
    assert failures == 0
    assert len(recorded_runs(folder)) == 4


def test_what_is_recorded_is_not_run_again(measuring: Measuring, server: FakeSite) -> None:
    folder, _ = measuring("--variants", "plain")
    (folder / "raw" / "tiny_plain_c2_2_v1.json").unlink()
    measuring("--variants", "plain", "--resume")
    assert {event for event in server.events if event != "reset"} == {"tiny_plain_c2_2_v1"}
    measuring("--variants", "plain", "--resume")
    assert {event for event in server.events if event != "reset"} == set()
    with pytest.raises(BenchmarkError, match="not of the same seed"):
        measuring("--variants", "plain", "--resume", "--seed", "9")


def test_a_variant_that_a_route_lacks_is_recorded_and_not_run(
    measuring: Measuring, server: FakeSite
) -> None:
    server.missing = "outlines"
    folder, failures = measuring("--variants", "plain", "guided-outlines")
    record = json.loads((folder / "env.json").read_text())
    assert record["not_measured"] == [
        "guided-outlines on /v2/completions: the server answered 400: no such backend"
    ]
    outlines = {run.route for run in recorded_runs(folder) if run.variant == "guided-outlines"}
    assert outlines == {"v1"}
    assert failures == 0


def test_a_run_that_breaks_is_recorded_and_the_others_go_on(
    measuring: Measuring, client: FakeClient
) -> None:
    client.broken = "tiny_plain_c2_1_v2"
    folder, failures = measuring("--variants", "plain")
    (told,) = json.loads((folder / "env.json").read_text())["not_measured"]
    assert told.startswith("tiny_plain_c2_1_v2 ended in an error:")
    assert told.endswith("no such tokenizer")
    assert failures == 1
    assert len(recorded_runs(folder)) == 3


def test_nothing_is_run_that_does_not_fit(measuring: Measuring, server: FakeSite) -> None:
    server.length = 2048
    with pytest.raises(BenchmarkError, match=r"2048x128 \(2176 tokens\)"):
        measuring("--workloads", "tiny", "2048x128")
    assert server.events == ["reset"]


def test_no_load_is_an_error(measuring: Measuring) -> None:
    with pytest.raises(BenchmarkError, match="name --concurrency or --rates"):
        measuring("--concurrency")
