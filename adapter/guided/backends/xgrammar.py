"""xgrammar: JSON schemas and grammars as a pushdown automaton.

Its compiled form cannot be handed on (1.3 GB as text for a schema of the real world), so it is
compiled where it is used; that holds up nobody, since xgrammar works outside the interpreter's
lock, on one thread.
"""

import re
from collections.abc import Callable

import numpy as np
import torch
import xgrammar

from adapter.errors import one_line
from adapter.guided.matcher import Mask, Matcher
from adapter.guided.program import Part
from adapter.guided.vocabulary import Vocabulary

# "[12:34:56] /project/cpp/file.cc:123: "
_PLACE = re.compile(r"(?:\[[0-9:]+\] )?\S+\.cc:[0-9]+: ")


class XgrammarBackend:
    """Compiles for one vocabulary."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._words = vocabulary.words
        self._end = vocabulary.eos_token_ids[0]
        # Without text a token is never part of one, whatever the grammar.
        info = xgrammar.TokenizerInfo(
            list(vocabulary.tokens),
            xgrammar.VocabType.RAW,
            vocab_size=len(vocabulary.tokens),
            stop_token_ids=[self._end],
        )
        self._compiler = xgrammar.GrammarCompiler(info, max_threads=1, cache_enabled=False)

    def compile(self, part: Part) -> Callable[[], Matcher]:
        """A maker of matchers.

        Raises:
            ValueError: xgrammar cannot read the constraint; the message is its own.
        """
        try:
            compiled = self._compile(part)
        except Exception as error:
            raise ValueError(_own_words(error)) from error
        return lambda: XgrammarMatcher(compiled, self._words)

    def _compile(self, part: Part) -> xgrammar.CompiledGrammar:
        if part.form == "json":
            return self._compiler.compile_json_schema(part.text, any_whitespace=True)
        if part.form == "lark":
            return self._compiler.compile_lark(part.text)
        return self._compiler.compile_grammar(part.text)


def _own_words(error: Exception) -> str:
    """xgrammar's message without the place in its source, in one line."""
    text = _PLACE.sub("", one_line(str(error), 10_000))
    _, _, message = text.rpartition("is false: ")
    return one_line(message)


class XgrammarMatcher:
    """xgrammar's state of one text."""

    def __init__(self, compiled: xgrammar.CompiledGrammar, words: int) -> None:
        self._matcher = xgrammar.GrammarMatcher(compiled)
        self._allowed = torch.zeros((1, words), dtype=torch.int32)
        self._row = self._allowed.numpy()[0]

    def narrow(self, mask: Mask) -> None:
        """Clear what may not come next."""
        if self._matcher.fill_next_token_bitmask(self._allowed, 0):
            np.bitwise_and(mask, self._row, out=mask)

    def advance(self, token: int) -> bool:
        """Take the next token, False where it is not allowed."""
        return bool(self._matcher.accept_token(token))

    def rollback(self, count: int) -> None:
        """Take back the last tokens."""
        self._matcher.rollback(count)

    def can_end(self) -> bool:
        """Whether the text may end here."""
        return bool(self._matcher.is_completed())
