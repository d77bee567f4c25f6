"""The model's tokens as bytes: what every backend's tables are made from.

One reading for all backends: a token that is part of a character keeps its own bytes, and a token
that is no text (special, or padding of the output layer) is never part of a constrained text.
"""

import pickle
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import llguidance


@dataclass(frozen=True)
class Vocabulary:
    """What is known of the tokens, in a form that can be sent to another process."""

    tokens: tuple[bytes, ...]
    """The bytes of each id of the model's output layer; empty where the token is no text."""
    eos_token_ids: tuple[int, ...]
    """The model's ends of text (EOS), the tokenizer's own first."""
    tokenizer_json: str | None
    """The fast tokenizer as JSON, for llguidance; None where the tokenizer has no such form."""

    @property
    def words(self) -> int:
        """32-bit words of a mask."""
        return (len(self.tokens) + 31) // 32

    @cached_property
    def by_bytes(self) -> dict[bytes, list[int]]:
        """The ids of each text; several ids can stand for the same bytes."""
        table: dict[bytes, list[int]] = {}
        for token_id, text in enumerate(self.tokens):
            if text:
                table.setdefault(text, []).append(token_id)
        return table

    @cached_property
    def ll_tokenizer(self) -> llguidance.LLTokenizer:
        """The tokens in llguidance's form."""
        if self.tokenizer_json is not None:
            return llguidance.LLTokenizer(
                self.tokenizer_json, n_vocab=len(self.tokens), eos_token=list(self.eos_token_ids)
            )
        return llguidance.LLTokenizer(
            llguidance.TokenizerWrapper(_ByteTokenizer(self)), eos_token=list(self.eos_token_ids)
        )

    def save(self, path: Path) -> None:
        """Write it for another process of ours."""
        path.write_bytes(pickle.dumps((self.tokens, self.eos_token_ids, self.tokenizer_json)))

    @classmethod
    def load(cls, path: Path) -> "Vocabulary":
        """Read what save() wrote."""
        return cls(*pickle.loads(path.read_bytes()))


class _ByteTokenizer:
    """What llguidance asks of a tokenizer that it cannot read itself."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.eos_token_id = vocabulary.eos_token_ids[0]
        self.bos_token_id = None
        self.special_token_ids = [i for i, text in enumerate(vocabulary.tokens) if not text]
        # llguidance wants a name for each special token.
        self.tokens = [text or b"<%d>" % i for i, text in enumerate(vocabulary.tokens)]
        self._ids = {text: ids[0] for text, ids in vocabulary.by_bytes.items()}
        self._longest = max(map(len, self._ids), default=0)

    def __call__(self, text: bytes) -> list[int]:
        """The longest tokens, one after another; a byte that no token has is left out."""
        found: list[int] = []
        start = 0
        while start < len(text):
            ends = range(min(len(text), start + self._longest), start, -1)
            end = next((end for end in ends if text[start:end] in self._ids), 0)
            if end:
                found.append(self._ids[text[start:end]])
            start = end or start + 1
        return found


def eos_token_ids(generation_config: Mapping[str, Any], own: int | None) -> list[int]:
    """The model's ends of text: the tokenizer's own first, then those of its generation_config."""
    configured = generation_config.get("eos_token_id")
    more = [configured] if isinstance(configured, int) else list(configured or ())
    return list(dict.fromkeys(more if own is None else [own, *more]))


def read_vocabulary(tokenizer: Any, vocab_size: int, eos_token_ids: Iterable[int]) -> Vocabulary:
    """The vocabulary of a tokenizer of vLLM's.

    vocab_size: rows of the model's output layer, more or fewer than the tokenizer has.

    Raises:
        ValueError: the tokenizer's tokens cannot be read as bytes.
    """
    own = tuple(dict.fromkeys(eos_token_ids))
    special = _special_ids(tokenizer)
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        texts = _texts_of_any_tokenizer(tokenizer, vocab_size)
        tokenizer_json = None
    else:
        tokenizer_json = _tokenizer_json(backend)
        reader = llguidance.LLTokenizer(
            tokenizer_json,
            n_vocab=max(vocab_size, backend.get_vocab_size(with_added_tokens=True)),
            eos_token=list(own),
        )
        texts = [reader.decode_bytes([i]) for i in range(reader.vocab_size)]
        special |= {i for i in range(reader.vocab_size) if reader.is_special_token(i)}
        if reader.vocab_size > vocab_size:
            # The model can never make the ids above its output layer, and llguidance's masks would
            # be wider than the others': read the tokens without the tokenizer's own form.
            tokenizer_json = None
    special.update(own)
    tokens = [b"" if i in special else text for i, text in enumerate(texts[:vocab_size])]
    tokens += [b""] * (vocab_size - len(tokens))
    return Vocabulary(tuple(tokens), own, tokenizer_json)


def _special_ids(tokenizer: Any) -> set[int]:
    added = getattr(tokenizer, "added_tokens_decoder", None) or {}
    special = {token_id for token_id, token in added.items() if getattr(token, "special", False)}
    return special | set(getattr(tokenizer, "all_special_ids", ()))


def _tokenizer_json(backend: Any) -> str:
    """The fast tokenizer's own form, without the settings of whoever used it last."""
    copied = type(backend).from_str(backend.to_str())
    copied.no_padding()
    copied.no_truncation()
    text: str = copied.to_str()
    return text


def _texts_of_any_tokenizer(tokenizer: Any, vocab_size: int) -> list[bytes]:
    """The tokens of a slow, tiktoken or SentencePiece tokenizer, as xgrammar reads them."""
    import xgrammar  # noqa: PLC0415 - it imports torch, which the common tokenizers need not wait for

    info = xgrammar.TokenizerInfo.from_huggingface(tokenizer, vocab_size=vocab_size)
    return list(info.decoded_vocab)
