"""One choice of an answer: what each of its candidate's updates adds."""

from typing import NamedTuple

from adapter.answer.echo import EchoedPrompt
from adapter.answer.logprobs import Logprobs, append
from adapter.answer.token_text import TokenTexts
from adapter.engine.updates import CandidateUpdate, finish_reason_of
from adapter.planning.calls import EngineCall
from adapter.planning.plan import AnswerShape


class Delta(NamedTuple):
    """What is new of one choice."""

    choice: int
    text: str
    logprobs: Logprobs | None
    finish_reason: str | None


class Choice:
    """The accumulator of one candidate."""

    __slots__ = (
        "_cut",
        "_echoed",
        "_generates",
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
        shape: AnswerShape,
        texts: TokenTexts,
        call: EngineCall,
        echoed: EchoedPrompt | None,
        *,
        cut: bool,
    ) -> None:
        """number: the choice's index. cut: the prompt ends inside a character."""
        self._number = number
        self._shape = shape
        self._echoed = echoed
        self._cut = cut
        self._offset = len(echoed.text) if echoed else 0
        self._generates = call.work.mode.generates
        watched = self._generates and (shape.logprobs or shape.keeps_stop_token)
        self._token_text = texts.completion(call.prompt) if watched else None
        self._plain = self._generates and not watched and echoed is None and not cut
        self.token_count = 0

    def take(self, update: CandidateUpdate) -> Delta:
        """What an update adds.

        Raises:
            GenerationFailed: the engine gave up on the candidate.
            Unavailable: the engine was stopped under the request.
        """
        finish_reason = update.finish_reason
        if finish_reason is not None:
            finish_reason = finish_reason_of(finish_reason)
        if self._plain:
            self.token_count += len(update.token_ids)
            return Delta(self._number, update.text, None, finish_reason)
        if not self._generates:
            logprobs = Logprobs() if self._shape.logprobs else None
            return self._with_echo("", logprobs, "length")
        self.token_count += len(update.token_ids)
        text, logprobs = self._generated(update)
        return self._with_echo(text, logprobs, finish_reason)

    def _with_echo(self, text: str, logprobs: Logprobs | None, finish_reason: str | None) -> Delta:
        """A delta; the first one begins with the prompt where it is echoed."""
        echoed, self._echoed = self._echoed, None
        if echoed is not None:
            text = echoed.text + text
            if echoed.logprobs is not None and logprobs is not None:
                logprobs = echoed.logprobs.followed_by(logprobs)
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
                append(logprobs, update.logprobs, position, last, self._offset)
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
