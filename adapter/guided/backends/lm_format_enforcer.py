"""lm-format-enforcer: its parsers read a text character by character, the token masks are ours.

A regular expression is exact. Of a JSON schema the library holds the structure alone, and needs a
guard before it (lm_format_enforcer_shapes).
"""

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

from adapter.guided.backends.lm_format_enforcer_json import JsonAutomaton
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
            automaton = self._automaton(part)
        except Exception as error:
            raise _cannot(part.form, error) from error
        lock = threading.Lock()
        return lambda: LmFormatEnforcerMatcher(automaton, self._tokens.texts, lock)

    def prepare(self, regex: str, path: Path) -> None:
        """Compile a regular expression into a file, for a part's `artifact`.

        Raises:
            ValueError: as compile().
        """
        try:
            RegexTable.build(regex).save(path)
        except Exception as error:
            raise _cannot("regex", error) from error

    def _automaton(self, part: Part) -> "_Automaton":
        if part.form == "json":
            return JsonAutomaton(self._tokens, part.text)
        table = None
        if part.artifact is not None:
            with suppress(OSError):  # made on another machine, or left out of the cache since
                table = RegexTable.load(Path(part.artifact))
        return RegexAutomaton(self._tokens, table or RegexTable.build(part.text))


def _cannot(form: str, error: Exception) -> ValueError:
    why = " ".join(f"{type(error).__name__}: {error}".split())[:300]
    return ValueError(f"lm-format-enforcer cannot enforce this {form}: {why}")


class _Automaton(Protocol):
    """Shared by all texts of a constraint; what its states are is its own affair."""

    start: Any

    def narrow(self, state: Any, mask: Mask) -> None: ...
    def after(self, state: Any, text: bytes) -> Any | None: ...
    def ends(self, state: Any) -> bool: ...


class LmFormatEnforcerMatcher:
    """The state of one text."""

    def __init__(self, automaton: _Automaton, texts: Sequence[bytes], lock: threading.Lock) -> None:
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
