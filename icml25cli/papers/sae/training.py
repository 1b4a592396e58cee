"""Training with checkpoints that continue to the bit (section 3.6).

A step is: gradients, the part of the decoder's along its rows taken out, the norm clipped, Adam, rows made unit again.
(The reference makes rows unit between gradient and step, so that its gradient is of another point and its saved rows
are not unit.) Knows methods and files of a run. Does not know evaluation.
"""

import json
import math
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float32
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor

from icml25cli.core.embeddings import Embeddings
from icml25cli.core.errors import CheckFailed, InputError
from icml25cli.core.progress import Progress, note, warn
from icml25cli.core.runs import Run
from icml25cli.papers.sae.batches import batch_count, batches
from icml25cli.papers.sae.config import Budget, Config, learning_rate
from icml25cli.papers.sae.methods import Step, step
from icml25cli.papers.sae.model import (
    SMALLEST,
    Parameters,
    Scaling,
    SparseAutoencoder,
    geometric_median,
    initial,
)
from icml25cli.papers.sae.nested import compile_kernels

BETAS, EPS, CLIP = (0.9, 0.999), 6.25e-10, 1.0
CONSTANT = 0.8  # share of epochs before the rate falls to 0
EMA, WARM_UP = 0.999, 100  # of batchtopk's threshold; steps before it is followed
BACKOFFS = 3
EVERY = 30.0  # seconds between checkpoints within an epoch


@dataclass
class State:
    """Where training stands; with the tensors, all that a checkpoint holds."""

    epoch: int = 0
    batch: int = 0  # of the epoch, the next to be taken
    steps: int = 0
    rate_scale: float = 1.0
    backoffs: int = 0
    threshold: float = 0.0
    seconds: float = 0.0
    loss: float = 0.0  # summed over the batches of this epoch
    clamped: int = 0
    renewed: int = 0  # decoder rows that had vanished
    log: list[dict[str, Any]] = field(default_factory=list)


@dataclass(frozen=True)
class Trained:
    """A model with how it came about; ``log`` has a row an epoch."""

    model: SparseAutoencoder
    log: tuple[dict[str, Any], ...]
    steps: int
    rate: float
    seconds: float


class _Diverged(Exception):
    """The loss is no number."""


class Trainer:
    """One method on one set of rows; ``train`` is the way to use it."""

    def __init__(self, config: Config, budget: Budget, x: Embeddings, scaling: Scaling, device: str = "cpu") -> None:
        self.config, self.budget, self.x, self.scaling = config, budget, x, scaling
        self.per_epoch = batch_count(x.rows, budget.batch)
        self.rate = learning_rate(config, budget, budget.epochs * self.per_epoch)
        self.device = device
        generator = torch.Generator().manual_seed(budget.seed)
        first = initial(config, generator)
        if config.geometric_median:
            first.b_pre += geometric_median(scaling.forward(x[::10]))
        self.p = Parameters(**{name: value.to(device) for name, value in first.named().items()})
        self.normalise(self.p.W_dec.norm(dim=1))
        self.fired = torch.zeros(config.n, dtype=torch.bool, device=device)
        self.state = State()
        self.optimiser = self._optimiser()
        self.updating = False

    def _optimiser(self) -> torch.optim.AdamW:
        named = list(self.p.named().values())
        found = torch.optim.AdamW(named, lr=self.rate, betas=BETAS, eps=EPS, weight_decay=0.0, fused=True)
        for value in named:  # so that a checkpoint before the first step has them, too
            zeros = {name: torch.zeros_like(value) for name in ("exp_avg", "exp_avg_sq")}
            found.state[value] = {"step": torch.zeros((), device=value.device), **zeros}
        return found

    def normalise(self, norms: Float32[Tensor, "n"]) -> None:
        """Unit decoder rows; encoder, its bias and thresholds take the norm, which leaves ReLU and TopK codes alike."""
        p = self.p
        p.W_dec /= norms[:, None]
        p.W_enc *= norms
        p.b_enc *= norms
        if p.theta is not None:
            p.theta *= norms
        p.W_dec /= p.W_dec.norm(dim=1, keepdim=True)  # what rounding left of a long row

    # --- one step ------------------------------------------------------------------------------------------------

    def take(self, x: Float32[Tensor, "B d"]) -> None:
        """One step on a batch of scaled rows."""
        found = step(self.config, self.p, x)
        if not math.isfinite(found.loss):
            raise _Diverged
        grads = found.gradients
        along = (grads["W_dec"] * self.p.W_dec).sum(dim=1, keepdim=True)
        grads["W_dec"] -= along * self.p.W_dec
        norm = torch.stack([gradient.norm() for gradient in grads.values()]).norm()
        scale = (CLIP / (norm + 1e-6)).clamp(max=1.0)
        for name, value in self.p.named().items():
            value.grad = grads[name] * scale
        self.updating = True
        self.optimiser.step()
        norms = self.p.W_dec.norm(dim=1)
        if bool((norms < SMALLEST).any()):
            norms = self._renew(norms, x)
        self.normalise(norms)
        self._count(found)
        self.updating = False

    def _renew(self, norms: Tensor, x: Tensor) -> Tensor:
        """Let decoder rows that vanished start again from residuals of random rows of the batch."""
        gone = torch.nonzero(norms < SMALLEST).flatten()
        generator = torch.Generator().manual_seed(self.budget.seed * 1_000_003 + self.state.steps)
        rows = x[torch.randint(len(x), (len(gone),), generator=generator).to(x.device)]
        p = self.p
        z = torch.addmm(p.b_enc, rows - p.b_pre, p.W_enc).relu_()
        p.W_dec[gone] = rows - p.b_pre - z @ p.W_dec
        self.state.renewed += len(gone)
        note(f"{len(gone)} decoder rows had vanished and start again")
        return p.W_dec.norm(dim=1).clamp_min(SMALLEST)

    def _count(self, found: Step) -> None:
        s = self.state
        self.fired |= found.active
        s.loss += found.loss
        s.clamped += found.clamped
        s.steps += 1
        s.batch += 1
        if found.smallest is not None:
            # Until the warm-up is over the threshold is the last batch's: an average would remember the start.
            keep = EMA if s.steps > WARM_UP else 0.0
            s.threshold = keep * s.threshold + (1 - keep) * found.smallest

    # --- checkpoints -----------------------------------------------------------------------------------------------

    def tensors(self) -> dict[str, Tensor]:
        """Everything that training goes on from, by name."""
        held = dict(self.p.named()) | {"fired": self.fired}
        for name, value in self.p.named().items():
            held |= {f"adam.{name}.{part}": x for part, x in self.optimiser.state[value].items()}
        return held

    def snapshot(self) -> tuple[dict[str, Tensor], str]:
        return {k: v.detach().clone() for k, v in self.tensors().items()}, json.dumps(asdict(self.state))

    def restore(self, tensors: dict[str, Tensor], state: str) -> None:
        for name, value in self.tensors().items():
            value.copy_(tensors[name])
        self.state = State(**json.loads(state))

    # --- epochs ----------------------------------------------------------------------------------------------------

    def epoch(self, progress: Progress, save: Any) -> None:
        """The rest of the current epoch."""
        s, total = self.state, self.budget.epochs
        left = total * (1 - CONSTANT)
        falling = min(1.0, (total - s.epoch) / left) if left else 1.0
        for group in self.optimiser.param_groups:
            group["lr"] = self.rate * s.rate_scale * falling
        began = saved = time.monotonic()
        seconds = s.seconds
        for number, rows in enumerate(batches(self.x, self.budget.batch, self.budget.seed, s.epoch)):
            if number < s.batch:
                continue
            self.take(self.scaling.forward(rows).to(self.device))
            progress.advance()
            now = time.monotonic()
            s.seconds = seconds + now - began
            if now - saved > EVERY:
                save()
                saved = time.monotonic()
        s.seconds = seconds + time.monotonic() - began
        s.log.append(
            {
                "method": self.config.label,
                "epoch": s.epoch,
                "loss": s.loss / max(s.batch, 1),
                "learning_rate": self.rate * s.rate_scale * falling,
                "dead_share": 1 - float(self.fired.float().mean()),
                "clamped_rows": s.clamped,
                "renewed_rows": s.renewed,
            }
        )
        s.epoch, s.batch, s.loss, s.clamped = s.epoch + 1, 0, 0.0, 0
        self.fired.zero_()
        save()

    def finished(self) -> Trained:
        parameters = Parameters(**{name: value.cpu() for name, value in self.p.clone().named().items()})
        model = SparseAutoencoder(self.config, parameters, self.scaling, self.state.threshold)
        return Trained(model, tuple(self.state.log), self.state.steps, self.rate, self.state.seconds)


