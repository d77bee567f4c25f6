"""llguidance: JSON schemas, regular expressions and grammars, in about a millisecond each.

The one library that never lets a text through that the constraint forbids, which is why it also
stands guard over what the others make of a JSON schema.

Where a text has no choice, llguidance's mask is the one token that the tokenizer would cut from
what must come. That token may not be the text's: a tokenizer reads the name of a special token as
that token, and may normalize what it reads (NFC, say). From such a place the text goes on without
forcing, by all tokens that fit.
"""

import json
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache

import llguidance
import numpy as np

from adapter.guided.matcher import Mask, Matcher
from adapter.guided.program import Part
from adapter.guided.vocabulary import Vocabulary

# Work for one token, 20 thousand items a millisecond: a grammar that is matched by characters needs
# more than the default of 50 thousand, which would end its texts with an error. So would a place
# where many alternatives with many names begin, beyond 2 thousand items there, and a character that
# has many classes to be told apart, such as those of word boundaries: a million expressions take a
# tenth of a second.
_LIMITS = llguidance.LLParserLimits(
    step_max_items=1_000_000,
    max_items_in_row=50_000,
    step_lexer_fuel=2_000_000,
    verbose_errors=False,
)

# llguidance goes down from rule to rule by recursion, 10 kB each, and overruns an ordinary stack
# where some 800 stand one inside the other. Of a large stack no more is taken than is used.
_STACK_BYTES = 512 * 2**20
_FITS_ANY_STACK = 4_000
"""Characters of a grammar whose rules cannot be so many."""


class GuidanceBackend:
    """Compiles for one vocabulary."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._tokenizer = vocabulary.ll_tokenizer
        self._words = vocabulary.words

    def compile(self, part: Part) -> Callable[[], Matcher]:
        """A maker of matchers.

        Raises:
            ValueError: llguidance refuses the constraint; the message is its own.
        """
        grammar = _GRAMMARS[part.form](part.text)
        fresh = self._compiled(grammar)
        free = cache(lambda: self._compiled(_without_forcing(grammar)))

        def start_free() -> llguidance.LLMatcher:
            return free().deep_copy()

        return lambda: GuidanceMatcher(fresh.deep_copy(), start_free, self._words)

    def _compiled(self, grammar: str) -> llguidance.LLMatcher:
        def compiled() -> llguidance.LLMatcher:
            return llguidance.LLMatcher(self._tokenizer, grammar, log_level=0, limits=_LIMITS)

        matcher = compiled() if len(grammar) < _FITS_ANY_STACK else _on_large_stack(compiled)
        if error := matcher.get_error():
            raise ValueError(error)
        return matcher


_GRAMMARS: dict[str, Callable[[str], str]] = {
    "json": llguidance.LLMatcher.grammar_from_json_schema,
    "json-lenient": lambda text: llguidance.LLMatcher.grammar_from_json_schema(
        text, overrides={"lenient": True}
    ),
    "regex": llguidance.LLMatcher.grammar_from_regex,
    "lark": llguidance.LLMatcher.grammar_from_lark,
}


def _on_large_stack(work: Callable[[], llguidance.LLMatcher]) -> llguidance.LLMatcher:
    with ThreadPoolExecutor(1) as pool:
        before = threading.stack_size(_STACK_BYTES)
        try:
            future = pool.submit(work)
        finally:
            threading.stack_size(before)
        return future.result()


def _without_forcing(grammar: str) -> str:
    """The same grammar, whose masks have all tokens that fit where a text has no choice, too."""
    if grammar.startswith("{"):
        inner = json.loads(grammar)["grammars"][0]
        schema = json.dumps(inner.get("json_schema"))
        grammar = inner.get("lark_grammar") or f"start: %json {schema}"
    return f'%llguidance {{"no_forcing": true}}\n{grammar}'


class GuidanceMatcher:
    """llguidance's state of one text."""

    def __init__(
        self,
        matcher: llguidance.LLMatcher,
        start_free: Callable[[], llguidance.LLMatcher],
        words: int,
    ) -> None:
        """start_free: makes the state of a new text without forcing."""
        self._matcher = matcher
        self._start_free: Callable[[], llguidance.LLMatcher] | None = start_free
        self._taken: list[int] = []
        self._allowed = np.zeros(words, np.int32)
        self._address = self._allowed.ctypes.data
        self._bytes = self._allowed.nbytes

    def narrow(self, mask: Mask) -> None:
        """Clear what may not come next.

        Raises:
            RuntimeError: the constraint needs more work for one token than llguidance allows.
        """
        self._fill()
        if self._start_free is not None and self._is_forced_wrongly():
            self._matcher, self._start_free = self._start_free(), None
            self._matcher.consume_tokens(self._taken)
            self._fill()
        np.bitwise_and(mask, self._allowed, out=mask)

    def advance(self, token: int) -> bool:
        """Take the next token, False where it is not allowed."""
        if self._matcher.try_consume_tokens([token]) != 1:
            return False
        self._taken.append(token)
        return True

    def rollback(self, count: int) -> None:
        """Take back the last tokens."""
        self._matcher.rollback(count)
        del self._taken[len(self._taken) - count :]

    def can_end(self) -> bool:
        """Whether the text may end here."""
        return self._matcher.is_accepting()

    def _fill(self) -> None:
        self._matcher.unsafe_compute_mask_ptr(self._address, self._bytes)
        # A matcher that failed allows the end of the text alone, and so does one that is done.
        if self._matcher.is_error():
            raise RuntimeError(self._matcher.get_error())

    def _is_forced_wrongly(self) -> bool:
        """Whether the one token that is allowed cannot be taken."""
        if np.count_nonzero(self._allowed) != 1 or self.can_end():
            return False
        word = int(self._allowed.nonzero()[0][0])
        bits = int(self._allowed[word]) & 0xFFFFFFFF
        token = word * 32 + bits.bit_length() - 1
        return bits & (bits - 1) == 0 and self._matcher.validate_tokens([token]) != 1
