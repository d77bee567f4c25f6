"""What logit_bias and the penalties make of log-probabilities in a beam search.

As transformers' logits processors do there, they change the log-probabilities themselves, which are
not normalised again: first logit_bias is added, then repetition_penalty multiplies (a score above 0
is divided), then frequency_penalty and presence_penalty are taken off for generated tokens. That is
vLLM's order.

A change grows with the log-probability, so that of tokens that are changed alike the most probable
stay the best. That is what tells whether all tokens that matter are known.
"""

import heapq
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from adapter.planning.modes import BeamSettings


class Group(NamedTuple):
    """Tokens of which the most probable ones are to be found."""

    among: frozenset[int] | None
    """None for all tokens."""
    but: frozenset[int]
    most: int
    """How many of them."""


class ScoreChanges:
    """What a request changes, after a prompt."""

    def __init__(self, settings: BeamSettings, prompt: Sequence[int]) -> None:
        self._settings = settings
        self.bias: Mapping[int, float] = settings.logit_bias or {}
        self.repeats = settings.repetition_penalty != 1
        self.penalises = bool(
            self.repeats or settings.frequency_penalty or settings.presence_penalty
        )
        self.prompt = frozenset(prompt) if self.repeats else frozenset()

    def after(self, token_ids: Sequence[int]) -> "BeamChanges":
        """The same behind generated tokens."""
        return BeamChanges(self, self._settings, Counter(token_ids if self.penalises else ()))


class BeamChanges:
    """What is changed of the next token of a beam."""

    def __init__(
        self, request: ScoreChanges, settings: BeamSettings, counts: Mapping[int, int]
    ) -> None:
        """counts: of each generated token."""
        self._request = request
        self._settings = settings
        self._counts = counts
        self._alone = frozenset(request.bias).union(counts)

    @property
    def changed(self) -> frozenset[int]:
        """All tokens whose scores are changed."""
        return self._alone | self._request.prompt

    def score(self, token_id: int, logprob: float) -> float:
        """What a token's log-probability becomes."""
        settings = self._settings
        score = logprob + self._request.bias.get(token_id, 0.0)
        count = self._counts.get(token_id, 0)
        if self._request.repeats and (count or token_id in self._request.prompt):
            score = _repeated(score, settings.repetition_penalty)
        if count:
            score -= settings.frequency_penalty * count + settings.presence_penalty
        return score

    def best(self, known: Mapping[int, float], count: int) -> list[tuple[int, float, float]]:
        """Of tokens with their log-probabilities the best: id, log-probability, score."""
        scored = ((each, logprob, self.score(each, logprob)) for each, logprob in known.items())
        return heapq.nlargest(count, scored, key=_score_of)

    def doubtful(
        self, known: Mapping[int, float], others: float, count: int, most: int
    ) -> list[Group]:
        """The groups that may hold some of the `count` best tokens beside those that are known.

        others: no other token has a greater log-probability. most: of a group.
        """
        best = self.best(known, count)
        least = best[-1][2] if len(best) == count else float("-inf")
        groups: list[Group] = []
        if others > least:
            groups.append(Group(None, self.changed, count))
        alike = self._request.prompt - self._alone
        if alike and _repeated(others, self._settings.repetition_penalty) > least:
            groups.append(Group(alike, frozenset(), min(count, len(alike))))
        apart = sorted(
            each for each in self._alone.difference(known) if self.score(each, others) > least
        )
        groups += (
            Group(part, frozenset(), len(part))
            for part in (frozenset(apart[at : at + most]) for at in range(0, len(apart), most))
        )
        return groups


def _repeated(score: float, penalty: float) -> float:
    return score * penalty if score < 0 else score / penalty


def _score_of(scored: tuple[int, float, float]) -> float:
    return scored[2]
