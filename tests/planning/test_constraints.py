"""From the fields of a request to its one constraint."""

import json
from dataclasses import replace
from itertools import permutations
from typing import Any

import pytest

from adapter.contract.parsing import parse_request
from adapter.contract.request import CompletionV2Request
from adapter.errors import InvalidRequest, NotSupported
from adapter.guided.constraint import AUTO, BACKENDS, MAX_TEXT, Constraint, Kind
from adapter.languages.exact_json import loads_decimals
from adapter.planning.modes import Beams
from adapter.planning.plan import plan
from tests.planning.plans import FACTS, planned


def request(**fields: Any) -> CompletionV2Request:
    return CompletionV2Request.model_validate({"model": "m", "prompt": "p"} | fields)


def constraint(default: str = AUTO, /, **fields: Any) -> Constraint | None:
    facts = replace(FACTS, guided_backend=default)
    return plan(request(**fields), facts).constraint


def refusal(default: str = AUTO, /, **fields: Any) -> InvalidRequest:
    """Why a request is refused."""
    with pytest.raises(InvalidRequest) as caught:
        constraint(default, **fields)
    return caught.value


OBJECT = '{"type": "object"}'
SCHEMA: dict[str, Any] = {"type": "array", "items": {"enum": ["é", None]}}


def json_schema(**fields: Any) -> dict[str, Any]:
    return {"response_format": {"type": "json_schema", "json_schema": {"name": "n"} | fields}}


@pytest.mark.parametrize(
    ("fields", "field", "kind", "text"),
    [
        ({"guided_json": SCHEMA}, "guided_json", Kind.JSON, json.dumps(SCHEMA)),
        ({"guided_json": {}}, "guided_json", Kind.JSON, "{}"),
        ({"guided_regex": "a|b"}, "guided_regex", Kind.REGEX, "a|b"),
        ({"guided_regex": ""}, "guided_regex", Kind.REGEX, ""),
        ({"guided_choice": ["b", "", "a"]}, "guided_choice", Kind.CHOICE, '["b", "", "a"]'),
        ({"guided_grammar": "start: A"}, "guided_grammar", Kind.GRAMMAR, "start: A"),
        (
            {"response_format": {"type": "json_object"}},
            "response_format",
            Kind.JSON_OBJECT,
            OBJECT,
        ),
        (json_schema(schema=SCHEMA), "response_format", Kind.JSON, json.dumps(SCHEMA)),
        (json_schema(schema={}), "response_format", Kind.JSON, "{}"),
        (json_schema(), "response_format", Kind.JSON_OBJECT, OBJECT),
    ],
)
def test_constraint_of_a_field(fields: dict[str, Any], field: str, kind: Kind, text: str) -> None:
    """Each field that constrains gives its kind of constraint, held by the server's default."""
    assert constraint("xgrammar", **fields) == Constraint(field, kind, text, "xgrammar")


@pytest.mark.parametrize(
    "fields",
    [
        {},
        dict.fromkeys(
            (
                "guided_json",
                "guided_regex",
                "guided_choice",
                "guided_grammar",
                "response_format",
                "guided_decoding_backend",
                "guided_whitespace_pattern",
            )
        ),
        {"response_format": {"type": "text"}},
        {"guided_decoding_backend": "outlines"},
    ],
    ids=["none", "nulls", "text", "backend alone"],
)
def test_no_constraint(fields: dict[str, Any]) -> None:
    """A field that is null is absent, and `text` asks for nothing."""
    assert constraint(**fields) is None


def test_nulls_beside_a_constraint() -> None:
    """Fields that are null do not count as second constraints."""
    asked = constraint(guided_regex="a", guided_json=None, response_format={"type": "text"})
    assert asked == constraint(guided_regex="a")


# --- refused ------------------------------------------------------------------------------------

GIVEN: dict[str, Any] = {
    "guided_json": {},
    "guided_regex": "a",
    "guided_choice": ["a"],
    "guided_grammar": "start: A",
    "response_format": {"type": "json_object"},
}


@pytest.mark.parametrize(("first", "second"), [*permutations(GIVEN, 2)])
def test_two_constraints(first: str, second: str) -> None:
    """Two constraints are refused, and both are named."""
    error = refusal(**{first: GIVEN[first], second: GIVEN[second]})
    assert first in error.message
    assert second in error.message
    assert error.param in (first, second)


@pytest.mark.parametrize("backend", [*BACKENDS, None])
def test_backend_of_the_request(backend: str | None) -> None:
    """The backend is the one that the request names, else the server's."""
    asked = constraint("outlines", guided_regex="a", guided_decoding_backend=backend)
    assert asked is not None
    assert asked.backend == (backend or "outlines")


@pytest.mark.parametrize("backend", ["", "Outlines", "lm_format_enforcer", "x" * 9999])
@pytest.mark.parametrize("fields", [{}, {"guided_regex": "a"}], ids=["alone", "in use"])
def test_unknown_backend(fields: dict[str, Any], backend: str) -> None:
    """An unknown backend is refused with those that there are, also where it has nothing to do."""
    error = refusal(**fields, guided_decoding_backend=backend)
    assert error.param == "guided_decoding_backend"
    assert all(name in error.message for name in BACKENDS)
    assert len(error.message) < 400


def test_no_choices() -> None:
    """An empty list of choices is refused: no text is one of them."""
    assert refusal(guided_choice=[]).param == "guided_choice"


