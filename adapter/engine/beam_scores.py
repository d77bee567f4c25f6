"""What may come next in the beams of a search, asked of the engine.

Where nothing changes scores it is the engine's best tokens. A constraint is a mask that the engine
lays over the logits before it reports log-probabilities, so of what is allowed it reports those of
a distribution without the rest: all of them too high by one number, which any token tells whose own
log-probability is known. So does a group of tokens that the penalties or logit_bias may bring among
the best, though the model's own best are others.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from adapter.engine.beam_search import Beam, Continuation, Continuations, best_tokens
from adapter.engine.questions import Ask, Question, last_updates
from adapter.engine.score_changes import BeamChanges, Group, ScoreChanges
from adapter.engine.updates import LogprobTable, PromptUpdate, finish_reason_of
from adapter.guided.engine_side.backends import structured_outputs
from adapter.guided.program import Focus, Program
from adapter.planning.calls import EngineCall, SamplingFields
from adapter.planning.modes import Beams
from adapter.vllm_api import RequestOutputKind, SamplingParams, StructuredOutputsParams

# More scores than a step needs, so that penalties rarely ask for more.
_SPARE = 64


@dataclass(frozen=True, slots=True)
class _Wanted:
    """The scores of the next token of a beam."""

    beam: Beam
    count: int
    """Of so many of the best tokens."""
    constrained: bool = False
    """Only of those that the constraint allows."""
    group: Group | None = None
    """Only of those of a group; all of them are allowed where there is no constraint."""
    token_id: int | None = None
    """The one token that the engine may choose."""

    @property
    def masked(self) -> bool:
        return self.constrained or self.group is not None


@dataclass(slots=True)
class _Known:
    """What is known of the next token of a beam."""

    beam: Beam
    changes: BeamChanges
    table: LogprobTable
    own: dict[int, float]
    """Log-probabilities, also of tokens that are not allowed."""
    allowed: dict[int, float] = field(default_factory=dict)
    others: float = -math.inf
    """No other token that is allowed has a greater log-probability."""


class BeamScorer:
    """Asks the engine for one prompt's search."""

    def __init__(self, call: EngineCall, name: str, ask: Ask, most: int) -> None:
        """name: what the engine's requests are called, with numbers behind it. most: scores that
        the engine gives at a position."""
        assert isinstance(call.work.mode, Beams)
        settings = call.work.mode.search
        self.prompt_logprobs: LogprobTable | None = None
        self._prompt = call.prompt.token_ids
        self._shown = call.work.sampling.get("prompt_logprobs")
        self._program = None if call.work.program is None else call.work.program.dumps()
        self._changes = ScoreChanges(settings, self._prompt)
        self._needed = min(settings.entries_needed, most)
        self._most = most
        self._name = name
        self._ask = ask
        self._rounds = 0

    async def following(self, beams: Sequence[Beam]) -> list[Continuations]:
        """What may follow each beam.

        Raises:
            ApiError: the engine failed, stopped or gave it up.
        """
        known = await self._first(beams)
        wanted = [
            (each, _Wanted(each.beam, group.most, self._program is not None, group))
            for each in known
            for group in each.changes.doubtful(each.allowed, each.others, self._needed, self._most)
        ]
        if wanted:
            tables = await self._asked([want for _, want in wanted])
            owners = [each for each, _ in wanted]
            found = await self._own_scores(list(zip(owners, tables, strict=True)))
            for each, scores in zip(owners, found, strict=True):
                each.allowed |= scores
        return [
            Continuations(
                [Continuation(*best) for best in each.changes.best(each.allowed, self._needed)],
                each.table,
            )
            for each in known
        ]

    async def _first(self, beams: Sequence[Beam]) -> list[_Known]:
        """The model's own best tokens of each beam, and the best of those that are allowed."""
        constrained = self._program is not None
        changes = [self._changes.after(beam.token_ids) for beam in beams]
        counts = [self._count(each) for each in changes]
        firsts = [
            _Wanted(*each, constrained=constrained) for each in zip(beams, counts, strict=True)
        ]
        own = [_Wanted(beam, self._needed) for beam in beams] if constrained else firsts
        tables = await self._asked([*own, *firsts] if constrained else own)
        known = [
            _Known(beam, change, table, dict(best_tokens(table)))
            for beam, change, table in zip(beams, changes, tables[: len(beams)], strict=True)
        ]
        if constrained:
            masked = list(zip(known, tables[len(beams) :], strict=True))
            found = await self._own_scores(masked)
        else:
            found = [each.own for each in known]
        for each, count, scores in zip(known, counts, found, strict=True):
            each.allowed = scores
            each.others = _others(scores, count)
        return known

    def _count(self, changes: BeamChanges) -> int:
        """How many scores to ask for first, so that the best are hardly ever beyond them."""
        return min(self._most, self._needed + min(len(changes.changed), _SPARE))

    async def _own_scores(
        self, masked: Sequence[tuple[_Known, LogprobTable]]
    ) -> list[dict[int, float]]:
        """The model's own scores of the tokens in tables that were made under masks."""
        scores = [_allowed(table) for _, table in masked]
        shared = [
            next((each for each in under if each in known.own), None)
            for (known, _), under in zip(masked, scores, strict=True)
        ]
        asked = [
            (known, next(iter(under)))
            for (known, _), under, token_id in zip(masked, scores, shared, strict=True)
            if under and token_id is None
        ]
        if asked:
            tables = await self._asked(
                [_Wanted(known.beam, 0, token_id=token_id) for known, token_id in asked]
            )
            for (known, token_id), table in zip(asked, tables, strict=True):
                assert table.token_ids[0] == token_id
                known.own[token_id] = table.logprobs[0]
        return [
            _shifted(under, known.own) for (known, _), under in zip(masked, scores, strict=True)
        ]

    async def _asked(self, wanted: Sequence[_Wanted]) -> list[LogprobTable]:
        """One round of questions: the table of each."""
        first = self._rounds == 0
        questions = [
            Question(
                f"{self._name}-{self._rounds}-{position}",
                [*self._prompt, *want.beam.token_ids],
                self._params(want, scores_prompt=first and position == 0),
            )
            for position, want in enumerate(wanted)
        ]
        updates = await last_updates(self._ask, questions)
        if first:
            self.prompt_logprobs = updates[0].prompt_logprobs
        self._rounds += 1
        return [_table(update) for update in updates]

    def _params(self, want: _Wanted, *, scores_prompt: bool) -> SamplingParams:
        fields = SamplingFields(temperature=0, max_tokens=1, logprobs=want.count)
        if scores_prompt and self._shown is not None:
            fields["prompt_logprobs"] = self._shown
        return SamplingParams(
            **fields,
            allowed_token_ids=None if want.token_id is None else [want.token_id],
            structured_outputs=self._mask(want) if want.masked else None,
            detokenize=False,
            output_kind=RequestOutputKind.FINAL_ONLY,
            flat_logprobs=True,
            skip_clone=True,
        )

    def _mask(self, want: _Wanted) -> StructuredOutputsParams:
        group = want.group
        focus = Focus() if group is None else _focus(group)
        if want.constrained:
            focus = replace(focus, begun=want.beam.token_ids)
        return structured_outputs(focus.before(self._program or _ANYTHING))


