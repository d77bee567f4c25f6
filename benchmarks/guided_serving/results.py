"""The report of a run, and its figures."""

import math
import statistics
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from benchmarks.guided_serving.arrivals import Answer, Seen
from benchmarks.guided_serving.stalls import (
    ALONE,
    COLD,
    COLD_ENFORCER,
    RIVAL_ALONE,
    RIVAL_COLD,
    RIVAL_UNGUIDED,
    UNGUIDED,
    Stalls,
    gaps_ms,
    largest_gap_ms,
    normal_gap_ms,
    under_way,
)
from benchmarks.guided_serving.throughput import Paired, Throughput
from benchmarks.reporting.report import Grid, Section
from benchmarks.reporting.result import paired_ratio, spread

UNITS = {"throughput_ratio": "times unguided", "_ms": "ms", "_median_s": "s"}

TARGET_MS = 150.0
TARGET_RATIO = 3.0

_COLD_SCHEMAS = {
    True: "The cold constraints are made-up schemas, as the real ones could not be fetched.",
    False: "The cold constraints are real schemas, the largest among them.",
}


def as_record(throughput: Throughput, stalls: Stalls, *, made_up: bool) -> dict[str, Any]:
    """Every run, as JSON; made_up: the cold constraints are of no data set."""
    return {
        "made_up": made_up,
        "throughput": {
            kind: {name: asdict(paired) for name, paired in contenders.items()}
            for kind, contenders in throughput.items()
        },
        "stalls": {name: [asdict(seen) for seen in runs] for name, runs in stalls.items()},
    }


def sections(record: Mapping[str, Any]) -> list[Section]:
    """The report of what as_record made."""
    throughput = {
        kind: {name: Paired(**paired) for name, paired in contenders.items()}
        for kind, contenders in record["throughput"].items()
    }
    stalls = {
        name: [Seen.from_json(seen) for seen in runs] for name, runs in record["stalls"].items()
    }
    found = []
    if throughput:
        title = "Guided serving: throughput"
        found.append(Section(title, _refusals(throughput), [_throughput_grid(throughput)]))
    if stalls:
        grids = [_gap_grid(stalls)]
        answers = _answer_grid(stalls)
        if answers.rows:
            grids.append(answers)
        text = [_COLD_SCHEMAS[record["made_up"]], *_targets(stalls)]
        found.append(Section("Guided serving: stalls", text, grids))
        found.append(Section("Guided serving: the worst gaps", _worst_gaps(stalls)))
    return found


def _throughput_grid(throughput: Throughput) -> Grid:
    """Tokens a second of each contender and workload, and their ratio."""
    rows = []
    for kind, contenders in throughput.items():
        for name, paired in contenders.items():
            if paired.guided:
                ratio = paired_ratio(paired.guided, paired.unguided).text()
                speeds = [spread(paired.guided).text(0), spread(paired.unguided).text(0)]
                rows.append([f"{kind}, {name}", *speeds, ratio])
            else:
                rows.append([f"{kind}, {name}", "refused", "", ""])
    return Grid(["tokens/s, median (range)", "guided", "unguided", "ratio"], rows)


def _refusals(throughput: Throughput) -> list[str]:
    return [
        f"refused: {kind}, {name}: {' '.join(paired.refused.split())[:300]}"
        for kind, contenders in throughput.items()
        for name, paired in contenders.items()
        if paired.refused is not None
    ]


def _gap_grid(stalls: Stalls) -> Grid:
    """The gaps of each scenario; over several runs, the largest of each run."""
    rows = []
    for name, runs in stalls.items():
        gaps = sorted(gap for seen in runs for gap in gaps_ms(seen))
        largest = spread(max(gaps_ms(seen)) for seen in runs)
        row = [statistics.median(gaps), gaps[math.ceil(0.99 * len(gaps)) - 1]]
        over = sum(gap > TARGET_MS for gap in gaps)
        late = max(max(seen.late) for seen in runs) * 1000
        figures = [*(f"{value:.1f}" for value in row), largest.text(0), str(over), f"{late:.0f}"]
        rows.append([name, *figures])
    header = ["plain stream, gaps in ms", "median", "99 %", "largest, of each run"]
    return Grid([*header, f"over {TARGET_MS:.0f}", "client late"], rows)


