"""What an answer asks of the model's tokens; engine/detokenizer.py answers it."""

from typing import Protocol

from adapter.planning.calls import TokenizedPrompt


class TokenText(Protocol):
    """Token ids to text, one token at a time, as vLLM's detokenizer prints them."""

    def next(self, token_id: int) -> str:
        """The text that this token adds; "" while a character is incomplete."""

    def is_special(self, token_id: int) -> bool:
        """True for control tokens and for the model's end tokens."""

    def name(self, token_id: int) -> str:
        """A special token's name, such as `<|im_end|>`."""


class TokenTexts(Protocol):
    """Makes a TokenText for each text."""

    def prompt(self) -> TokenText:
        """For a prompt from its first token on; special tokens are left to the caller."""

    def completion(self, prompt: TokenizedPrompt) -> TokenText:
        """For what comes after a prompt."""

    def ends_inside_character(self, prompt: TokenizedPrompt) -> bool:
        """True if the prompt's last tokens are the first bytes of a character."""
