"""From the engine's updates to the deltas of a stream, and from deltas to one response.

The response is the fold of the deltas, so the two forms of an answer cannot drift apart. Needs no
vLLM: it reads the engine's objects through the protocols of engine/updates.py.
"""

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any, NamedTuple

from adapter.answer.choice import Choice, Delta
from adapter.answer.echo import EchoedPrompt, echoed_prompt
from adapter.answer.logprobs import Logprobs
from adapter.answer.token_text import TokenTexts
from adapter.engine.updates import PromptUpdate, Updates, finish_reason_of
from adapter.planning.calls import EngineCall
from adapter.planning.plan import AnswerShape

# What it takes to see whether a prompt ends inside a character; see Answer.size().
_CUT_SIZE = 50


class Usage(NamedTuple):
    """Tokens of a whole request."""

    prompt_tokens: int
    completion_tokens: int

    def as_json(self) -> dict[str, int]:
        """The contract's usage object."""
        return {
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.completion_tokens,
            "total_tokens": self.prompt_tokens + self.completion_tokens,
        }


class Answer:
    """Turns one request's updates into deltas, and counts its tokens."""

    def __init__(
        self, shape: AnswerShape, calls: Sequence[EngineCall], token_texts: TokenTexts
    ) -> None:
        """calls: one a prompt, in the order of the prompts."""
        self._prompts = [
            _PromptAnswer(shape, token_texts, call, index * call.work.mode.answers)
            for index, call in enumerate(calls)
        ]
        self._thrown_away = 0

    def throw_away(self, tokens: int) -> None:
        """Count tokens of a text that was made and is no answer."""
        self._thrown_away += tokens

    def deltas(self, updates: Updates) -> list[Delta]:
        """The deltas of a batch of updates, each given with its prompt's index.

        Raises:
            GenerationFailed: the engine gave up on a candidate.
            Unavailable: the engine was stopped under the request.
        """
        if len(updates) == 1:  # each token of a request with one prompt
            index, update = updates[0]
            return self._prompts[index].deltas(update)
        return [delta for index, update in updates for delta in self._prompts[index].deltas(update)]

    def size(self, updates: Updates) -> int:
        """How much work their deltas are, about: in tokens whose scores are put together."""
        return sum(self._prompts[index].size(update) for index, update in updates)

    def usage(self) -> Usage:
        """Tokens so far; every choice counts, and what was thrown away; each prompt once."""
        return Usage(
            sum(len(prompt.call.prompt.token_ids) for prompt in self._prompts),
            sum(prompt.completion_tokens() for prompt in self._prompts) + self._thrown_away,
        )


class _PromptAnswer:
    """The choices of one prompt."""

    def __init__(
        self, shape: AnswerShape, texts: TokenTexts, call: EngineCall, first_index: int
    ) -> None:
        self.call = call
        self._shape = shape
        self._texts = texts
        self._mode = mode = call.work.mode
        self._copies = mode.copies
        self._first_index = first_index
        self._choices: dict[int, Choice] = {}
        self._echoed: EchoedPrompt | None = None
        self._unshown_tokens = 0
        self._may_be_cut = call.prompt.text is None and mode.generates

    def deltas(self, update: PromptUpdate) -> list[Delta]:
        deltas: list[Delta] = []
        for index, candidate in self._mode.ordered(update.outputs):
            choice = self._choices.get(index)
            if choice is None:
                if index >= self._mode.answers:
                    self._unshown_tokens += len(candidate.token_ids)
                    finish_reason_of(candidate.finish_reason or "length")
                    continue
                choice = self._choices[index] = self._new_choice(index, update)
            delta = choice.take(candidate)
            deltas.append(delta)
            if self._copies > 1:
                deltas += [
                    delta._replace(choice=delta.choice + copy) for copy in range(1, self._copies)
                ]
        return deltas

    def size(self, update: PromptUpdate) -> int:
        """See Answer."""
        echoed = self._shape.echo and self._echoed is None and not self._choices
        prompt = len(self.call.prompt.token_ids) if echoed else 0
        if self._may_be_cut and not self._choices:
            prompt += _CUT_SIZE
        texts = [len(text.token_ids) if self._shape.logprobs else 1 for text in update.outputs]
        return prompt + sum(texts) * self._copies

    def completion_tokens(self) -> int:
        made = self._unshown_tokens + sum(c.token_count for c in self._choices.values())
        return made * self._mode.counted

    def _new_choice(self, index: int, update: PromptUpdate) -> Choice:
        if self._shape.echo and self._echoed is None:
            # The first update of a prompt brings the scores of all its tokens.
            self._echoed = echoed_prompt(
                self._shape, self._texts, self.call.prompt, update.prompt_logprobs
            )
        number = self._first_index + index
        echoed = self._echoed
        if len(self._choices) + 1 == self._mode.answers // self._copies:
            self._echoed = None  # the last one: what was shown of it can go
        return Choice(number, self._shape, self._texts, self.call, echoed, cut=self._cut)

    @cached_property
    def _cut(self) -> bool:
        """Whether the prompt ends inside a character."""
        return self._may_be_cut and self._texts.ends_inside_character(self.call.prompt)


def fold(deltas: list[Delta]) -> Iterator[dict[str, Any]]:
    """The choices of a response, in the order of their indices; the deltas go as they are read.

    Millions of scores that were let go at once would hold up everybody.
    """
    by_choice: dict[int, list[Delta]] = {}
    for delta in deltas:
        by_choice.setdefault(delta.choice, []).append(delta)
    deltas.clear()
    for index in sorted(by_choice):
        yield _folded(by_choice.pop(index))


def _folded(pieces: Sequence[Delta]) -> dict[str, Any]:
    return {
        "index": pieces[0].choice,
        "text": "".join(delta.text for delta in pieces),
        "logprobs": _joined([delta.logprobs for delta in pieces if delta.logprobs]),
        "finish_reason": pieces[-1].finish_reason,
    }


def _joined(pieces: Sequence[Logprobs]) -> dict[str, Any] | None:
    if not pieces:
        return None
    joined = Logprobs()
    for piece in pieces:  # copies of a choice share their pieces, so none may grow
        joined.extend(piece)
    return joined.as_json()
