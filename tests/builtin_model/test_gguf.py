"""adapter/builtin_model/gguf.py and huggingface.py: a GGUF file becomes a Hugging Face model."""

import cmath
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from safetensors import safe_open

from adapter.builtin_model import gguf as gguf_reader
from adapter.builtin_model import huggingface
from adapter.builtin_model.reporting import DefaultModelError
from tests.builtin_model.files import (
    HEAD_SIZE,
    HEADS,
    HIDDEN,
    INNER,
    KV_HEADS,
    LAYERS,
    VOCABULARY,
    Weights,
    ignore_report,
    random_weights,
    write_gguf,
)

Pairs = list[tuple[int, int]]


def read_safetensors(file: Path) -> dict[str, torch.Tensor]:
    """Every tensor of the file, by name."""
    with safe_open(file, framework="pt") as tensors:
        return {name: tensors.get_tensor(name) for name in tensors.keys()}  # noqa: SIM118


class TestUnpermuteRotary:
    def test_matches_row_by_row_formula(self) -> None:
        """Each head's neighbouring rows go to its two halves."""
        weight = np.arange(HIDDEN * 3, dtype=np.float32).reshape(HIDDEN, 3)
        result = gguf_reader.unpermute_rotary(weight, HEADS)
        half = HEAD_SIZE // 2
        for head in range(HEADS):
            for i in range(half):
                first, second = head * HEAD_SIZE + i, head * HEAD_SIZE + half + i
                assert (result[first] == weight[head * HEAD_SIZE + 2 * i]).all()
                assert (result[second] == weight[head * HEAD_SIZE + 2 * i + 1]).all()

    def test_attention_scores_are_those_of_the_neighbouring_pairs_convention(self) -> None:
        """What the reordering is for: q.k at two positions, each in its own convention."""
        generator = np.random.default_rng(1)
        query_weight, key_weight = generator.normal(size=(2, HEAD_SIZE, 8)).astype(np.float32)
        query_input, key_input = generator.normal(size=(2, 8)).astype(np.float32)

        def rotated(vector: NDArray[np.float32], position: int, pairs: Pairs) -> list[complex]:
            return [
                complex(vector[a], vector[b])
                * cmath.exp(1j * position * 100000.0 ** (-2 * i / HEAD_SIZE))
                for i, (a, b) in enumerate(pairs)
            ]

        def score(query: NDArray[np.float32], key: NDArray[np.float32], pairs: Pairs) -> float:
            turned = zip(rotated(query, 9, pairs), rotated(key, 4, pairs), strict=True)
            return sum((q * k.conjugate()).real for q, k in turned)

        half = HEAD_SIZE // 2
        neighbours = [(2 * i, 2 * i + 1) for i in range(half)]
        halves = [(i, i + half) for i in range(half)]
        unpermute = gguf_reader.unpermute_rotary
        expected = score(query_weight @ query_input, key_weight @ key_input, neighbours)
        actual = score(
            unpermute(query_weight, 1) @ query_input, unpermute(key_weight, 1) @ key_input, halves
        )
        assert actual == pytest.approx(expected, rel=1e-4)


class TestTensorNames:
    def test_blocks(self) -> None:
        """A block's tensor has the block's number and Llama's name."""
        name = gguf_reader.llama_tensor_name("blk.12.ffn_norm.weight")
        assert name == "model.layers.12.post_attention_layernorm.weight"

    @pytest.mark.parametrize(
        "name", ["rope_freqs.weight", "blk.0.attn_q.bias", "blk.x.attn_q.weight", "0.attn_q.weight"]
    )
    def test_unknown_is_refused_by_name(self, name: str) -> None:
        """A tensor that has no place in the model is refused by its name."""
        with pytest.raises(DefaultModelError, match=name):
            gguf_reader.llama_tensor_name(name)


