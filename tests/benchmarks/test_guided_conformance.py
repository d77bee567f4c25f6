"""The pure parts of the conformance program: orders, walks, draws, verdicts and figures."""

import json
from argparse import ArgumentTypeError
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from adapter.guided.matcher import Mask
from benchmarks.guided_conformance import outcomes as outcomes_module
from benchmarks.guided_conformance.__main__ import listed
from benchmarks.guided_conformance.cases import (
    Case,
    Task,
    as_text,
    in_schema_order,
    orders,
    read_cases,
)
from benchmarks.guided_conformance.goals import Goals, Hints
from benchmarks.guided_conformance.outcomes import (
    Outcome,
    Unjudged,
    failed,
    fault_of,
    is_json,
    repeats_a_name,
    verdict,
)
from benchmarks.guided_conformance.results import (
    Fills,
    Tally,
    fault_lines,
    figures,
    is_bad,
    keyword_grid,
    percentile,
    recorded_fills,
    refusal_lines,
    sections,
    tallies,
)
from benchmarks.guided_conformance.walks import (
    LONGEST_DRAW,
    LONGEST_ENDING,
    Drawer,
    Walker,
    Words,
    has_bit,
)
from benchmarks.reporting.report import as_text as report_text

# The tokens of the tests: id 0 is the end of the text.
TEXTS = (b"", b'"', b"a", b"ab", b"b", b"{", b"}", b"1", b"12", b"2", b":", b",", b"[", b"]")
END = 0


class Grammar:
    """A guide that allows a few texts, byte by byte."""

    def __init__(self, *texts: bytes, breaks_after: bytes | None = None) -> None:
        self._texts = texts
        self._breaks_after = breaks_after
        self._taken = b""
        self.failure: str | None = None

    def fill(self, mask: Mask) -> None:
        mask.fill(0)
        if self._taken == self._breaks_after:
            self.failure = "broken"
        for token, text in enumerate(TEXTS):
            if self._allows(token, text):
                mask[0] |= 1 << token

    def accept(self, tokens: Sequence[int]) -> bool:
        (token,) = tokens
        if not self._allows(token, TEXTS[token]):
            return False
        self._taken += TEXTS[token]
        return True

    def _allows(self, token: int, text: bytes) -> bool:
        if token == END:
            return self._taken in self._texts
        return any(whole.startswith(self._taken + text) for whole in self._texts)


def empty_mask() -> Mask:
    return np.zeros(1, np.int32)


def outcome(backend: str = "auto", **fields: object) -> Outcome:
    fields = {
        "set": "bench",
        "id": "one",
        "keyword": "",
        "remote": False,
        "has_instances": True,
        **fields,
    }
    return Outcome(backend=backend, **fields)  # type: ignore[arg-type]


# --- cases and instances


def test_cases_are_read_from_lines(tmp_path: Path) -> None:
    rows = [{"id": "a", "schema": True}, {"id": "b", "schema": {}, "tests": [], "keyword": "not"}]
    path = tmp_path / "suite.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    assert read_cases("suite", tmp_path, None) == [
        Case("suite", "a", True, [], ""),
        Case("suite", "b", {}, [], "not"),
    ]


def test_text_is_as_it_reads_unless_utf8_has_no_bytes_for_it() -> None:
    assert as_text({"é": 1}) == '{"é": 1}'
    assert as_text({"é": 1}, compact=True) == '{"é":1}'
    assert as_text("\ud800") == '"\\ud800"'


def test_keys_follow_the_schema_through_references_and_arrays() -> None:
    schema = {
        "properties": {"b": {"$ref": "#/$defs/inner"}, "a": {"items": {"$ref": "#/$defs/inner"}}},
        "allOf": [{"properties": {"c": True}}],
        "$defs": {"inner": {"properties": {"y": {"$ref": "#"}, "x": {}}}},
    }
    value = {"z": 0, "c": 1, "a": [{"x": 1, "y": 2}], "b": {"x": {}, "y": {"a": 0, "b": 0}}}
    assert json.dumps(in_schema_order(value, schema)) == json.dumps(
        {"b": {"y": {"b": 0, "a": 0}, "x": {}}, "a": [{"y": 2, "x": 1}], "c": 1, "z": 0}
    )


@pytest.mark.parametrize("schema", [True, {"$ref": "#/nowhere"}, {"$ref": "#"}])
def test_schemas_without_an_order_leave_keys_as_they_are(schema: object) -> None:
    assert list(in_schema_order({"b": 1, "a": 2}, schema)) == ["b", "a"]


