"""The runs of one load on both routes, beside each other."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from benchmarks.endpoint.raw import Recorded
from benchmarks.report import Spread, spread

UNEQUAL_WORK = 0.01
"""The part by which the routes' generated tokens may differ before it is said."""

COMPARED = {
    "ttft": "median_ttft_ms",
    "tpot": "median_tpot_ms",
    "e2el": "median_e2el_ms",
    "output_throughput": "output_throughput",
}
"""The figures that are compared, by a short name."""


@dataclass(frozen=True, slots=True)
class Cell:
    """A workload, a variant and a load, and its runs."""

    workload: str
    variant: str
    load: str
    v1: Sequence[Recorded]
    v2: Sequence[Recorded]

    def spread(self, route: str, figure: str) -> Spread | None:
        """Of a figure by vLLM's name, over a route's valid runs; None where none has it."""
        values = [
            run.figures[figure] for run in self._runs(route) if run.valid and figure in run.figures
        ]
        return spread(values) if values else None

    def ratio(self, figure: str) -> Spread | None:
        """/v2 over /v1 of a figure, over the repeats that are valid on both routes."""
        theirs = {run.repeat: run.figures for run in self.v1 if run.valid}
        ours = {run.repeat: run.figures for run in self.v2 if run.valid}
        ratios = [
            ours[repeat][figure] / theirs[repeat][figure]
            for repeat in ours.keys() & theirs.keys()
            # Zero where nothing was to be timed, such as gaps in texts of one token.
            if theirs[repeat].get(figure) and figure in ours[repeat]
        ]
        return spread(ratios) if ratios else None

    def flags(self) -> list[str]:
        """What to know before believing the figures."""
        flagged: dict[tuple[str, str], list[str]] = {}
        for run in (*self.v1, *self.v2):
            for flag in run.flags():
                flagged.setdefault((run.route, flag), []).append(str(run.repeat))
        found = [
            f"/{route}, run {', '.join(repeats)}: {flag}"
            for (route, flag), repeats in flagged.items()
        ]
        work = self.ratio("total_output_tokens")
        if work is not None and abs(work.median - 1) > UNEQUAL_WORK:
            found.append(
                f"the routes made different amounts of text, /v2 {work.median:.3f} times /v1's: "
                "e2el and throughput are not of the same work"
            )
        return found

    def _runs(self, route: str) -> Sequence[Recorded]:
        return self.v1 if route == "v1" else self.v2


def cells(runs: Iterable[Recorded]) -> list[Cell]:
    """The runs by what was measured, in the order in which they come."""
    grouped: dict[tuple[str, str, str], list[Recorded]] = {}
    for run in runs:
        grouped.setdefault(run.cell, []).append(run)
    return [
        Cell(
            *names,
            [run for run in members if run.route == "v1"],
            [run for run in members if run.route == "v2"],
        )
        for names, members in grouped.items()
    ]


def named_ratios(compared: Iterable[Cell]) -> dict[str, float]:
    """Median ratios by name, such as `e2el_ratio_plain_tiny_c16`."""
    return {
        f"{name}_ratio_{cell.variant}_{cell.workload}_{cell.load}": ratio.median
        for cell in compared
        for name, figure in COMPARED.items()
        if (ratio := cell.ratio(figure)) is not None
    }
