"""The pictures of one workload and variant."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from benchmarks.endpoint.runs import COMPARED, Cell
from benchmarks.reporting.plots import Line, Panel, exact, picture
from benchmarks.reporting.report import Picture
from benchmarks.reporting.result import Spread
from benchmarks.running.server import ROUTES

_PERCENTILES = ("p50", "p95", "p99")
_LATENCIES = {"ttft": "time to first token", "tpot": "time per output token"}
_WHOLE_LATENCIES = {"e2el": "time to the whole answer"}
_RATIOS = {
    "ttft": "time to first token",
    "tpot": "time per output token",
    "e2el": "time to the whole answer",
    "output_throughput": "output tokens per second",
}
_CONCURRENCY = "requests at a time"
_RATE = "offered requests per second"
_KNEE_LATENCY = "median_e2el_ms"
_THROUGHPUT = "output tokens per second"
_BARS = "Medians of the runs; bars from the lowest to the highest."


@dataclass(frozen=True, slots=True)
class Named:
    """A picture and the name of its file, without the ending."""

    name: str
    picture: Picture


def pictures(cells: Sequence[Cell], label: str) -> Iterator[Named]:
    """All that these cells, of one workload and variant, give.

    label: what was measured, for people.

    Raises:
        BenchmarkError: matplotlib is not installed.
    """
    closed = [cell for cell in cells if cell.load.startswith("c")]
    rated = [cell for cell in cells if cell.load.startswith("r")]
    drawn: list[tuple[str, str, list[Panel], str]] = [
        ("ratio", "/v2 over /v1", _ratio_panels(closed), _ratio_note()),
        ("throughput", "Throughput", _throughput_panels(closed, rated), _BARS),
        ("latency", "Latency against offered rate", _latency_panels(rated), _BARS),
        (
            "knee",
            "Throughput against latency",
            _knee_panels(closed),
            f"The number beside a point: requests at a time. {_BARS}",
        ),
    ]
    for kind, title, panels, note in drawn:
        if panels:
            name = f"{cells[0].workload}_{cells[0].variant}_{kind}"
            png = picture(f"{title}\n{label}", panels)
            yield Named(name, Picture(f"{title}, {label}", png, note))


def _ratio_note() -> str:
    return (
        "Ratios of neighbouring runs: median, bars from the lowest to the highest. Below 1, /v2 "
        "is faster; of output tokens per second, above 1."
    )


def _ratio_panels(closed: Sequence[Cell]) -> list[Panel]:
    lines = []
    for number, (short, label) in enumerate(_RATIOS.items()):
        points = _points((cell, cell.ratio(COMPARED[short])) for cell in closed)
        if points:
            x, y = zip(*points, strict=True)
            lines.append(Line(label, x, y, colour=number, marker=number, dashes=number))
    if not lines:
        return []
    y_label = "/v2 over /v1"
    return [Panel(_CONCURRENCY, y_label, lines, log2_x=True, reference=1.0, apart=True)]


def _throughput_panels(closed: Sequence[Cell], rated: Sequence[Cell]) -> list[Panel]:
    panels = []
    if lines := list(_by_route(closed, "output_throughput")):
        panels.append(Panel(_CONCURRENCY, _THROUGHPUT, lines, log2_x=True, apart=True))
    if lines := list(_by_route(rated, "output_throughput")):
        panels.append(Panel(_RATE, _THROUGHPUT, lines, log2_x=True, apart=True))
    return panels


def _latency_panels(rated: Sequence[Cell]) -> list[Panel]:
    panels = []
    for metrics in (_LATENCIES, _WHOLE_LATENCIES):
        for metric, label in metrics.items():
            lines = [
                line
                for number, percentile in enumerate(_PERCENTILES)
                for line in _by_route(rated, f"{percentile}_{metric}_ms", percentile, number)
            ]
            if lines:
                panels.append(Panel(_RATE, f"{label}, ms", lines, log2_x=True, apart=True))
        if panels:  # answers in one piece have only the last one
            break
    return panels


def _knee_panels(closed: Sequence[Cell]) -> list[Panel]:
    lines = []
    for number, route in enumerate(ROUTES):
        points = [
            (latency, throughput, _name_once(cell, route))
            for cell in closed
            if (latency := cell.spread(route, _KNEE_LATENCY))
            and (throughput := cell.spread(route, "output_throughput"))
        ]
        if points:
            x, y, names = zip(*points, strict=True)
            lines.append(Line(f"/{route}", x, y, number, number, number, names))
    if not lines:
        return []
    return [Panel("time to the whole answer (median of requests), ms", _THROUGHPUT, lines)]


def _name_once(cell: Cell, route: str) -> str:
    """The load, at the route with the higher latency: beside both points it would be in the way."""
    medians = {
        each: latency.median for each in ROUTES if (latency := cell.spread(each, _KNEE_LATENCY))
    }
    return cell.load[1:] if route == max(medians, key=lambda each: medians[each]) else ""


def _by_route(
    cells: Sequence[Cell], figure: str, percentile: str = "", number: int = 0
) -> Iterator[Line]:
    """A line for each route, of the cells that have the figure."""
    for position, route in enumerate(ROUTES):
        points = _points((cell, cell.spread(route, figure)) for cell in cells)
        if points:
            x, y = zip(*points, strict=True)
            label = f"/{route} {percentile}".rstrip()
            marker = 2 * number + position
            yield Line(label, x, y, colour=position, marker=marker, dashes=number)


def _points(figures: Iterable[tuple[Cell, Spread | None]]) -> list[tuple[Spread, Spread]]:
    """Load and figure, where there is one, by load."""
    known = [(float(cell.load[1:]), figure) for cell, figure in figures if figure is not None]
    return [(exact(load), figure) for load, figure in sorted(known)]
