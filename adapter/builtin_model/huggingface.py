"""Writes a model as a Hugging Face folder, which both vLLM and transformers load."""

import json
import shutil
from dataclasses import asdict
from pathlib import Path

from adapter.builtin_model.gguf import LlamaFacts, read_facts, read_weights
from adapter.builtin_model.reporting import Report


def convert_gguf(gguf_file: Path, folder: Path, report: Report) -> None:
    """Write the Llama model in `gguf_file` to the existing `folder` as a Hugging Face model.

    Raises DefaultModelError when the file isn't a Llama model or has a tensor of unknown name.
    """
    from gguf import GGUFReader
    from safetensors.torch import save_file

    reader = GGUFReader(gguf_file)
    facts = read_facts(reader)
    weights = read_weights(reader, facts, f"Converting {folder.name}")
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    write_json(folder / "config.json", _config(facts))
    write_json(folder / "generation_config.json", _generation_config(facts))
    # safetensors writes its file for the owner only; a cache in an image has other readers.
    shutil.copymode(folder / "config.json", folder / "model.safetensors")
    report("Converting its tokenizer (a few seconds)")
    write_tokenizer(gguf_file, facts.max_position_embeddings, folder)


def _config(facts: LlamaFacts) -> dict[str, object]:
    """The contents of config.json."""
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "dtype": "bfloat16",
        "hidden_act": "silu",
        "attention_bias": False,
        "mlp_bias": False,
        **asdict(facts),
    }


def _generation_config(facts: LlamaFacts) -> dict[str, object]:
    """The contents of generation_config.json."""
    return {
        "bos_token_id": facts.bos_token_id,
        "eos_token_id": facts.eos_token_id,
        "pad_token_id": facts.pad_token_id,
    }


def write_tokenizer(gguf_file: Path, max_length: int, folder: Path) -> None:
    """Write the tokenizer, with its chat template, that the GGUF file carries."""
    from tokenizers import pre_tokenizers
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(gguf_file.parent, gguf_file=gguf_file.name)
    # transformers builds GPT-2's splitting for every BPE vocabulary of a GGUF file. SmolLM2 was
    # trained with each digit split off first, which shows after a run of spaces: "  1".
    tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
    )
    tokenizer.model_max_length = max_length
    tokenizer.save_pretrained(folder)


def write_json(file: Path, content: dict[str, object]) -> None:
    """Write one JSON file, indented, with a final newline."""
    file.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
