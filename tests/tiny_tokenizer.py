"""A byte-level BPE tokenizer of a few hundred tokens: each byte, some pairs, three special ones."""

from collections.abc import Sequence
from typing import Any

# Pairs that GPT-2's vocabulary has too: a blank, and a blank with the first bytes of an emoji.
_MERGES = [b"h|i", b"c|a", b"ca|t", b"\xf0|\x9f", b" |\xf0\x9f", b"\xc3|\xa9", b" |cat", b"x|y"]
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]


def tiny_tokenizer(more_special: Sequence[str] = ()) -> Any:
    """The tokenizer as vLLM wraps it. Ids 0 to 2 are special, id 3 + b is the byte b.

    more_special: more special tokens, after all others.
    """
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast
    from vllm.tokenizers.hf import get_cached_tokenizer

    letters = _byte_letters()

    def spelled(piece: bytes) -> str:
        return "".join(letters[byte] for byte in piece)

    vocabulary = {name: index for index, name in enumerate(SPECIAL)}
    for byte in range(256):
        vocabulary[letters[byte]] = len(vocabulary)
    merges = []
    for merge in _MERGES:
        left, right = map(spelled, merge.split(b"|"))
        merges.append((left, right))
        vocabulary.setdefault(left + right, len(vocabulary))
    backend = Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = decoders.ByteLevel()
    special = [*SPECIAL, *more_special]
    backend.add_special_tokens([AddedToken(name, special=True) for name in special])
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend,
        bos_token="<|im_start|>",
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        clean_up_tokenization_spaces=False,
    )
    return get_cached_tokenizer(tokenizer)


def byte_ids(piece: bytes) -> list[int]:
    """A token for each byte, whatever pairs the vocabulary has."""
    return [3 + byte for byte in piece]


def _byte_letters() -> dict[int, str]:
    """GPT-2's letter for each byte: printable ones stand for themselves."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    letters = {byte: chr(byte) for byte in printable}
    others = (byte for byte in range(256) if byte not in letters)
    return letters | {byte: chr(0x100 + index) for index, byte in enumerate(others)}
