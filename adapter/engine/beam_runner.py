"""Runs a beam search on the engine: a scoring call for each beam and step, then the finished texts.

One call makes one token of one beam, so all calls of a step are sent together and share the
engine's steps. The engine's prefix cache, where it is on, keeps what the beams have in common.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from adapter.engine.beam_scores import BeamScorer
from adapter.engine.beam_search import BeamSearch, Finished, best_tokens
from adapter.engine.checked import CheckedTexts
from adapter.engine.detokenizer import CONTEXT, REPLACEMENT, Tokens
from adapter.engine.questions import Ask
from adapter.engine.updates import LogprobTable, PromptUpdate, Table, WholeUpdate
from adapter.errors import InvalidRequest
from adapter.planning.calls import EngineCall
from adapter.planning.modes import Beams


@dataclass(slots=True)
class BeamAnswer:
    """One finished beam; a CandidateUpdate."""

    index: int
    text: str
    token_ids: Sequence[int]
    logprobs: LogprobTable | None
    finish_reason: str | None
    stop_reason: int | str | None
    cumulative_logprob: None = None
    """Beams come in their order."""


async def run_beam_search(
    call: EngineCall,
    name: str,
    ask: Ask,
    tokens: Tokens,
    *,
    most_scores: int,
    checked: CheckedTexts | None = None,
) -> PromptUpdate:
    """The answers of a call that is a beam search, best first. Cancelling aborts the running calls.

    name: what the engine's requests are called, with numbers behind it. most_scores: how many the
    engine gives at a position. checked: validates what is found; what fails is not among the
    answers.

    Raises:
        NotSatisfied: too few of the texts found are what they have to be.
        ApiError: the engine failed, stopped or gave it up.
        InvalidRequest: a constraint leaves fewer texts than n.
    """
    mode = call.work.mode
    assert isinstance(mode, Beams)
    settings = mode.search
    skips = call.work.sampling.get("skip_special_tokens", True)
    search = BeamSearch(
        settings, lambda ids: tokens.text_after(call.prompt, ids, skip_special_tokens=skips)
    )
    scorer = BeamScorer(call, name, ask, most_scores)
    while not search.done:
        search.advance(await scorer.following(search.running))
    found = search.finished()
    _check_count(mode, len(found), width=settings.width)
    if checked is not None:
        texts = [_counted(index, finished) for index, finished in enumerate(found)]
        good, bad = await checked.best(texts, mode.answers)
        found = [found[place] for place in (*good, *bad)]
    answers = [
        _answer(index, call, finished, settings.logprobs, tokens)
        if index < mode.answers
        else _counted(index, finished)
        for index, finished in enumerate(found)
    ]
    return WholeUpdate(scorer.prompt_logprobs, answers)


def _check_count(mode: Beams, found: int, *, width: int) -> None:
    """Refuse where a constraint leaves fewer texts than were asked for."""
    if found >= mode.answers:
        return
    if not found:
        raise InvalidRequest(
            "min_tokens: no text that the constraint allows is so long.", param="min_tokens"
        )
    raise InvalidRequest(
        f"n asks for {mode.answers} texts, and of those that the constraint allows a search "
        f"{width} beams wide found {found}.",
        param="n",
    )


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
