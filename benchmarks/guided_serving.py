"""What guided decoding costs a running server: throughput, and stalls of other people's streams.

Throughput: completion tokens a second of 16 streams that are held to a constraint, over the same
unguided, for each backend; each guided run is compared with the unguided one just before it.
Stalls: the time between the events of one plain stream while constraints that the server has never
seen arrive. The rival, vLLM without this plugin on its outlines backend, does the same after us.

Run: python -m benchmarks.guided_serving [--data DIR] [--runs N] [--json FILE]
     [--only throughput|stalls] [--skip-rival]
"""

import argparse
import asyncio
import json
import math
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import uvloop

from benchmarks.environment import environment
from benchmarks.load import Load, run_load
from benchmarks.report import name_value_line, paired_ratio, spread, table
from benchmarks.server import HOST, REPOSITORY, BenchmarkError, Server, running_server

BACKENDS = ("xgrammar", "guidance", "outlines", "lm-format-enforcer", "auto")
RIVAL = "vllm_outlines"
PATHS = {RIVAL: "/v1/completions"} | dict.fromkeys(BACKENDS, "/v2/completions")
FLAGS = ["--enforce-eager"]
RIVAL_FLAGS = [*FLAGS, "--structured-outputs-config", '{"backend": "outlines"}']

PROMPT = "Describe everything in the shop, one thing after the other."
STREAMS = 16
MAX_TOKENS = 64

# No text can finish them within MAX_TOKENS: 8 records of over 15 tokens each, and 81 words of a
# token or more. An array of 50 records takes outlines longer than a request may wait.
_RECORD = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "count": {"type": "integer"},
        "size": {"enum": ["small", "medium", "large"]},
        "sold": {"type": "boolean"},
    },
    "required": ["name", "count", "size", "sold"],
    "additionalProperties": False,
}
_RECORDS = {f"thing_{number}": _RECORD for number in range(8)}
WORKLOADS: dict[str, Any] = {
    "json": {
        "type": "object",
        "properties": _RECORDS,
        "required": list(_RECORDS),
        "additionalProperties": False,
    },
    "regex": "([a-z]+ ){80}[a-z]+",
}

COLD_REQUESTS = 40
COLD_ENFORCER_REQUESTS = 16
COLD_SPACING = 0.375  # seconds: 40 requests in 15 s
COLD_TOKENS = 16
LARGEST_SCHEMAS = 10
ALONE_TOKENS = 400
# Longer than any run lasts: the client hangs up when all others have their answers.
BESIDE_TOKENS = 6000
PATIENCE = 45.0  # seconds for which a request's answer is waited for

TARGET_MS = 150.0
TARGET_RATIO = 3.0

_EVENT = b"data: {"
_PULSE = 0.005  # seconds


# --- the client, in a process of its own --------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Arrivals:
    """One plain stream, and requests that arrive beside it, evenly spaced."""

    port: int
    path: str
    plain: dict[str, Any]
    others: list[dict[str, Any]]
    spacing: float
    """Seconds."""
    patience: float
    """Seconds that each of the others may take."""


@dataclass(frozen=True, slots=True)
class Answer:
    """How one of the others was answered."""

    asked: float
    """Seconds after the stream's first event."""
    seconds: float
    status: int
    """The HTTP status; 0 where there was no answer in time."""
    code: str = ""
    """The error's code, where there is one."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What the client saw of one run."""

    times: list[float]
    """When events of the stream came: seconds after the first one, one number for what came at
    once. The last one is when the stream ended, or the client hung up."""
    answers: list[Answer]
    late: list[float] = field(default_factory=list)
    """Seconds for which the machine kept the client itself waiting, at most, before each time."""
    labels: list[str] = field(default_factory=list)
    """The backends of the others, in their order."""


async def drive(arrivals: Arrivals) -> Seen:
    """Put the requests on the server.

    Raises:
        BenchmarkError: the plain stream did not start.
    """
    bodies = [_request(arrivals, body) for body in arrivals.others]
    times: list[float] = []
    pulse = _Pulse()
    started = asyncio.Event()
    stream = asyncio.create_task(_follow(arrivals, times, started, pulse))
    beats = asyncio.create_task(pulse.run())
    await asyncio.wait(
        [stream, asyncio.create_task(started.wait())], return_when=asyncio.FIRST_COMPLETED
    )
    if not times:
        await stream
        raise BenchmarkError("The plain stream had no event.")
    if arrivals.others:
        asks = [
            _ask(arrivals, body, number * arrivals.spacing, times[0])
            for number, body in enumerate(bodies)
        ]
        answers = list(await asyncio.gather(*asks))
        if stream.done():
            raise BenchmarkError("The plain stream ended before the last answer.")
        stream.cancel()
    else:
        answers = []
        await stream
    _note(times, pulse)
    beats.cancel()
    return Seen([moment - times[0] for moment in times], answers, pulse.late)


