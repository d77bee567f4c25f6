"""adapter/planning/fields.py: each row has examples, and none can change without one that fails.

An example in field_examples.json: `asks` are the fields asked for, `beside` what stands beside
them, `server` what differs in the server's facts. An accepted one says what then changes in the
plan, by path; a refused one the error's param, code and message.
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from adapter.contract.request import CompletionV2Request
from adapter.errors import ApiError
from adapter.guided.constraint import MAX_TEXT
from adapter.planning import plan as plan_module
from adapter.planning.calls import SamplingFields
from adapter.planning.checks import Check
from adapter.planning.facts import ServerFacts
from adapter.planning.fields import FIELDS, Field, Place
from adapter.planning.modes import BeamSettings
from adapter.planning.plan import AnswerShape
from tests.planning.plans import changes, facts_with, planned

EXAMPLES: dict[str, dict[str, list[dict[str, Any]]]] = json.loads(
    (Path(__file__).parent / "field_examples.json").read_text("utf-8")
)
Fields = dict[str, Any]


def _add_large_schemas() -> None:
    """The examples of a schema that is too large, which no file should have."""
    schema = {"const": "a" * MAX_TEXT}
    named = {"type": "json_schema", "json_schema": {"name": "a", "schema": schema}}
    for field, value in (("guided_json", schema), ("response_format", named)):
        says = (
            f"{field} is too large: {len(json.dumps(schema))} characters as text, and {MAX_TEXT} "
            "are allowed."
        )
        asks = {"asks": {field: value}, "param": field, "code": "invalid_value", "says": says}
        EXAMPLES[field]["refused"].append(asks)


_add_large_schemas()


def fault(example: dict[str, Any]) -> str | None:
    """What is wrong with an example, None where the plan is as it says."""
    facts = facts_with(example.get("server", {}))
    beside: Fields = example.get("beside", {})
    asked: Fields = beside | example["asks"]
    try:
        plan = planned(facts, **asked)
    except ApiError as error:
        found: Any = {"param": error.param, "code": error.code, "says": error.message}
    else:
        found = changes(planned(facts, **beside), plan)
    expected = example.get("changes", {k: example.get(k) for k in ("param", "code", "says")})
    return None if found == expected else f"{asked}: {found} is not {expected}"


ALL = [
    pytest.param(example, id=f"{field} {kind} {index}")
    for field, kinds in EXAMPLES.items()
    for kind, examples in kinds.items()
    for index, example in enumerate(examples)
]


@pytest.mark.parametrize("example", ALL)
def test_example(example: dict[str, Any]) -> None:
    """What is accepted changes the plan as the example says; what is refused is named."""
    assert fault(example) is None


def test_every_field_has_a_row_and_examples() -> None:
    """Each field of the contract is in the table, is accepted once and refused once."""
    assert set(FIELDS) == set(EXAMPLES) == set(CompletionV2Request.model_fields)
    assert [field for field, kinds in EXAMPLES.items() if not kinds["accepted"]] == []
    assert [field for field, kinds in EXAMPLES.items() if not kinds["refused"]] == []


@pytest.mark.parametrize(
    ("place", "kind"),
    [
        (Place.SAMPLING, SamplingFields),
        (Place.BEAMS, BeamSettings),
        (Place.ANSWER, AnswerShape),
    ],
)
def test_each_place_gets_all_it_has(place: Place, kind: type) -> None:
    """Every key of a place comes from a row, and no row has another."""
    keys = {t.key for field in FIELDS.values() for t in field.targets if t.place is place}
    assert keys == set(kind.__annotations__)


# --- what would be noticed ------------------------------------------------------------------------


def mutants(name: str) -> Iterator[tuple[str, Field]]:
    """A row of the table, each time with one thing wrong."""
    row = FIELDS[name]
    for index, target in enumerate(row.targets):
        others = row.targets[:index] + row.targets[index + 1 :]
        yield f"without {target.place.name.lower()} {target.key}", replace(row, targets=others)
    for index, check in enumerate(row.checks):
        before, after = row.checks[:index], row.checks[index + 1 :]
        yield f"without check {index}", replace(row, checks=before + after)
        for what, refusal in REFUSALS.items():
            changed = (*before, refusing_otherwise(check, refusal), *after)
            yield f"check {index} {what}", replace(row, checks=changed)


def refusing_otherwise(check: Check, refusal: Callable[[ApiError], ApiError]) -> Check:
    """The check, but for what it raises."""

    def mutant(request: CompletionV2Request, facts: ServerFacts) -> None:
        try:
            check(request, facts)
        except ApiError as error:
            raise refusal(error) from None

    return mutant


REFUSALS: dict[str, Callable[[ApiError], ApiError]] = {
    "names nothing": lambda error: type(error)(error.message, code=error.code),
    "says nothing": lambda error: type(error)("It is wrong.", param=error.param, code=error.code),
    "is another error": lambda error: ApiError(error.message, param=error.param),
}

MUTANTS = [
    pytest.param(name, row, id=f"{name} {what}") for name in FIELDS for what, row in mutants(name)
]


@pytest.mark.parametrize(("name", "row"), MUTANTS)
def test_a_changed_row_is_noticed(name: str, row: Field, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is taken from a row, or wrong in it, an example of that field fails."""
    monkeypatch.setattr(plan_module, "FIELDS", FIELDS | {name: row})
    examples = [example for kind in EXAMPLES[name].values() for example in kind]
    assert any(fails(example) for example in examples)


def fails(example: dict[str, Any]) -> bool:
    """Whether an example is not as it says; a plan that cannot be made is none."""
    try:
        return fault(example) is not None
    except (KeyError, TypeError):
        return True


@cache
def readme_rows() -> dict[str, str]:
    """What README says of each field."""
    lines = (Path(__file__).parents[2] / "README.md").read_text("utf-8").splitlines()
    rows = [line.split(" | ", 1) for line in lines if line.startswith("| `")]
    return {row[0].strip("| `"): row[1].removesuffix(" |") for row in rows if len(row) == 2}


@pytest.mark.parametrize("name", FIELDS)
def test_a_rows_words_are_readmes(name: str) -> None:
    """README says of each field what its row says."""
    assert readme_rows()[name] == FIELDS[name].words