def test_orders_are_the_same_data_and_no_text_twice() -> None:
    data = {"a": 1, "b": [{"d": 1, "c": 2}]}
    found = list(orders(data, {"properties": {"b": {}}}, seed=0))
    assert all(ordered == data for ordered in found)
    texts = [as_text(ordered) for ordered in found]
    assert len(texts) == len(set(texts)) >= 2
    assert texts[0] == as_text(data)
    assert list(orders([1, 2], True, seed=0)) == [[1, 2]]


def test_the_tokens_of_a_text_come_longest_first() -> None:
    words = Words(TEXTS)
    assert list(words.at(b'"ab', 1)) == [3, 2]
    assert list(words.at(b"?", 0)) == []
    assert words.one(b"12") == 8


# --- walks and draws


@pytest.mark.parametrize("token", [0, 5, 31, 32, 63])
def test_bits_of_a_mask(token: int) -> None:
    mask = np.zeros(2, np.int32)
    mask.view(np.uint32)[token >> 5] = 1 << (token & 31)
    assert [i for i in range(64) if has_bit(mask, i)] == [token]


def walked(grammar: Grammar, text: bytes) -> tuple[bool, int, list[bytes], str | None]:
    times: list[float] = []
    result = Walker(TEXTS, END).walk(grammar, text, empty_mask(), times)
    assert times
    return result.accepted, result.reached, result.early, result.dead


def test_a_walk_ends_with_the_end_of_text() -> None:
    assert walked(Grammar(b'"ab"'), b'"ab"') == (True, 4, [], None)
    assert walked(Grammar(b'"ab"'), b'"a') == (False, 2, [], None)
    assert walked(Grammar(b'"ab"'), b'"a"') == (False, 2, [], None)


def test_a_walk_takes_shorter_tokens_where_the_longest_is_not_allowed() -> None:
    class Canonical(Grammar):
        def fill(self, mask: Mask) -> None:
            super().fill(mask)
            mask[0] &= ~(1 << TEXTS.index(b"ab"))

    assert walked(Canonical(b"ab"), b"ab") == (True, 2, [], None)


def test_a_walk_notes_where_the_text_might_have_ended() -> None:
    assert walked(Grammar(b"1", b"12", b"122"), b"122") == (True, 3, [b"12"], None)
    assert walked(Grammar(b"", b"1"), b"1") == (True, 1, [b""], None)


def test_a_walk_sees_a_dead_end() -> None:
    assert walked(Grammar(b'"a"', breaks_after=b'"'), b'"a"') == (False, 1, [], "broken")


def test_a_walk_sees_a_mask_that_promises_too_much() -> None:
    class Liar(Grammar):
        def accept(self, tokens: Sequence[int]) -> bool:
            return False

    accepted, _, _, dead = walked(Liar(b"1"), b"1")
    assert not accepted
    assert dead == "token 7 of its own mask was refused"


@pytest.mark.parametrize(
    ("text", "in_string"),
    [(b"[1, ", False), (b'["a', True), (b'["a\\', True), (b'["a\\"', True), (b'["a\\\\"', False)],
)
def test_goals_know_where_strings_are(text: bytes, in_string: bool) -> None:
    """However the text is cut."""
    for cut in range(len(text)):
        goals = Goals(Hints(), lambda below: 0)
        goals.take(text[:cut])
        goals.take(text[cut:])
        assert goals.in_string is in_string


def test_goals_tell_names_from_values() -> None:
    """A name is aimed at where an object goes on, a value behind a colon or in an array."""
    schema = {"required": ["a"], "properties": {"a": {"enum": [7]}}}

    def aimed(text: bytes) -> bytes:
        goals = Goals(Hints.of(schema), lambda below: below - 1)
        goals.take(text)
        goals.aim()
        return goals.goal

    assert aimed(b'{"b": [1], ') == b'"a"'
    assert aimed(b'{"a": ') == aimed(b'[{"b":1}, ') == b"7"
    assert aimed(b'{"a') == aimed(b'{"a": 7') == b""


def test_hints_are_what_a_schema_asks_for() -> None:
    """Wherever it stands, also by what is not and by what depends."""
    schema = {
        "anyOf": [{"required": ["é"]}, {"dependentRequired": {"x": ["b"]}}],
        "not": {"properties": {"c": {"const": "v"}}},
    }
    found = Hints.of(schema)
    assert set(found.names) == {'"é"'.encode(), b'"b"', b'"c"'}
    assert found.values == (b'"v"',)


def test_draws_are_texts_of_the_grammar() -> None:
    drawer = Drawer(TEXTS, END)
    generator = np.random.default_rng(0)
    texts = {b'"ab"', b"[1,2]", b"12"}
    drawn = [
        drawer.draw(Grammar(*texts), empty_mask(), [], hurry=2, generator=generator)
        for _ in range(50)
    ]
    assert all(draw.finished for draw in drawn)
    assert {draw.content for draw in drawn} == texts


