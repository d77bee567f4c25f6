"""The constrained texts of a request, put together until they are finished."""

from collections.abc import Iterator, Sequence, Set

from adapter.engine.updates import CandidateUpdate, Updates


class FinishedTexts:
    """Collects the tokens of each candidate.

    The text is the tokens' own bytes: what the caller sees may hold more (echo, special tokens) or
    less (a stop string).
    """

    def __init__(self, tokens: Sequence[bytes], ends: Set[int]) -> None:
        """tokens: the bytes of each id."""
        self._tokens = tokens
        self._ends = ends
        self._taken: dict[tuple[int, int], list[int]] = {}

    def of(self, updates: Updates) -> Iterator[str]:
        """The texts that a batch of updates finishes.

        A text that was cut, by its length or by a stop string, is not finished.
        """
        for prompt, update in updates:
            for candidate in update.outputs:
                taken = self._taken.setdefault((prompt, candidate.index), [])
                taken += candidate.token_ids
                if self._is_finished(candidate, taken):
                    yield self._text(taken[:-1])

    def _is_finished(self, candidate: CandidateUpdate, taken: Sequence[int]) -> bool:
        return candidate.finish_reason == "stop" and bool(taken) and taken[-1] in self._ends

    def _text(self, token_ids: Sequence[int]) -> str:
        return b"".join(self._tokens[token_id] for token_id in token_ids).decode("utf-8", "replace")
