"""Which runs there are, and the command line of each."""

import json
from itertools import pairwise
from pathlib import Path

import pytest

from benchmarks.endpoint.__main__ import main
from benchmarks.endpoint.options import loads, parse
from benchmarks.endpoint.plan import Run, Settings, Target, flags, planned
from benchmarks.endpoint.workloads import (
    SCHEMA,
    VARIANTS,
    WORKLOADS,
    Closed,
    Load,
    Open,
    check_lengths,
    workloads,
)
from benchmarks.running.process import BenchmarkError
from benchmarks.running.server import ROUTES, Route

TARGET = Target("http://127.0.0.1:8000", "m", "folder")
FOLDER = Path("results")
FOUR = Closed(4)
SETTINGS = Settings()


def run(variant: str, route: Route, load: Load = FOUR, workload: str = "tiny") -> Run:
    return Run(WORKLOADS[workload], VARIANTS[variant], load, 1, route)


def values(of: Run, target: Target = TARGET, settings: Settings = SETTINGS) -> dict[str, str]:
    """The flags of a run that have one value, by name."""
    given = flags(of, target, settings, FOLDER)
    return {
        name: value
        for name, value in pairwise(given)
        if name.startswith("--") and not value.startswith("--")
    }


def body(variant: str, route: Route) -> dict[str, object]:
    """What a run adds to its requests."""
    content: dict[str, object] = json.loads(values(run(variant, route)).get("--extra-body", "{}"))
    return content


def test_the_routes_are_measured_in_turn() -> None:
    runs = list(planned([WORKLOADS["tiny"]], [VARIANTS["plain"]], [Closed(1), Open(0.5)], 2))
    assert [(r.load.name, r.repeat, r.route) for r in runs] == [
        (load, repeat, route) for load in ("c1", "r0.5") for repeat in (1, 2) for route in ROUTES
    ]


def test_names_of_runs_differ() -> None:
    runs = list(
        planned(list(WORKLOADS.values()), list(VARIANTS.values()), [Closed(1), Closed(16)], 3)
    )
    assert len({r.name for r in runs}) == len(runs)


def test_the_two_routes_get_the_same_prompts_and_arrivals() -> None:
    assert values(run("plain", "v1"))["--seed"] == values(run("plain", "v2"))["--seed"]


def test_a_server_that_keeps_its_prefix_cache_never_gets_a_prompt_twice() -> None:
    keeps = Target("http://127.0.0.1:8000", "m", "folder", same_prompts=False)
    runs = planned([WORKLOADS["tiny"]], [VARIANTS["plain"]], [Closed(1), Closed(4)], 3)
    seeds = [values(r, keeps)["--seed"] for r in runs]
    assert len(set(seeds)) == len(seeds)


def test_a_closed_loop_has_no_rate_and_an_open_one_no_limit() -> None:
    closed, rated = values(run("plain", "v2")), values(run("plain", "v2", Open(0.5, 60)))
    assert (closed["--request-rate"], closed["--max-concurrency"]) == ("inf", "4")
    assert (rated["--request-rate"], rated["--burstiness"]) == ("0.5", "1")
    assert "--max-concurrency" not in rated
    assert rated["--num-prompts"] == "30"


def test_only_the_route_and_its_files_differ_between_the_routes() -> None:
    theirs, ours = values(run("plain", "v1")), values(run("plain", "v2"))
    different = {name for name in theirs if theirs[name] != ours[name]}
    assert different == {"--endpoint", "--result-filename", "--client-usage", "--metadata"}
    assert ours["--endpoint"] == "/v2/completions"


def test_vllms_figures_are_all_asked_for() -> None:
    asked = values(run("plain", "v2"))
    assert asked["--percentile-metrics"] == "ttft,tpot,itl,e2el"
    assert asked["--metric-percentiles"] == "50,90,95,99"


