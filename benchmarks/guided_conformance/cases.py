"""The schemas that are judged, and what is known of them."""

import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

SETS = {"bench": "real", "suite": "suite"}
"""The files, and what they are called in the figures."""


class Case(NamedTuple):
    """A schema and what is known of it."""

    set: str
    id: str
    schema: Any
    tests: list[dict[str, Any]]
    """Each with data, valid, and format where a `format` alone makes it invalid."""
    keyword: str
    remote: bool = False
    """It needs documents from a server, or the test suite says so."""


class Task(NamedTuple):
    """What a worker does at once."""

    case: Case
    backend: str
    seed: int


def read_cases(path: Path, name: str) -> list[Case]:
    """The cases of a file, one JSON object a line."""
    with path.open(encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines]
    return [
        Case(
            name,
            row["id"],
            row["schema"],
            row.get("tests", []),
            row.get("keyword", ""),
            "remote" in row,
        )
        for row in rows
    ]


def sample(cases: Sequence[Case], limit: int | None, seed: int) -> list[Case]:
    """So many cases from all over the list, in its order."""
    if limit is None or limit >= len(cases):
        return list(cases)
    places = random.Random(seed).sample(range(len(cases)), limit)
    return [cases[place] for place in sorted(places)]
