"""The runs of a plan, one after another, into a result folder."""

import argparse
import re
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from benchmarks.endpoint import results
from benchmarks.endpoint.options import loads
from benchmarks.endpoint.plan import (
    Run,
    Settings,
    Target,
    client_file,
    flags,
    log_file,
    planned,
    raw_file,
    raw_folder,
)
from benchmarks.endpoint.target import lack, model_entry, served, site
from benchmarks.endpoint.vllm_bench import LOG_LINES, Client, running_client
from benchmarks.endpoint.workloads import VARIANTS, check_lengths, workloads
from benchmarks.running.machine import Environment
from benchmarks.running.process import REPOSITORY, BenchmarkError, last_lines
from benchmarks.running.program import progress_bar
from benchmarks.running.server import PATHS, ROUTES, Site

# What must not have changed where runs are added to a folder.
_SAME_SERVER = ("version", "model", "max_model_len", "prefix_cache")
_SAME_MACHINE = ("cpu", "cores", "gpus", "driver", "versions", "commit")


def plan(options: argparse.Namespace) -> list[Run]:
    """All runs that were asked for.

    Raises:
        BenchmarkError: a workload lacks its file.
    """
    shapes = workloads(options.workloads, options.sharegpt_file)
    variants = [VARIANTS[name] for name in options.variants]
    return list(planned(shapes, variants, loads(options), options.repeats))


def settings(options: argparse.Namespace) -> Settings:
    """What all runs share."""
    return Settings(options.seed, options.num_prompts, tuple(options.goodput))


def measure(options: argparse.Namespace) -> tuple[Path, int]:
    """Do the runs; give the result folder, and how many runs ended in an error.

    Raises:
        BenchmarkError: the server cannot be measured, the workloads do not fit it, or the folder
            holds other runs.
    """
    runs = plan(options)
    if not runs:
        raise BenchmarkError("Nothing to measure: name --concurrency or --rates.")
    if options.out is not None:  # known before the server is started
        check_unused(options.out, resume=options.resume)
    asked = (options.base_url, options.model_folder, options.server_args, options.ready_seconds)
    with site(*asked) as (server, model_folder):
        target = served(server, model_folder, options.model, options.tokenizer)
        facts = server_facts(server, target)
        check_lengths([run.workload for run in runs], facts["max_model_len"])
        machine = replace(options.environment, server_command=server.command)
        folder = result_folder(options.out, machine, target.model, resume=options.resume)
        session = _Session(server, target, settings(options), folder)
        record = {
            "environment": asdict(machine),
            "server": facts,
            "settings": asdict(session.settings),
            "started": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
            "not_measured": [],
        }
        session.begin(record)
        failures = session.measure(runs)
    return folder, failures


def server_facts(server: Site, target: Target) -> dict[str, Any]:
    """What is recorded of the server.

    Raises:
        BenchmarkError: it does not say what a server of vLLM says.
    """
    models = server.get("/v1/models")
    length = model_entry(models, target.model).get("max_model_len")
    if not isinstance(length, int):
        raise BenchmarkError("GET /v1/models does not tell max_model_len.")
    forgets = "emptied before each run" if target.same_prompts else "never sees a prompt twice"
    return {
        "base_url": server.base_url,
        "command": server.command,
        "version": server.get("/version").get("version", ""),
        "model": target.model,
        "max_model_len": length,
        "prefix_cache": forgets,
        "models": models,
    }


def result_folder(wanted: Path | None, machine: Environment, model: str, *, resume: bool) -> Path:
    """The folder for results, made where it is not there.

    Raises:
        BenchmarkError: it holds runs, and is not to be resumed.
    """
    device = machine.gpus[0].partition(",")[0] if machine.gpus else "cpu"
    name = "-".join([time.strftime("%Y-%m-%d"), _plain(device), _plain(model)])
    folder = (wanted or REPOSITORY / "benchmarks" / "results" / name).resolve()
    check_unused(folder, resume=resume)
    for file in (raw_file(folder, "run"), client_file(folder, "run")):
        file.parent.mkdir(parents=True, exist_ok=True)
    return folder


