"""One decoder block pruned: its attention from what its heads give, then its feed-forward network behind that.

Attention runs once over the calibration windows, dense: no head's output depends on another's, so what pruned and
repaired attention gives follows from the same inputs of the output matrix, and the feed-forward network is then run on
that. Held meanwhile, beside the block, are T (4 d + d_f) numbers for T tokens. Knows a block of a streamed model and
one method. Does not know runs, or how much each layer is to lose.
"""

from __future__ import annotations

import contextlib
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from icml25cli.core.streaming import BlockLinear, StreamedModel
from icml25cli.papers.prune import channels, heads
from icml25cli.papers.prune.allot import Quota
from icml25cli.papers.prune.anatomy import Anatomy
from icml25cli.papers.prune.baselines import magnitude_scores, wanda_scores
from icml25cli.papers.prune.heads import Choice
from icml25cli.papers.prune.methods import Method
from icml25cli.papers.prune.plan import Layer
from icml25cli.papers.prune.repair import repair
from icml25cli.papers.prune.statistics import Moments, PairMoments, head_sums
from icml25cli.papers.prune.surgery import cut_block, spread
from icml25cli.papers.prune.units import HeadUnits

# Tokens in one forward of a block: enough to keep the processor busy, few enough that the widest activation is small.
TOKENS_PER_FORWARD = 1024


@dataclass(frozen=True)
class Loss:
    """What became of the outputs of one matrix whose inputs were cut."""

    correlation: float  # mean over output columns of |Pearson's|, of all inputs' outputs with the kept ones'
    error_cut: float  # mean square of the difference over the variance of the output, before repair
    error: float  # and after

    @property
    def gain(self) -> float:
        """Share of the error that repair takes away."""
        return 1 - self.error / self.error_cut if self.error_cut else 0.0


@dataclass(frozen=True)
class PrunedBlock:
    """A layer of the plan with its tensors (those that changed, by name within the block, in the stored dtype)."""

    layer: Layer
    tensors: dict[str, Tensor]
    attention: Loss | None = None  # None: nothing was cut, or nothing measured
    ffn: Loss | None = None
    choice: Choice | None = None  # of heads, where correlations were computed
    seconds: dict[str, float] = field(default_factory=dict)  # of scoring, search and repair


