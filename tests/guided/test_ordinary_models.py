"""The schemas that pydantic and zod print are held, wherever a text goes."""

import json

import jsonschema
import numpy as np
import pytest

from adapter.guided.constraint import Constraint, Kind
from benchmarks.guided_conformance.goals import Hints
from benchmarks.guided_conformance.outcomes import repeats_a_name
from benchmarks.guided_conformance.walks import Drawer
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
def test_every_way_goes_on(shape: Shape) -> None:
    """Of the rarest or the longest tokens, there is a next one that is taken."""
    make = walks.maker(Kind.JSON, shape.schema, "auto")
    for way in ("rarest", "longest"):
        walks.walk(make(), way, steps=25, most=100)


@each_shape
def test_what_is_drawn_is_valid(shape: Shape) -> None:
    """A random text comes to an end, satisfies the schema, and has no name twice."""
    libraries, _ = walks.builtin()
    vocabulary = libraries.vocabulary
    drawer = Drawer(vocabulary.tokens, vocabulary.eos_token_ids[0])
    make = walks.maker(Kind.JSON, shape.schema, "auto")
    finished = 0
    for seed, hurry in enumerate((10, 30)):
        drawn = drawer.draw(
            make(),
            np.zeros(vocabulary.words, np.int32),
            [],
            hurry=hurry,
            generator=np.random.default_rng(seed),
            hints=Hints.of(shape.schema),
        )
        assert drawn.dead is None, drawn
        finished += drawn.finished
        if drawn.finished:
            assert not repeats_a_name(drawn.content)
        if drawn.finished and shape.name not in CHECKED:
            text = json.loads(drawn.content)
            jsonschema.validate(text, shape.schema, jsonschema.Draft202012Validator)
    assert finished
