"""Small random models as directories and GGUF files, and one large Llama written shard by shard.

    python tests/make_models.py DIR --layers 22

writes the large one: 1.1 billion parameters at 22 layers, bfloat16, never more than one layer in memory.
"""

import argparse
import json
from pathlib import Path

import gguf
import numpy as np
import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedTokenizerFast

VOCABULARY = 256 + 1  # bytes and an end of text

_SHAPE = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 128,
    "bos_token_id": 256,
    "eos_token_id": 256,
    "pad_token_id": 256,
}
_SLIDING = {"sliding_window": 5, "layer_types": ["sliding_attention", "full_attention", "sliding_attention"]}
FAMILIES = {
    "llama": _SHAPE | {"model_type": "llama"},
    "llama-tied": _SHAPE | {"model_type": "llama", "tie_word_embeddings": True},
    "qwen2": _SHAPE | {"model_type": "qwen2", "use_sliding_window": True, "max_window_layers": 1} | _SLIDING,
    "qwen3": _SHAPE | {"model_type": "qwen3"},
    "mistral": _SHAPE | {"model_type": "mistral", "sliding_window": 5},
    "gemma": _SHAPE | {"model_type": "gemma", "pad_token_id": 0},
    "gemma2": _SHAPE | {"model_type": "gemma2", "query_pre_attn_scalar": 8} | _SLIDING,
    "gemma3": _SHAPE | {"model_type": "gemma3_text", "query_pre_attn_scalar": 8} | _SLIDING,
    "phi": _SHAPE | {"model_type": "phi"},
    "gpt2": {
        "model_type": "gpt2",
        "vocab_size": VOCABULARY,
        "n_embd": 32,
        "n_layer": 3,
        "n_head": 4,
        "n_positions": 128,
        "bos_token_id": 256,
        "eos_token_id": 256,
    },
    "openai-gpt": {"model_type": "openai-gpt", "vocab_size": VOCABULARY, "n_embd": 32, "n_layer": 3, "n_head": 4},
    "gpt_neox": _SHAPE | {"model_type": "gpt_neox"},
    "bloom": {"model_type": "bloom", "vocab_size": VOCABULARY, "hidden_size": 32, "n_layer": 3, "n_head": 4},
}


