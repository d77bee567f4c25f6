"""adapter/engine/detokenizer.py: tokens print one by one as vLLM's detokenizer prints them."""

import itertools
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from adapter.planning.calls import TokenizedPrompt
from tests.tiny_tokenizer import byte_ids

if TYPE_CHECKING:
    from adapter.engine.detokenizer import Tokens

pytestmark = pytest.mark.needs_vllm

CAT = "🐈".encode()
TEXTS = ["hi cat", "é 🐈!", "日本語", "a\u2028b", " \n\t ", "x\ufffdy", "👩‍👩‍👧"]


@pytest.fixture
def tokens(tokenizer: Any, monkeypatch: pytest.MonkeyPatch) -> "Tokens":
    """The tokenizer's tokens, with vLLM's detokenizer repaired for this test."""
    from adapter.engine.detokenizer import Tokens
    from adapter.vllm_api import FastIncrementalDetokenizer
    from adapter.vllm_patches.detokenizer import repair_detokenizer

    monkeypatch.setattr(FastIncrementalDetokenizer, "__init__", FastIncrementalDetokenizer.__init__)
    repair_detokenizer()
    return Tokens(tokenizer, [2])


def engine_text(tokenizer: Any, prompt: list[int], generated: list[int], **fields: Any) -> str:
    """What vLLM's own detokenizer makes of generated tokens."""
    from adapter.vllm_api import IncrementalDetokenizer, SamplingParams

    request = SimpleNamespace(
        request_id="test",
        prompt_token_ids=prompt,
        prompt_embeds=None,
        sampling_params=SamplingParams(**fields),
    )
    detokenizer = IncrementalDetokenizer.from_new_request(tokenizer, request)
    for token_id in generated:
        if detokenizer.update([token_id], stop_terminated=False) is not None:
            break
    text: str = detokenizer.get_next_output_text(finished=True, delta=True)
    return text


def test_tokenizer_takes_vllms_fast_path(tokenizer: Any) -> None:
    """The tests' tokenizer is detokenized by the class that is repaired."""
    from vllm.v1.engine.detokenizer import uses_fast_detokenizer

    assert uses_fast_detokenizer(tokenizer)


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("as_bytes", [False, True], ids=["pairs", "bytes"])
def test_prompt_pieces_join_to_the_text(
    tokens: "Tokens", tokenizer: Any, text: str, as_bytes: bool
) -> None:
    """The pieces of a prompt's tokens join to its text."""
    token_ids = byte_ids(text.encode()) if as_bytes else tokenizer.encode(text)
    token_text = tokens.prompt()
    assert "".join(token_text.next(token_id) for token_id in token_ids) == text


@pytest.mark.parametrize(
    ("prompt", "text"), list(itertools.permutations(["hi", " cat", "é", "🐈"], 2))
)
def test_completion_pieces_join_to_the_engines_text(
    tokens: "Tokens", tokenizer: Any, prompt: str, text: str
) -> None:
    """The pieces of a completion's tokens join to the text that the engine gives."""
    before, generated = tokenizer.encode(prompt), tokenizer.encode(text)
    token_text = tokens.completion(TokenizedPrompt(prompt, before))
    pieces = [token_text.next(token_id) for token_id in generated]
    assert "".join(pieces) == engine_text(tokenizer, before, generated) == text


def test_character_of_several_tokens_belongs_to_the_last(tokens: "Tokens") -> None:
    """A token that only begins or goes on with a character adds no text."""
    token_text = tokens.prompt()
    pieces = [token_text.next(token_id) for token_id in byte_ids(b"a" + CAT + b"b")]
    assert pieces == ["a", "", "", "", "🐈", "b"]


# Prompts that end inside a character: their tokens, those of the completion, and its text.
CUT = [
    pytest.param(byte_ids(CAT[:1]), byte_ids(CAT[1:] + b"!"), "🐈!", id="first byte alone"),
    pytest.param(byte_ids(b"hi" + CAT[:1]), byte_ids(CAT[1:] + b"!"), "🐈!", id="first byte"),
    pytest.param(byte_ids(b"hi" + CAT[:2]), byte_ids(CAT[2:] + b"!"), "🐈!", id="two bytes"),
    pytest.param(byte_ids(b"hi" + CAT[:3]), byte_ids(CAT[3:] + b"!"), "🐈!", id="three bytes"),
    pytest.param(
        byte_ids(b"long enough for all context" + CAT[:3]),
        byte_ids(CAT[3:] + b"!"),
        "🐈!",
        id="long prompt",
    ),
    pytest.param([*byte_ids(b"hi"), 262], byte_ids(CAT[2:] + b"!"), "🐈!", id="pair"),
    # GPT-2's vocabulary has a blank and the first half of an emoji as one token: id 263 here.
    pytest.param([*byte_ids(b"hi"), 263], byte_ids(CAT[2:] + b"!"), "🐈!", id="blank in the pair"),
    pytest.param(
        [*byte_ids(b"hi"), 263, *byte_ids(CAT[2:3])],
        byte_ids(CAT[3:] + b"!"),
        "🐈!",
        id="blank in the pair, three bytes",
    ),
    pytest.param([*byte_ids(b"hi"), 2, *byte_ids(CAT[:2])], byte_ids(CAT[2:]), "🐈", id="special"),
]


@pytest.mark.parametrize(("prompt", "generated", "text"), CUT)
def test_completion_of_a_cut_prompt_starts_with_the_character(
    tokens: "Tokens", tokenizer: Any, prompt: list[int], generated: list[int], text: str
) -> None:
    """Where a prompt ends inside a character, the completion shows that one, and no more of it."""
    token_text = tokens.completion(TokenizedPrompt(None, prompt))
    assert tokens.ends_inside_character(TokenizedPrompt(None, prompt))
    assert engine_text(tokenizer, prompt, generated) == text
    assert "".join(token_text.next(token_id) for token_id in generated) == text


