"""Walks through the masks of a constraint where a model seldom goes, over a model's vocabulary."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from random import Random
from tempfile import mkdtemp
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from adapter.builtin_model.cache import model_folder
from adapter.builtin_model.model import TINY_MODEL_NAME
from adapter.guided.backends.registry import Libraries
from adapter.guided.compile.compiler import ConstraintCompiler
from adapter.guided.constraint import Constraint, Kind
from adapter.guided.matcher import Guide
from adapter.guided.vocabulary import Vocabulary

_CLOSERS = frozenset((b'"', b"}", b"]", b'"}', b"]}", b'"]', b"}}", b"0", b"e", b"a"))


@dataclass(frozen=True)
class Walk:
    """What was written."""

    text: bytes
    tokens: tuple[int, ...]
    ended: bool


@cache
def builtin() -> tuple[Libraries, ConstraintCompiler]:
    """The libraries over the vocabulary of the built-in models; skipped where it is not here."""
    pytest.importorskip("transformers")
    from benchmarks.guided_conformance.__main__ import tiny_vocabulary

    if not model_folder(TINY_MODEL_NAME).exists():
        pytest.skip("the built-in model was not fetched yet")
    libraries = Libraries(tiny_vocabulary())
    return libraries, ConstraintCompiler(libraries, Path(mkdtemp()))


def maker(kind: Kind, value: Any, backend: str) -> Callable[[], Guide]:
    """Makes texts of a constraint.

    Raises:
        Refused: it is refused.
    """
    libraries, compiler = builtin()
    text = value if isinstance(value, str) else json.dumps(value)
    program = compiler.compile(Constraint("field", kind, text, backend), relaxed=True).program
    makers = [libraries.compile(part) for part in program.parts]
    return lambda: libraries.guide(program, makers)


Choose = Callable[[npt.NDArray[np.int64], Random, Vocabulary], int]

CHOOSE: dict[str, Choose] = {
    "random": lambda ids, random, _: int(random.choice(ids)),
    "longest": lambda ids, _, words: max(ids.tolist(), key=lambda i: len(words.tokens[i])),
    "shortest": lambda ids, _, words: min(ids.tolist(), key=lambda i: len(words.tokens[i])),
    "rarest": lambda ids, _, words: int(ids[-1]),
}
"""Which of the tokens that are allowed comes next; later tokens of a vocabulary are rarer."""


def walk(guide: Guide, way: str, seed: int = 0, steps: int = 40, most: int = 400) -> Walk:
    """A text made in one way for some steps, and then closed as soon as may be.

    Every mask has a token, each token in it is text and is taken, and nothing fails.
    """
    vocabulary, random = builtin()[0].vocabulary, Random(seed)
    taken: list[int] = []
    mask = np.zeros(vocabulary.words, np.int32)
    for step in range(most):
        guide.fill(mask)
        text = b"".join(vocabulary.tokens[token] for token in taken)
        assert guide.failure is None, (text, guide.failure)
        bits = np.unpackbits(mask.view(np.uint8), bitorder="little", count=len(vocabulary.tokens))
        ids = np.flatnonzero(bits)
        assert len(ids), text
        words = ids[~np.isin(ids, vocabulary.eos_token_ids)]
        if len(words) < len(ids) and (not len(words) or step >= steps or random.random() < 0.1):
            assert guide.accept([vocabulary.eos_token_ids[0]]), text
            return Walk(text, tuple(taken), ended=True)
        closers = [] if step < steps else [i for i in words if vocabulary.tokens[i] in _CLOSERS]
        token = random.choice(closers) if closers else CHOOSE[way](words, random, vocabulary)
        assert vocabulary.tokens[token], (text, token)
        assert guide.accept([int(token)]), (text, vocabulary.tokens[token])
        taken.append(int(token))
    return Walk(b"".join(vocabulary.tokens[token] for token in taken), tuple(taken), ended=False)
