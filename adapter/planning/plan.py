"""From a request to its plan: every value checked, every field put where it goes.

Pure: no vLLM, no I/O. What happens to each field stands in fields.py.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from adapter.contract.request import CompletionV2Request
from adapter.errors import InvalidRequest
from adapter.guided.constraint import Constraint
from adapter.guided.program import Program
from adapter.planning.calls import EngineCall, SamplingFields, TokenIds, TokenizedPrompt, Work
from adapter.planning.facts import ServerFacts
from adapter.planning.fields import FIELDS, Place
from adapter.planning.infill import InfillPrompt
from adapter.planning.limits import refuse_tokens
from adapter.planning.modes import (
    Beams,
    BeamSettings,
    BestOf,
    Greedy,
    Mode,
    Nothing,
    OneBeam,
    Sample,
    Score,
)
from adapter.planning.values import CONSTRAINTS, prompt_name


@dataclass(frozen=True, slots=True)
class AnswerShape:
    """What all choices of an answer have in common."""

    echo: bool = False
    logprobs: bool = False
    skip_special_tokens: bool = True
    stop: tuple[str, ...] = ()
    stop_token_ids: frozenset[int] = frozenset()
    """The caller's own."""
    includes_stop: bool = False
    """The engine leaves stop strings and stop tokens in the text."""

    @property
    def keeps_stop_token(self) -> bool:
        """Whether a stop token has to be added: the contract keeps a plain one, and the engine
        leaves it out unless it is told to include stops."""
        return bool(self.stop_token_ids) and not self.includes_stop


Prompt = str | list[int] | InfillPrompt


@dataclass(frozen=True, slots=True)
class Plan:
    """A request whose values were checked, all but the length of its prompts."""

    model: str
    prompts: tuple[Prompt, ...]
    """Texts to be tokenised, or token ids; "" is the start of a new document."""
    echoes: tuple[str | None, ...]
    """What echo gives for each: the caller's text, None for token ids."""
    mode: Mode
    sampling: SamplingFields
    shape: AnswerShape
    max_tokens: int
    add_special_tokens: bool = True
    stream: bool = False
    include_usage: bool = False
    constraint: Constraint | None = None
    """What the text has to satisfy, yet to be compiled."""
    eos_last: bool = False
    """A constrained text ends only where it cannot go on (ignore_eos)."""
    adjusted: tuple[str, ...] = ()
    """Fields whose value vLLM cannot take exactly; the caller is told."""
    best_of: int = 1
    """As asked for, for the log."""
    user: str | None = None


_Parts = dict[Place, dict[str, Any]]


def plan(request: CompletionV2Request, facts: ServerFacts) -> Plan:
    """Check every field's value and lay out the work.

    Raises:
        InvalidRequest: a value that the contract or the model does not allow.
        NotSupported: a field that this server cannot honour.
    """
    for field in FIELDS.values():
        for check in field.checks:
            check(request, facts)
    parts = _parts(request, facts)
    constraint = _constraint(parts[Place.CONSTRAINT])
    sampling = cast(SamplingFields, parts[Place.SAMPLING])
    if constraint is not None:
        # A constrained text ends where the constraint does; see Guide.
        sampling.pop("ignore_eos", None)
    mode = _mode(parts)
    if isinstance(mode, BestOf):
        sampling.setdefault("logprobs", 0)  # for the engine's sum of log-probabilities
    rest = parts[Place.PLAN]
    prompts = rest.pop("prompts")
    suffix, temperature = rest.pop("suffix", None), rest.pop("temperature")
    adjusted = 0 < sampling["temperature"] != temperature and not isinstance(mode, Beams)
    return Plan(
        prompts=_rendered(prompts, suffix, facts, scored="prompt_logprobs" in sampling),
        echoes=tuple(prompt if isinstance(prompt, str) else None for prompt in prompts),
        mode=mode,
        sampling=sampling,
        shape=AnswerShape(**parts[Place.ANSWER]),
        constraint=constraint,
        adjusted=("temperature",) if adjusted else (),
        best_of=parts[Place.SEARCH].get("best_of", 1),
        **rest,
    )