def test_a_draw_hurries_to_close() -> None:
    class Strings(Grammar):
        """Any string of `a` and `}`."""

        def _allows(self, token: int, text: bytes) -> bool:
            if token == END:
                return len(self._taken) > 1 and self._taken.endswith(b'"')
            if not self._taken or text == b'"':
                return text == b'"' and self._taken.count(b'"') < 2
            return self._taken.count(b'"') == 1 and text in (b"a", b"}")

    generator = np.random.default_rng(0)
    for _ in range(20):
        times: list[float] = []
        draw = Drawer(TEXTS, END).draw(Strings(), empty_mask(), times, hurry=1, generator=generator)
        assert draw.finished
        assert len(times) < 20


def test_a_draw_without_an_end_is_unfinished_and_one_without_tokens_dead() -> None:
    class Endless(Grammar):
        def _allows(self, token: int, text: bytes) -> bool:
            return text == b"a"

    def draw(grammar: Grammar) -> tuple[bytes, bool, str | None]:
        generator = np.random.default_rng(0)
        drawn = Drawer(TEXTS, END).draw(grammar, empty_mask(), [], hurry=1, generator=generator)
        return drawn.content, drawn.finished, drawn.dead

    assert draw(Endless()) == (b"a" * (LONGEST_DRAW + LONGEST_ENDING), False, None)
    assert draw(Grammar(b'""', breaks_after=b'"')) == (b'"', False, "broken")


# --- verdicts


def test_verdicts() -> None:
    assert verdict(outcome()) == "exact"
    assert verdict(outcome(rejected=["x"])) == "over"
    assert verdict(outcome(rejected=["x"], under=["y"])) == "under"
    assert verdict(outcome(has_instances=False)) == "served"
    assert verdict(outcome(has_instances=False, under=["y"])) == "under"


def test_faults_of_a_text() -> None:
    schema = {"type": "string", "maxLength": 1}
    assert fault_of(schema, b'"a"') is None
    assert "too long" in str(fault_of(schema, b'"ab"'))
    assert "UTF-8" in str(fault_of(schema, b'"\xff"'))
    assert fault_of(schema, b'"a') is not None


def test_a_validator_that_fails_is_no_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_schema: str, text: str, _documents: object) -> str:
        raise LookupError(text)

    monkeypatch.setattr(outcomes_module, "text_fault", fail)
    with pytest.raises(Unjudged, match="LookupError: 1"):
        fault_of(True, b"1")


def test_what_is_json() -> None:
    assert is_json(b'{"a": 1}')
    assert not is_json(b'{"a": 1,}')
    assert not is_json(b'"\xff"')


def test_a_task_that_failed_keeps_its_case() -> None:
    case = Case("suite", "a", {}, [{"data": 1, "valid": True}], "not")
    found = failed(Task(case, "xgrammar", 0), "why")
    assert (found.set, found.id, found.keyword, found.backend) == ("suite", "a", "not", "xgrammar")
    assert (found.verdict, found.reason, found.has_instances) == ("failed", "why", True)
    assert not found.served


# --- figures


def test_percentiles_are_values_that_occur() -> None:
    values = list(range(1, 101))
    assert percentile(values, 0.5) == 50
    assert percentile(values, 0.99) == 99
    assert percentile([7], 0.5) == 7
    assert np.isnan(percentile([], 0.5))


def test_a_schema_is_held_where_masks_stopped_all_that_it_forbids() -> None:
    """A text that only the check at its end stopped, or nothing did, is not held."""
    assert outcome(verdict="exact", forbidden=2).held
    assert outcome(verdict="over", forbidden=2).held
    assert not outcome(forbidden=2, caught=["x"]).held
    assert not outcome(forbidden=2, wrong=["x"]).held
    assert not outcome(forbidden=2, under=["x"]).held
    assert not outcome(verdict="refused", forbidden=2).held


def test_held_is_a_share_of_the_schemas_with_forbidden_instances() -> None:
    """Refused ones count as not held, and those that forbid nothing known do not count."""
    found = [
        outcome(verdict="exact", forbidden=1),
        outcome(verdict="exact", forbidden=3, caught=["x"], checked=True),
        outcome(verdict="refused", forbidden=1),
        outcome(verdict="over", forbidden=1),
        outcome(verdict="exact"),
    ]
    values = figures(tallies(found), [])
    assert values["real_auto_held"] == 0.5
    assert values["real_auto_checked"] == 1
    assert values["caught"] == 1
    assert keyword_grid([outcome(keyword="not", verdict="exact", forbidden=1)], ["auto"]).rows == [
        ["not (1)", "1/0/0/0/1"]
    ]


