"""The dense model, run once for all methods: how little each layer changes its input, and what it makes of the
evaluation windows.

Knows a streamed model and a run. Does not know methods; FLAP's scores, which are of the dense model, are taken here.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

import torch
from jaxtyping import Float64, Int64
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from icml25cli.core.blockwise import States, Write, whole, work_through
from icml25cli.core.errors import InputError
from icml25cli.core.runs import Run
from icml25cli.core.streaming import StreamedModel
from icml25cli.papers.prune.anatomy import Anatomy
from icml25cli.papers.prune.baselines import fluctuation
from icml25cli.papers.prune.block import batches
from icml25cli.papers.prune.statistics import Moments

_RECORD, _FLUCTUATIONS = "record.json", "fluctuations.safetensors"


def unit(index: int) -> str:
    return f"dense-{index:04d}"


def run_dense(
    model: StreamedModel,
    anatomy: Anatomy,
    calibration: Int64[Tensor, "windows length"] | None,
    evaluation: Int64[Tensor, "windows length"],
    run: Run,
    *,
    fluctuations: bool = False,
) -> None:
    """Run every block that ``run`` does not hold yet.

    Args:
        calibration: None where no cosines are needed.
        fluctuations: take FLAP's scores of heads and channels too.

    Raises:
        InputError: an activation is not finite; the block is named.
    """

    def begin() -> States:
        states = {} if calibration is None else {"calibration": model.embed(calibration)}
        return states | {"evaluation": embed(model, evaluation)}

    def step(index: int, states: States) -> tuple[States, Write]:
        started = time.monotonic()
        observed: dict[str, Tensor] = {}
        cosine = None
        with model.block(index) as block:
            if calibration is not None:
                watch = _Fluctuations(model, block, anatomy, index) if fluctuations else None
                cosine = _run_measured(model, block, index, states["calibration"])
                observed = watch.scores() if watch else {}
            carry(model, block, index, states["evaluation"])
        record = {"cosine": cosine, "seconds": time.monotonic() - started}

        def write(folder: Path) -> None:
            (folder / _RECORD).write_text(json.dumps(record))
            if observed:
                save_file(observed, folder / _FLUCTUATIONS)

        return states, write

    work_through(run, [unit(index) for index in range(model.block_count)], begin, step, "running the dense model")


def embed(model: StreamedModel, windows: Int64[Tensor, "windows length"]) -> Tensor:
    """The states before the first block, of no windows too."""
    if len(windows):
        return model.embed(windows)
    return torch.zeros(*windows.shape, model.embedding_shape[1], dtype=model.dtype, device=model.device)


def carry(model: StreamedModel, block: nn.Module, index: int, states: Tensor) -> None:
    """Overwrite ``states`` by what ``block`` makes of them.

    Raises:
        InputError: that is not finite; the block is named.
    """
    for batch in batches(states):
        states[batch] = model.run_block(block, index, states[batch])
    check_finite(model, index, states)


def check_finite(model: StreamedModel, index: int, states: Tensor) -> None:
    if states.numel() and not torch.stack(states.aminmax()).isfinite().all():
        raise InputError(
            f"an output of layer {index} ({model.block_prefix(index)}*) is not finite", hint="use a sound model"
        )


def cosines(model: StreamedModel, run: Run) -> list[float]:
    """Mean over calibration tokens of cos(input, output) of every layer, after ``run_dense``."""
    return [_record(run, index)["cosine"] for index in range(model.block_count)]


def seconds(model: StreamedModel, run: Run) -> float:
    """What ``run_dense`` took."""
    return sum(_record(run, index)["seconds"] for index in range(model.block_count))


def fluctuations(
    model: StreamedModel, run: Run
) -> tuple[Float64[Tensor, "layers heads"], Float64[Tensor, "layers inner"]]:
    """FLAP's scores of query heads and channels, after ``run_dense`` with them."""
    with whole(run):
        found = [load_file(run.path(unit(index)) / _FLUCTUATIONS) for index in range(model.block_count)]
    return torch.stack([x["heads"] for x in found]), torch.stack([x["channels"] for x in found])


def _record(run: Run, index: int) -> dict[str, float]:
    with whole(run):
        return json.loads((run.path(unit(index)) / _RECORD).read_text())


def _run_measured(model: StreamedModel, block: nn.Module, index: int, states: Tensor) -> float:
    total = 0.0
    for batch in batches(states):
        after = model.run_block(block, index, states[batch])
        total += torch.cosine_similarity(states[batch], after, dim=-1).sum(dtype=torch.float64).item()
        states[batch] = after
    check_finite(model, index, states)
    return total / (states.shape[0] * states.shape[1])


class _Fluctuations:
    """Moments of the inputs of a block's two outward matrices, while it runs."""

    def __init__(self, model: StreamedModel, block: nn.Module, anatomy: Anatomy, index: int) -> None:
        self._anatomy = anatomy
        names = (anatomy.names.output, anatomy.names.down)
        self._linears = {name: linear for name, linear in model.linears(block).items() if name in names}
        self._moments = {
            name: Moments(
                linear.weight.shape[1], name=f"inputs of {model.block_prefix(index)}{name}", device=model.device
            )
            for name, linear in self._linears.items()
        }
        self._handles = [
            linear.module.register_forward_pre_hook(_adding_to(self._moments[name]))
            for name, linear in self._linears.items()
        ]

    def scores(self) -> dict[str, Tensor]:
        """Of query heads and channels; ends the watch."""
        for handle in self._handles:
            handle.remove()
        names, variance = self._anatomy.names, {name: m.variance for name, m in self._moments.items()}
        output, down = (self._linears[name].weight for name in (names.output, names.down))
        columns = fluctuation(output, variance[names.output], squared=True)
        return {
            "heads": columns.view(self._anatomy.heads, -1).mean(1).cpu(),
            "channels": fluctuation(down, variance[names.down]).cpu(),
        }


def _adding_to(moments: Moments) -> Callable[[nn.Module, tuple[Tensor, ...]], None]:
    return lambda _, args: moments.add(args[0].flatten(0, -2))
