"""The pure parts of the ordinary-models program: bases, verdicts, counts and figures."""

import json
from typing import Any

import pytest

from benchmarks.ordinary_models.asking import sample
from benchmarks.ordinary_models.counts import Count
from benchmarks.ordinary_models.judging import REPEATED, fault_of
from benchmarks.ordinary_models.results import figures, is_bad, sections
from benchmarks.ordinary_models.shape import without
from benchmarks.ordinary_models.shapes import all_shapes
from benchmarks.reporting.report import as_text


def test_the_base_of_a_shape_lacks_its_keywords_alone() -> None:
    """Properties and values that are called like a keyword stay."""
    schema = {
        "properties": {"not": {"not": {"const": 1}, "enum": ["not"]}},
        "required": ["not"],
        "allOf": [{"not": {}}],
    }
    assert without(schema, ("not",)) == {
        "properties": {"not": {"enum": ["not"]}},
        "required": ["not"],
        "allOf": [{}],
    }


def test_every_shape_has_another_base() -> None:
    """Where a shape names keywords, its schema has them."""
    for shape in all_shapes():
        assert shape.base() != shape.schema, shape.name


@pytest.mark.parametrize(
    ("schema", "text", "fault"),
    [
        ({"multipleOf": 0.01}, "5.02", None),
        ({"multipleOf": 0.01}, "5.021", "multiple"),
        ({"const": 9007199254740993}, "9007199254740993", None),
        ({"const": 9007199254740993}, "9007199254740992", "expected"),
        ({}, '{"a":1,"a":1}', REPEATED),
        ({}, "NaN", "not JSON"),
        ({"maximum": 1}, "1e999999999", "maximum"),
        ({"type": "integer"}, "1.0", None),
    ],
)
def test_a_text_is_judged_as_it_is_written(schema: Any, text: str, fault: str | None) -> None:
    """Numbers are exact, and a name that comes twice is a fault."""
    found = fault_of(schema, text)
    assert found is None if fault is None else fault in str(found)


def counted(shape: str, **texts: int) -> Count:
    count = Count(shape, "auto", "no retries", tokens=10, seconds=2.0)
    for kind, number in texts.items():
        for _ in range(number):
            count.add(kind, "" if kind == "good" else f"{kind} text")
    return count


def test_figures_are_of_all_texts_of_a_way() -> None:
    """Shares are of the texts, costs are medians over the shapes that have a base."""
    first = counted("one", good=8, not_satisfied=2)
    first.base_tokens, first.base_seconds = 20, 2.0
    values = figures([first, counted("two", good=9, refused=1)])
    assert values["no_retries_auto_not_satisfied_share"] == 0.1
    assert values["no_retries_auto_refused"] == 1
    assert values["no_retries_auto_cost"] == 2.0
    assert not is_bad(values)
    assert is_bad(figures([counted("three", wrong=1)]))


def test_a_report_is_the_same_from_a_file() -> None:
    """What is written holds all that the tables show."""
    counts = [counted("one", good=8, not_satisfied=2), counted("two", cut=1)]
    record = {"counts": [each.record() for each in counts], "left_out": {"default": "why"}}
    again = json.loads(json.dumps(record))
    assert sections(again) == sections(record)
    text = as_text(sections(again))
    assert "default left out: why" in text
    assert "one, auto, no retries: not_satisfied: not_satisfied text" in text


def test_a_sample_is_from_all_over() -> None:
    """The first is in it, and none comes twice."""
    shapes = all_shapes()
    found = sample(shapes, 6)
    assert len({shape.name for shape in found}) == 6
    assert found[0] == shapes[0]
    assert sample(shapes, None) == list(shapes)