def _answer_grid(stalls: Stalls) -> Grid:
    """How the others were answered, by scenario and backend."""
    rows = []
    for name, runs in stalls.items():
        pairs = [pair for seen in runs for pair in zip(seen.labels, seen.answers, strict=True)]
        for label in dict.fromkeys(label for label, _ in pairs):
            answers = [answer for other, answer in pairs if other == label]
            seconds = spread(answer.seconds for answer in answers)
            times = [f"{seconds.median:.2f}", f"{seconds.high:.2f}"]
            rows.append([f"{name}, {label}", _outcomes(answers), *times])
    return Grid(["requests beside it", "answers", "median s", "largest s"], rows)


def _outcomes(answers: Sequence[Answer]) -> str:
    outcomes = Counter(
        f"{answer.status} {answer.code}".strip() if answer.status else "none in time"
        for answer in answers
    )
    return ", ".join(f"{count} x {outcome}" for outcome, count in sorted(outcomes.items()))


def _targets(stalls: Stalls) -> Iterator[str]:
    for normal, scenarios in (
        (ALONE, (COLD, COLD_ENFORCER)),
        (RIVAL_ALONE, (RIVAL_COLD,)),
    ):
        for name in scenarios:
            if normal in stalls and name in stalls:
                limit = max(TARGET_MS, TARGET_RATIO * normal_gap_ms(stalls[normal]))
                largest = largest_gap_ms(stalls[name])
                word = "met" if largest <= limit else "missed"
                yield f"target of {name}: at most {limit:.0f} ms, {largest:.0f} ms: {word}"


def _worst_gaps(stalls: Stalls, count: int = 5) -> list[str]:
    """The worst gaps of each scenario, and who was waiting then."""
    lines = []
    for name, runs in stalls.items():
        found = sorted(
            (
                (gap, before, after, number)
                for number, seen in enumerate(runs)
                for gap, before, after in zip(
                    gaps_ms(seen), seen.times, seen.times[1:], strict=False
                )
            ),
            reverse=True,
        )
        for gap, before, after, number in found[:count]:
            waiting = under_way(runs[number], before, after) if runs[number].answers else {}
            who = ", ".join(f"{amount} {label}" for label, amount in waiting.items()) or "nobody"
            lines.append(
                f"{name}, run {number + 1}: {gap:.0f} ms at {before:.2f} s; waiting: {who}"
            )
    return lines


def named_values(throughput: Throughput, stalls: Stalls) -> dict[str, float]:
    """The figures by name; nan where a contender was refused."""
    values: dict[str, float] = {}
    for kind, contenders in throughput.items():
        for name, paired in contenders.items():
            ratio = paired_ratio(paired.guided, paired.unguided) if paired.guided else None
            label = name.replace("-", "_")
            values[f"throughput_ratio_{kind}_{label}"] = math.nan if ratio is None else ratio.median
    for prefix, normal, colds in (
        ("", ALONE, (UNGUIDED, COLD, COLD_ENFORCER)),
        ("vllm_", RIVAL_ALONE, (RIVAL_UNGUIDED, RIVAL_COLD)),
    ):
        if normal in stalls:
            values[f"{prefix}gap_normal_ms"] = normal_gap_ms(stalls[normal])
            values[f"{prefix}gap_normal_max_ms"] = largest_gap_ms(stalls[normal])
        for name in colds:
            if name in stalls:
                short = name.removeprefix("vllm_")
                values[f"{prefix}gap_{short}_max_ms"] = largest_gap_ms(stalls[name])
    for name in (COLD, COLD_ENFORCER, RIVAL_COLD):
        if name in stalls:
            values |= _counted(name, [answer for seen in stalls[name] for answer in seen.answers])
    return values


def _counted(name: str, answers: Sequence[Answer]) -> dict[str, float]:
    """How many were answered by 200, by 400, and otherwise or not in time."""
    good = sum(answer.status == 200 for answer in answers)
    refused = sum(answer.status == 400 for answer in answers)
    latency = statistics.median(answer.seconds for answer in answers)
    return {
        f"{name}_200": good,
        f"{name}_400": refused,
        f"{name}_other": len(answers) - good - refused,
        f"{name}_median_s": latency,
    }