def batches(windows: Tensor) -> Iterator[slice]:
    """Slices of windows for one forward each."""
    size = max(1, TOKENS_PER_FORWARD // windows.shape[1])
    return (slice(start, start + size) for start in range(0, len(windows), size))


def prune_block(
    model: StreamedModel,
    block: nn.Module,
    anatomy: Anatomy,
    method: Method,
    units: HeadUnits,
    wanted: Quota | Layer,
    hidden: Float[Tensor, "windows length d"],
    *,
    seed: int = 0,
) -> PrunedBlock:
    """Prune ``block``, of index ``wanted.index``; its inputs ``hidden`` are overwritten by its pruned outputs.

    Args:
        wanted: how much to choose away, or a layer whose parts are chosen already, which is then only repaired.

    Raises:
        InputError: an activation is not finite; the matrix is named.
    """
    names, prefix = anatomy.names, model.block_prefix(wanted.index)
    stored = {name.removeprefix(prefix): tensor for name, tensor in model.block_tensors(wanted.index).items()}
    linears = model.linears(block)
    probe = _Probe(model, block, wanted.index, hidden, names.attention)
    clock = _Clock()
    choice = None

    with clock.of("scoring"):
        output = _Matrix(linears[names.output], probe.inputs_of(names.output), prefix)
    if isinstance(wanted, Layer):
        kept_heads, kept_kv = wanted.heads, wanted.kv
    else:
        kept_units, choice = _choose_heads(output, anatomy, method, units, wanted, clock, seed)
        kept_heads, kept_kv = units.heads(anatomy, kept_units)
    columns = spread(kept_heads, anatomy.head_dim)
    attended = _cut(output, columns, method.repair, stored[f"{names.output}.weight"].dtype, clock)
    del output
    probe.answers[names.attention] = attended.outputs

    inputs = Moments(anatomy.hidden, name=f"inputs of {prefix}{names.ffn}", device=hidden.device)
    with clock.of("scoring"):
        down = _Matrix(linears[names.down], probe.inputs_of(names.down, {names.ffn: inputs.add}), prefix)
    if isinstance(wanted, Layer):
        kept = wanted.channels
    else:
        inward = [linears[name].weight for name in (names.gate, names.up) if name]
        kept = _choose_channels(down, inward, inputs, method, wanted, clock, seed)
    fed = _cut(down, torch.tensor(kept), method.repair, stored[f"{names.down}.weight"].dtype, clock)
    del down
    probe.answers[names.ffn] = fed.outputs
    probe.run()

    layer = Layer(wanted.index, wanted.cosine, wanted.ratio, kept_heads, kept_kv, kept)
    repaired = attended.tensors(names.output, anatomy) | fed.tensors(names.down, anatomy)
    tensors = changed(stored, cut_block(anatomy, stored, layer) | repaired)
    return PrunedBlock(layer, tensors, attended.loss, fed.loss, choice, dict(clock.seconds))


def changed(before: Mapping[str, Tensor], after: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """What of ``after`` is another tensor than in ``before``, ready to be stored."""
    return {name: tensor.cpu().contiguous() for name, tensor in after.items() if tensor is not before.get(name)}


# --- choosing --------------------------------------------------------------------------------------------------------


def _choose_heads(
    output: _Matrix, anatomy: Anatomy, method: Method, units: HeadUnits, quota: Quota, clock: _Clock, seed: int
) -> tuple[tuple[int, ...], Choice | None]:
    """Kept ones of the scored parts."""
    count, partition = units.scored(anatomy), units.partition(anatomy)
    if not quota.dropped_units:
        return tuple(range(count)), None
    with clock.of("scoring"):
        searched = method.head_score == "pearson" or method.search != "none"
        sums = head_sums(output.moments, output.weight, count) if searched else None
        if method.head_score == "pearson":
            assert sums
            scores = -heads.removal_correlations(sums)
        elif method.head_score == "wanda":
            scores = wanda_scores(output.weight, output.diagonal.rms, count)
        elif method.head_score == "magnitude":
            scores = magnitude_scores(output.weight, count)
        else:
            scores = _random_scores(count, seed, quota.index, 0)
        dropped, kept = heads.split(heads.drop_order(scores).tolist(), quota.dropped_units, partition)
    if sums is None:
        return tuple(sorted(kept)), None
    with clock.of("search"):
        choice = heads.search(sums, dropped, kept, partition, method.search)
    return choice.kept, choice


def _choose_channels(
    down: _Matrix,
    inward: Sequence[Float[Tensor, "f d"]],
    inputs: Moments,
    method: Method,
    quota: Quota,
    clock: _Clock,
    seed: int,
) -> tuple[int, ...]:
    count = down.weight.shape[1]
    if quota.channels == count:
        return tuple(range(count))
    with clock.of("scoring"):
        if method.ffn_score in ("feature", "lorap"):
            feature = method.ffn_score == "feature"
            basis = channels.feature_basis(down.output_covariance(), down.name) if feature else None
            scores = channels.feature_scores(inward, down.weight, inputs.norms, down.diagonal.norms, basis)
        elif method.ffn_score == "wanda":
            scores = wanda_scores(down.weight, down.diagonal.rms, count)
        elif method.ffn_score == "magnitude":
            scores = magnitude_scores(down.weight, count)
        else:
            scores = _random_scores(count, seed, quota.index, 1)
        return channels.keep_channels(scores, quota.channels, method.keep_low)


def _random_scores(count: int, *seed: int) -> Tensor:
    return torch.from_numpy(np.random.default_rng(seed).permutation(count))


# --- matrices --------------------------------------------------------------------------------------------------------


class _Matrix:
    """A matrix with its inputs over all tokens, and what follows from them, once it is asked for."""

    def __init__(self, linear: BlockLinear, inputs: Float[Tensor, "tokens n"], prefix: str) -> None:
        self.name = prefix + linear.name
        self.weight: Float[Tensor, "d n"] = linear.weight
        self.bias: Any = linear.module.bias
        self.inputs = inputs
        self.diagonal = self._sum(inputs)  # at once, because it says whether all is finite

    @cached_property
    def moments(self) -> Moments:
        return self._sum(self.inputs, cross=True)

    @cached_property
    def outputs(self) -> Float[Tensor, "tokens d"]:
        """Without the bias."""
        return self.inputs @ self.weight.T

    def output_covariance(self) -> Tensor:
        return self._sum(self.outputs, cross=True).covariance

    def _sum(self, x: Tensor, *, cross: bool = False) -> Moments:
        what = "inputs" if x is self.inputs else "outputs"
        moments = Moments(x.shape[1], cross=cross, name=f"{what} of {self.name}", device=x.device)
        for part in x.split(TOKENS_PER_FORWARD):
            moments.add(part)
        return moments


@dataclass(frozen=True)
class _Cut:
    """A matrix without some of its inputs, repaired, or as it was (``loss`` is None)."""

    weight: Float[Tensor, "d kept"]
    bias: Float[Tensor, " d"] | None
    outputs: Float[Tensor, "tokens d"]
    loss: Loss | None

    def tensors(self, name: str, anatomy: Anatomy) -> dict[str, Tensor]:
        """Of the matrix ``name`` as they are stored; none if it is as it was."""
        if self.loss is None:
            return {}
        weight = {f"{name}.weight": self.weight.T if anatomy.transposed else self.weight}
        return weight if self.bias is None else weight | {f"{name}.bias": self.bias}


def _cut(matrix: _Matrix, kept: Tensor, kind: str, dtype: torch.dtype, clock: _Clock) -> _Cut:
    """Keep the columns ``kept``, repair them by ``kind``, and give the outputs of what will be stored in ``dtype``."""
    dense = matrix.outputs if matrix.bias is None else matrix.outputs + matrix.bias
    if len(kept) == matrix.weight.shape[1]:
        return _Cut(matrix.weight, matrix.bias, dense, None)
    with clock.of("repair"):
        kept = kept.to(matrix.weight.device)
        cut, moments = matrix.weight[:, kept], PairMoments(len(matrix.weight), matrix.weight.device)
        for o, x in zip(matrix.outputs.split(TOKENS_PER_FORWARD), matrix.inputs.split(TOKENS_PER_FORWARD), strict=True):
            moments.add(o, x[:, kept] @ cut.T)
        pair = moments.fit()
        repaired = repair(kind, matrix.weight, kept, pair, matrix.moments if kind == "ridge" else None)
        weight, bias = repaired.weight.to(dtype), matrix.bias
        if repaired.bias is not None:
            bias = (repaired.bias if bias is None else repaired.bias + bias).to(dtype)
        outputs = torch.empty_like(matrix.outputs)
        for y, x in zip(outputs.split(TOKENS_PER_FORWARD), matrix.inputs.split(TOKENS_PER_FORWARD), strict=True):
            torch.mm(x[:, kept], weight.to(x.dtype).T, out=y)
        if bias is not None:
            outputs += bias.to(outputs.dtype)
        wrong = dense - outputs
        error = wrong.square().sum(0, dtype=torch.float64).sum().item() / len(wrong)
        loss = Loss(pair.correlation.abs().mean().item(), pair.relative(pair.error.sum().item()), pair.relative(error))
        return _Cut(weight, None if bias is None else bias.to(dtype), outputs, loss)


# --- running a block in parts ----------------------------------------------------------------------------------------


class _Reached(Exception):
    """Ends a forward at the matrix whose inputs were wanted."""


class _Probe:
    """A block, the states that enter it, and modules whose outputs are known already (``answers``, a row a token)."""

    def __init__(self, model: StreamedModel, block: nn.Module, index: int, hidden: Tensor, attention: str) -> None:
        self._model, self._block, self._index, self._hidden = model, block, index, hidden
        self._attention = attention  # which returns its weights too, or None
        self.answers: dict[str, Tensor] = {}

    def inputs_of(
        self, matrix: str, watched: Mapping[str, Callable[[Tensor], None]] | None = None
    ) -> Float[Tensor, "tokens n"]:
        """The inputs of ``matrix`` over all tokens; the callbacks in ``watched`` see those of other modules."""
        found: list[Tensor] = []  # one, filled batch by batch: the widest of all, it should not be there twice
        done = 0

        def stop(_: nn.Module, args: tuple[Tensor, ...]) -> None:
            nonlocal done
            x = args[0].flatten(0, -2)
            if not found:
                found.append(x.new_empty(self._hidden.shape[0] * self._hidden.shape[1], x.shape[1]))
            found[0][done : done + len(x)] = x
            done += len(x)
            raise _Reached

        def watch(callback: Callable[[Tensor], None]) -> Any:
            return lambda _, args: callback(args[0].flatten(0, -2))

        handles = [self._block.get_submodule(matrix).register_forward_pre_hook(stop)]
        for name, callback in (watched or {}).items():
            handles.append(self._block.get_submodule(name).register_forward_pre_hook(watch(callback)))
        try:
            for batch in batches(self._hidden):
                with contextlib.suppress(_Reached):
                    self._forward(batch)
        finally:
            for handle in handles:
                handle.remove()
        return found[0]

    def run(self) -> None:
        """Overwrite the states by those that leave the block."""
        for batch in batches(self._hidden):
            self._hidden[batch] = self._forward(batch)

    def _forward(self, batch: slice) -> Tensor:
        states = self._hidden[batch]
        length = states.shape[1]
        rows = slice(batch.start * length, batch.start * length + states.shape[0] * length)
        modules = {name: self._block.get_submodule(name) for name in self.answers}
        for name, module in modules.items():
            answer = self.answers[name][rows].view(*states.shape)
            module.forward = _answer((answer, None) if name == self._attention else answer)
        try:
            return self._model.run_block(self._block, self._index, states)
        finally:
            for module in modules.values():
                del module.forward


def _answer(value: Any) -> Callable[..., Any]:
    return lambda *_, **__: value


class _Clock:
    """Seconds spent, by what on."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)

    @contextlib.contextmanager
    def of(self, what: str) -> Iterator[None]:
        started = time.monotonic()
        try:
            yield
        finally:
            self.seconds[what] += time.monotonic() - started