class _Pulse:
    """Notices when this process does not get to run: that is no stall of the server's."""

    def __init__(self) -> None:
        self.late: list[float] = []
        self._worst = 0.0
        self._due = math.inf

    async def run(self) -> None:
        """Be late again and again."""
        while True:
            self._due = time.perf_counter() + _PULSE
            await asyncio.sleep(_PULSE)
            self._worst = max(self._worst, time.perf_counter() - self._due)

    def note(self, now: float) -> None:
        """Close a gap. What came while the process did not run is seen before the pulse is."""
        self.late.append(max(self._worst, now - self._due, 0.0))
        self._worst = 0.0


def _note(times: list[float], pulse: _Pulse) -> None:
    now = time.perf_counter()
    times.append(now)
    pulse.note(now)


async def _follow(
    arrivals: Arrivals, times: list[float], started: asyncio.Event, pulse: _Pulse
) -> None:
    """Read the plain stream to its end, noting when something came."""
    reader, writer = await asyncio.open_connection(HOST, arrivals.port)
    writer.write(_request(arrivals, arrivals.plain))
    try:
        while data := await reader.read(2**16):
            if _EVENT in data:
                _note(times, pulse)
                started.set()
            elif not times and not data.startswith(b"HTTP/1.1 200"):
                raise BenchmarkError(f"The plain stream was refused: {data!r}")
    finally:
        writer.close()


async def _ask(arrivals: Arrivals, body: bytes, wait: float, zero: float) -> Answer:
    """Wait for its turn, send one of the others, and read its answer."""
    await asyncio.sleep(wait)
    asked = time.perf_counter()
    try:
        async with asyncio.timeout(arrivals.patience):
            reader, writer = await asyncio.open_connection(HOST, arrivals.port)
            writer.write(body)
            answer = await reader.read(-1)
            writer.close()
    except (TimeoutError, OSError):
        answer = b""
    status, code = status_and_code(answer)
    return Answer(asked - zero, time.perf_counter() - asked, status, code)


def _request(arrivals: Arrivals, fields: dict[str, Any]) -> bytes:
    body = json.dumps(fields).encode()
    head = (
        f"POST {arrivals.path} HTTP/1.1\r\nhost: {HOST}\r\ncontent-type: application/json\r\n"
        f"content-length: {len(body)}\r\nconnection: close\r\n\r\n"
    )
    return head.encode() + body


def status_and_code(answer: bytes) -> tuple[int, str]:
    """The status of a whole HTTP answer (0 where it is none), and its error's code."""
    head, _, body = answer.partition(b"\r\n\r\n")
    words = head.split(b" ", 2)
    if len(words) < 3 or not words[1].isdigit():
        return 0, ""
    status = int(words[1])
    if status == 200:
        return status, ""
    try:
        return status, str(json.loads(body)["error"]["code"])
    except (ValueError, KeyError, TypeError):
        return status, ""


def client() -> None:
    """Read Arrivals from stdin, drive them, print what was Seen."""
    try:
        seen = uvloop.run(drive(Arrivals(**json.load(sys.stdin))))
    except BenchmarkError as error:
        sys.exit(str(error))
    print(json.dumps(asdict(seen)))


