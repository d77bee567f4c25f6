"""No way of choosing tokens leads to a dead end, or to a text that a constraint forbids."""

import json
from collections.abc import Iterator
from random import Random
from typing import Any, NamedTuple

import pytest

from adapter.guided.backends.registry import Libraries
from adapter.guided.compile.compiler import ConstraintCompiler, Refused
from adapter.guided.compile.validation import check_fault
from adapter.guided.constraint import BACKENDS, Constraint, Kind
from benchmarks.guided_conformance.goals import Hints
from benchmarks.guided_conformance.outcomes import repeats_a_name
from benchmarks.ordinary_models.judging import fault_of
from benchmarks.ordinary_models.shapes import all_shapes
from benchmarks.schema_sets import SUITE, read_set
from tests.guided.adversary import STRATEGIES, walk
from tests.guided.keyword_schemas import (
    CHOICES,
    GRAMMARS,
    PATTERNS,
    WHITESPACE,
    as_text,
    keyword_schemas,
)

NO_VALUE = {
    "object: required + closed",
    "object: closed + minProperties",
    "object: closed + oneOf",
    "object: oneOf + unevaluated",
}
"""Those of keyword_schemas that no value satisfies."""


class Case(NamedTuple):
    """A constraint to walk through."""

    name: str
    kind: Kind
    text: str
    schema: Any = None
    whitespace: str | None = None


def _json(name: str, schema: Any, whitespace: str | None = None) -> Case:
    return Case(name, Kind.JSON, as_text(schema), schema, whitespace)


def _cases() -> Iterator[Case]:
    for name, schema in keyword_schemas():
        yield _json(name, schema)
    for shape in all_shapes():
        yield _json(shape.name, shape.schema)
    for number, pattern in enumerate(WHITESPACE):
        yield _json(f"blanks {number}", {"type": "object", "maxProperties": 2}, pattern)
    for number, pattern in enumerate(PATTERNS):
        yield Case(f"pattern {number}", Kind.REGEX, pattern)
    for number, grammar in enumerate(GRAMMARS):
        yield Case(f"grammar {number}", Kind.GRAMMAR, grammar)
    for number, choices in enumerate(CHOICES):
        yield Case(f"choice {number}", Kind.CHOICE, json.dumps(choices))


CASES = list(_cases())


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_every_walk_ends_well(
    libraries: Libraries, compiler: ConstraintCompiler, case: Case, backend: str
) -> None:
    """What a backend takes it holds, however tokens are chosen; auto takes all that have a text."""
    ways = list(STRATEGIES)
    if backend != "auto":
        ways = Random(case.name + backend).sample(ways, 4)
    try:
        walk_all(libraries, compiler, case, backend, ways)
    except Refused:
        assert backend != "auto" or case.name in NO_VALUE


SUITE_ROWS = [row for row in read_set(SUITE) if "remote" not in row]


@pytest.mark.parametrize("row", SUITE_ROWS, ids=[row["id"] for row in SUITE_ROWS])
def test_walks_of_the_official_suite_end_well(
    libraries: Libraries, compiler: ConstraintCompiler, row: dict[str, Any]
) -> None:
    """So do the schemas of the JSON Schema Test Suite, each in two ways."""
    ways = Random(row["id"]).sample(list(STRATEGIES), 2)
    try:
        walk_all(libraries, compiler, _json(row["id"], row["schema"]), "auto", ways)
    except Refused:
        assert not any(test["valid"] for test in row["tests"]) or _refers_outside(row["schema"])


def _refers_outside(schema: Any) -> bool:
    return "http" in json.dumps(schema)


def walk_all(
    libraries: Libraries,
    compiler: ConstraintCompiler,
    case: Case,
    backend: str,
    strategies: list[str],
) -> None:
    """Walk in several ways; every text ends, and is what was asked for.

    Raises:
        Refused: the backend does not take it.
    """
    constraint = Constraint("field", case.kind, case.text, backend, case.whitespace)
    compiled = compiler.compile(constraint, relaxed=True)
    makers = [libraries.compile(part) for part in compiled.program.parts]
    hints = Hints.of(case.schema)
    for strategy in strategies:
        guide = libraries.guide(compiled.program, makers)
        walked = walk(guide, strategy, Random(case.name + strategy), hints)
        assert walked.fault is None, (strategy, walked)
        assert walked.ended, (strategy, walked)
        if case.kind is Kind.JSON:
            assert not repeats_a_name(walked.text), (strategy, walked.text)
        if case.kind is Kind.JSON and not compiled.checked and check_fault(case.schema) is None:
            assert fault_of(case.schema, walked.text.decode()) is None, (strategy, walked.text)