_ANYTHING = Program(parts=()).dumps()


def _focus(group: Group) -> Focus:
    among = None if group.among is None else tuple(sorted(group.among))
    return Focus(among=among, but=tuple(sorted(group.but)))


def _others(scores: Mapping[int, float], count: int) -> float:
    """What no token beside the `count` best has more than."""
    return min(scores.values()) if len(scores) >= count else -math.inf


def _allowed(table: LogprobTable) -> dict[int, float]:
    """The tokens that a mask left, the best first; of a group of which a constraint allows none,
    the others that it allows."""
    return {token_id: logprob for token_id, logprob in best_tokens(table) if logprob > -math.inf}


def _shifted(under: Mapping[int, float], own: Mapping[int, float]) -> dict[int, float]:
    """Log-probabilities without the mask, where `own` has that of one of the tokens at least."""
    shift = next((own[each] - score for each, score in under.items() if each in own), 0.0)
    return {each: own.get(each, score + shift) for each, score in under.items()}


def _table(update: PromptUpdate) -> LogprobTable:
    """The table of the one token that a call made.

    Raises:
        ApiError: the engine stopped the call or gave it up.
    """
    (candidate,) = update.outputs
    finish_reason_of(candidate.finish_reason or "length")
    assert candidate.logprobs is not None
    return candidate.logprobs