def check_unused(folder: Path, *, resume: bool) -> None:
    """Keep the runs of other measurements out of a folder.

    Raises:
        BenchmarkError: it holds runs, and is not to be resumed.
    """
    if not resume and any(raw_folder(folder).glob("*.json")):
        raise BenchmarkError(f"{folder} holds runs: --resume adds to them, --out names another.")


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9.]+", "-", name.lower()).strip("-")


class _Session:
    """Runs against one server, into one folder."""

    def __init__(self, server: Site, target: Target, settings: Settings, folder: Path) -> None:
        self.settings = settings
        self._server = server
        self._target = target
        self._folder = folder
        self._record: dict[str, Any] = {}

    def begin(self, record: dict[str, Any]) -> None:
        """Write what is measured, or see that a folder that is resumed has the same.

        Raises:
            BenchmarkError: it has not.
        """
        if any(raw_folder(self._folder).glob("*.json")):
            check_same(results.read_environment(self._folder), record)
        self._record = record
        results.write_environment(self._folder, record)

    def measure(self, runs: Sequence[Run]) -> int:
        """Do all runs that are not recorded; how many ended in an error."""
        possible = self._possible(runs)
        waiting = [run for run in possible if not raw_file(self._folder, run.name).is_file()]
        failures = 0
        if not waiting:
            return failures
        with running_client() as client, progress_bar(len(waiting), "runs") as bar:
            self._warm_up(client, waiting)
            for run in waiting:
                bar.set_description(f"{run.variant.name} {run.load.name} /{run.route}")
                if self._do(client, run, self._folder) != 0:
                    failures += 1
                    end = last_lines(log_file(self._folder, run.name), LOG_LINES)
                    self._not_measured(f"{run.name} ended in an error:\n{end}")
                bar.update()
        return failures

    def _possible(self, runs: Iterable[Run]) -> list[Run]:
        """Those of the runs that the server has what they ask for."""
        lacks: dict[tuple[str, str], str] = {}
        possible = []
        for run in runs:
            key = run.variant.name, run.route
            if key not in lacks:
                lacks[key] = lack(self._server, self._target.model, run.variant, run.route)
                if lacks[key]:
                    self._not_measured(f"{run.variant.name} on {PATHS[run.route]}: {lacks[key]}")
            if not lacks[key]:
                possible.append(run)
        if not possible:
            raise BenchmarkError("\n".join(["Nothing can be measured:", *lacks.values()]))
        return possible

    def _warm_up(self, client: Client, runs: Sequence[Run]) -> None:
        """The smallest run on each route, not recorded.

        A server is slow with what it does for the first time.
        """
        with tempfile.TemporaryDirectory() as folder:
            elsewhere = Path(folder)
            client_file(elsewhere, "run").parent.mkdir()
            for route in ROUTES:
                same = [run for run in runs if run.route == route]
                if same:
                    smallest = min(same, key=lambda run: run.workload.tokens * run.load.prompts())
                    self._do(client, smallest, elsewhere)

    def _do(self, client: Client, run: Run, folder: Path) -> int:
        """The exit status of one run."""
        if self._target.same_prompts:
            self._server.forgets_prefixes()
        return client.run(
            flags(run, self._target, self.settings, folder), log_file(folder, run.name)
        )

    def _not_measured(self, reason: str) -> None:
        self._record["not_measured"].append(reason)
        results.write_environment(self._folder, self._record)


def check_same(before: dict[str, Any], now: dict[str, Any]) -> None:
    """Refuse to add runs to those of another server, machine, version or seed.

    Raises:
        BenchmarkError: with what differs.
    """
    before, now = (_comparable(record) for record in (before, now))
    different = [name for name in now if before.get(name) != now[name]]
    if different:
        raise BenchmarkError(
            f"The folder's runs are not of the same {', '.join(different)}: name another --out."
        )


def _comparable(record: dict[str, Any]) -> dict[str, Any]:
    facts = {name: record["server"][name] for name in _SAME_SERVER}
    facts |= {name: record["environment"].get(name) for name in _SAME_MACHINE}
    facts |= record["settings"]
    return {name: list(v) if isinstance(v, tuple) else v for name, v in facts.items()}
