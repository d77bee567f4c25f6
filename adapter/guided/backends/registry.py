"""All backends of one vocabulary, each loaded when it is first asked for."""

import threading
from collections.abc import Callable
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Protocol, runtime_checkable

import numpy as np

from adapter.guided.matcher import Guide, Mask, Matcher
from adapter.guided.member_tokens import MemberTokens
from adapter.guided.members import MemberMatcher
from adapter.guided.program import NO_FOCUS, Focus, Library, Part, Program, Whitespace
from adapter.guided.token_trie import TokenRuns
from adapter.guided.vocabulary import Vocabulary
from adapter.guided.whitespace import DEFAULT, WhitespaceRuns
from adapter.guided.yielding import YieldingMatcher

Maker = Callable[[], Matcher]


class Backend(Protocol):
    """One library over one vocabulary."""

    def compile(self, part: Part) -> Maker:
        """A maker of matchers, each the state of one text.

        Raises:
            ValueError: the library cannot do it; the message says why.
        """


@runtime_checkable
class Preparing(Backend, Protocol):
    """A library whose compiled form can be handed on to another process."""

    def prepare(self, regex: str, path: Path) -> None:
        """Compile a regular expression into a file.

        Raises:
            ValueError: the library cannot do it.
        """


# Loaded by name: xgrammar alone imports torch, and a process may need one of them only.
_BACKENDS: dict[Library, tuple[str, str]] = {
    "guidance": ("adapter.guided.backends.guidance", "GuidanceBackend"),
    "xgrammar": ("adapter.guided.backends.xgrammar", "XgrammarBackend"),
    "outlines": ("adapter.guided.backends.outlines", "OutlinesBackend"),
    "lm-format-enforcer": ("adapter.guided.backends.lm_format_enforcer", "LmFormatEnforcerBackend"),
}

LIBRARIES = tuple(_BACKENDS)


class Libraries:
    """The backends of one vocabulary. Not to be shared between threads while one is loading."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.vocabulary = vocabulary
        self._loaded: dict[Library, Backend] = {}
        self._whitespace: dict[Whitespace, WhitespaceRuns] = {}
        self._lock = threading.Lock()

    def backend(self, library: Library) -> Backend:
        """A library, loaded with its tables.

        Raises:
            ImportError: it is not installed.
        """
        if library not in self._loaded:
            module, name = _BACKENDS[library]
            self._loaded[library] = getattr(import_module(module), name)(self.vocabulary)
        return self._loaded[library]

    def compile(self, part: Part) -> Maker:
        """A maker of matchers.

        Raises:
            ValueError: the library cannot do it.
        """
        return self.backend(part.library).compile(part)

    @cached_property
    def _token_runs(self) -> TokenRuns:
        return TokenRuns(self.vocabulary)

    @cached_property
    def member_tokens(self) -> MemberTokens:
        """The tokens in which a name or an item ends."""
        return MemberTokens(self.vocabulary)

    def whitespace_runs(self, whitespace: Whitespace) -> WhitespaceRuns:
        """The masks of a whitespace pattern."""
        with self._lock:
            runs = self._whitespace.get(whitespace)
            if runs is None:
                runs = self._whitespace[whitespace] = WhitespaceRuns(whitespace, self._token_runs)
                if len(self._whitespace) > _MOST_PATTERNS:  # the default one stays
                    del self._whitespace[next(each for each in self._whitespace if each != DEFAULT)]
        return runs

    def guide(self, program: Program, makers: list[Maker], focus: Focus = NO_FOCUS) -> Guide:
        """The state of a text; makers: those of the program's parts, in order.

        Raises:
            ValueError: what the text begins with is not allowed.
        """
        guide = Guide(
            self._matchers(program, makers) if makers else (),
            program.eos_token_ids or self.vocabulary.eos_token_ids,
            eos_last=program.eos_last,
            focus=self._focus(focus),
        )
        if not guide.accept(focus.begun):
            raise ValueError(f"a text that was begun cannot go on: {guide.failure}")
        return guide

    def _matchers(self, program: Program, makers: list[Maker]) -> list[Matcher]:
        matchers = [makers[0]()]
        if program.whitespace is not None:
            matchers.append(self.whitespace_runs(program.whitespace).matcher())
        if program.members is not None:
            matchers.append(MemberMatcher(self.member_tokens, program.members, tuple(matchers)))
        guards = tuple(matchers)
        matchers += [YieldingMatcher(make(), guards, self._token_runs) for make in makers[1:]]
        return matchers

    def _focus(self, focus: Focus) -> Mask | None:
        """The tokens that are asked about; None for all."""
        if focus.among is None and not focus.but:
            return None
        asked = np.full(self.vocabulary.words * 32, focus.among is None)
        asked[list(focus.among or ())] = True
        asked[list(focus.but)] = False
        return np.packbits(asked, bitorder="little").view(np.int32)


_MOST_PATTERNS = 64
