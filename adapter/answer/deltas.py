"""From the engine's updates to the deltas of a stream, and from deltas to one response.

The response is the fold of the deltas, so the two forms of an answer cannot drift apart. Needs no
vLLM: it reads the engine's objects through the protocols of engine_io.py.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from adapter.contract.request import CompletionV2Request
from adapter.errors import GenerationFailed, Unavailable
from adapter.planning.work import CandidateUpdate, EngineCall, LogprobTable, Prompt, PromptUpdate

# What -inf becomes: JSON has no infinity. The value is vLLM's own.
LOWEST_LOGPROB = -9999.0


class TokenText(Protocol):
    """Token ids to text, one token at a time, as vLLM's detokenizer prints them."""

    def next(self, token_id: int) -> str:
        """The text that this token adds; "" while a character is incomplete."""

    def is_special(self, token_id: int) -> bool:
        """True for control tokens and for the model's end tokens."""

    def name(self, token_id: int) -> str:
        """A special token's name, such as `<|im_end|>`."""


class TokenTexts(Protocol):
    """Makes a TokenText for each text."""

    def prompt(self) -> TokenText:
        """For a prompt from its first token on; special tokens are left to the caller."""

    def completion(self, prompt: Prompt) -> TokenText:
        """For what comes after a prompt."""

    def ends_inside_character(self, prompt: Prompt) -> bool:
        """True if the prompt's last tokens are the first bytes of a character."""


@dataclass(slots=True)
class Logprobs:
    """The contract's logprobs object; the four lists have one length."""

    tokens: list[str] = field(default_factory=list)
    token_logprobs: list[float | None] = field(default_factory=list)
    top_logprobs: list[dict[str, float] | None] = field(default_factory=list)
    text_offset: list[int] = field(default_factory=list)
    """Where each token starts in the choice's text, in characters (code points)."""

    def extend(self, other: "Logprobs") -> None:
        """Append another piece of the same choice."""
        self.tokens += other.tokens
        self.token_logprobs += other.token_logprobs
        self.top_logprobs += other.top_logprobs
        self.text_offset += other.text_offset

    def as_json(self) -> dict[str, Any]:
        """The object as it goes over the wire."""
        return {
            "text_offset": self.text_offset,
            "token_logprobs": self.token_logprobs,
            "tokens": self.tokens,
            "top_logprobs": self.top_logprobs,
        }


class Delta(NamedTuple):
    """What is new of one choice."""

    choice: int
    text: str
    logprobs: Logprobs | None
    finish_reason: str | None


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
        self,
        request: CompletionV2Request,
        calls: Sequence[EngineCall],
        token_texts: TokenTexts,
    ) -> None:
        shape = _Shape(request, token_texts)
        self._prompts = [
            _PromptAnswer(shape, call, call_index * request.n)
            for call_index, call in enumerate(calls)
        ]

    def deltas(self, updates: Sequence[tuple[int, PromptUpdate]]) -> list[Delta]:
        """The deltas of a batch of updates, each given with its prompt's index.

        Raises:
            GenerationFailed: the engine gave up on a candidate.
            Unavailable: the engine was stopped under the request.
        """
        if len(updates) == 1:  # each token of a request with one prompt
            index, update = updates[0]
            return self._prompts[index].deltas(update)
        return [delta for index, update in updates for delta in self._prompts[index].deltas(update)]

    def usage(self) -> Usage:
        """Tokens so far; every choice counts, each prompt once."""
        return Usage(
            sum(len(prompt.call.prompt.token_ids) for prompt in self._prompts),
            sum(prompt.completion_tokens() for prompt in self._prompts),
        )


def fold(deltas: Iterable[Delta]) -> list[dict[str, Any]]:
    """The choices of a response, in the order of their indices."""
    by_choice: dict[int, list[Delta]] = {}
    for delta in deltas:
        by_choice.setdefault(delta.choice, []).append(delta)
    return [
        {
            "index": index,
            "text": "".join(delta.text for delta in pieces),
            "logprobs": _joined([delta.logprobs for delta in pieces if delta.logprobs]),
            "finish_reason": pieces[-1].finish_reason,
        }
        for index, pieces in sorted(by_choice.items())
    ]


def _joined(pieces: Sequence[Logprobs]) -> dict[str, Any] | None:
    if not pieces:
        return None
    joined = Logprobs()
    for piece in pieces:  # copies of a choice share their pieces, so none may grow
        joined.extend(piece)
    return joined.as_json()


# --- one prompt ---------------------------------------------------------------------------------


class _Shape:
    """What all choices of a request have in common."""

    def __init__(self, request: CompletionV2Request, token_texts: TokenTexts) -> None:
        self.echo = request.echo
        self.logprobs = request.logprobs is not None
        self.skip_special_tokens = request.skip_special_tokens
        self.stop_token_ids = frozenset(request.stop_token_ids or ())
        stop = request.stop or ()
        self.stop = [stop] if isinstance(stop, str) else [text for text in stop if text]
        self.token_texts = token_texts
        # The engine leaves a stop token out of the text unless it is told to include stops, which
        # it is not beside a suffix (translate.py); the contract keeps a plain one.
        included = bool(request.include_stop_str_in_output) and request.suffix is None
        self.keeps_stop_token = bool(self.stop_token_ids) and not included


