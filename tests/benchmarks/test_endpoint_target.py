"""What a server is asked before it is measured, and the folder for what is measured."""

import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest

from benchmarks.endpoint import measure
from benchmarks.endpoint.plan import Settings, Target
from benchmarks.endpoint.target import lack, model_entry, served, site
from benchmarks.endpoint.workloads import VARIANTS
from benchmarks.running import server as server_module
from benchmarks.running.machine import Environment
from benchmarks.running.process import BenchmarkError
from benchmarks.running.server import Site

RECORDED = Path(__file__).parents[1] / "data" / "endpoint"
MODELS = {"data": [{"id": "a", "root": "hub/a", "max_model_len": 128}, {"id": "b", "root": None}]}
MACHINE = Environment(2, "CPU", 1.0, 0.0, {})


class Handler(BaseHTTPRequestHandler):
    """Answers by path: status, headers, text."""

    answers: ClassVar[dict[str, tuple[int, dict[str, str], str]]] = {}
    bodies: ClassVar[list[dict[str, Any]]] = []

    def do_GET(self) -> None:
        status, headers, text = self.answers.get(self.path, (404, {}, '{"detail": "Not Found"}'))
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(text.encode())

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        self.bodies.append(json.loads(body or b"{}"))
        self.do_GET()

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def server() -> Iterator[Site]:
    """A server that answers what Handler.answers says."""
    Handler.answers = {"/v1/models": (200, {}, json.dumps(MODELS))}
    Handler.bodies = []
    with HTTPServer(("127.0.0.1", 0), Handler) as http:
        thread = threading.Thread(target=http.serve_forever)
        thread.start()
        yield Site(f"http://127.0.0.1:{http.server_port}")
        http.shutdown()
        thread.join()


def test_a_server_that_cannot_be_reached_is_told() -> None:
    with pytest.raises(BenchmarkError, match="cannot be reached"):
        Site("http://127.0.0.1:9").get("/v1/models")


def test_a_server_that_is_not_ready_is_waited_for(server: Site) -> None:
    """As long as it may take, and no longer; then the reason is told."""
    with (
        pytest.raises(BenchmarkError, match="/health was answered 404"),
        site(server.base_url, None, "", ready_seconds=0),
    ):
        pass
    ready = threading.Timer(0.2, lambda: Handler.answers.update({"/health": (200, {}, "")}))
    ready.start()
    started = time.monotonic()
    with site(server.base_url + "/", None, "", ready_seconds=10) as (found, folder):
        assert (found.base_url, folder) == (server.base_url, None)
    assert 0.2 <= time.monotonic() - started < 10


def test_the_first_model_is_measured_where_none_is_named(server: Site) -> None:
    assert served(server, None, None, None) == Target(server.base_url, "a", "hub/a", False)
    assert served(server, None, "b", None).tokenizer == "b"
    assert served(server, Path("folder"), "b", None).tokenizer == "folder"
    assert served(server, Path("folder"), "b", "other").tokenizer == "other"


def test_a_model_that_is_not_served_is_told() -> None:
    with pytest.raises(BenchmarkError, match="no model c; it has: a, b"):
        model_entry(MODELS, "c")


def test_the_prefix_cache_is_emptied_where_there_is_a_route_for_it(
    server: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_module, "_RESET_SECONDS", 0.3)
    assert not server.forgets_prefixes()
    Handler.answers["/reset_prefix_cache"] = (200, {}, '{"success": true}')
    assert server.forgets_prefixes()
    assert served(server, None, "a", None).same_prompts
    Handler.answers["/reset_prefix_cache"] = (200, {}, '{"success": false}')
    with pytest.raises(BenchmarkError, match="false"):
        server.forgets_prefixes()


def test_a_variant_is_tried_before_it_is_measured(server: Site) -> None:
    variant = VARIANTS["best_of"]
    assert lack(server, "a", variant, "v2") == "the server answered 404: Not Found"
    Handler.answers["/v2/completions"] = (200, {}, "{}")
    assert lack(server, "a", variant, "v2") == ""
    assert Handler.bodies[-1]["best_of"] == 4
    error = '{"error": {"message": "best_of is not here"}}'
    Handler.answers["/v2/completions"] = (400, {}, error)
    assert lack(server, "a", variant, "v2") == "the server answered 400: best_of is not here"


def test_a_route_that_ignores_what_is_measured_lacks_it(server: Site) -> None:
    Handler.answers["/v2/completions"] = (200, {"X-Ignored-Fields": "best_of"}, "{}")
    assert lack(server, "a", VARIANTS["best_of"], "v2") == "the server ignored best_of"


def test_the_server_is_asked_how_long_texts_may_be(server: Site) -> None:
    Handler.answers["/version"] = (200, {}, '{"version": "0.32.0"}')
    facts = measure.server_facts(server, Target(server.base_url, "a", "a", same_prompts=False))
    assert facts["max_model_len"] == 128
    assert facts["version"] == "0.32.0"
    assert facts["prefix_cache"] == "never sees a prompt twice"
    with pytest.raises(BenchmarkError, match="max_model_len"):
        measure.server_facts(server, Target(server.base_url, "b", "b"))


def test_a_folder_with_runs_is_only_resumed(tmp_path: Path) -> None:
    folder = measure.result_folder(tmp_path / "new", MACHINE, "m", resume=False)
    assert measure.result_folder(folder, MACHINE, "m", resume=False) == folder
    (folder / "raw" / "tiny_plain_c1_1_v1.json").write_text("{}")
    with pytest.raises(BenchmarkError, match="--resume"):
        measure.result_folder(folder, MACHINE, "m", resume=False)
    assert measure.result_folder(folder, MACHINE, "m", resume=True) == folder


def test_runs_of_another_server_or_seed_are_not_mixed() -> None:
    before = json.loads((RECORDED / "env.json").read_text())
    measure.check_same(before, json.loads(json.dumps(before)))
    other = json.loads(json.dumps(before))
    other["server"]["version"] = "0.33.0"
    other["settings"]["seed"] = 7
    with pytest.raises(BenchmarkError, match="not of the same version, seed:"):
        measure.check_same(before, other)
    other = before | {"settings": {**before["settings"], "goodput": ()}}
    before["settings"]["goodput"] = []
    measure.check_same(before, other)
    assert Settings().goodput == ()
