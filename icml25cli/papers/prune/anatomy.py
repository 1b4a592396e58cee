"""What a decoder block of a known family is made of: which matrix is what, how many heads, how many numbers.

Knows names and widths of seven matrices in eight families of transformers. Does not know weights, or what is cut.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from transformers import AutoConfig

from icml25cli.core.errors import InputError
from icml25cli.core.models import ModelSource
from icml25cli.core.streaming import StreamedModel


@dataclass(frozen=True)
class Names:
    """Modules within a block."""

    attention: str
    qkv: tuple[str, ...]  # query, key, value; or one matrix whose outputs are all three
    output: str
    ffn: str
    gate: str | None
    up: str
    down: str

    @property
    def inward(self) -> tuple[str, ...]:
        """Matrices that lose outputs, and so the biases that go with them."""
        return (*self.qkv, *((self.gate,) if self.gate else ()), self.up)


LLAMA = Names(
    attention="self_attn",
    qkv=("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    output="self_attn.o_proj",
    ffn="mlp",
    gate="mlp.gate_proj",
    up="mlp.up_proj",
    down="mlp.down_proj",
)
GPT2 = Names("attn", ("attn.c_attn",), "attn.c_proj", "mlp", None, "mlp.c_fc", "mlp.c_proj")
FAMILIES = dict.fromkeys(("llama", "mistral", "qwen2", "qwen3", "gemma", "gemma2", "gemma3_text"), LLAMA) | {
    "gpt2": GPT2
}
# Whose configuration asks for a hidden size that is a multiple of the number of heads, whatever the size of a head.
_DIVISORS = ("llama", "gemma2", "gemma3_text")
_EXPERTS = ("num_local_experts", "num_experts", "n_routed_experts")


@dataclass(frozen=True)
class Anatomy:
    """Sizes that all blocks of a model share."""

    family: str  # model_type of config.json
    layers: int
    hidden: int  # d
    heads: int  # query heads
    kv_heads: int
    head_dim: int  # d_h; heads * head_dim need not be ``hidden``
    inner: int  # d_f, channels of the feed-forward network
    biased: frozenset[str]  # matrices with a bias
    block_parameters: int

    @property
    def names(self) -> Names:
        return FAMILIES[self.family]

    @property
    def transposed(self) -> bool:
        """Matrices are stored (in, out), as transformers' Conv1D has them."""
        return self.names is GPT2

    @property
    def queries_per_kv(self) -> int:
        return self.heads // self.kv_heads

    @property
    def shapes(self) -> dict[str, int]:
        """What a plan says of the model it is for."""
        sizes = asdict(self)
        return {name: sizes[name] for name in ("layers", "hidden", "heads", "kv_heads", "head_dim", "inner")}

    def takes_heads(self, heads: int) -> bool:
        """Whether the stock class of the family can have so many heads of this size in every layer."""
        if self.transposed:
            return heads == self.heads
        return self.family not in _DIVISORS or self.hidden % heads == 0

    def parameters(self, heads: int, kv: int, channels: int, new_biases: int = 0) -> int:
        """Of a block that keeps so many of each; ``new_biases`` are biases of width d that the family has not."""
        dense = self._cut_with(self.heads, self.kv_heads, self.inner)
        return self.block_parameters - dense + self._cut_with(heads, kv, channels) + new_biases * self.hidden

    def head_parameters(self) -> int:
        """Of a query head: its rows of the query and its columns of the output matrix."""
        return self._cut_with(1, 0, 0)

    def kv_parameters(self) -> int:
        """Of a key-value head."""
        return self._cut_with(0, 1, 0)

    def channel_parameters(self) -> int:
        """Of a channel of the feed-forward network."""
        return self._cut_with(0, 0, 1)

    def _cut_with(self, heads: int, kv: int, channels: int) -> int:
        """Numbers in all that is cut along heads and channels; biases of outward matrices are not."""
        names = self.names
        if len(names.qkv) == 1:
            query = key = value = self.hidden + (names.qkv[0] in self.biased)
        else:
            query, key, value = (self.hidden + (name in self.biased) for name in names.qkv)
        per_channel = sum(self.hidden + (name in self.biased) for name in (names.gate, names.up) if name) + self.hidden
        attention = heads * (query + self.hidden) + kv * (key + value)
        return attention * self.head_dim + channels * per_channel


def check_family(source: ModelSource) -> None:
    """Refuse, by name, a model whose blocks are not known here; before anything is read but its config.json.

    Raises:
        InputError: another architecture, experts, cross-attention, or what `prune -o` wrote.
    """
    config: Mapping[str, Any] = source.config
    family = config["model_type"]
    experts = next((name for name in _EXPERTS if isinstance(n := config.get(name), int) and n > 1), None)
    if experts:
        raise InputError(
            f"{source.name} is a mixture of {config[experts]} experts ({family}), which are not pruned here",
            hint="use a dense model",
        )
    if "pruned_layers" in config:
        raise InputError(
            f"{source.name} has been pruned already, to layers of different widths",
            hint="prune the model it came from, with a larger --target",
        )
    if family not in FAMILIES or config.get("add_cross_attention"):
        crossed = " with cross-attention" if family in FAMILIES else ""
        raise InputError(
            f"{source.name} is a {family} model{crossed}, whose blocks are not known here",
            hint=f"known are {', '.join(FAMILIES)}",
        )


def examine(model: StreamedModel) -> Anatomy:
    """The anatomy of a model's blocks, from its configuration and its first block.

    Raises:
        InputError: as ``check_family``, or blocks differ in shape from one another.
    """
    source = model.source
    check_family(source)
    trust = source.trust_remote_code
    config = AutoConfig.from_pretrained(str(source.path), local_files_only=True, trust_remote_code=trust)
    names = FAMILIES[source.config["model_type"]]
    shapes = model.matrix_shapes(0)
    if odd := [i for i in range(model.block_count) if model.matrix_shapes(i) != shapes]:
        raise InputError(f"{model.block_prefix(odd[0])}* has other widths than block 0", hint="prune a dense model")
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    hidden, attended = shapes[names.output]
    kv_width = shapes[names.qkv[1]][0] if len(names.qkv) > 1 else attended
    with model.block(0) as block:
        parameters = {name: parameter.numel() for name, parameter in block.named_parameters()}
    return Anatomy(
        family=source.config["model_type"],
        layers=model.block_count,
        hidden=hidden,
        heads=attended // head_dim,
        kv_heads=kv_width // head_dim,
        head_dim=head_dim,
        inner=shapes[names.up][0],
        biased=frozenset(name for name in shapes if f"{name}.bias" in parameters),
        block_parameters=sum(parameters.values()),
    )