def _parts(request: CompletionV2Request, facts: ServerFacts) -> _Parts:
    """The value of each target of each field; those that are None are left out."""
    parts: _Parts = {place: {} for place in Place}
    for field in FIELDS.values():
        for place, key, value in field.targets:
            if (given := value(request, facts)) is not None:
                parts[place][key] = given
    return parts


def _mode(parts: _Parts) -> Mode:
    search, sampling = parts[Place.SEARCH], parts[Place.SAMPLING]
    answers: int = search["answers"]
    best_of: int | None = search.get("best_of")
    if parts[Place.PLAN]["max_tokens"] == 0:
        return Score(answers) if "prompt_logprobs" in sampling else Nothing(answers)
    if search.get("beams"):
        settings = BeamSettings(**parts[Place.BEAMS])
        if settings.width > 1 or settings.repetition_penalty == 1:
            return Beams(answers, settings)
        # One beam is greedy search, where repetition_penalty changes logits; it makes a difference.
        sampling["temperature"] = 0.0
        return OneBeam(answers, answers)
    if sampling["temperature"] == 0:
        return Greedy(answers, best_of or answers)
    return Sample(answers) if best_of is None else BestOf(answers, best_of)


def _constraint(parts: dict[str, Any]) -> Constraint | None:
    for field in CONSTRAINTS:
        if field in parts:
            kind, text = parts[field]
            return Constraint(field, kind, text, parts["backend"], parts.get("whitespace"))
    return None


def _rendered(
    prompts: Sequence[str | list[int]], suffix: str | None, facts: ServerFacts, *, scored: bool
) -> tuple[Prompt, ...]:
    """The prompts, each with the suffix in the model's own form where there is one.

    scored: the caller wants to see what is its own among the model's tokens.
    """
    if suffix is None or facts.infill is None:
        return tuple(prompts)
    asked = [facts.infill.prompt(prompt, suffix) for prompt in prompts]
    return tuple(each if scored or each.text is None else each.text for each in asked)


def engine_calls(
    plan: Plan, token_ids: Sequence[TokenIds], program: Program | None = None
) -> tuple[EngineCall, ...]:
    """One call a prompt, given the token ids of each, and what the constraint became."""
    if program is not None:
        program = replace(program, eos_last=plan.eos_last) if plan.mode.generates else None
    work = Work(plan.mode, plan.sampling, program)
    return tuple(
        EngineCall(TokenizedPrompt(echo, *ids), work)
        for echo, ids in zip(plan.echoes, token_ids, strict=True)
    )


class PromptLengths:
    """Refuses what is too long, as soon as that is known: called with each prompt's length."""

    def __init__(self, plan: Plan, facts: ServerFacts) -> None:
        self._plan = plan
        self._facts = facts
        self._known: dict[int, int] = {}
        self._total = 0

    def __call__(self, index: int, tokens: int) -> None:
        """Take the length of a prompt, or of a part of it, which a later one replaces.

        Raises:
            InvalidRequest: it does not fit the context, or all are too many together.
        """
        check_length(self._plan, index, tokens, self._facts)
        self._total += tokens - self._known.get(index, 0)
        self._known[index] = tokens
        refuse_tokens(self._total, self._facts)


def check_length(plan: Plan, index: int, prompt_tokens: int, facts: ServerFacts) -> None:
    """Refuse a prompt and max_tokens that do not fit the model's context together.

    Raises:
        InvalidRequest: with the counts and the limit.
    """
    max_model_len = facts.max_model_len
    # Where a prompt is scored vLLM makes a token that nobody asked for; see engine.whole_context.
    made = isinstance(plan.mode, Score) and not facts.scores_chosen_tokens
    needed = prompt_tokens + max(plan.max_tokens, int(made))
    if needed <= max_model_len:
        return
    name = prompt_name(index, len(plan.prompts))
    counts = (
        f"The model's context length is {max_model_len} tokens; {name} has {prompt_tokens} tokens "
        f"and max_tokens asks for {plan.max_tokens}"
    )
    if prompt_tokens >= max_model_len:
        raise InvalidRequest(
            f"{counts}. Shorten the prompt.", param=name, code="context_length_exceeded"
        )
    raise InvalidRequest(
        f"{counts}. Lower max_tokens or shorten the prompt.",
        param="max_tokens",
        code="context_length_exceeded",
    )
