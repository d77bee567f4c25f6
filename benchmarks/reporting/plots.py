"""Pictures of measured figures, as PNG.

Colours are told apart by colour-blind readers too, and every line has a marker of its own.
Every point is a median; its bars go from the lowest to the highest run.
"""

import io
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.reporting.result import Spread
from benchmarks.running.process import BenchmarkError

PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"

# Okabe and Ito's colours, without those too light for thin lines on white.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#000000", "#56B4E9")
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
_DASHES = ("-", "--", ":", "-.")

_PANEL_INCHES = (6.4, 4.9)
_DOTS_PER_INCH = 120
_STYLE = {
    "font.size": 12,
    "axes.titlesize": 13,
    "figure.titlesize": 15,
    "legend.fontsize": 11,
    "axes.grid": True,
    "grid.alpha": 0.35,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "figure.facecolor": "white",
}

_APART = 0.012
"""How far lines over the same values stand from each other, in widths of the panel."""
_LEAST_RATIO_RANGE = 0.1
"""A picture of ratios shows at least so much on each side of 1: noise is not to look large."""


@dataclass(frozen=True, slots=True)
class Line:
    """Points that belong together."""

    label: str
    x: Sequence[Spread]
    y: Sequence[Spread]
    """As many as x."""
    colour: int = 0
    """Which of the colours, from 0; they repeat."""
    marker: int = 0
    dashes: int = 0
    names: Sequence[str] = ()
    """Written below the points, one each, or none."""


@dataclass(frozen=True, slots=True)
class Panel:
    """One pair of axes."""

    x_label: str
    """With the unit."""
    y_label: str
    lines: Sequence[Line]
    title: str = ""
    log2_x: bool = False
    """Each doubling as wide as the next; the values of x are then written as they are."""
    reference: float | None = None
    """Where a line across says "the same": the figures are ratios. Others begin at 0."""
    apart: bool = False
    """Move lines a little sideways, so that their bars do not hide each other."""


def exact(value: float) -> Spread:
    """A value that was set, not measured."""
    return Spread(value, value, value)


def picture(title: str, panels: Sequence[Panel]) -> bytes:
    """The panels side by side, as a PNG file.

    Raises:
        BenchmarkError: matplotlib is not installed.
    """
    figure_class, style = _matplotlib()
    width, height = _PANEL_INCHES
    with style(_STYLE):
        figure = figure_class(figsize=(width * len(panels), height), layout="constrained")
        figure.suptitle(title)
        for axes, panel in zip(
            figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True
        ):
            _draw(axes, panel)
        _add_legend(figure)
        png = io.BytesIO()
        figure.savefig(png, format="png", dpi=_DOTS_PER_INCH)
    return png.getvalue()


def check_installed() -> None:
    """Find out before hours of measuring whether there can be pictures of it.

    Raises:
        BenchmarkError: matplotlib is not installed.
    """
    _matplotlib()


def _matplotlib() -> tuple[Any, Any]:
    try:
        import matplotlib as mpl
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise BenchmarkError(
            "Pictures need matplotlib: pip install 'vllm-completion-v2[bench]'."
        ) from error

    def figure(**settings: Any) -> Any:
        made = Figure(**settings)
        FigureCanvasAgg(made)  # draws without a display
        return made

    return figure, mpl.rc_context


def _draw(axes: Any, panel: Panel) -> None:
    if panel.reference is not None:
        axes.axhline(panel.reference, color="#555555", linewidth=1.2, zorder=1)
    if panel.log2_x:
        _double_steps(axes, panel)
    for number, line in enumerate(panel.lines):
        _draw_line(axes, line, _moved(panel, number))
    axes.set(xlabel=panel.x_label, ylabel=panel.y_label, title=panel.title)
    if not panel.log2_x:
        _from_zero(axes, panel)
    if panel.reference is None:
        axes.set_ylim(bottom=0, top=axes.get_ylim()[1] * 1.05)
    else:
        low, high = axes.get_ylim()
        least = _LEAST_RATIO_RANGE * panel.reference
        axes.set_ylim(min(low, panel.reference - least), max(high, panel.reference + least))
        # Steps that two decimals tell exactly.
        axes.locator_params(axis="y", steps=[1, 2, 5, 10])
        axes.yaxis.set_major_formatter("{x:.2f}")


def _add_legend(figure: Any) -> None:
    """Below all panels, where it hides no point; what has the same name is named once."""
    handles: dict[str, Any] = {}
    for axes in figure.axes:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            handles.setdefault(label, handle)
    columns = 2 if len(handles) <= 4 else math.ceil(len(handles) / 2)
    figure.legend(
        handles.values(),
        handles.keys(),
        loc="outside lower center",
        ncols=columns,
        frameon=False,
    )


def _draw_line(axes: Any, line: Line, move: Any) -> None:
    x, y = [move(value.median) for value in line.x], [value.median for value in line.y]
    widths = _bars(line.x) if any(value.low < value.high for value in line.x) else None
    axes.errorbar(
        x,
        y,
        xerr=widths,
        yerr=_bars(line.y),
        label=line.label,
        color=_COLOURS[line.colour % len(_COLOURS)],
        marker=_MARKERS[line.marker % len(_MARKERS)],
        linestyle=_DASHES[line.dashes % len(_DASHES)],
        markersize=6,
        linewidth=1.6,
        elinewidth=1.2,
        capsize=3,
        zorder=2,
    )
    if not line.names:
        return
    highest = max(y)
    for name, right, up in zip(line.names, x, y, strict=True):
        axes.annotate(
            name,
            (right, up),
            # Curves rise to the right: below them is free, but for the axis.
            xytext=(8, -15) if up > highest / 10 else (9, -4),
            textcoords="offset points",
            color="#333333",
            fontsize=11,
        )


def _bars(values: Sequence[Spread]) -> tuple[list[float], list[float]]:
    """How far down from the median, and how far up."""
    return [v.median - v.low for v in values], [v.high - v.median for v in values]


def _values(panel: Panel) -> list[float]:
    return sorted({value.median for line in panel.lines for value in line.x})


def _double_steps(axes: Any, panel: Panel) -> None:
    values = _values(panel)
    axes.set_xscale("log", base=2)
    axes.set_xticks(values, [f"{value:g}" for value in values])
    axes.minorticks_off()
    axes.set_xlim(values[0] / 1.5, values[-1] * 1.5)


def _from_zero(axes: Any, panel: Panel) -> None:
    highest = max(value.high for line in panel.lines for value in line.x)
    axes.set_xlim(0, highest * 1.1)
    if all(value.low == value.high for line in panel.lines for value in line.x):
        values = _values(panel)  # that were set
        axes.set_xticks(values, [f"{value:g}" for value in values])


def _moved(panel: Panel, number: int) -> Any:
    """Where a line's points stand: beside where they belong, each line by another distance."""
    steps = (number - (len(panel.lines) - 1) / 2) if panel.apart else 0
    values = _values(panel)
    if panel.log2_x:
        return lambda x: x * (values[-1] / values[0] * 2) ** (steps * _APART)
    return lambda x: x + steps * _APART * values[-1]
