"""lm-format-enforcer: its parsers read a text character by character, the token masks are ours.

A regular expression is exact. Of a JSON schema the library holds the structure alone, and needs a
guard before it (lm_format_enforcer_json).
"""

import json
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from adapter.errors import one_line
from adapter.guided.backends.lm_format_enforcer_json import JsonStructure
from adapter.guided.backends.lm_format_enforcer_regex import RegexAutomaton, RegexTable
from adapter.guided.matcher import Mask, Matcher
from adapter.guided.program import Part
from adapter.guided.token_trie import TokenRuns
from adapter.guided.vocabulary import Vocabulary


class LmFormatEnforcerBackend:
    """Compiles for one vocabulary."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._tokens = TokenRuns(vocabulary)

    def compile(self, part: Part) -> Callable[[], Matcher]:
        """A maker of matchers; those of a JSON schema need a guard before them.

        Raises:
            ValueError: the library cannot enforce the constraint.
        """
        try:
            if part.form == "json":
                return JsonStructure(self._tokens, json.loads(part.text)).matcher
            automaton = RegexAutomaton(self._tokens, _table(part))
        except Exception as error:
            raise _cannot(part.form, error) from error
        lock = threading.Lock()
        return lambda: RegexMatcher(automaton, self._tokens.texts, lock)

    def prepare(self, regex: str, path: Path) -> None:
        """Compile a regular expression into a file, for a part's `artifact`.

        Raises:
            ValueError: as compile().
        """
        try:
            RegexTable.build(regex).save(path)
        except Exception as error:
            raise _cannot("regex", error) from error


def _table(part: Part) -> RegexTable:
    if part.artifact is not None:
        with suppress(OSError):  # made on another machine, or left out of the cache since
            return RegexTable.load(Path(part.artifact))
    return RegexTable.build(part.text)


def _cannot(form: str, error: Exception) -> ValueError:
    why = one_line(f"{type(error).__name__}: {error}")
    return ValueError(f"lm-format-enforcer cannot enforce this {form}: {why}")


class RegexMatcher:
    """The state of one text."""

    def __init__(
        self, automaton: RegexAutomaton, texts: Sequence[bytes], lock: threading.Lock
    ) -> None:
        """lock: the automaton's; the engine fills large batches of masks on several threads."""
        self._lock = lock
        self._automaton = automaton
        self._texts = texts
        self._states = [automaton.start]

    def narrow(self, mask: Mask) -> None:
        """Clear what may not come next.

        Raises:
            Exception: the library failed.
        """
        with self._lock:
            self._automaton.narrow(self._states[-1], mask)

    def advance(self, token: int) -> bool:
        """Take the next token, False where it is not allowed or the library fails."""
        text = self._texts[token]
        try:
            with self._lock:
                state = self._automaton.after(self._states[-1], text) if text else None
        except Exception:
            state = None
        if state is None:
            return False
        self._states.append(state)
        return True

    def rollback(self, count: int) -> None:
        """Take back the last tokens."""
        del self._states[len(self._states) - count :]

    def can_end(self) -> bool:
        """Whether the text may end here."""
        return self._automaton.ends(self._states[-1])