@pytest.mark.parametrize("backend", ["xgrammar", "guidance", "outlines", "lm-format-enforcer"])
def test_a_constraint_is_asked_for_in_each_routes_words(backend: str) -> None:
    variant = f"guided-{backend}"
    assert body(variant, "v1") == {"structured_outputs": {"json": SCHEMA}, "ignore_eos": False}
    assert body(variant, "v2") == {
        "guided_json": SCHEMA,
        "guided_decoding_backend": backend,
        "ignore_eos": False,
    }


def test_only_constrained_texts_may_end_early() -> None:
    ignoring = {
        name
        for name in VARIANTS
        if "--ignore-eos" in flags(run(name, "v2"), TARGET, SETTINGS, FOLDER)
    }
    assert ignoring == {name for name in VARIANTS if not name.startswith("guided-")}


def test_best_of_is_never_sent_to_the_route_that_ignores_it() -> None:
    assert body("best_of", "v1") == {"n": 4}
    assert body("best_of", "v2") == {"n": 1, "best_of": 4}


def test_what_no_route_streams_is_asked_for_in_one_piece() -> None:
    whole = {name for name in VARIANTS if values(run(name, "v1"))["--backend"] != "openai"}
    assert whole == {"whole", "best_of", "beam"}


def test_the_bodies_are_of_the_contract() -> None:
    from adapter.contract.request import CompletionV2Request

    known = set(CompletionV2Request.model_fields)
    for name in VARIANTS:
        assert set(body(name, "v2")) <= known


def test_shapes_that_do_not_fit_the_model_are_refused() -> None:
    shapes = workloads(["tiny", "2048x128", "2048x2048"], None)
    check_lengths(shapes, 4096)
    with pytest.raises(BenchmarkError, match=r"holds 2175 tokens: 2048x128 .*, 2048x2048 "):
        check_lengths(shapes, 2175)


def test_sharegpt_needs_its_file(tmp_path: Path) -> None:
    with pytest.raises(BenchmarkError, match="--sharegpt-file"):
        workloads(["sharegpt"], tmp_path / "absent.json")
    file = tmp_path / "there.json"
    file.write_text("[]")
    assert str(file) in workloads(["sharegpt"], file)[0].flags


def test_goodput_is_passed_on() -> None:
    given = flags(run("plain", "v1"), TARGET, Settings(goodput=("ttft:200", "e2el:900")), FOLDER)
    at = given.index("--goodput")
    assert given[at + 1 : at + 3] == ["ttft:200", "e2el:900"]


def test_a_quick_run_is_small_but_what_is_named_is_done() -> None:
    quick, whole, named = parse(["--quick"]), parse([]), parse(["--quick", "--repeats", "5"])
    assert quick.workloads == ["tiny"]
    assert "2048x2048" in whole.workloads
    assert whole.repeats == 3
    assert named.repeats == 5
    assert sum(load.prompts() for load in loads(quick)) < 40


def test_a_dry_run_prints_commands_that_vllms_program_can_read(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["--dry-run", "--quick", "--base-url", "http://host:1/", "--model", "m"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2 * 3 * 2 * 2  # variants, loads, repeats, routes
    assert all("benchmarks.endpoint.vllm_bench" in line for line in lines)
    assert "--base-url http://host:1 --endpoint /v1/completions" in lines[0]


@pytest.mark.needs_vllm
@pytest.mark.parametrize("variant", VARIANTS)
def test_vllms_program_knows_the_flags(variant: str) -> None:
    """Every flag is one of `vllm bench serve`, or --client-usage."""
    from benchmarks.endpoint import vllm_bench

    for load in (Closed(1), Open(2.0)):
        for workload in WORKLOADS:
            given = flags(
                run(variant, "v2", load, workload), TARGET, Settings(goodput=("ttft:1",)), FOLDER
            )
            options = vllm_bench.parse(given)
            assert options.endpoint == "/v2/completions"
            assert options.save_result
            assert "route=v2" in options.metadata
