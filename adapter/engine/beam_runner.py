"""Runs a beam search on the engine: a scoring call for each beam and step, then the finished texts.

One call makes one token of one beam, so all calls of a step are sent together and share the
engine's steps. The engine's prefix cache, where it is on, keeps what the beams have in common.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import NamedTuple

from adapter.engine.beam_search import BeamSearch, Finished, best_tokens
from adapter.engine.detokenizer import CONTEXT, REPLACEMENT, Tokens
from adapter.engine.output_reader import OutputReader
from adapter.engine.updates import (
    CandidateUpdate,
    LogprobTable,
    PromptUpdate,
    Table,
    finish_reason_of,
)
from adapter.planning.calls import EngineCall, SamplingFields
from adapter.planning.modes import Beams
from adapter.vllm_api import RequestOutputKind, SamplingParams


class Question(NamedTuple):
    """What one call asks of the engine."""

    request_id: str
    token_ids: list[int]
    params: SamplingParams


Ask = Callable[[Sequence[Question]], AbstractAsyncContextManager[OutputReader]]
"""Gives questions to the engine; leaving the context aborts what is not finished."""


@dataclass(slots=True)
class BeamAnswer:
    """One finished beam; a CandidateUpdate."""

    index: int
    text: str
    token_ids: Sequence[int]
    logprobs: LogprobTable | None
    finish_reason: str | None
    stop_reason: int | str | None
    cumulative_logprob: float | None


@dataclass(slots=True)
class BeamUpdate:
    """All finished beams of a prompt, best first; a PromptUpdate."""

    prompt_logprobs: LogprobTable | None
    outputs: Sequence[CandidateUpdate]
    finished: bool = True


async def run_beam_search(call: EngineCall, name: str, ask: Ask, tokens: Tokens) -> PromptUpdate:
    """The answers of a call that is a beam search. Cancelling aborts the running calls.

    name: what the engine's requests are called, with a number behind it.

    Raises:
        ApiError: the engine failed, stopped or gave it up.
    """
    mode = call.work.mode
    assert isinstance(mode, Beams)
    settings = mode.search
    prompt = call.prompt.token_ids
    skips = call.work.sampling.get("skip_special_tokens", True)
    search = BeamSearch(
        settings, lambda ids: tokens.text_after(call.prompt, ids, skip_special_tokens=skips)
    )
    fields = SamplingFields(logprobs=settings.entries_needed)
    first_fields = fields.copy()
    if "prompt_logprobs" in call.work.sampling:
        first_fields["prompt_logprobs"] = call.work.sampling["prompt_logprobs"]
    scored = await _score([prompt], first_fields, f"{name}-0", ask)
    prompt_logprobs = scored[0].prompt_logprobs
    search.advance([_scores(update) for update in scored])
    step = 1
    while not search.done:
        sequences = [[*prompt, *beam.token_ids] for beam in search.running]
        scored = await _score(sequences, fields, f"{name}-{step}", ask)
        search.advance([_scores(update) for update in scored])
        step += 1
    answers = [
        _answer(index, call, finished, settings.logprobs, tokens)
        if index < mode.answers
        else _counted(index, finished)
        for index, finished in enumerate(search.finished())
    ]
    return BeamUpdate(prompt_logprobs, answers)


async def _score(
    sequences: Sequence[list[int]], fields: SamplingFields, name: str, ask: Ask
) -> list[PromptUpdate]:
    """The scores of the next token after each sequence."""
    questions = [
        Question(
            f"{name}-{position}",
            token_ids,
            SamplingParams(
                **fields,
                temperature=0,
                max_tokens=1,
                detokenize=False,
                output_kind=RequestOutputKind.FINAL_ONLY,
                flat_logprobs=True,
                skip_clone=True,
            ),
        )
        for position, token_ids in enumerate(sequences)
    ]
    scored: dict[int, PromptUpdate] = {}
    async with ask(questions) as reader:
        while not reader.finished:
            scored.update(await reader.news())
    return [scored[position] for position in range(len(sequences))]


def _scores(update: PromptUpdate) -> LogprobTable:
    """The table of the one token that a scoring call made.

    Raises:
        ApiError: the engine stopped the call or gave it up.
    """
    (candidate,) = update.outputs
    finish_reason_of(candidate.finish_reason or "length")
    assert candidate.logprobs is not None
    return candidate.logprobs


def _answer(
    index: int, call: EngineCall, finished: Finished, logprobs: int | None, tokens: Tokens
) -> BeamAnswer:
    """A finished beam as the engine would have given it.

    logprobs: how many of the best tokens are kept at each position; None for no scores.
    """
    token_ids = finished.beam.token_ids
    detokenizer = tokens.detokenizer(call.prompt.token_ids[-CONTEXT:], call.work.sampling)
    # As in vLLM, a token that ends the text is left out of it; stop strings are cut off.
    ends = finished.finish_reason == "stop" and not isinstance(finished.stop_reason, str)
    for token_id in token_ids[:-1]:
        detokenizer.update([token_id], stop_terminated=False)
    detokenizer.update([token_ids[-1]], stop_terminated=ends)
    return BeamAnswer(
        index=index,
        text=detokenizer.get_next_output_text(finished=True, delta=False),
        token_ids=token_ids,
        logprobs=None if logprobs is None else _table(finished, logprobs, tokens),
        finish_reason=finished.finish_reason,
        stop_reason=finished.stop_reason,
        cumulative_logprob=finished.beam.log_probability,
    )


def _counted(index: int, finished: Finished) -> BeamAnswer:
    """A finished beam that is not shown: its tokens count."""
    return BeamAnswer(
        index=index,
        text="",
        token_ids=finished.beam.token_ids,
        logprobs=None,
        finish_reason=finished.finish_reason,
        stop_reason=finished.stop_reason,
        cumulative_logprob=finished.beam.log_probability,
    )


def _table(finished: Finished, count: int, tokens: Tokens) -> Table:
    """The scores of a beam's tokens, each with the `count` best of its position."""
    table = Table()
    for step in finished.steps():
        table.start_indices.append(len(table.token_ids))
        own = (step.token_id, step.logprob)
        assert step.table is not None
        for token_id, logprob in [own, *list(best_tokens(step.table))[:count]]:
            name = tokens.name(token_id)
            table.token_ids.append(token_id)
            table.logprobs.append(logprob)
            # A piece of a character has no name that is its own.
            table.decoded_tokens.append(None if REPLACEMENT in name else name)
        table.end_indices.append(len(table.token_ids))
    return table