@pytest.mark.usefixtures("no_tokenizer")
class TestConvert:
    @pytest.fixture
    def weights(self) -> Weights:
        return random_weights()

    @pytest.fixture
    def folder(self, tmp_path: Path, weights: Weights) -> Path:
        folder = tmp_path / "model"
        folder.mkdir()
        write_gguf(tmp_path / "model.gguf", weights)
        huggingface.convert_gguf(tmp_path / "model.gguf", folder, ignore_report)
        return folder

    def test_every_tensor_arrives_under_the_name_that_llama_has(self, folder: Path) -> None:
        """All tensors are there, in bfloat16, and no others."""
        block = """input_layernorm self_attn.q_proj self_attn.k_proj self_attn.v_proj
            self_attn.o_proj post_attention_layernorm mlp.gate_proj mlp.up_proj mlp.down_proj"""
        expected = {"model.embed_tokens.weight", "model.norm.weight"}
        for layer in range(LAYERS):
            expected |= {f"model.layers.{layer}.{name}.weight" for name in block.split()}
        tensors = read_safetensors(folder / "model.safetensors")
        assert set(tensors) == expected
        assert {tensor.dtype for tensor in tensors.values()} == {torch.bfloat16}

    def test_values(self, folder: Path, weights: Weights) -> None:
        """The values are those of the file, as exactly as its quantisation lets them be."""
        tensors = read_safetensors(folder / "model.safetensors")
        for name, weight in weights.items():
            converted = tensors[gguf_reader.llama_tensor_name(name)].float().numpy()
            heads = HEADS if "attn_q" in name else KV_HEADS if "attn_k" in name else None
            expected = gguf_reader.unpermute_rotary(weight, heads) if heads else weight
            # Q4_1 has 16 steps from a block's lowest value to its highest; bfloat16 has 8 bits.
            tolerance = 198 / 15 / 2 + 0.5 if "ffn_down" in name else 0.0
            assert np.abs(converted - expected).max() <= tolerance, name

    def test_config(self, folder: Path) -> None:
        """config.json and generation_config.json say what the GGUF file says."""
        config = json.loads((folder / "config.json").read_text())
        assert config == {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "dtype": "bfloat16",
            "hidden_act": "silu",
            "attention_bias": False,
            "mlp_bias": False,
            "vocab_size": VOCABULARY,
            "hidden_size": HIDDEN,
            "intermediate_size": INNER,
            "num_hidden_layers": LAYERS,
            "num_attention_heads": HEADS,
            "num_key_value_heads": KV_HEADS,
            "head_dim": HEAD_SIZE,
            "max_position_embeddings": 128,
            "rms_norm_eps": 1e-5,
            "rope_theta": 100000.0,
            "tie_word_embeddings": True,
            "bos_token_id": 1,
            "eos_token_id": 2,
            "pad_token_id": 2,
        }

    def test_weights_are_as_readable_as_the_rest(self, folder: Path) -> None:
        """All files have the same permissions."""
        modes = {file.stat().st_mode for file in folder.iterdir()}
        assert len(modes) == 1

    def test_own_output_matrix_unties_the_embeddings(
        self, tmp_path: Path, weights: Weights
    ) -> None:
        """A model with an output matrix of its own keeps it, and says so."""
        weights["output.weight"] = weights["token_embd.weight"]
        write_gguf(tmp_path / "untied.gguf", weights)
        huggingface.convert_gguf(tmp_path / "untied.gguf", tmp_path, ignore_report)
        assert json.loads((tmp_path / "config.json").read_text())["tie_word_embeddings"] is False
        assert "lm_head.weight" in read_safetensors(tmp_path / "model.safetensors")

    def test_another_architecture_is_refused(self, tmp_path: Path, weights: Weights) -> None:
        """A GGUF file of another architecture is refused by its name."""
        write_gguf(tmp_path / "other.gguf", weights, architecture="falcon")
        with pytest.raises(DefaultModelError, match="falcon"):
            huggingface.convert_gguf(tmp_path / "other.gguf", tmp_path, ignore_report)
