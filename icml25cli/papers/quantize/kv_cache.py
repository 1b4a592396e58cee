"""A key-value cache for transformers that really stores codes (section 4.3 of the paper).

    cache = KVCache(keys, values)
    model.generate(**inputs, cache=cache)

Keys come after rotary embedding. Every token is read back from its codes, the newest too, so that a text gives the same
logits in one pass as token by token. Knows tensors of keys and values. Does not know models.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields

import torch
from jaxtyping import Float, Int64
from torch import Tensor
from transformers.cache_utils import Cache, CacheLayerMixin

from icml25cli.core.errors import InputError
from icml25cli.papers.quantize.vectors import LatticeVectors, PackedVectors


class KVCache(Cache):
    """Codes of all keys and values, a layer at a time decoded when its attention asks for it.

    Args:
        keys: how keys are coded.
        values: how values are coded.
    """

    def __init__(self, keys: LatticeVectors, values: LatticeVectors) -> None:
        class Layer(CodedLayer):
            def __init__(self) -> None:
                super().__init__(keys, values)

        super().__init__(layer_class_to_replicate=Layer)

    @property
    def nbytes(self) -> int:
        """Bytes of the codes and scales held."""
        return sum(layer.nbytes for layer in self.layers if isinstance(layer, CodedLayer))


@dataclass
class _Side:
    """Keys, or values, of one layer: vectors (batch, heads, tokens, n)."""

    quantizer: LatticeVectors
    packed: PackedVectors | None = None
    width: int = 0
    dtype: torch.dtype = torch.float32

    def append(self, x: Float[Tensor, "batch heads new n"]) -> Float[Tensor, "batch heads tokens n"]:
        """Store new tokens, and return all."""
        new = self.quantizer.pack(x.detach())
        if self.packed is not None:
            old = self.packed
            new = PackedVectors(
                **{f.name: torch.cat([getattr(old, f.name), getattr(new, f.name)], dim=2) for f in fields(old)}
            )
        self.packed, self.width, self.dtype = new, x.shape[-1], x.dtype
        return self.quantizer.unpack(new, self.width).to(self.dtype)

    def change(self, how: Callable[[Tensor], Tensor]) -> None:
        """Apply ``how`` to every tensor held; it sees the axes batch, heads and tokens first."""
        if self.packed is not None:
            held = self.packed
            self.packed = PackedVectors(**{f.name: how(getattr(held, f.name)) for f in fields(held)})


class CodedLayer(CacheLayerMixin):
    """Codes of one layer's keys and values."""

    is_sliding = False  # a sliding window is left to the attention mask
    is_croppable = True
    supports_early_init = False

    def __init__(self, keys: LatticeVectors, values: LatticeVectors) -> None:
        super().__init__()
        self._sides = (_Side(keys), _Side(values))

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Nothing is prepared: the first tokens bring shape, dtype and device."""

    def update(
        self,
        key_states: Float[Tensor, "batch heads new n"],
        value_states: Float[Tensor, "batch heads new n"],
        *_: object,
        **__: object,
    ) -> tuple[Float[Tensor, "batch heads tokens n"], Float[Tensor, "batch heads tokens n"]]:
        """Code new tokens; return keys and values of all tokens as their codes have them.

        Raises:
            InputError: there is no token, or keys are of another batch than the tokens held.
        """
        keys, values = self._sides
        batch, heads, new = key_states.shape[:3]
        if not new:
            raise InputError("no new tokens came to the cache", hint="give at least one")
        if keys.packed is not None and (batch, heads) != keys.packed.scales.shape[:2]:
            held = " x ".join(map(str, keys.packed.scales.shape[:2]))
            raise InputError(
                f"the cache holds {held} sequences and heads, and {batch} x {heads} came",
                hint="reset it for a new text",
            )
        self.is_initialized = True
        return keys.append(key_states), values.append(value_states)

    @property
    def nbytes(self) -> int:
        """Bytes of the codes and scales held."""
        return sum(side.packed.nbytes for side in self._sides if side.packed)

    def get_seq_length(self) -> int:
        """Tokens held."""
        packed = self._sides[0].packed
        return 0 if packed is None else packed.scales.shape[2]

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Length and offset of what the mask covers: all tokens held and ``query_length`` new ones, from 0."""
        return self.get_seq_length() + query_length, 0

    def get_max_length(self) -> int:
        """-1: there is no limit."""
        return -1

    def reset(self) -> None:
        """Forget all tokens."""
        for side in self._sides:
            side.packed = None
        self.is_initialized = False

    def crop(self, tokens_to_remove: int) -> None:
        """Forget the last ``-tokens_to_remove`` tokens.

        Raises:
            ValueError: a positive number, which used to mean how many are kept.
        """
        if tokens_to_remove > 0:
            raise ValueError(f"crop takes how many tokens to forget as a negative number, not {tokens_to_remove}")
        kept = max(0, self.get_seq_length() + tokens_to_remove)
        self._change(lambda x: x[:, :, :kept].contiguous())

    def reorder_cache(self, beam_idx: Int64[Tensor, " batch"]) -> None:
        """Choose rows of the batch, as beam search does."""
        self.batch_select_indices(beam_idx)

    def batch_repeat_interleave(self, repeats: int) -> None:
        """Repeat each row of the batch."""
        self._change(lambda x: x.repeat_interleave(repeats, dim=0))

    def batch_select_indices(self, indices: Tensor) -> None:
        """Keep these rows of the batch."""
        self._change(lambda x: x[indices.to(x.device)])

    def _change(self, how: Callable[[Tensor], Tensor]) -> None:
        for side in self._sides:
            side.change(how)
