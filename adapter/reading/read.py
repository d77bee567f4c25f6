"""What a body asks for, read in one go: parsed, and checked field by field. Pure."""

from dataclasses import dataclass

from adapter.contract.parsing import parse_request
from adapter.contract.request import CompletionV2Request, unknown_fields
from adapter.errors import InvalidRequest
from adapter.planning.facts import ServerFacts
from adapter.planning.plan import Plan, plan

MAX_UNKNOWN = 10_000
"""Fields of one body that the contract does not know."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What is known of a request whose body keeps the contract's form."""

    model: str
    user: str | None
    n: int
    best_of: int
    unknown: tuple[str, ...]
    """The paths of the fields that the contract does not know; of their values nothing is kept."""
    outcome: Plan | InvalidRequest
    """The plan, or why there is none."""

    def plan(self) -> Plan:
        """The plan.

        Raises:
            InvalidRequest: a field asks for what no server can do, or this one cannot.
        """
        if isinstance(self.outcome, InvalidRequest):
            raise self.outcome
        return self.outcome


def read(body: bytes, facts: ServerFacts) -> Reading:
    """Read a body.

    Raises:
        InvalidRequest: it breaks the contract's form.
    """
    request = parse_request(body)
    unknown = tuple(unknown_fields(request))
    if len(unknown) > MAX_UNKNOWN:
        raise InvalidRequest(
            f"The body has {len(unknown)} fields that the contract does not know, and "
            f"{MAX_UNKNOWN} are allowed.",
            param=unknown[0][:200],
            code="too_many_fields",
        )
    return Reading(
        request.model,
        request.user,
        request.n,
        request.best_of,
        unknown,
        _outcome(request, facts),
    )


def _outcome(request: CompletionV2Request, facts: ServerFacts) -> Plan | InvalidRequest:
    try:
        return plan(request, facts)
    except InvalidRequest as refused:
        return refused.with_traceback(None)
