"""Faults that people reported of guided decoding, as rows: what holds, and what must not come."""

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

import pytest

from adapter.guided.backends.registry import Libraries
from adapter.guided.compile.compiler import ConstraintCompiler, Refused
from adapter.guided.constraint import BACKENDS, LM_FORMAT_ENFORCER, Constraint, Kind
from tests.guided.texts import ids, takes


class Row(NamedTuple):
    """One constraint."""

    what: str
    constraint: Any
    """A schema, or the text of a pattern or grammar."""
    good: Sequence[str]
    bad: Sequence[str] = ()
    whitespace: str | None = None
    kind: Kind = Kind.JSON

    @property
    def text(self) -> str:
        """As a request carries it."""
        plain = self.kind in (Kind.REGEX, Kind.GRAMMAR)
        text: str = self.constraint if plain else json.dumps(self.constraint)
        return text


def pairs(rows: Sequence[Row]) -> list[Any]:
    """Each row with each backend that has its kind."""
    return [
        pytest.param(row, backend, id=f"{row.what}-{backend}")
        for row in rows
        for backend in BACKENDS
        if row.kind is not Kind.GRAMMAR or backend != LM_FORMAT_ENFORCER
    ]


def check(libraries: Libraries, compiler: ConstraintCompiler, row: Row, backend: str) -> None:
    """auto takes all good texts; no backend that takes the constraint takes a bad one.

    A named backend may be narrower, or refuse; what it refuses is said in words.
    """
    constraint = Constraint("the field", row.kind, row.text, backend, row.whitespace)
    message = is_refused(compiler, row.kind, row.text, backend, row.whitespace)
    if message:
        assert backend != "auto", message
        assert "the field" in message or "guided_whitespace_pattern" in message
        return
    compiled = compiler.compile(constraint, relaxed=True)
    makers = [libraries.compile(part) for part in compiled.program.parts]

    def taken(text: str) -> bool:
        guide = libraries.guide(compiled.program, makers)
        return takes(guide, ids(text), exact=False)

    assert not compiled.checked, "held by the masks, not by a check"
    found = {text: taken(text) for text in (*row.good, *row.bad)}
    assert [text for text in row.bad if found[text]] == []
    if backend == "auto":
        assert [text for text in row.good if not found[text]] == []


def is_refused(
    compiler: ConstraintCompiler,
    kind: Kind,
    text: str,
    backend: str,
    whitespace: str | None = None,
) -> str:
    """The message of a refusal; empty where there is none."""
    try:
        compiler.compile(Constraint("the field", kind, text, backend, whitespace), relaxed=True)
    except Refused as refused:
        return refused.message
    return ""
