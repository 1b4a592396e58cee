"""What a model costs by its shapes: parameters, floating-point operations and cache for a token.

Knows anatomy and plans. Does not know weights, or how fast anything runs: that is measured in ``speed``.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from icml25cli.core.streaming import StreamedModel
from icml25cli.papers.prune.anatomy import Anatomy
from icml25cli.papers.prune.plan import Layer, dense_layer, layer_parameters

CONTEXT = 1024  # tokens that attention looks at where operations are counted


@dataclass(frozen=True)
class Sizes:
    """Of one model."""

    parameters: int  # all, as stored
    decoder_parameters: int  # of the decoder blocks
    flops_per_token: int  # a multiplication and an addition are two; head included, embedding, norms and softmax not
    kv_bytes_per_token: int  # keys and values in the dtype of the weights
    weight_bytes: int


def dense_sizes(model: StreamedModel, anatomy: Anatomy) -> Sizes:
    """Of the model as it is."""
    return pruned_sizes(model, anatomy, [dense_layer(anatomy, i) for i in range(anatomy.layers)], biases=False)


def pruned_sizes(
    model: StreamedModel, anatomy: Anatomy, layers: Sequence[Layer], *, biases: bool, kind: str = "custom"
) -> Sizes:
    """Of the model once these layers are what its blocks keep.

    Args:
        biases: what is cut gets a bias on its way out, if it had none.
        kind: of export. Stock classes have a bias in all layers or in none, and ``padded`` has the original shape.
    """
    itemsize = max(tensor.element_size() for tensor in model.block_tensors(0).values() if tensor.is_floating_point())
    kept = [layer for layer in layers if not layer.removed]
    flagged = _flagged(anatomy, kept) if biases and kind != "custom" else frozenset()
    if kind == "padded":
        kept = [dense_layer(anatomy, layer.index) for layer in layers]
    if kind == "custom":
        decoder = sum(layer_parameters(anatomy, layer, biases=biases) for layer in kept)
    else:
        decoder = sum(
            layer_parameters(anatomy, layer, biases=False) + _widths(anatomy, layer, flagged) for layer in kept
        )
    parameters = model.parameter_count - anatomy.layers * anatomy.block_parameters + decoder
    vocabulary, width = model.embedding_shape
    products = vocabulary * width + sum(_products(anatomy, layer) for layer in kept)
    return Sizes(
        parameters=parameters,
        decoder_parameters=decoder,
        flops_per_token=2 * products,
        kv_bytes_per_token=sum(2 * len(layer.kv) * anatomy.head_dim * itemsize for layer in kept),
        weight_bytes=parameters * itemsize,
    )


def _flagged(anatomy: Anatomy, kept: Sequence[Layer]) -> frozenset[str]:
    """Matrices that get a bias because an outward one of their part has a new one in some layer."""
    names = anatomy.names
    found: set[str] = set()
    if names.output not in anatomy.biased and any(len(layer.heads) < anatomy.heads for layer in kept):
        found |= {*names.qkv, names.output}
    if names.down not in anatomy.biased and not all(layer.keeps_channels(anatomy) for layer in kept):
        found |= {name for name in (names.gate, names.up, names.down) if name}
    return frozenset(found - anatomy.biased)


def _widths(anatomy: Anatomy, layer: Layer, matrices: frozenset[str]) -> int:
    """How many numbers a bias for each of these matrices has in all."""
    names, width = anatomy.names, anatomy.head_dim
    widths = dict(zip(names.qkv, (len(layer.heads) * width, *[len(layer.kv) * width] * 2), strict=False))
    widths |= {name: len(layer.channels) for name in (names.gate, names.up) if name}
    widths |= {names.output: anatomy.hidden, names.down: anatomy.hidden}
    return sum(widths[name] for name in matrices)


def _products(anatomy: Anatomy, layer: Layer) -> int:
    """Multiplications in a layer for a token: its matrices, queries with keys, and weights with values."""
    heads, kv, channels = len(layer.heads), len(layer.kv), len(layer.channels)
    matrices = anatomy.hidden * (2 * (heads + kv) * anatomy.head_dim + (3 if anatomy.names.gate else 2) * channels)
    return matrices + 2 * CONTEXT * heads * anatomy.head_dim
