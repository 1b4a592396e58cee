"""Decoder-only language models whose layers differ in heads, key-value heads and channels.

``config.json`` of such a model names the widths of every layer under ``pruned_layers``. The classes here are those of
transformers; each layer's matrices are made to measure once the layer is built. This file also stands beside the
weights that it describes, for ``trust_remote_code=True``, so it needs nothing but torch and transformers. Knows how the
stock classes call things. Does not know how a model was pruned.
"""

from collections.abc import Sequence
from typing import Any

from torch import nn
from transformers import (
    Gemma2Config,
    Gemma2ForCausalLM,
    Gemma3ForCausalLM,
    Gemma3TextConfig,
    GemmaConfig,
    GemmaForCausalLM,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)
from transformers.pytorch_utils import Conv1D


class Pruned:
    """What a causal language model of transformers becomes when its layers are as wide as ``pruned_layers`` says.

    Each entry of that list has ``heads``, ``kv_heads``, ``channels``, and in ``biases`` the names of matrices that have
    a bias although those of the family have none.
    """

    def __init__(self: Any, config: Any, *args: Any, **kwargs: Any) -> None:
        stock: Any = super()
        stock.__init__(config, *args, **kwargs)
        blocks: Any = self.base_model.h if isinstance(self, GPT2LMHeadModel) else self.base_model.layers
        if len(config.pruned_layers) != len(blocks):
            raise ValueError(f"pruned_layers has {len(config.pruned_layers)} entries for {len(blocks)} layers")
        for block, widths in zip(blocks, config.pruned_layers, strict=True):
            fit(block, **widths)

    def _get_static_cache_init_shape(self) -> None:
        """Nothing: the cache takes each layer's number of heads from the keys it is first given."""


def fit(block: Any, heads: int, kv_heads: int, channels: int, biases: Sequence[str] = ()) -> None:
    """Give a decoder block of a stock class so many query heads, key-value heads and channels."""
    if hasattr(block, "attn"):  # GPT-2: query, key and value are one matrix, and have a bias anyway
        width = heads * block.attn.head_dim
        block.attn.num_heads, block.attn.split_size = heads, width
        block.attn.c_attn = Conv1D(3 * width, block.attn.embed_dim)
        block.attn.c_proj = Conv1D(block.attn.embed_dim, width)
        block.mlp.c_fc = Conv1D(channels, block.attn.embed_dim)
        block.mlp.c_proj = Conv1D(block.attn.embed_dim, channels)
        return
    attention, mlp = block.self_attn, block.mlp
    attention.num_key_value_groups = heads // kv_heads
    width, kv_width = heads * attention.head_dim, kv_heads * attention.head_dim
    for module, name, inputs, outputs in (
        (attention, "q_proj", None, width),
        (attention, "k_proj", None, kv_width),
        (attention, "v_proj", None, kv_width),
        (attention, "o_proj", width, None),
        (mlp, "gate_proj", None, channels),
        (mlp, "up_proj", None, channels),
        (mlp, "down_proj", channels, None),
    ):
        stock = getattr(module, name)
        bias = stock.bias is not None or name in biases
        setattr(module, name, nn.Linear(inputs or stock.in_features, outputs or stock.out_features, bias=bias))


class PrunedLlamaConfig(LlamaConfig):
    model_type = "pruned_llama"


class PrunedLlamaForCausalLM(Pruned, LlamaForCausalLM):
    config_class = PrunedLlamaConfig


class PrunedMistralConfig(MistralConfig):
    model_type = "pruned_mistral"


class PrunedMistralForCausalLM(Pruned, MistralForCausalLM):
    config_class = PrunedMistralConfig


class PrunedQwen2Config(Qwen2Config):
    model_type = "pruned_qwen2"


class PrunedQwen2ForCausalLM(Pruned, Qwen2ForCausalLM):
    config_class = PrunedQwen2Config


class PrunedQwen3Config(Qwen3Config):
    model_type = "pruned_qwen3"


class PrunedQwen3ForCausalLM(Pruned, Qwen3ForCausalLM):
    config_class = PrunedQwen3Config


class PrunedGemmaConfig(GemmaConfig):
    model_type = "pruned_gemma"


class PrunedGemmaForCausalLM(Pruned, GemmaForCausalLM):
    config_class = PrunedGemmaConfig


class PrunedGemma2Config(Gemma2Config):
    model_type = "pruned_gemma2"


class PrunedGemma2ForCausalLM(Pruned, Gemma2ForCausalLM):
    config_class = PrunedGemma2Config


class PrunedGemma3TextConfig(Gemma3TextConfig):
    model_type = "pruned_gemma3_text"


class PrunedGemma3ForCausalLM(Pruned, Gemma3ForCausalLM):
    config_class = PrunedGemma3TextConfig


class PrunedGPT2Config(GPT2Config):
    model_type = "pruned_gpt2"


class PrunedGPT2LMHeadModel(Pruned, GPT2LMHeadModel):
    config_class = PrunedGPT2Config
