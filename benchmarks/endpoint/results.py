"""What a result folder holds, and what is made of it: a table of all runs, pictures, a page."""

import csv
import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from benchmarks.endpoint.pictures import Named, pictures
from benchmarks.endpoint.runs import (
    COMPARED,
    COUNTS,
    FACTS,
    LATENCIES,
    RATES,
    Cell,
    Recorded,
    cells,
    named_ratios,
    recorded_runs,
)
from benchmarks.endpoint.workloads import VARIANTS, WORKLOADS, Closed, Load, Open
from benchmarks.reporting.report import Grid, Section, page
from benchmarks.reporting.result import Spread, significant
from benchmarks.running.machine import Environment
from benchmarks.running.process import BenchmarkError
from benchmarks.running.server import ROUTES

TITLE = "/v2/completions beside /v1/completions"

PAGE_FILE = "report.html"
_ENVIRONMENT_FILE = "env.json"
_UNITS = {
    "ttft": "ttft ms",
    "tpot": "tpot ms",
    "e2el": "e2el ms",
    "output_throughput": "output tokens/s",
}
_ABSENT = "–"
_INTRODUCTION = (
    "Measured with vllm bench serve on one server, the routes in turn. ttft: time to the first "
    "token; tpot: time per further token; e2el: time to the whole answer; of each the median over "
    "a run's requests. Columns of figures are medians over the runs, /v1 then /v2; /v2 over /v1 "
    "is the ratio of neighbouring runs, median (lowest to highest). A load with * has a remark "
    "below."
)


def write_environment(folder: Path, content: Mapping[str, Any]) -> None:
    """Record what the runs of a folder are measured on."""
    text = json.dumps(content, indent=1) + "\n"
    (folder / _ENVIRONMENT_FILE).write_text(text, encoding="utf-8")


def read_environment(folder: Path) -> dict[str, Any]:
    """What write_environment wrote.

    Raises:
        BenchmarkError: nothing.
    """
    file = folder / _ENVIRONMENT_FILE
    if not file.is_file():
        raise BenchmarkError(f"{folder} is no folder of results: it has no {_ENVIRONMENT_FILE}.")
    content: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return content


def record_of(folder: Path) -> dict[str, Any]:
    """What a folder's runs are, and what they were measured on.

    Raises:
        BenchmarkError: it holds no runs, or is no folder of results.
    """
    runs = [run.as_json() for run in recorded_runs(folder)]
    return {"measured_on": read_environment(folder), "runs": runs}


def rebuild(folder: Path, record: Mapping[str, Any]) -> list[Section]:
    """Write summary.csv, plots/ and report.html of a folder anew; give the page's sections.

    Raises:
        BenchmarkError: matplotlib is not installed.
    """
    write_summary(folder / "summary.csv", _runs(record))
    found, drawn = _parts(record)
    plots = folder / "plots"
    plots.mkdir(exist_ok=True)
    for named in drawn:
        (plots / f"{named.name}.png").write_bytes(named.picture.png)
    document = page(TITLE, facts(record), found)
    (folder / PAGE_FILE).write_text(document, encoding="utf-8")
    return found


def sections(record: Mapping[str, Any]) -> list[Section]:
    """The report of what record_of gives.

    Raises:
        BenchmarkError: matplotlib is not installed.
    """
    return _parts(record)[0]


def facts(record: Mapping[str, Any]) -> list[str]:
    """What the runs were measured on: lines for people."""
    content = record["measured_on"]
    server = content["server"]
    lines = Environment(**content["environment"]).lines()
    lines.append(f"server: {server['command'] or server['base_url']}, vLLM {server['version']}")
    lines.append(f"model: {server['model']}; prefix cache: {server['prefix_cache']}")
    return lines


def ratios(record: Mapping[str, Any]) -> dict[str, float]:
    """Median ratios by name."""
    return named_ratios(cells(_runs(record)))


def _runs(record: Mapping[str, Any]) -> list[Recorded]:
    return [Recorded.from_json(run) for run in record["runs"]]


def write_summary(file: Path, runs: Sequence[Recorded]) -> None:
    """One line for each run, figures under vLLM's names."""
    figures = (*COUNTS, *RATES, "request_goodput", *LATENCIES)
    with file.open("w", encoding="utf-8", newline="") as output:
        writer = csv.writer(output, lineterminator="\n")
        writer.writerow([*FACTS, "request_rate", "client_cores", "flags", *figures])
        for run in runs:
            client = "" if run.client_cores is None else f"{run.client_cores:.3f}"
            writer.writerow(
                [
                    *(getattr(run, name) for name in FACTS),
                    run.offered_rate,
                    client,
                    "; ".join(run.flags()),
                    *(run.figures.get(name, "") for name in figures),
                ]
            )


def _parts(record: Mapping[str, Any]) -> tuple[list[Section], list[Named]]:
    """The sections, and the pictures in them by name."""
    measured = cells(_runs(record))
    found: list[Section] = []
    drawn: list[Named] = []
    for workload, group in groupby(measured, lambda cell: cell.workload):
        shape = WORKLOADS[workload].label
        grids: list[Grid] = []
        named: list[Named] = []
        for variant, members in groupby(group, lambda cell: cell.variant):
            same = list(members)
            grids.append(_grid(same, variant))
            named += pictures(same, f"{shape}; {VARIANTS[variant].label}")
        drawn += named
        text = [] if found else [_INTRODUCTION]
        text += _remarks([cell for cell in measured if cell.workload == workload])
        found.append(
            Section(f"Endpoint: {shape}", text, grids, [picture.picture for picture in named])
        )
    if missing := record["measured_on"].get("not_measured"):
        found.append(Section("Endpoint: not measured", missing))
    return found, drawn


def _grid(members: Sequence[Cell], variant: str) -> Grid:
    known = VARIANTS[variant]
    header = ["load", *(part for name in COMPARED for part in (_UNITS[name], "/v2 over /v1"))]
    note = f"{variant}: {known.label}. {known.note}".strip()
    return Grid(header, [_row(cell) for cell in members], note)


def _row(cell: Cell) -> list[str]:
    row = [load_of(cell.load).label + (" *" if cell.flags() else "")]
    for figure in COMPARED.values():
        medians = [cell.spread(route, figure) for route in ROUTES]
        ratio = cell.ratio(figure)
        row.append(", ".join(significant(m.median) if m else _ABSENT for m in medians))
        row.append(_ratio_text(ratio))
    return row


def _ratio_text(ratio: Spread | None) -> str:
    if ratio is None:
        return _ABSENT
    # One run has no spread.
    return ratio.text() if ratio.low < ratio.high else f"{ratio.median:.2f}"


def _remarks(measured: Sequence[Cell]) -> Iterator[str]:
    for cell in measured:
        for flag in cell.flags():
            yield f"* {cell.variant}, {load_of(cell.load).label}: {flag}"


def load_of(name: str) -> Load:
    """The load of a name such as `c16` or `r0.5`."""
    return Closed(int(name[1:])) if name.startswith("c") else Open(float(name[1:]))
