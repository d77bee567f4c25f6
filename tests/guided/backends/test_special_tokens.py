"""What spells a special token's name, or what a tokenizer reads otherwise, is ordinary text."""

from typing import Any

import pytest

from adapter.guided.constraint import BACKENDS, LM_FORMAT_ENFORCER, Kind
from tests.guided.walks import CHOOSE, builtin, maker, walk

# Names of the built-in model's special tokens, of other models', and what looks like one.
NAMES = ["<|im_start|>", "<|im_end|>", "<|endoftext|>", "<repo_name>", "</s>", "<0x0A>", "<[1]>"]
SPELT: list[tuple[Kind, Any, str]] = [
    *((Kind.CHOICE, [name], name) for name in NAMES),
    (Kind.CHOICE, ["a<|im_end|>b"], "a<|im_end|>b"),
    (Kind.REGEX, r"a<\|im_start\|>{2}", "a<|im_start|>>"),
    (Kind.GRAMMAR, 'root ::= "<|im_start|>" ("ab") "<|im_end|>"', "<|im_start|>ab<|im_end|>"),
    (Kind.GRAMMAR, 'start: "<|im_start|>" /a/ "<|im_end|>"', "<|im_start|>a<|im_end|>"),
    (Kind.GRAMMAR, "start: A\nA: /<[|]im_start[|]>/", "<|im_start|>"),
    (Kind.JSON, {"const": "<|im_start|>"}, '"<|im_start|>"'),
    (Kind.JSON, {"enum": ["<|endoftext|>"]}, '"<|endoftext|>"'),
    (Kind.JSON, {"type": "string", "pattern": r"^<\|im_end\|>$"}, '"<|im_end|>"'),
    # A tokenizer that normalizes reads another text here.
    (Kind.CHOICE, ["e\u0301 \ufb01 \u1100\u1161"], "e\u0301 \ufb01 \u1100\u1161"),
]


@pytest.mark.parametrize("way", CHOOSE)
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(("kind", "value", "text"), SPELT, ids=repr)
def test_a_special_name_is_spelt(kind: Kind, value: Any, text: str, backend: str, way: str) -> None:
    """From ordinary tokens, on every backend, whichever of the tokens are chosen."""
    if (kind, backend) == (Kind.GRAMMAR, LM_FORMAT_ENFORCER):
        pytest.skip("refused before it is compiled")
    for seed in range(3):
        walked = walk(maker(kind, value, backend)(), way, seed)
        assert walked.ended
        assert walked.text.decode() == text


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_text_that_was_taken_back_is_spelt_again(backend: str) -> None:
    """Drafted tokens go through a special name, back, and through it again."""
    guide = maker(Kind.JSON, {"enum": ["ab<|im_start|>cd", "abc"]}, backend)()
    first = walk(guide, "random", 1)
    guide.rollback(len(first.tokens) + 1)
    second = walk(guide, "shortest")
    assert {first.text, second.text} <= {b'"ab<|im_start|>cd"', b'"abc"'}


def test_a_free_text_up_to_a_marker() -> None:
    """What the text may hold, and what ends it, is told apart at each character."""
    grammar = (
        'root ::= preamble "<|start|>" ("yes" | "no") "<|end|>"\n'
        'preamble ::= ([^<] | "<" [^|]){0,40}'
    )
    for backend in ("auto", "guidance", "xgrammar", "outlines"):
        for way in CHOOSE:
            text = walk(maker(Kind.GRAMMAR, grammar, backend)(), way).text.decode()
            assert text.endswith(("<|start|>yes<|end|>", "<|start|>no<|end|>")), text
            assert "<|" not in text[: text.index("<|start|>")]


def test_special_names_are_the_models_own() -> None:
    """What is spelt above are special tokens here: none of them is text."""
    tokens = builtin()[0].vocabulary.ll_tokenizer.tokenize_str("".join(NAMES[:4]))
    assert [builtin()[0].vocabulary.tokens[token] for token in tokens] == [b""] * 4