@pytest.mark.parametrize("field", ["guided_json", "response_format"])
def test_whitespace_pattern_of_json(field: str) -> None:
    """A JSON constraint takes the pattern for its whitespace, the empty one too."""
    for pattern in ("", "[ ]?"):
        asked = constraint(**{field: GIVEN[field]}, guided_whitespace_pattern=pattern)
        assert asked is not None
        assert asked.whitespace == pattern


@pytest.mark.parametrize("field", ["guided_regex", "guided_choice", "guided_grammar", None])
def test_whitespace_pattern_without_json(field: str | None) -> None:
    """Without JSON a whitespace pattern would do nothing: it is refused."""
    error = refusal(**({field: GIVEN[field]} if field else {}), guided_whitespace_pattern="")
    assert isinstance(error, NotSupported)
    assert error.param == "guided_whitespace_pattern"
    assert (field or "there is none") in error.message


@pytest.mark.parametrize("field", GIVEN)
def test_beams(field: str) -> None:
    """Beams are constrained like other texts, unless the engine cannot tell their own scores."""
    made = planned(FACTS, **{field: GIVEN[field]}, use_beam_search=True, ignore_eos=True)
    assert made.constraint is not None
    assert isinstance(made.mode, Beams)
    assert made.mode.search.eos_token_ids == FACTS.eos_token_ids
    facts = replace(FACTS, scores_chosen_tokens=False)
    with pytest.raises(NotSupported) as caught:
        planned(facts, **{field: GIVEN[field]}, use_beam_search=True)
    error = caught.value
    assert error.param == field
    assert "use_beam_search" in error.message


def test_grammars_of_lm_format_enforcer() -> None:
    """lm-format-enforcer has no grammars, and the refusal names who has; it has all the rest."""
    for named in ({}, {"guided_decoding_backend": "lm-format-enforcer"}):
        error = refusal("lm-format-enforcer", **named, guided_grammar="start: A")
        assert isinstance(error, NotSupported)
        assert error.param == "guided_decoding_backend"
        assert "guidance, xgrammar or outlines" in error.message
    for field in GIVEN.keys() - {"guided_grammar"}:
        assert constraint("lm-format-enforcer", **{field: GIVEN[field]}) is not None


# --- texts --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"guided_regex": "a\0"}, "guided_regex"),
        ({"guided_grammar": 'start: "\0"'}, "guided_grammar"),
    ],
)
def test_nul_is_refused(fields: dict[str, Any], field: str) -> None:
    """A NUL, which would end the text inside a library, is refused in a pattern and a grammar."""
    error = refusal(**fields)
    assert error.param == field
    assert "NUL" in error.message


@pytest.mark.parametrize(
    "fields",
    [
        {"guided_regex": r"[^\u0000-\u001f]"},
        {"guided_json": {"pattern": r"[^\u0000-\u001f]"}},
        {"guided_json": {"pattern": r"[^\\\u0000]"}},
        {"guided_json": {"const": "\0"}},
        {"guided_json": {"properties": {"a\0": {}}}},
        json_schema(schema={"const": "\0"}),
        {"guided_choice": [r"\u0000", r"\\u0000"]},
        {"guided_grammar": r"start: /[^\u0000]/"},
    ],
    ids=str,
)
def test_name_of_nul_is_no_nul(fields: dict[str, Any]) -> None:
    r"""A text that spells \u0000, as a pattern and the JSON of a schema do, holds no NUL."""
    assert constraint(**fields) is not None


@pytest.mark.parametrize(
    ("field", "make"),
    [
        ("guided_regex", lambda size: "a" * size),
        ("guided_grammar", lambda size: "a" * size),
        ("guided_choice", lambda size: ["a" * (size - 4)]),
        ("guided_json", lambda size: {"a": "b" * (size - 9)}),
    ],
    ids=["regex", "grammar", "choice", "json"],
)
def test_size_is_bounded(field: str, make: Any) -> None:
    """A constraint may have a MiB of text; a larger one is refused with its size."""
    asked = constraint(**{field: make(MAX_TEXT)})
    assert asked is not None
    assert len(asked.text) == MAX_TEXT
    error = refusal(**{field: make(MAX_TEXT + 1)})
    assert error.param == field
    assert str(MAX_TEXT + 1) in error.message
    assert len(error.message) < 200


LONG_NUMBERS = (
    '{"enum": [1.00000000000000000001, 9007199254740993, 1E+400, 0.1, 123456789012345678.5]}'
)


@pytest.mark.parametrize(
    "schema",
    [
        LONG_NUMBERS,
        *(
            f'{{"maximum": {number}}}'
            for number in (
                "1.000000000000001",
                "9007199254740.007",
                "0.1234567890123456",
                "123456789012345678.5",
                "-1E+400",
                "1E-400",
                "1.5E-320",
                "1E+308",
            )
        ),
    ],
)
@pytest.mark.parametrize("field", ["guided_json", "response_format"])
def test_numbers_of_a_schema_are_what_was_written(field: str, schema: str) -> None:
    """However many digits they have: no float comes between the body and the constraint."""
    given = schema
    if field == "response_format":
        given = f'{{"type": "json_schema", "json_schema": {{"name": "n", "schema": {given}}}}}'
    body = f'{{"model": "m", "prompt": "x", "{field}": {given}}}'
    asked = plan(parse_request(body.encode()), FACTS).constraint
    assert asked is not None
    assert loads_decimals(asked.text) == loads_decimals(schema)
