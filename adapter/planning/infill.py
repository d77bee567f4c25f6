"""suffix: infilling with the model's own fill-in-the-middle tokens, found in its vocabulary."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Infill:
    """How a model is asked to fill the gap between a prompt and a suffix."""

    template: str
    """Text with {prefix} and {suffix}, each once."""
    ends: tuple[str, ...] = ()
    """Tokens beside the model's own end that end what it fills in."""

    def prompt(self, prefix: str | list[int], suffix: str) -> "InfillPrompt":
        """What asks for what stands between prefix and suffix."""
        # Not one after the other: a prefix that holds the word {suffix} is not filled.
        before, _, after = self.template.partition("{prefix}")
        if isinstance(prefix, list):
            before = before.rstrip(" ")  # a SentencePiece token has the blank before it
        return InfillPrompt(
            before.replace("{suffix}", suffix), prefix, after.replace("{suffix}", suffix)
        )


@dataclass(frozen=True, slots=True)
class InfillPrompt:
    """A prompt in the model's form, in which the caller's own can be told."""

    before: str
    prefix: str | list[int]
    after: str

    @property
    def text(self) -> str | None:
        """All of it; None where the prefix came as token ids."""
        return None if isinstance(self.prefix, list) else self.before + self.prefix + self.after


# Each family's own documentation gives its template; the sentinels are its tokens' names.
FAMILIES: dict[str, tuple[tuple[str, ...], Infill]] = {
    # Qwen2.5-Coder (its README, "Fill in the middle") and CodeGemma (its model card).
    "fim_prefix with bars": (
        ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"),
        Infill(
            "<|fim_prefix|>{prefix}<|fim_suffix|>{suffix}<|fim_middle|>",
            (
                *("<|endoftext|>", "<|fim_pad|>", "<|repo_name|>", "<|file_sep|>"),
                *("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>", "<|file_separator|>"),
            ),
        ),
    ),
    # StarCoder and StarCoder2 (their model cards), Granite Code (its paper).
    "fim_prefix": (
        ("<fim_prefix>", "<fim_suffix>", "<fim_middle>"),
        Infill(
            "<fim_prefix>{prefix}<fim_suffix>{suffix}<fim_middle>",
            ("<|endoftext|>", "<fim_pad>", "<file_sep>", "<fim_prefix>", "<fim_suffix>"),
        ),
    ),
    # SantaCoder (its model card).
    "fim-prefix": (
        ("<fim-prefix>", "<fim-suffix>", "<fim-middle>"),
        Infill(
            "<fim-prefix>{prefix}<fim-suffix>{suffix}<fim-middle>",
            ("<|endoftext|>", "<fim-pad>", "<fim-prefix>", "<fim-suffix>"),
        ),
    ),
    # DeepSeek-Coder and DeepSeek-Coder-V2 (their READMEs, "Code Insertion").
    "DeepSeek": (
        ("<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>"),
        Infill(
            "<｜fim▁begin｜>{prefix}<｜fim▁hole｜>{suffix}<｜fim▁end｜>",
            ("<｜end▁of▁sentence｜>", "<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>"),
        ),
    ),
    # CodeLlama ("<PRE> {prefix} <SUF>{suffix} <MID>", its tokenizer in transformers): the tokens
    # are written with the SentencePiece blank, which is the blank before each of them.
    "CodeLlama": (
        ("▁<PRE>", "▁<SUF>", "▁<MID>"),
        Infill("▁<PRE> {prefix}▁<SUF>{suffix}▁<MID>", ("▁<EOT>",)),
    ),
    # Codestral (mistral-common, and Mistral's cookbook on tokenization): the suffix comes first.
    "Codestral": (
        ("[SUFFIX]", "[PREFIX]"),
        Infill("[SUFFIX]{suffix}[PREFIX]{prefix}", ("[SUFFIX]", "[PREFIX]", "[MIDDLE]")),
    ),
}


def find(vocabulary: Mapping[str, int]) -> Infill | None:
    """The infill of the family whose tokens are all in a tokenizer's vocabulary."""
    for sentinels, infill in FAMILIES.values():
        if all(sentinel in vocabulary for sentinel in sentinels):
            return infill
    return None


def from_template(template: str) -> Infill:
    """An operator's own template.

    Raises:
        ValueError: it does not hold {prefix} and {suffix} once each.
    """
    if template.count("{prefix}") != 1 or template.count("{suffix}") != 1:
        raise ValueError("an infill template must hold {prefix} and {suffix}, each once")
    return Infill(template)
