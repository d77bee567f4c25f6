"""Plans as plain data, so that examples of them can stand in a file."""

import dataclasses
import json
from dataclasses import replace
from enum import Enum
from typing import Any

from adapter.contract.parsing import parse_request
from adapter.planning.facts import ServerFacts
from adapter.planning.infill import Infill, InfillPrompt
from adapter.planning.plan import Plan, plan

FACTS = ServerFacts(
    max_model_len=32,
    vocab_size=100,
    max_prompt_token_id=102,
    document_separator=0,
    max_choices=256,
    max_logprobs=20,
    eos_token_ids=frozenset({2}),
)
INFILL = replace(FACTS, infill=Infill("<p>{prefix}<s>{suffix}<m>"), infill_end_ids=frozenset({50}))


def facts_with(changes: dict[str, Any]) -> ServerFacts:
    """FACTS with changes; "infill": true is a model that can fill gaps."""
    changes = dict(changes)
    base = INFILL if changes.pop("infill", False) else FACTS
    return replace(base, **changes)


def planned(facts: ServerFacts, **fields: Any) -> Plan:
    """The plan of a body."""
    return plan(parse_request(json.dumps({"model": "m", "prompt": "x"} | fields).encode()), facts)


def flat(value: Any, path: str = "") -> dict[str, Any]:
    """The leaves of a plan by their paths; lists, sets and what has no fields are leaves."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        leaves = {} if path != "mode" else {path: type(value).__name__}
        for field in dataclasses.fields(value):
            inner = f"{path}.{field.name}" if path else field.name
            leaves |= flat(getattr(value, field.name), inner)
        return leaves
    if path == "sampling":
        return {f"{path}.{key}": _plain(item) for key, item in value.items()}
    return {path: _plain(value)}


def _plain(value: Any) -> Any:
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, frozenset):
        return sorted(value)
    if isinstance(value, InfillPrompt):
        return [value.before, value.prefix, value.after]
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {str(key): item for key, item in value.items()}
    return value


def changes(before: Plan, after: Plan) -> dict[str, Any]:
    """What differs in a plan, by path; null is for what is gone."""
    old, new = flat(before), flat(after)
    return {
        path: new.get(path)
        for path in sorted(old | new)
        if old.get(path, _ABSENT) != new.get(path, _ABSENT)
    }


_ABSENT = object()
