"""Keys, values and activations of a float model, a sample of each to choose scales from.

Knows models. Does not know codes.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from icml25cli.core.progress import track
from icml25cli.core.streaming import StreamedModel


@dataclass
class VectorSamples:
    """Vectors of one kind by width: (rows, n) each, from all blocks."""

    by_width: dict[int, list[Float[Tensor, "rows n"]]] = field(default_factory=dict)

    def add(self, x: Float[Tensor, "*batch n"], values: int, generator: torch.Generator) -> None:
        """Keep about ``values`` numbers of ``x``, whole vectors drawn with replacement."""
        rows = x.reshape(-1, x.shape[-1])
        drawn = torch.randint(len(rows), (max(1, values // rows.shape[1]),), generator=generator)
        self.by_width.setdefault(rows.shape[1], []).append(rows[drawn.to(rows.device)].float().cpu())

    def tensors(self) -> list[Float[Tensor, "rows n"]]:
        """All vectors, a tensor a width."""
        return [torch.cat(parts) for parts in self.by_width.values()]


@dataclass
class ModelSamples:
    """Vectors of each kind; keys come after rotary embedding."""

    keys: VectorSamples = field(default_factory=VectorSamples)
    values: VectorSamples = field(default_factory=VectorSamples)
    activations: VectorSamples = field(default_factory=VectorSamples)


def sample_vectors(
    model: StreamedModel,
    windows: Int64[Tensor, "windows length"],
    covers: Callable[[str], bool],
    *,
    seed: int,
    values: int = 2**20,
) -> ModelSamples:
    """One pass of the float model over ``windows``, keeping about ``values`` numbers of each kind.

    Args:
        covers: whether the inputs of the matrix of this name are wanted.
    """
    found = ModelSamples()
    generator = torch.Generator().manual_seed(seed)
    each = values // model.block_count

    class Recorder:
        def update(self, keys: Tensor, values: Tensor, *_: object, **__: object) -> tuple[Tensor, Tensor]:
            found.keys.add(keys, each, generator)
            found.values.add(values, each, generator)
            return keys, values

    states = model.embed(windows)
    for index in track(model.block_count, "sampling activations"):
        inputs: dict[str, Tensor] = {}
        with model.block(index) as block, model.record_inputs(block, inputs.__setitem__) as group_of:
            states = model.run_block(block, index, states, Recorder())
        wanted = {group_of[name] for name in group_of if covers(model.block_prefix(index) + name)}
        for group in sorted(wanted):
            found.activations.add(inputs[group], each // len(wanted), generator)
    return found
