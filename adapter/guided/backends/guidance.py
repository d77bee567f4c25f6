"""llguidance: JSON schemas, regular expressions and grammars, in about a millisecond each.

The one library that never lets a text through that the constraint forbids, which is why it also
stands guard over what the others make of a JSON schema.
"""

from collections.abc import Callable

import llguidance
import numpy as np

from adapter.guided.matcher import Mask, Matcher
from adapter.guided.program import Part
from adapter.guided.vocabulary import Vocabulary

# Work for one token, 20 thousand items a millisecond: a grammar that is matched by characters needs
# more than the default of 50 thousand, which would end its texts with an error.
_LIMITS = llguidance.LLParserLimits(step_max_items=1_000_000, verbose_errors=False)


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
        fresh = llguidance.LLMatcher(
            self._tokenizer, _GRAMMARS[part.form](part.text), log_level=0, limits=_LIMITS
        )
        if error := fresh.get_error():
            raise ValueError(error)
        return lambda: GuidanceMatcher(fresh.deep_copy(), self._words)


_GRAMMARS: dict[str, Callable[[str], str]] = {
    "json": llguidance.LLMatcher.grammar_from_json_schema,
    "json-lenient": lambda text: llguidance.LLMatcher.grammar_from_json_schema(
        text, overrides={"lenient": True}
    ),
    "regex": llguidance.LLMatcher.grammar_from_regex,
    "lark": llguidance.LLMatcher.grammar_from_lark,
}


class GuidanceMatcher:
    """llguidance's state of one text."""

    def __init__(self, matcher: llguidance.LLMatcher, words: int) -> None:
        self._matcher = matcher
        self._allowed = np.zeros(words, np.int32)
        self._address = self._allowed.ctypes.data
        self._bytes = self._allowed.nbytes

    def narrow(self, mask: Mask) -> None:
        """Clear what may not come next.

        Raises:
            RuntimeError: the constraint needs more work for one token than llguidance allows.
        """
        self._matcher.unsafe_compute_mask_ptr(self._address, self._bytes)
        # A matcher that failed allows the end of the text alone, and so does one that is done.
        if self._matcher.is_error():
            raise RuntimeError(self._matcher.get_error())
        np.bitwise_and(mask, self._allowed, out=mask)

    def advance(self, token: int) -> bool:
        """Take the next token, False where it is not allowed."""
        return self._matcher.try_consume_tokens([token]) == 1

    def rollback(self, count: int) -> None:
        """Take back the last tokens."""
        self._matcher.rollback(count)

    def can_end(self) -> bool:
        """Whether the text may end here."""
        return self._matcher.is_accepting()
