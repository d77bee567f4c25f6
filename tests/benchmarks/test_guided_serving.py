"""Ratios, gaps, cold requests, and the report of a guided-serving run."""

import asyncio
import json
import math
from pathlib import Path
from typing import Any

import pytest

from benchmarks.guided_serving.arrivals import Answer, Arrivals, Seen, drive
from benchmarks.guided_serving.requests import (
    BACKENDS,
    COLD_REQUESTS,
    LARGEST_SCHEMAS,
    RIVAL,
    base_schemas,
    cold_requests,
    guided,
    never_seen,
    real_or_none,
)
from benchmarks.guided_serving.results import as_record, named_values, sections
from benchmarks.guided_serving.stalls import (
    Stalls,
    gaps_ms,
    largest_gap_ms,
    normal_gap_ms,
    under_way,
)
from benchmarks.guided_serving.throughput import Paired, Throughput
from benchmarks.reporting.report import as_text
from benchmarks.running.process import BenchmarkError

SEEN = Seen(
    times=[0.0, 0.25, 0.5, 1.5],
    answers=[Answer(0.125, 0.25, 200), Answer(0.75, 1.0, 400, "timeout"), Answer(0.8, 45.0, 0)],
    late=[0.0, 0.0, 0.0, 0.0],
    labels=["guidance", "outlines", "outlines"],
)
THROUGHPUT: Throughput = {
    "json": {
        "xgrammar": Paired([80.0, 45.0, 9.0], [100.0, 50.0, 10.0]),
        "lm-format-enforcer": Paired(refused="The server answered\n400: no"),
    }
}
STALLS: Stalls = {"alone": [Seen([0.0, 0.25, 0.5], [], [0.0] * 3)], "cold": [SEEN]}


def test_gaps_are_milliseconds_between_neighbours() -> None:
    assert gaps_ms(SEEN) == [250, 250, 1000]


def test_what_the_client_slept_is_no_gap() -> None:
    assert gaps_ms(Seen([0.0, 0.5, 1.0], [], [0.125, 0.25, 0.0])) == [250, 500]


def test_gaps_of_several_runs_are_taken_together() -> None:
    runs = [SEEN, Seen([0.0, 0.125, 0.25], [], [0.0] * 3)]
    assert largest_gap_ms(runs) == 1000
    assert normal_gap_ms(runs) == 250


def test_a_ratio_is_that_of_neighbouring_runs() -> None:
    assert named_values(THROUGHPUT, {})["throughput_ratio_json_xgrammar"] == 0.9


def test_a_refused_backend_has_no_ratio() -> None:
    assert math.isnan(named_values(THROUGHPUT, {})["throughput_ratio_json_lm_format_enforcer"])


def test_answers_are_counted_by_status() -> None:
    values = named_values({}, STALLS)
    assert [values[f"cold_{name}"] for name in ("200", "400", "other")] == [1, 1, 1]


def test_the_rivals_figures_have_its_name() -> None:
    values = named_values({}, {"vllm_alone": STALLS["alone"], "vllm_cold": [SEEN]})
    assert values["vllm_gap_normal_ms"] == 250
    assert values["vllm_gap_cold_max_ms"] == 1000
    assert values["vllm_cold_200"] == 1


def test_only_who_waits_in_the_gap_is_named() -> None:
    assert under_way(SEEN, 0.0, 0.25) == {"guidance": 1}
    assert under_way(SEEN, 0.5, 1.5) == {"outlines": 2}


def report(throughput: Throughput, stalls: Stalls) -> str:
    return as_text(sections(as_record(throughput, stalls, made_up=True)))


def test_the_report_says_what_was_refused_and_missed() -> None:
    text = report(THROUGHPUT, STALLS)
    assert "refused: json, lm-format-enforcer: The server answered 400: no" in text
    # Three normal gaps of 250 ms.
    assert "target of cold: at most 750 ms, 1000 ms: missed" in text
    assert "1 x 400 timeout, 1 x none in time" in text


def test_half_a_run_is_reported_too() -> None:
    assert "stalls" not in report(THROUGHPUT, {})
    assert "tokens/s" not in report({}, STALLS)
    assert "made-up schemas" in report({}, STALLS)


