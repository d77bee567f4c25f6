"""A vocabulary of all bytes and one end, as llguidance asks for it."""

from collections.abc import Sequence

EVERY_BYTE = [bytes([byte]) for byte in range(256)]
END = 256


class ByteTokenizer:
    """A token for each byte, and one that ends the text."""

    eos_token_id = END
    bos_token_id = None
    tokens: Sequence[bytes] = (*EVERY_BYTE, b"<eos>")
    special_token_ids: Sequence[int] = (END,)

    def __call__(self, text: bytes) -> list[int]:
        return list(text)
