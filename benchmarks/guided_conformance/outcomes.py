"""What became of a schema with a backend."""

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from adapter.guided.compile.validation import text_fault
from adapter.languages.json_schema.documents import Documents, documents_in
from benchmarks.guided_conformance.cases import Task
from benchmarks.schema_sets import suite_documents


@dataclass(slots=True)
class Outcome:
    """What became of one schema with one backend."""

    set: str
    id: str
    keyword: str
    remote: bool
    backend: str
    verdict: str = "served"
    """exact, over or under; served where there are no instances; refused; failed (no answer)."""
    reason: str = ""
    """Why it was refused or failed."""
    has_instances: bool = False
    too_slow: bool = False
    """Refused because of the time limit."""
    unsatisfiable: bool = False
    """Refused since it has no value."""
    crashed: bool = False
    """Refused because the process that compiled it ended."""
    checked: bool = False
    """Finished texts are validated."""
    admission_ms: float = 0.0
    rejected: list[str] = field(default_factory=list)
    """Valid instances that did not get through."""
    under: list[str] = field(default_factory=list)
    """Invalid instances that did, and ends allowed on what is not valid."""
    forbidden: int = 0
    """Invalid instances, those by a `format` alone left out."""
    caught: list[str] = field(default_factory=list)
    """Texts that no mask stopped: only the validation of finished texts did."""
    by_format: int = 0
    """Instances that a `format` alone makes invalid, and how many of them got through."""
    by_format_accepted: int = 0
    draws: Counter[str] = field(default_factory=Counter)
    """finished, wrong, not_json, repeated, caught, unfinished, dead."""
    wrong: list[str] = field(default_factory=list)
    """Finished draws that break the schema, or have a name twice in an object."""
    dead: list[str] = field(default_factory=list)
    """Texts that no token could continue, and draws that came to no end."""
    unjudged: list[str] = field(default_factory=list)
    """Why texts could not be validated."""
    fill_us: list[float] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def served(self) -> bool:
        """Whether the backend took the schema."""
        return self.verdict not in ("refused", "failed")

    @property
    def forbids(self) -> bool:
        """Whether there are instances that it must not let through."""
        return self.forbidden > 0

    @property
    def held(self) -> bool:
        """Whether the masks stopped every forbidden text before its end, walked or drawn."""
        return self.served and not (self.under or self.caught or self.wrong)

    def record(self) -> dict[str, Any]:
        """As JSON, of the times the greatest alone."""
        fields = {name: getattr(self, name) for name in self.__slots__}
        del fields["fill_us"]
        fields["draws"] = dict(self.draws)
        fields["fills"] = len(self.fill_us)
        fields["fill_max_us"] = max(self.fill_us, default=0)
        return fields

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> "Outcome":
        """What record wrote; it has no times."""
        fields = {name: record[name] for name in cls.__slots__ if name in record}
        return cls(**fields | {"draws": Counter(record["draws"])})


def verdict(outcome: Outcome) -> str:
    """The verdict on a compiled schema."""
    if outcome.under:
        return "under"
    if not outcome.has_instances:
        return "served"
    return "over" if outcome.rejected else "exact"


class Unjudged(Exception):
    """The validator failed on a text."""


def fault_of(schema: Any, text: bytes) -> str | None:
    """Why a text is not what the schema asks for, None where it is.

    Raises:
        Unjudged: the validator itself failed.
    """
    try:
        decoded = text.decode()
    except UnicodeDecodeError as error:
        return f"not UTF-8: {error}"
    try:
        return text_fault(json.dumps(schema), decoded, _documents())
    except Exception as error:
        raise Unjudged(f"{type(error).__name__}: {error}") from error


@cache
def _documents() -> Documents:
    return documents_in(suite_documents())


def repeats_a_name(text: bytes) -> bool:
    """Whether an object of a JSON text has a name twice: readers differ on what it then says."""
    repeated = False

    def look(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        nonlocal repeated
        found = dict(pairs)
        repeated |= len(found) < len(pairs)
        return found

    try:
        json.loads(text, object_pairs_hook=look)
    except (ValueError, RecursionError):
        return False
    return repeated


def is_json(text: bytes) -> bool:
    """Whether a text is JSON."""
    try:
        json.loads(text.decode())
    except (ValueError, RecursionError):
        return False
    return True


def failed(task: Task, reason: str) -> Outcome:
    """The outcome of a task that gave none."""
    case = task.case
    outcome = Outcome(case.set, case.id, case.keyword, case.remote, task.backend)
    outcome.verdict = "failed"
    outcome.reason = short(reason)
    outcome.has_instances = bool(case.tests)
    return outcome


def short(text: str, length: int = 160) -> str:
    """The beginning of a text."""
    return text if len(text) <= length else text[: length - 3] + "..."