def test_stop_string_in_a_cut_prompt_does_not_stop(tokens: "Tokens", tokenizer: Any) -> None:
    """A stop string that stands in a cut prompt does not end the completion."""
    prompt, generated = byte_ids(b"stop" + CAT[:2]), byte_ids(CAT[2:] + b" on")
    assert tokens.ends_inside_character(TokenizedPrompt(None, prompt))
    assert engine_text(tokenizer, prompt, generated, stop=["stop"]) == "🐈 on"


def test_unfinished_character_leaks_nothing_of_the_prompt(tokens: "Tokens", tokenizer: Any) -> None:
    """Where nobody finishes the prompt's character, at most a replacement character is left."""
    prompt, generated = byte_ids(b"secret" + CAT[:2]), byte_ids(b" on and on")
    assert tokens.ends_inside_character(TokenizedPrompt(None, prompt))
    assert engine_text(tokenizer, prompt, generated) in (" on and on", "\ufffd on and on")


@pytest.mark.parametrize("prompt", ["\ufffd", "hi\ufffd", "hi\ufffd\ufffd"])
def test_replacement_character_of_the_prompt_is_a_character(
    tokens: "Tokens", tokenizer: Any, prompt: str
) -> None:
    """A prompt may end with U+FFFD itself: a whole character, which is not repeated."""
    assert not tokens.ends_inside_character(TokenizedPrompt(None, tokenizer.encode(prompt)))
    assert engine_text(tokenizer, tokenizer.encode(prompt), byte_ids(b"!a")) == "!a"


@pytest.mark.parametrize("prompt", ["hi", "é", "hi 🐈", " "])
def test_whole_prompts_are_not_cut(tokens: "Tokens", tokenizer: Any, prompt: str) -> None:
    """A prompt that ends with a whole character is left to vLLM."""
    assert not tokens.ends_inside_character(TokenizedPrompt(prompt, tokenizer.encode(prompt)))


def test_repair_is_idempotent(tokens: "Tokens") -> None:
    """Repairing twice changes nothing more."""
    from adapter.vllm_api import FastIncrementalDetokenizer
    from adapter.vllm_patches.detokenizer import repair_detokenizer

    assert tokens.prompt()
    once = FastIncrementalDetokenizer.__init__
    repair_detokenizer()
    assert FastIncrementalDetokenizer.__init__ is once


def test_special_tokens(tokens: "Tokens") -> None:
    """Control tokens and the model's ends are special, and have their names."""
    from adapter.engine.detokenizer import Tokens

    assert [tokens.is_special(token_id) for token_id in (0, 1, 2, 3)] == [True, True, True, False]
    assert tokens.name(2) == "<|im_end|>"
    ends_with_a = Tokens(tokens._tokenizer, byte_ids(b"a"))
    assert ends_with_a.is_special(byte_ids(b"a")[0])


@pytest.mark.parametrize("skip", [False, True])
def test_special_tokens_are_those_that_a_text_leaves_out(skip: bool) -> None:
    """Also those that the tokenizer has by their own flag alone."""
    from adapter.engine.detokenizer import Tokens
    from tests.tiny_tokenizer import SPECIAL, tiny_tokenizer

    tokenizer = tiny_tokenizer(["<later>"])
    tokenizer.add_tokens(["<plain>"])
    tokens = Tokens(tokenizer, [])
    for name in (*SPECIAL, "<later>", "<plain>"):
        token_id = tokenizer.convert_tokens_to_ids(name)
        detokenizer = tokens.detokenizer([5], {"skip_special_tokens": skip})
        detokenizer.update([token_id], stop_terminated=False)
        shown = detokenizer.get_next_output_text(finished=True, delta=True)
        left_out = skip and tokens.is_special(token_id)
        assert (shown, tokens.name(token_id)) == ("" if left_out else name, name)
        assert tokens.is_special(token_id) == (name != "<plain>")


@pytest.mark.parametrize("is_fast", [False, True])
def test_special_tokens_of_tokenizers_without_flags(is_fast: bool) -> None:
    """Where a tokenizer has a list alone, or goes by it, they are those of the list."""
    from tokenizers import AddedToken

    from adapter.engine.detokenizer import special_tokens

    named = {"all_special_tokens": ["<a>"], "all_special_ids": [7], "is_fast": is_fast}
    assert special_tokens(SimpleNamespace(**named)) == {"<a>": 7}
    flagged = SimpleNamespace(**named, added_tokens_decoder={8: AddedToken("<b>", special=True)})
    assert special_tokens(flagged) == {"<a>": 7} | ({"<b>": 8} if is_fast else {})


def test_text_after_a_prompt(tokens: "Tokens", tokenizer: Any) -> None:
    """The text of generated tokens is what follows the prompt, without an unfinished character."""
    prompt = TokenizedPrompt("hi", tokenizer.encode("hi"))

    def text(ids: list[int], skip: bool = True) -> str:
        after: str = tokens.text_after(prompt, ids, skip_special_tokens=skip)
        return after

    assert text(byte_ids(b" on" + CAT)) == " on🐈"
    assert text(byte_ids(b" on" + CAT[:2])) == " on"
    assert text([*byte_ids(b"a"), 2]) == "a"
    assert text([*byte_ids(b"a"), 2], skip=False) == "a<|im_end|>"
