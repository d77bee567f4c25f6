"""Reads a Llama model out of a GGUF file: its sizes, and its weights under Hugging Face's names.

torch and gguf are imported inside the functions: a model that is already there must not wait for
them.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from adapter.builtin_model.reporting import DefaultModelError

if TYPE_CHECKING:
    import numpy as np
    import torch
    from gguf import GGUFReader
    from numpy.typing import NDArray

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


def read_weights(
    reader: "GGUFReader", facts: LlamaFacts, description: str
) -> "dict[str, torch.Tensor]":
    """Every tensor, dequantised to bfloat16; stderr shows a progress bar with the description.

    Raises DefaultModelError when a tensor has no place in the model.
    """
    import torch
    from gguf import dequantize
    from tqdm import tqdm

    heads_to_unpermute = {
        "attn_q.weight": facts.num_attention_heads,
        "attn_k.weight": facts.num_key_value_heads,
    }
    converted: dict[str, torch.Tensor] = {}
    for tensor in tqdm(reader.tensors, desc=description, unit=" tensors"):
        weight = dequantize(tensor.data, tensor.tensor_type)
        heads = heads_to_unpermute.get(tensor.name.split(".", maxsplit=2)[-1])
        if heads is not None:
            weight = unpermute_rotary(weight, heads)
        # A copy: unquantised tensors come as read-only views of the file, which torch warns about.
        converted[llama_tensor_name(tensor.name)] = torch.tensor(weight, dtype=torch.bfloat16)
    return converted
