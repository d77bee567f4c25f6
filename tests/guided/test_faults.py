"""The faults of the plain libraries are real, and none of them happens here."""

import json
from typing import Any

import numpy as np
import pytest

from adapter.guided.backends.registry import Libraries
from adapter.guided.compile.compiler import ConstraintCompiler, Refused
from adapter.guided.constraint import Constraint, Kind
from adapter.guided.vocabulary import Vocabulary
from tests.guided.faults import FAULTS, Fault

END = 256
BYTES = Vocabulary((*(bytes([byte]) for byte in range(END)), b""), (END,), None)


def ids(faults: list[Fault]) -> list[str]:
    return [f"{fault.backend}: {fault.what}" for fault in faults]


def xgrammar_accepts(schema: dict[str, Any], text: str) -> bool:
    import xgrammar

    info = xgrammar.TokenizerInfo(list(BYTES.tokens), xgrammar.VocabType.RAW, stop_token_ids=[END])
    compiler = xgrammar.GrammarCompiler(info, max_threads=1)
    matcher = xgrammar.GrammarMatcher(compiler.compile_json_schema(json.dumps(schema)))
    return bool(matcher.accept_string(text) and matcher.is_completed())


def outlines_accepts(schema: dict[str, Any], text: str) -> bool:
    import outlines_core
    from outlines_core.json_schema import build_regex_from_schema

    regex = build_regex_from_schema(json.dumps(schema))
    tokens = {bytes([byte]): [byte] for byte in range(1, END)}
    index = outlines_core.Index(regex, outlines_core.Vocabulary(END, tokens))
    guide = outlines_core.Guide(index)
    for byte in text.encode():
        if not guide.accepts_tokens([byte]):
            return False
        guide.advance(byte)
    return bool(guide.is_finished())


def lm_format_enforcer_accepts(schema: dict[str, Any], text: str) -> bool:
    from lmformatenforcer import JsonSchemaParser

    try:
        parser = JsonSchemaParser(schema)
    except TypeError:  # what it does about a key named self
        return False
    for character in text:
        if character not in parser.get_allowed_characters():
            return False
        parser = parser.add_character(character)
    return bool(parser.can_end())


PLAIN = {
    "xgrammar": xgrammar_accepts,
    "outlines": outlines_accepts,
    "lm-format-enforcer": lm_format_enforcer_accepts,
}


@pytest.mark.parametrize("fault", FAULTS, ids=ids(FAULTS))
def test_plain_library_has_the_fault(fault: Fault) -> None:
    """The library itself does what the table says of it."""
    assert PLAIN[fault.backend](fault.schema, fault.text) is not fault.rejects


@pytest.fixture(scope="module")
def compiler(tmp_path_factory: pytest.TempPathFactory) -> ConstraintCompiler:
    """Compiles over a vocabulary of single bytes."""
    return ConstraintCompiler(Libraries(BYTES), tmp_path_factory.mktemp("indexes"))


def accepts(compiler: ConstraintCompiler, fault: Fault) -> bool:
    """Whether the text passes here, on the fault's backend."""
    constraint = Constraint("guided_json", Kind.JSON, json.dumps(fault.schema), fault.backend)
    program = compiler.compile(constraint, relaxed=True).program
    libraries = Libraries(BYTES)
    guide = libraries.guide(program, [libraries.compile(part) for part in program.parts])
    mask = np.zeros(BYTES.words, np.int32)
    for byte in fault.text.encode():
        guide.fill(mask)
        if not mask[byte >> 5] >> (byte & 31) & 1:
            return False
        assert guide.accept([byte])
    guide.fill(mask)
    return bool(mask[END >> 5] >> (END & 31) & 1)


@pytest.mark.parametrize("fault", FAULTS, ids=ids(FAULTS))
def test_fault_does_not_happen_here(compiler: ConstraintCompiler, fault: Fault) -> None:
    """What the library gets wrong is right here, or refused with another backend named."""
    if fault.outcome == "refused":
        with pytest.raises(Refused, match='"auto" can'):
            accepts(compiler, fault)
    else:
        assert accepts(compiler, fault) is fault.rejects
