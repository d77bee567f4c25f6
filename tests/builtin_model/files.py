"""Small models, GGUF files and wheels that the tests of the built-in model make."""

import base64
import hashlib
import zipfile
from pathlib import Path

import gguf
import numpy as np
from numpy.typing import NDArray

from adapter.builtin_model.download import GGUF_FILE, GGUF_PACKAGE, REQUIREMENT

LAYERS, HIDDEN, INNER, HEADS, KV_HEADS, VOCABULARY = 2, 64, 96, 4, 2, 10
HEAD_SIZE = HIDDEN // HEADS

BLOCK_SHAPES = {
    "attn_norm": (HIDDEN,),
    "attn_q": (HIDDEN, HIDDEN),
    "attn_k": (KV_HEADS * HEAD_SIZE, HIDDEN),
    "attn_v": (KV_HEADS * HEAD_SIZE, HIDDEN),
    "attn_output": (HIDDEN, HIDDEN),
    "ffn_norm": (HIDDEN,),
    "ffn_gate": (INNER, HIDDEN),
    "ffn_up": (INNER, HIDDEN),
    "ffn_down": (HIDDEN, INNER),
}

Weights = dict[str, NDArray[np.float32]]


def ignore_report(_message: str) -> None:
    """A report that nobody reads."""


def random_weights() -> Weights:
    """A two-layer Llama's weights under their GGUF names, exact in bfloat16 (small integers)."""
    generator = np.random.default_rng(0)
    shapes = {"token_embd.weight": (VOCABULARY, HIDDEN), "output_norm.weight": (HIDDEN,)}
    for layer in range(LAYERS):
        shapes |= {f"blk.{layer}.{name}.weight": shape for name, shape in BLOCK_SHAPES.items()}
    return {
        name: generator.integers(-99, 99, shape).astype(np.float32)
        for name, shape in shapes.items()
    }


def write_gguf(file: Path, weights: Weights, architecture: str = "llama") -> None:
    """Write a GGUF file; feed-forward "down" weights are quantised as the real file's are."""
    writer = gguf.GGUFWriter(file, architecture)
    writer.add_vocab_size(VOCABULARY)
    writer.add_block_count(LAYERS)
    writer.add_context_length(128)
    writer.add_embedding_length(HIDDEN)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(100000.0)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_pad_token_id(2)
    for name, weight in weights.items():
        if "ffn_down" in name:
            kind = gguf.GGMLQuantizationType.Q4_1
            writer.add_tensor(name, gguf.quantize(weight, kind), raw_dtype=kind)
        else:
            writer.add_tensor(name, weight)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def write_wheel(folder: Path, content: bytes) -> Path:
    """Write a wheel that pip accepts as the built-in model's package."""
    distribution, version = REQUIREMENT.replace("-", "_").split("==")
    info = f"{distribution}-{version}.dist-info"
    files = {
        f"{GGUF_PACKAGE}/{GGUF_FILE}": content,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {distribution}\nVersion: {version}\n"
        "Requires-Dist: no-such-package-and-none-wanted\n".encode(),
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{name},{record_hash(data)},{len(data)}\n" for name, data in files.items())
    wheel = folder / f"{distribution}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, data in files.items():
            archive.writestr(name, data)
        archive.writestr(f"{info}/RECORD", record)
    return wheel


def record_hash(data: bytes) -> str:
    """A hash as a wheel's RECORD writes it."""
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("=")
    return f"sha256={digest}"