def byte_tokenizer() -> PreTrainedTokenizerFast:
    """One token a byte, id = byte in the order of the byte-level alphabet, and an end of text."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {character: i for i, character in enumerate(alphabet)} | {"<end>": len(alphabet)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<end>", bos_token="<end>", pad_token="<end>")


def make_model(directory: Path, family: str = "llama", *, seed: int = 0, shard: str = "1GB", **changes) -> Path:
    """A random model of a family, with tokenizer, in float32. Weights are large enough that every one matters.

    ``shard`` is the largest size of a file, ``changes`` go into the config.
    """
    fields = FAMILIES[family] | changes
    config = AutoConfig.for_model(**fields)
    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_config(config)
    with torch.no_grad():
        for parameter in model.parameters():
            # Norms and biases too: at their initial ones and zeros a forgotten one would go unnoticed.
            parameter.add_(torch.randn_like(parameter) * (0.3 if parameter.ndim == 1 else 0.15))
    model.save_pretrained(directory, max_shard_size=shard)
    byte_tokenizer().save_pretrained(directory)
    return directory


def make_gguf(file: Path, *, seed: int = 0, quantised: bool = True) -> dict[str, np.ndarray]:
    """A small Llama as GGUF, matrices in Q4_0 or float32; returns the values a reader must find, by GGUF name."""
    rng = np.random.default_rng(seed)
    width, inner, layers, heads = 64, 96, 2, 4
    writer = gguf.GGUFWriter(file, "llama")
    writer.add_block_count(layers)
    writer.add_context_length(128)
    writer.add_embedding_length(width)
    writer.add_feed_forward_length(inner)
    writer.add_head_count(heads)
    writer.add_head_count_kv(heads)
    writer.add_rope_dimension_count(width // heads)
    writer.add_rope_freq_base(10000.0)
    writer.add_layer_norm_rms_eps(1e-5)
    tokens = [*sorted(pre_tokenizers.ByteLevel.alphabet()), "to", "<end>"]
    writer.add_vocab_size(len(tokens))
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(tokens)
    writer.add_token_types([gguf.TokenType.NORMAL] * 257 + [gguf.TokenType.CONTROL])
    writer.add_token_merges(["t o"])
    writer.add_bos_token_id(257)
    writer.add_eos_token_id(257)
    shapes = {"token_embd": (len(tokens), width), "output": (len(tokens), width), "output_norm": (width,)}
    for i in range(layers):
        shapes |= {f"blk.{i}.attn_{x}": (width, width) for x in ("q", "k", "v", "output")}
        shapes |= {f"blk.{i}.ffn_{x}": (inner, width) for x in ("gate", "up")} | {f"blk.{i}.ffn_down": (width, inner)}
        shapes |= {f"blk.{i}.attn_norm": (width,), f"blk.{i}.ffn_norm": (width,)}
    kind = gguf.GGMLQuantizationType.Q4_0
    values = {}
    for name, shape in shapes.items():
        value = rng.standard_normal(shape, dtype=np.float32)
        if quantised and len(shape) == 2:
            packed = gguf.quants.quantize(value, kind)
            writer.add_tensor(f"{name}.weight", packed, raw_dtype=kind)
            value = gguf.quants.dequantize(packed, kind)
        else:
            writer.add_tensor(f"{name}.weight", value)
        values[f"{name}.weight"] = value
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return values


def make_large_llama(
    directory: Path, *, layers: int = 22, width: int = 2048, inner: int = 5632, vocabulary: int = 32000, seed: int = 0
) -> Path:
    """A random Llama (1.1 billion parameters by default) in bfloat16, one shard a layer, with a byte tokenizer."""
    directory.mkdir(parents=True)
    generator = torch.Generator().manual_seed(seed)
    heads, kv_width = width // 64, width // 8
    weight_map: dict[str, str] = {}

    def write(number: int, shapes: dict[str, tuple[int, ...]]) -> None:
        name = f"model-{number:05}-of-{layers + 1:05}.safetensors"
        tensors = {}
        for key, shape in shapes.items():
            value = torch.empty(shape, dtype=torch.bfloat16)
            value.normal_(std=shape[-1] ** -0.5, generator=generator) if len(shape) == 2 else value.fill_(1)
            tensors[key] = value
        save_file(tensors, directory / name, metadata={"format": "pt"})
        weight_map.update(dict.fromkeys(tensors, name))

    for i in range(layers):
        attention = {"q_proj": (width, width), "k_proj": (kv_width, width), "v_proj": (kv_width, width)}
        attention["o_proj"] = (width, width)
        mlp = {"gate_proj": (inner, width), "up_proj": (inner, width), "down_proj": (width, inner)}
        norms = {"input_layernorm": (width,), "post_attention_layernorm": (width,)}
        parts = {"self_attn.": attention, "mlp.": mlp, "": norms}
        write(
            i + 1,
            {
                f"model.layers.{i}.{part}{x}.weight": shape
                for part, group in parts.items()
                for x, shape in group.items()
            },
        )
    write(
        layers + 1,
        {
            "model.embed_tokens.weight": (vocabulary, width),
            "model.norm.weight": (width,),
            "lm_head.weight": (vocabulary, width),
        },
    )
    (directory / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
    AutoConfig.for_model(
        "llama",
        vocab_size=vocabulary,
        hidden_size=width,
        intermediate_size=inner,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=heads // 8,
        max_position_embeddings=2048,
        tie_word_embeddings=False,
        architectures=["LlamaForCausalLM"],
        dtype="bfloat16",
    ).save_pretrained(directory)
    byte_tokenizer().save_pretrained(directory)
    return directory


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--layers", type=int, default=22)
    arguments = parser.parse_args()
    make_large_llama(arguments.directory, layers=arguments.layers)