@torch.no_grad()
def train(
    config: Config,
    budget: Budget,
    x: Embeddings,
    scaling: Scaling,
    run: Run | None = None,
    *,
    unit: str = "training",
    device: str = "cpu",
) -> Trained:
    """Train ``config`` on the rows of ``x``; in a ``run``, from the checkpoint that an earlier call left there.

    A loss that is no number brings back the last checkpoint at half the rate.

    Raises:
        CheckFailed: the loss is no number after three such returns.
        InputError: the checkpoint does not fit.
    """
    if config.method == "msae":
        compile_kernels()
    trainer = Trainer(config, budget, x, scaling, device)
    place = f"{unit}.safetensors"
    if run is not None and run.has(place):
        _read(trainer, run.path(place))
    good = trainer.snapshot()

    def save() -> None:
        nonlocal good
        good = trainer.snapshot()
        if run is not None:
            tensors, state = good
            run.write(place, lambda path: save_file(tensors, path, metadata={"state": state}))

    total = budget.epochs * trainer.per_epoch
    with Progress(f"training {config.label}", total) as progress:
        progress.advance(trainer.state.steps)
        while trainer.state.epoch < budget.epochs:
            try:
                trainer.epoch(progress, save)
            except _Diverged as error:
                tried = trainer.state.backoffs + 1
                trainer.restore(*good)
                trainer.state.backoffs, trainer.state.rate_scale = tried, trainer.state.rate_scale / 2
                if tried > BACKOFFS:
                    raise CheckFailed(
                        f"{config.label}: the loss is no number even at an eighth of the rate {trainer.rate:g}",
                        hint="give a smaller --lr, or look at the scale of the embeddings",
                    ) from error
                warn(f"{config.label}: the loss was no number; going on from the last checkpoint at half the rate")
                good = trainer.snapshot()
            except BaseException as error:
                if not isinstance(error, Exception) and not trainer.updating:  # Ctrl-C or a request to end
                    save()
                raise
    return trainer.finished()


def _read(trainer: Trainer, path: Path) -> None:
    try:
        with safe_open(path, "pt") as file:
            state = file.metadata()["state"]
        trainer.restore(load_file(path), state)
    except Exception as error:  # a damaged file fails in the library's own ways
        raise InputError(f"{path} is no checkpoint of this training", hint="--fresh starts anew") from error
