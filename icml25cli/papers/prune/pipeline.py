"""A model pruned by one method or several, one decoder block in memory.

First the dense model, once for all methods. Then for each method the layers first to last: each is pruned on the
calibration states that the already pruned layers before it give, and carries the evaluation states on as it will be
stored. A finished layer is a unit of the run, so a run cut short continues bit for bit. Knows models and runs. Does not
know the command line, or how results are saved.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float64, Int64
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from icml25cli.core.blockwise import States, Write, forget_states, states_after, whole, work_through
from icml25cli.core.errors import InputError, UsageError
from icml25cli.core.likelihood import Estimate, perplexity
from icml25cli.core.runs import Run
from icml25cli.core.scoring import score_states
from icml25cli.core.streaming import StreamedModel
from icml25cli.papers.prune import dense
from icml25cli.papers.prune.allot import Quota, allot
from icml25cli.papers.prune.anatomy import Anatomy, examine
from icml25cli.papers.prune.block import Loss, PrunedBlock, changed, prune_block
from icml25cli.papers.prune.methods import Options, check_options, write_options
from icml25cli.papers.prune.plan import Layer, Plan, check_plan, layer_fields, layer_from, layer_parameters, make_plan
from icml25cli.papers.prune.ratios import check_target
from icml25cli.papers.prune.surgery import cut_block, installed
from icml25cli.papers.prune.units import head_units

_LAYER, _TENSORS = "layer.json", "tensors.safetensors"


@dataclass(frozen=True)
class Score:
    """Fit to the evaluation windows."""

    nll: Float64[Tensor, " windows"]  # summed over the window's predicted tokens, nats
    tokens: int  # predicted in each window

    @property
    def perplexity(self) -> Estimate:
        return perplexity(self.nll, torch.full((len(self.nll),), self.tokens))


@dataclass(frozen=True)
class LayerRecord:
    """What pruning one layer did and took; None where nothing was cut, or nothing measured."""

    attention: Loss | None
    ffn: Loss | None
    pearson: float | None  # P of the kept heads over the number of columns
    pearson_static: float | None  # the same of those that their scores alone would have kept
    evaluations: int  # of P by the search
    scoring_seconds: float  # of running the block on the calibration windows, and scoring
    search_seconds: float
    repair_seconds: float
    seconds: float  # of everything, the evaluation windows too


@dataclass(frozen=True)
class Pruned:
    """A model pruned by one method."""

    options: Options
    anatomy: Anatomy
    plan: Plan
    records: tuple[LayerRecord, ...]  # one a layer
    parameters_removed: int
    share_removed: float  # of the parameters that the target is a share of
    dense_score: Score | None  # None: there were no evaluation windows
    score: Score | None
    seconds: float  # the dense pass included
    _model: StreamedModel
    _run: Run
    _number: int

    def layer_tensors(self, index: int) -> dict[str, Tensor]:
        """All tensors of layer ``index`` by name within the block, in the dtypes of the input; none if it is removed.

        Raises:
            InputError: the run is damaged.
        """
        if self.plan.layers[index].removed:
            return {}
        with whole(self._run):
            return _stored(self._model, index) | load_file(self._run.path(_unit(self._number, index)) / _TENSORS)


def prune_model(
    model: StreamedModel,
    options: Options,
    calibration: Int64[Tensor, "windows length"],
    evaluation: Int64[Tensor, "windows length"],
    run: Run,
    plan: Plan | None = None,
) -> Pruned:
    """Prune by one method; with a ``plan`` keep what it keeps, and only repair as ``options`` say.

    Args and errors as of ``prune_models``.

    Raises:
        InputError: also if the plan is for another model, or cannot be carried out.
    """
    job = _Job(model, (options,), calibration, evaluation, run, plan)
    return job.prune(0)


def prune_models(
    model: StreamedModel,
    options: Sequence[Options],
    calibration: Int64[Tensor, "windows length"],
    evaluation: Int64[Tensor, "windows length"],
    run: Run,
) -> tuple[Pruned, ...]:
    """Prune by every one of ``options``, each from the dense model.

    All get the same calibration, and targets count the same parameters. Finished layers and scores stay in ``run``: a
    second call with the same arguments only reads them.

    Args:
        calibration: windows of token ids, without padding.
        evaluation: windows on which dense and pruned models are scored; none, of shape (0, length), for no scores.
        run: opened for these very arguments.

    Raises:
        InputError: the architecture is not known, there is no calibration, or an activation is not finite (named).
        UsageError: an option has no meaning, or its target is out of reach.
    """
    job = _Job(model, tuple(options), calibration, evaluation, run)
    return tuple(job.prune(number) for number in range(len(options)))


def check_job(model: StreamedModel, anatomy: Anatomy, options: Sequence[Options], plan: Plan | None = None) -> None:
    """Refuse what cannot be done with this model, before it is run.

    Raises:
        UsageError: an option has no meaning, names a layer that is not there, or a target is out of reach.
        InputError: the plan is for another model, or cannot be carried out.
    """
    if plan:
        check_plan(plan, model.source, anatomy)
    for option in options:
        check_options(option)
        if beyond := [i for i in option.protect if i >= anatomy.layers]:
            raise UsageError(
                f"--protect {beyond[0]}: there is no such layer", hint=f"the layers are 0 to {anatomy.layers - 1}"
            )
        if not plan:
            biases = option.chosen.repair != "none"
            check_target(anatomy, option, _total(model, anatomy, option), biases=biases)


def _total(model: StreamedModel, anatomy: Anatomy, options: Options) -> int:
    """The parameters that the target is a share of."""
    blocks = anatomy.layers * anatomy.block_parameters
    if options.of == "decoder":
        return blocks
    return blocks + sum(tensor.numel() for _, tensor in model.other_tensors())


def _unit(number: int, index: int) -> str:
    return f"method-{number:02d}-{index:04d}"


def _as_json(done: PrunedBlock, anatomy: Anatomy, seconds: float) -> dict[str, Any]:
    """The fields of a ``LayerRecord``."""
    choice = done.choice
    return {
        "attention": done.attention and asdict(done.attention),
        "ffn": done.ffn and asdict(done.ffn),
        "pearson": choice and choice.pearson / anatomy.hidden,
        "pearson_static": choice and choice.pearson_static / anatomy.hidden,
        "evaluations": choice.evaluations if choice else 0,
        **{f"{what}_seconds": done.seconds.get(what, 0.0) for what in ("scoring", "search", "repair")},
        "seconds": seconds,
    }


def _from_json(fields: dict[str, Any]) -> LayerRecord:
    losses = {name: Loss(**fields[name]) if fields[name] else None for name in ("attention", "ffn")}
    return LayerRecord(**{**fields, **losses})


def _stored(model: StreamedModel, index: int) -> dict[str, Tensor]:
    prefix = model.block_prefix(index)
    return {name.removeprefix(prefix): tensor for name, tensor in model.block_tensors(index).items()}


class _Job:
    """What the methods of one call share; the dense model has been run once there is one."""

    def __init__(
        self,
        model: StreamedModel,
        options: tuple[Options, ...],
        calibration: Tensor,
        evaluation: Tensor,
        run: Run,
        plan: Plan | None = None,
    ) -> None:
        self.anatomy = examine(model)
        check_job(model, self.anatomy, options, plan)
        if calibration.numel() == 0 or calibration.shape[1] < 2:
            raise InputError("there is no calibration text", hint="give --calib a longer text")
        self.model, self.options, self.run, self.plan = model, options, run, plan
        self.calibration, self.evaluation = calibration, evaluation
        threshold = any(option.chosen.layer_ratio == "threshold" for option in options)
        cosines = None if plan else calibration
        dense.run_dense(model, self.anatomy, cosines, evaluation, run, fluctuations=threshold and not plan)
        self.dense_score = self._score("dense", dense.unit(model.block_count - 1))

    def prune(self, number: int) -> Pruned:
        """By the method of that number."""
        model, anatomy, options = self.model, self.anatomy, self.options[number]
        total, repaired = _total(model, anatomy, options), options.chosen.repair != "none"
        if self.plan:
            steps: list[Quota | Layer] = list(self.plan.layers)
        else:
            scores = dense.fluctuations(model, self.run) if options.chosen.layer_ratio == "threshold" else None
            steps = allot(anatomy, options, dense.cosines(model, self.run), total, scores)
        # Calibration states are of use up to the last layer where something is chosen or repaired.
        open_ = [
            s.index for s in steps if isinstance(s, Quota) or (repaired and not (s.removed or s.is_dense(anatomy)))
        ]
        last = max(open_, default=-1)

        def begin() -> States:
            states = {"evaluation": dense.embed(model, self.evaluation)}
            return states if last < 0 else states | {"calibration": model.embed(self.calibration)}

        def step(index: int, states: States) -> tuple[States, Write]:
            return self._step(options, steps[index], states, last)

        units = [_unit(number, index) for index in range(model.block_count)]
        work_through(self.run, units, begin, step, f"pruning by {options.method}")
        score = self._score(f"method-{number:02d}", units[-1])
        with whole(self.run):
            read = [json.loads((self.run.path(unit) / _LAYER).read_text()) for unit in units]
        layers = [layer_from(x["layer"]) for x in read]
        records = tuple(_from_json(x["record"]) for x in read)
        removed = sum(anatomy.block_parameters - layer_parameters(anatomy, layer, biases=repaired) for layer in layers)
        return Pruned(
            options=options,
            anatomy=anatomy,
            plan=make_plan(model.source, anatomy, write_options(options), layers),
            records=records,
            parameters_removed=removed,
            share_removed=removed / total,
            dense_score=self.dense_score,
            score=score,
            seconds=dense.seconds(model, self.run) + sum(record.seconds for record in records),
            _model=model,
            _run=self.run,
            _number=number,
        )

    def _step(self, options: Options, wanted: Quota | Layer, states: States, last: int) -> tuple[States, Write]:
        """Prune one layer, and carry all states through what is left of it."""
        started, model, anatomy, index = time.monotonic(), self.model, self.anatomy, wanted.index
        if isinstance(wanted, Layer) and wanted.removed:
            done = PrunedBlock(wanted, {})
        else:
            with model.block(index) as block:
                done = self._prune_block(options, block, wanted, states.get("calibration"))
                live = {name: tensor.to(model.device, model.dtype) for name, tensor in done.tensors.items()}
                with installed(block, anatomy, live):
                    dense.carry(model, block, index, states["evaluation"])
        if index >= last:
            states = {"evaluation": states["evaluation"]}
        content = {"layer": layer_fields(done.layer), "record": _as_json(done, anatomy, time.monotonic() - started)}

        def write(folder: Path) -> None:
            (folder / _LAYER).write_text(json.dumps(content))
            save_file(done.tensors, folder / _TENSORS)

        return states, write

    def _prune_block(
        self, options: Options, block: nn.Module, wanted: Quota | Layer, calibration: Tensor | None
    ) -> PrunedBlock:
        model, anatomy, method = self.model, self.anatomy, options.chosen
        if isinstance(wanted, Layer) and wanted.is_dense(anatomy):
            if calibration is not None:
                dense.carry(model, block, wanted.index, calibration)
            return PrunedBlock(wanted, {})
        if isinstance(wanted, Layer) and method.repair == "none":  # then no other layer needs calibration either
            stored = _stored(model, wanted.index)
            return PrunedBlock(wanted, changed(stored, cut_block(anatomy, stored, wanted)))
        assert calibration is not None
        units = head_units(anatomy, options.gqa)
        done = prune_block(model, block, anatomy, method, units, wanted, calibration, seed=options.seed)
        dense.check_finite(model, wanted.index, calibration)
        return done

    def _score(self, name: str, last: str) -> Score | None:
        """Of the evaluation states after unit ``last``, kept as a unit of the run."""
        unit = f"{name}-scores.safetensors"
        if len(self.evaluation) == 0:
            forget_states(self.run, last)
            return None
        if not self.run.has(unit):
            scores = score_states(
                self.model, {"evaluation": states_after(self.run, last)["evaluation"]}, self.evaluation
            )
            self.run.write(unit, lambda path: save_file(scores, path))
        forget_states(self.run, last)
        with whole(self.run):
            return Score(load_file(self.run.path(unit))["evaluation.nll"], self.evaluation.shape[1] - 1)