def run_client(arrivals: Arrivals, labels: list[str]) -> Seen:
    """Drive the arrivals from another process: this one's work makes no gaps there.

    Raises:
        BenchmarkError: with what that process said.
    """
    done = subprocess.run(
        [sys.executable, "-c", "from benchmarks.guided_serving import client; client()"],
        cwd=REPOSITORY,
        input=json.dumps(asdict(arrivals)),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise BenchmarkError(f"The client failed:\n{done.stderr.strip()}")
    seen = json.loads(done.stdout)
    answers = [Answer(**answer) for answer in seen["answers"]]
    return Seen(seen["times"], answers, seen["late"], labels)


# --- requests -----------------------------------------------------------------------------------


def guided(contender: str, kind: str, value: Any) -> dict[str, Any]:
    """The fields that hold a text to a constraint (kind: json or regex)."""
    if contender == RIVAL:
        return {"structured_outputs": {kind: value}}
    return {f"guided_{kind}": value, "guided_decoding_backend": contender}


def streamed(server: Server, max_tokens: int) -> dict[str, Any]:
    """The fields of a stream whose length is known; they mean the same on both routes."""
    return {
        "model": server.model,
        "prompt": PROMPT,
        "max_tokens": max_tokens,
        "temperature": 1.0,
        "stream": True,
        "stream_options": {"include_usage": True},
    }


def base_schemas(data: Path | None) -> list[dict[str, Any]]:
    """The schemas that the cold ones are made of, COLD_REQUESTS / 2 of them: the largest ones of
    the data set, and others of all sizes; made-up ones without it."""
    count = COLD_REQUESTS // 2
    if data is None:
        return [_made_up(10 * number) for number in range(1, count + 1)]
    lines = (data / "bench.jsonl").read_text(encoding="utf-8").splitlines()
    schemas = [json.loads(line)["schema"] for line in lines]
    schemas.sort(key=lambda schema: len(json.dumps(schema)), reverse=True)
    others = schemas[LARGEST_SCHEMAS:]
    step = len(others) // (count - LARGEST_SCHEMAS)
    mixed = zip(schemas[:LARGEST_SCHEMAS], others[::step], strict=False)
    return [schema for pair in mixed for schema in pair]


def _made_up(size: int) -> dict[str, Any]:
    names = [f"thing_{number}" for number in range(size)]
    return {"type": "object", "properties": dict.fromkeys(names, _RECORD), "required": names[:2]}


def never_seen(schema: dict[str, Any], name: str) -> dict[str, Any]:
    """A schema with one more property of a name that no other has, so that nobody has kept it."""
    properties = schema.get("properties")
    if not isinstance(properties, dict):
        return schema | {"$comment": name}
    return schema | {"properties": properties | {name: {"type": "boolean"}}}


def cold_requests(
    schemas: Sequence[dict[str, Any]], backends: Sequence[str], count: int, run: str
) -> tuple[list[dict[str, Any]], list[str]]:
    """The fields of requests whose constraints are new in each run, and each one's backend."""
    labels = [backends[number % len(backends)] for number in range(count)]
    # The second time round, every schema meets the backend after the one that it met before.
    for number in range(len(schemas), count):
        labels[number] = backends[(number + number // len(schemas)) % len(backends)]
    fields = [
        guided(label, "json", never_seen(schemas[number % len(schemas)], f"{label} {run} {number}"))
        for number, label in enumerate(labels)
    ]
    return fields, labels


# --- throughput ---------------------------------------------------------------------------------


@dataclass
class Paired:
    """Tokens a second, run by run, guided and unguided in turn."""

    guided: list[float] = field(default_factory=list)
    unguided: list[float] = field(default_factory=list)
    refused: str | None = None


Throughput = dict[str, dict[str, Paired]]
"""By workload and contender."""


def measure_throughput(server: Server, contenders: Sequence[str], runs: int) -> Throughput:
    """Every contender's runs, in turn; the first of each only warms up."""
    from tqdm import tqdm

    found: Throughput = {kind: {name: Paired() for name in contenders} for kind in WORKLOADS}
    with tqdm(total=(runs + 1) * len(WORKLOADS) * len(contenders), unit="pair") as bar:
        for run in range(runs + 1):
            for kind in WORKLOADS:
                for name, paired in found[kind].items():
                    _one_pair(server, kind, name, paired, warm_up=run == 0)
                    bar.update()
    return found


def _one_pair(server: Server, kind: str, name: str, paired: Paired, *, warm_up: bool) -> None:
    if paired.refused is not None:
        return
    fields = guided(name, kind, WORKLOADS[kind])
    if warm_up:
        try:
            server.ask(PATHS[name], prompt=PROMPT, max_tokens=1, **fields)
        except BenchmarkError as error:
            paired.refused = str(error)
            return
        tokens_per_second(server, PATHS[name], fields)
        return
    unguided = tokens_per_second(server, PATHS[name], {"ignore_eos": True})
    paired.unguided.append(unguided)
    paired.guided.append(tokens_per_second(server, PATHS[name], fields))


def tokens_per_second(server: Server, path: str, fields: dict[str, Any]) -> float:
    """Of STREAMS streams at once.

    Raises:
        BenchmarkError: a text ended early.
    """
    body = streamed(server, MAX_TOKENS) | fields
    result = run_load(Load(server.port, path, body, STREAMS, 1))
    if result.completion_tokens != STREAMS * MAX_TOKENS:
        raise BenchmarkError(f"A text ended early: {result.completion_tokens} tokens, {fields}")
    return result.completion_tokens / result.seconds


# --- stalls -------------------------------------------------------------------------------------

Stalls = dict[str, list[Seen]]
"""By scenario, run by run."""

ALONE, UNGUIDED, COLD, COLD_ENFORCER = "alone", "unguided", "cold", "cold_lmfe"
RIVAL_ALONE, RIVAL_UNGUIDED, RIVAL_COLD = "vllm_alone", "vllm_unguided", "vllm_cold"


def measure_stalls(server: Server, schemas: Sequence[dict[str, Any]], runs: int) -> Stalls:
    """Our own server's scenarios, in turn."""
    found: Stalls = {name: [] for name in (ALONE, UNGUIDED, COLD, COLD_ENFORCER)}
    for run in range(runs):
        enforcer = ["lm-format-enforcer"]
        cold = cold_requests(schemas, BACKENDS, COLD_REQUESTS, f"a{run}")
        enforced = cold_requests(schemas, enforcer, COLD_ENFORCER_REQUESTS, f"b{run}")
        found[ALONE].append(alone(server, PATHS["auto"]))
        found[UNGUIDED].append(beside(server, PATHS["auto"], *_unguided(COLD_REQUESTS)))
        found[COLD].append(beside(server, PATHS["auto"], *cold))
        found[COLD_ENFORCER].append(beside(server, PATHS["auto"], *enforced))
    return found


def measure_rival_stalls(server: Server, schemas: Sequence[dict[str, Any]]) -> Stalls:
    """The rival's. Once: what it was asked to compile keeps it busy after the client has left."""
    cold = cold_requests(schemas, [RIVAL], COLD_REQUESTS, "a0")
    return {
        RIVAL_ALONE: [alone(server, PATHS[RIVAL])],
        RIVAL_UNGUIDED: [beside(server, PATHS[RIVAL], *_unguided(COLD_REQUESTS))],
        RIVAL_COLD: [beside(server, PATHS[RIVAL], *cold)],
    }


def _unguided(count: int) -> tuple[list[dict[str, Any]], list[str]]:
    return [{"ignore_eos": True}] * count, ["unguided"] * count


def alone(server: Server, path: str) -> Seen:
    """A stream with nobody beside it."""
    plain = streamed(server, ALONE_TOKENS) | {"ignore_eos": True}
    return run_client(Arrivals(server.port, path, plain, [], 0, PATIENCE), [])


def beside(server: Server, path: str, others: list[dict[str, Any]], labels: list[str]) -> Seen:
    """A stream, and others that arrive while it runs."""
    plain = streamed(server, BESIDE_TOKENS) | {"ignore_eos": True}
    common = {"model": server.model, "max_tokens": COLD_TOKENS, "temperature": 0}
    bodies = [
        common | {"prompt": f"{number}: an example in JSON. "} | fields
        for number, fields in enumerate(others)
    ]
    return run_client(Arrivals(server.port, path, plain, bodies, COLD_SPACING, PATIENCE), labels)


def gaps_ms(seen: Seen) -> list[float]:
    """Milliseconds between the moments at which something of the stream came, without those for
    which the client itself did not get to run."""
    ends = zip(seen.times, seen.times[1:], seen.late[1:], strict=False)
    return [max(after - before - late, 0.0) * 1000 for before, after, late in ends]


def largest_gap_ms(runs: Sequence[Seen]) -> float:
    """The largest of all runs."""
    return max(max(gaps_ms(seen)) for seen in runs)


def normal_gap_ms(runs: Sequence[Seen]) -> float:
    """The median over all runs."""
    return statistics.median(gap for seen in runs for gap in gaps_ms(seen))


def under_way(seen: Seen, start: float, end: float) -> Counter[str]:
    """The backends of the requests that waited for an answer in a span of time."""
    return Counter(
        label
        for label, answer in zip(seen.labels, seen.answers, strict=True)
        if answer.asked < end and answer.asked + answer.seconds > start
    )


# --- report -------------------------------------------------------------------------------------


def report(throughput: Throughput, stalls: Stalls) -> str:
    """Tables for people, and the line of figures."""
    parts = []
    if throughput:
        parts += [throughput_table(throughput), *_refusals(throughput)]
    if stalls:
        parts += [gap_table(stalls), answer_table(stalls), *_targets(stalls), worst_gaps(stalls)]
    parts.append(name_value_line(named_values(throughput, stalls)))
    return "\n\n".join(parts)


def throughput_table(throughput: Throughput) -> str:
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
    return table(["tokens/s, median (range)", "guided", "unguided", "ratio"], rows)


def _refusals(throughput: Throughput) -> list[str]:
    lines = [
        f"refused: {kind}, {name}: {' '.join(paired.refused.split())[:300]}"
        for kind, contenders in throughput.items()
        for name, paired in contenders.items()
        if paired.refused is not None
    ]
    return ["\n".join(lines)] if lines else []


def gap_table(stalls: Stalls) -> str:
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
    return table([*header, f"over {TARGET_MS:.0f}", "client late"], rows)


def answer_table(stalls: Stalls) -> str:
    """How the others were answered, by scenario and backend."""
    rows = []
    for name, runs in stalls.items():
        pairs = [pair for seen in runs for pair in zip(seen.labels, seen.answers, strict=True)]
        for label in dict.fromkeys(label for label, _ in pairs):
            answers = [answer for other, answer in pairs if other == label]
            seconds = spread(answer.seconds for answer in answers)
            times = [f"{seconds.median:.2f}", f"{seconds.high:.2f}"]
            rows.append([f"{name}, {label}", _outcomes(answers), *times])
    return table(["requests beside it", "answers", "median s", "largest s"], rows)


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


def worst_gaps(stalls: Stalls, count: int = 5) -> str:
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
    return "\n".join(lines)


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


# --- the program --------------------------------------------------------------------------------


@contextmanager
def _rival() -> Iterator[Server]:
    from adapter.default_model import MODEL_NAME, ensure_default_model

    module = "benchmarks.plain_vllm"
    with running_server(ensure_default_model(), MODEL_NAME, RIVAL_FLAGS, module=module) as server:
        yield server


@contextmanager
def _ours() -> Iterator[Server]:
    from adapter.default_model import MODEL_NAME, ensure_default_model

    with running_server(ensure_default_model(), MODEL_NAME, FLAGS) as server:
        yield server


def main() -> None:
    """Measure us, then the rival, and print what came out. A missed target is no error."""
    options = _options()
    machine = environment()
    print("\n".join(machine.lines()), flush=True)
    if options.data is None and options.only != "throughput":
        print("stalls: with made-up schemas; --data DIR takes real ones", flush=True)
    schemas = base_schemas(options.data)
    throughput: Throughput = {kind: {} for kind in WORKLOADS} if options.only != "stalls" else {}
    stalls: Stalls = {}
    with _ours() as server:
        if options.only != "stalls":
            _merge(throughput, measure_throughput(server, BACKENDS, options.runs))
        if options.only != "throughput":
            stalls |= measure_stalls(server, schemas, options.runs)
    if not options.skip_rival:
        with _rival() as server:
            if options.only != "stalls":
                _merge(throughput, measure_throughput(server, [RIVAL], options.runs))
            if options.only != "throughput":
                stalls |= measure_rival_stalls(server, schemas)
    if options.json is not None:
        options.json.write_text(as_json(asdict(machine), throughput, stalls))
    print(report(throughput, stalls))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, metavar="DIR", help="the folder of bench.jsonl")
    parser.add_argument("--runs", type=int, default=3, help="runs of everything (3)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every run to a file")
    parser.add_argument("--only", choices=("throughput", "stalls"), help="one half alone")
    parser.add_argument("--skip-rival", action="store_true", help="do not run vLLM's own")
    return parser.parse_args()


def _merge(into: Throughput, more: Throughput) -> None:
    for kind, contenders in more.items():
        into[kind] |= contenders


def as_json(machine: dict[str, Any], throughput: Throughput, stalls: Stalls) -> str:
    """Every run, for programs."""
    content = {
        "machine": machine,
        "throughput": {
            kind: {name: asdict(paired) for name, paired in contenders.items()}
            for kind, contenders in throughput.items()
        },
        "stalls": {name: [asdict(seen) for seen in runs] for name, runs in stalls.items()},
    }
    return json.dumps(content)


if __name__ == "__main__":
    main()