@pytest.mark.parametrize(
    ("text", "repeats"),
    [
        (b'{"a":1,"b":{"a":2}}', False),
        (b'{"a":1,"a":1}', True),
        (b'[{"b":{"a":1,"":2,"a":3}}]', True),
        (b'{"a":1,"a', False),
        (b'{"a":1,"\\u0061":1}', True),
    ],
)
def test_a_name_twice_is_seen_wherever_it_stands(text: bytes, repeats: bool) -> None:
    """Names are compared as they read, in each object by itself."""
    assert repeats_a_name(text) is repeats


def some_outcomes() -> list[Outcome]:
    return [
        outcome(id="a", verdict="exact", fill_us=[1.0, 3.0], draws=Counter(finished=4)),
        outcome(id="b", verdict="under", under=["accepted 1"], keyword="not"),
        outcome(id="c", verdict="refused", reason='"x" is 5 too long', too_slow=True),
        outcome(id="d", verdict="refused", reason='"y" is 6 too long'),
        outcome(
            id="e", verdict="served", has_instances=False, caught=["v", "w"], dead=["no token"]
        ),
        outcome(
            "outlines", id="a", verdict="over", wrong=["w"], draws=Counter(finished=3, wrong=1)
        ),
    ]


def test_shares_are_of_the_schemas_with_instances() -> None:
    tally = Tally(each for each in some_outcomes() if each.backend == "auto")
    assert tally.share(tally.count("exact")) == 0.25
    assert tally.share(len(tally.served)) == 0.5
    row = tally.row("auto")
    shares = ["auto", "50.0 (1 too slow)", "0.0", "25.0", "25.0", "0.0", "50.0", "0", "0"]
    assert row[:9] == shares
    assert row[-1] == "2 / 3 / 3"
    assert Tally([outcome("x", verdict="failed")]).row("x")[-1] == "-"


def test_the_last_line_tells_under_and_wrong() -> None:
    values = figures(tallies(some_outcomes()), [1.0, 2.0])
    assert values["real_auto_under"] == 1
    assert values["real_auto_dead"] == 1
    assert values["real_outlines_wrong"] == 1
    assert values["caught"] == 2
    assert values["admission_p50_ms"] == 1.0
    assert is_bad(values)
    good = [each for each in some_outcomes() if not each.under and not each.wrong]
    assert not is_bad(figures(tallies(good), []))


def test_keywords_are_counted_by_verdict() -> None:
    grid = keyword_grid(some_outcomes()[:2], ["auto"])
    assert grid.rows[-1] == ["not (1)", "0/0/1/0/0"]
    assert grid.note == "exact/over/under/refused/held"


def test_faults_are_listed_the_worst_first() -> None:
    assert fault_lines(some_outcomes()) == [
        "under: auto bench b: accepted 1",
        "wrong: outlines bench a: w",
        "dead end: auto bench e: no token",
    ]


def test_refusals_of_the_same_kind_stand_together() -> None:
    assert refusal_lines(some_outcomes()) == ["2: _ is _ too long (c, d)"]


def some_record() -> dict[str, Any]:
    return {
        "libraries": "xgrammar 1",
        "backends": ["auto", "outlines"],
        "broken": {"guidance": "no library"},
        "fill_us": recorded_fills(tallies(some_outcomes())),
        "outcomes": [each.record() for each in some_outcomes()],
    }


def test_a_report_has_its_tables() -> None:
    text = report_text(sections(some_record()))
    assert "libraries: xgrammar 1\nguidance left out, it cannot be loaded: no library" in text
    assert "bench: 4 schemas with instances of 5" in text
    assert "2: _ is _ too long (c, d)" in text
    assert "faults: 3" in text


def test_a_report_is_the_same_from_a_file() -> None:
    record = some_record()
    assert sections(json.loads(json.dumps(record))) == sections(record)
    assert "2 / 3 / 3" in report_text(sections(record))  # the times of the fills


def test_times_from_a_file_take_the_place_of_the_outcomes() -> None:
    assert Tally([outcome()], Fills(1, 2, 3)).row("x")[-1] == "1 / 2 / 3"


def test_an_outcome_can_be_written_as_json() -> None:
    record = json.loads(json.dumps(some_outcomes()[0].record()))
    assert record["draws"] == {"finished": 4}
    assert "fill_us" not in record


def test_names_are_checked() -> None:
    parse = listed(["auto", "outlines"])
    assert parse("outlines,auto") == ["outlines", "auto"]
    with pytest.raises(ArgumentTypeError, match="x is none of"):
        parse("auto,x")