def test_the_file_holds_every_run() -> None:
    record = as_record(THROUGHPUT, STALLS, made_up=False)
    content = json.loads(json.dumps(record))
    assert content["throughput"]["json"]["xgrammar"]["guided"] == [80, 45, 9]
    assert content["stalls"]["cold"][0]["times"] == SEEN.times
    assert sections(content) == sections(record)


def test_constraints_are_spelt_as_each_route_takes_them() -> None:
    assert guided("auto", "regex", "a+") == {
        "guided_regex": "a+",
        "guided_decoding_backend": "auto",
    }
    assert guided(RIVAL, "json", {}) == {"structured_outputs": {"json": {}}}


def test_a_varied_schema_leaves_the_original_alone() -> None:
    schema: dict[str, Any] = {"properties": {"a": {}}}
    assert list(never_seen(schema, "b")["properties"]) == ["a", "b"]
    assert list(schema["properties"]) == ["a"]
    assert never_seen({"enum": [1]}, "b") == {"enum": [1], "$comment": "b"}


def test_no_cold_request_was_seen_before() -> None:
    texts: set[str] = set()
    for run in ("a0", "a1"):
        fields, _ = cold_requests(base_schemas(None), BACKENDS, COLD_REQUESTS, run)
        texts |= {json.dumps(body["guided_json"]) for body in fields}
    assert len(texts) == 2 * COLD_REQUESTS


def test_every_schema_meets_two_backends() -> None:
    schemas = base_schemas(None)
    _, labels = cold_requests(schemas, BACKENDS, COLD_REQUESTS, "a0")
    assert all(labels.count(name) == COLD_REQUESTS / len(BACKENDS) for name in BACKENDS)
    assert all(a != b for a, b in zip(labels, labels[len(schemas) :], strict=False))


def test_the_largest_schemas_of_the_data_are_taken(tmp_path: Path) -> None:
    schemas = [{"const": "x" * size} for size in range(100)]
    lines = [json.dumps({"schema": schema}) for schema in schemas]
    (tmp_path / "bench.jsonl").write_text("\n".join(lines))
    assert real_or_none(tmp_path) == schemas
    chosen = base_schemas(schemas)
    assert len(chosen) == COLD_REQUESTS / 2
    assert all(schema in chosen for schema in schemas[-LARGEST_SCHEMAS:])


async def _serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Stream events to who asks for a stream; answer others by the status that they ask for."""
    head = await reader.readuntil(b"\r\n\r\n")
    length = int(head.lower().partition(b"content-length: ")[2].split()[0])
    body = json.loads(await reader.readexactly(length))
    writer.write(b"HTTP/1.1 %d Any\r\n\r\n" % body["status"])
    for _ in range(body["events"]):
        writer.write(b"data: {}\n\n")
        await asyncio.sleep(0.02)
    writer.close()


def _seen(plain: dict[str, int], others: list[dict[str, int]]) -> Seen:
    async def measure() -> Seen:
        async with await asyncio.start_server(_serve, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            return await drive(Arrivals(port, "/", plain, others, 0.05, 0.5))

    return asyncio.run(measure())


def test_every_event_of_a_stream_is_noted() -> None:
    seen = _seen({"status": 200, "events": 5}, [])
    assert len(seen.times) == 6  # and its end
    assert seen.times == sorted(seen.times)
    assert len(seen.late) == 6


def test_the_stream_is_left_when_all_others_have_answers() -> None:
    others = [{"status": 200, "events": 0}, {"status": 400, "events": 0}]
    seen = _seen({"status": 200, "events": 10_000}, others)
    assert [answer.status for answer in seen.answers] == [200, 400]
    assert seen.answers[1].asked - seen.answers[0].asked > 0.04


def test_an_answer_is_waited_for_no_longer_than_patience_lasts() -> None:
    seen = _seen({"status": 200, "events": 10_000}, [{"status": 200, "events": 1000}])
    assert seen.answers[0].status == 0
    assert seen.answers[0].seconds == pytest.approx(0.5, abs=0.3)


def test_a_stream_that_ends_too_early_measures_nothing() -> None:
    with pytest.raises(BenchmarkError, match="before the last answer"):
        _seen({"status": 200, "events": 1}, [{"status": 200, "events": 1000}])


def test_a_refused_stream_measures_nothing() -> None:
    with pytest.raises(BenchmarkError, match="refused"):
        _seen({"status": 400, "events": 0}, [])
