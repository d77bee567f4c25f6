"""The schemas that pydantic and zod print are held, wherever a text goes."""

import json

import jsonschema
import pytest

from adapter.guided.constraint import Constraint, Kind
from benchmarks.guided_conformance.outcomes import repeats_a_name
from benchmarks.ordinary_models.shape import Shape
from benchmarks.ordinary_models.shapes import all_shapes
from tests.guided import walks

SHAPES = all_shapes()
CHECKED = {"different records"}
"""Objects that differ as items are told apart at the end of the text alone."""

each_shape = pytest.mark.parametrize("shape", SHAPES, ids=[shape.name for shape in SHAPES])


def test_there_are_forty() -> None:
    """Of different names."""
    assert len({shape.name for shape in SHAPES}) == len(SHAPES) >= 40


@each_shape
def test_the_masks_hold_it(shape: Shape) -> None:
    """No check of the finished text is needed."""
    _, compiler = walks.builtin()
    constraint = Constraint("guided_json", Kind.JSON, json.dumps(shape.schema), "auto")
    assert compiler.compile(constraint, relaxed=True).checked == (shape.name in CHECKED)


@each_shape
def test_texts_satisfy_it(shape: Shape) -> None:
    """However tokens are chosen there is a next one, and a finished text is valid."""
    make = walks.maker(Kind.JSON, shape.schema, "auto")
    for seed, way in enumerate(walks.CHOOSE):
        found = walks.walk(make(), way, seed, steps=25)
        if found.ended and shape.name not in CHECKED:
            assert not repeats_a_name(found.text)
            jsonschema.validate(
                json.loads(found.text), shape.schema, jsonschema.Draft202012Validator
            )