class _PromptAnswer:
    """The choices of one prompt."""

    def __init__(self, shape: _Shape, call: EngineCall, first_index: int) -> None:
        self.call = call
        self._shape = shape
        self._first_index = first_index
        self._choices: dict[int, _Choice] = {}
        self._echoed: _EchoedPrompt | None = None
        self._unshown_tokens = 0
        work = call.work
        self._shown = work.answers
        self._copies = work.answers if work.distinct == 1 else 1
        self._best_first = work.ranked and work.distinct > 1
        self._by_position = work.ranked or work.beam is not None
        self._cut = (
            call.prompt.text is None
            and work.generates
            and shape.token_texts.ends_inside_character(call.prompt)
        )

    def deltas(self, update: PromptUpdate) -> list[Delta]:
        outputs: Iterable[CandidateUpdate] = update.outputs
        if self._best_first:
            outputs = sorted(outputs, key=_mean_logprob, reverse=True)
        deltas: list[Delta] = []
        for position, candidate in enumerate(outputs):
            index = position if self._by_position else candidate.index
            choice = self._choices.get(index)
            if choice is None:
                if index >= self._shown:
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

    def completion_tokens(self) -> int:
        work = self.call.work
        made = self._unshown_tokens + sum(c.token_count for c in self._choices.values())
        return made * (work.candidates // work.distinct)

    def _new_choice(self, index: int, update: PromptUpdate) -> "_Choice":
        if self._shape.echo and self._echoed is None:
            # The first update of a prompt brings the scores of all its tokens.
            self._echoed = _echo(self._shape, self.call.prompt, update.prompt_logprobs)
        number = self._first_index + index
        return _Choice(number, self._shape, self.call, self._echoed, self._cut)


class _EchoedPrompt(NamedTuple):
    text: str
    logprobs: Logprobs | None


def _echo(shape: _Shape, prompt: Prompt, table: LogprobTable | None) -> _EchoedPrompt:
    if prompt.text is not None and not shape.logprobs:
        return _EchoedPrompt(prompt.text, None)
    if prompt.text == "":
        # The separator that stands for no prompt is no text of the caller's.
        shown, widths = [shape.token_texts.prompt().name(prompt.token_ids[0])], [0]
    else:
        shown, widths = _prompt_tokens(shape, prompt)
    text = prompt.text
    if text is None:
        text = "".join(token for token, width in zip(shown, widths, strict=True) if width)
    if not shape.logprobs:
        return _EchoedPrompt(text, None)
    logprobs = Logprobs()
    offset = 0
    for position, (token, width) in enumerate(zip(shown, widths, strict=True)):
        _append(logprobs, table, position, token, min(offset, len(text)))
        offset += width
    return _EchoedPrompt(text, logprobs)


def _prompt_tokens(shape: _Shape, prompt: Prompt) -> tuple[list[str], list[int]]:
    """Each prompt token as it prints, and how many characters of the echoed text it takes."""
    token_text = shape.token_texts.prompt()
    shown: list[str] = []
    widths: list[int] = []
    offset = 0
    for token_id in prompt.token_ids:
        if token_text.is_special(token_id):
            token = token_text.name(token_id)
            if prompt.text is None:
                visible = not shape.skip_special_tokens
            else:  # one that the tokenizer added is not in the caller's text
                visible = prompt.text.startswith(token, offset)
        else:
            token = token_text.next(token_id)
            visible = True
        width = len(token) if visible else 0
        shown.append(token)
        widths.append(width)
        offset += width
    return shown, widths


# --- one choice ---------------------------------------------------------------------------------


class _Choice:
    """The accumulator of one candidate."""

    __slots__ = (
        "_call",
        "_cut",
        "_echoed",
        "_number",
        "_offset",
        "_plain",
        "_shape",
        "_token_text",
        "token_count",
    )

    def __init__(
        self,
        number: int,
        shape: _Shape,
        call: EngineCall,
        echoed: _EchoedPrompt | None,
        cut: bool,
    ) -> None:
        self._number = number
        self._shape = shape
        self._call = call
        self._echoed = echoed
        self._cut = cut
        self._offset = len(echoed.text) if echoed else 0
        self._token_text = (
            shape.token_texts.completion(call.prompt)
            if call.work.generates and (shape.logprobs or shape.keeps_stop_token)
            else None
        )
        self._plain = (
            call.work.generates and self._token_text is None and echoed is None and not cut
        )
        self.token_count = 0

    def take(self, update: CandidateUpdate) -> Delta:
        """What an update adds."""
        finish_reason = update.finish_reason
        if finish_reason is not None:
            finish_reason = finish_reason_of(finish_reason)
        if self._plain:
            self.token_count += len(update.token_ids)
            return Delta(self._number, update.text, None, finish_reason)
        text, logprobs = "", None
        if self._call.work.generates:
            self.token_count += len(update.token_ids)
            text, logprobs = self._generated(update)
        elif self._shape.logprobs:
            logprobs = Logprobs()
        if self._echoed is not None:
            text = self._echoed.text + text
            if self._echoed.logprobs is not None and logprobs is not None:
                echoed = Logprobs()
                echoed.extend(self._echoed.logprobs)
                echoed.extend(logprobs)
                logprobs = echoed
            self._echoed = None
        if not self._call.work.generates:
            finish_reason = "length"
        return Delta(self._number, text, logprobs, finish_reason)

    def _generated(self, update: CandidateUpdate) -> tuple[str, Logprobs | None]:
        shape = self._shape
        cut = self._cut
        text = self._without_cut(update.text)
        if self._token_text is None:
            return text, None
        self._cut = cut
        logprobs = Logprobs() if shape.logprobs else None
        last = ""
        for position, token_id in enumerate(update.token_ids):
            last, width = self._token(token_id)
            if logprobs is not None:
                _append(logprobs, update.logprobs, position, last, self._offset)
            self._offset += width
        if shape.keeps_stop_token and self._stays(update):
            text = self._with_stop_token(text, last)
        return text, logprobs

    def _token(self, token_id: int) -> tuple[str, int]:
        """How a generated token prints, and how many characters of the text it takes."""
        assert self._token_text is not None
        if self._token_text.is_special(token_id):
            name = self._token_text.name(token_id)
            return name, 0 if self._shape.skip_special_tokens else len(name)
        token = self._without_cut(self._token_text.next(token_id))
        return token, len(token)

    def _without_cut(self, text: str) -> str:
        """The text without a character that the prompt began and nobody finished: its bytes are
        the prompt's."""
        if not self._cut or not text:
            return text
        self._cut = False
        return text.removeprefix("\ufffd")

    def _stays(self, update: CandidateUpdate) -> bool:
        """Whether generation ended on a stop token that belongs into the text."""
        assert self._token_text is not None
        reason = update.stop_reason
        return (
            update.finish_reason == "stop"
            and isinstance(reason, int)
            and reason in self._shape.stop_token_ids
            and not self._token_text.is_special(reason)
        )

    def _with_stop_token(self, text: str, token: str) -> str:
        """Add the stop token, unless a stop string ends inside it: then that string is cut off.

        The engine holds back as much text as a stop string may need, so a match that ends in the
        token begins in this last piece of text.
        """
        whole = text + token
        matches = [
            (found + len(stop), found)
            for stop in self._shape.stop
            if (found := whole.find(stop, max(len(text) - len(stop) + 1, 0))) >= 0
        ]
        return whole[: min(matches)[1]] if matches else whole


def _mean_logprob(candidate: CandidateUpdate) -> float:
    """Mean log-probability of the generated tokens, an end token counted."""
    return (candidate.cumulative_logprob or 0.0) / max(len(candidate.token_ids), 1)


def finish_reason_of(reason: str) -> str:
    """The contract's finish reason.

    Raises:
        Unavailable: the engine was stopped under the request.
        GenerationFailed: the engine gave up on it.
    """
    if reason in ("stop", "length"):
        return reason
    if reason == "abort":
        raise Unavailable("The engine stopped this request before it was finished.")
    raise GenerationFailed(f"The engine gave up on this request ({reason}).")


# --- logprobs -----------------------------------------------------------------------------------


def _append(
    logprobs: Logprobs, table: LogprobTable | None, position: int, token: str, offset: int
) -> None:
    """Append one token. A position without scores, a prompt's first, gets null."""
    logprobs.tokens.append(token)
    logprobs.text_offset.append(offset)
    if table is None or table.start_indices[position] == table.end_indices[position]:
        logprobs.token_logprobs.append(None)
        logprobs.top_logprobs.append(None)
        return
    start, end = table.start_indices[position], table.end_indices[position]
    own_id, own = table.token_ids[start], finite(table.logprobs[start])
    top = {token: own}
    for entry in range(start + 1, end):
        token_id = table.token_ids[entry]
        if token_id == own_id:
            continue
        name = table.decoded_tokens[entry]
        if not name or name in top:  # part of a character, or prints like another entry
            name = f"token_id:{token_id}"
        top[name] = finite(table.logprobs[entry])
    logprobs.token_logprobs.append(own)
    logprobs.top_logprobs.append(top)


def finite(logprob: float) -> float:
    """A log-probability that JSON can carry, never above 0."""
    if math.isnan(logprob) or logprob < LOWEST_LOGPROB:
        return LOWEST_LOGPROB
    return min(logprob, 0.0)
