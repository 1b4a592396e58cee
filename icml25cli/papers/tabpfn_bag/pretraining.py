"""Training a prior-fitted network on synthetic tables alone, in pieces of any length.

The rate stays at its peak for as long as training goes on; from any kept step it can be let fall to end in a network.
Interrupted and continued, training ends with the same numbers as in one go (same machine and thread count): every
random choice of a step is derived from the seed and the step's number.

Knows the network, the prior and a folder of checkpoints. Does not know the command line.
"""

import json
import math
import os
import platform
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.func import functional_call
from torch.nn.functional import cross_entropy

from icml25cli.core.errors import InputError
from icml25cli.papers.tabpfn_bag.network import NanoPfn, Pfn, PfnConfig
from icml25cli.papers.tabpfn_bag.prior import UNKNOWN, Tables, draw_tables
from icml25cli.papers.tabpfn_bag.weights import save_pfn

FEWEST_ROWS = 64
WARMUP = 200  # steps
LAST_RATE = 0.02  # share of the peak at the end of the decay
AVERAGE = 0.999  # weight of the old in the moving average of weights, which is what is evaluated and shipped
NETWORK = "network"  # folder of what came out
STAGES = ((3000, 256, 4096), (10_000, 512, 6144), (math.inf, 1024, 8192))

Log = dict[str, Any]


@dataclass(frozen=True)
class Plan:
    """How a network is trained.

    Attributes:
        stages: until which step, most rows of a table, and rows of a step.
        validation: draws, tables of a draw, rows of a table, and how many of them are context.
        rate: peak learning rate.
        decay: weight decay of hidden matrices.
        log_every, validate_every, keep_every: steps.
        checkpoint_every: seconds.
    """

    config: PfnConfig = field(default_factory=PfnConfig)
    stages: tuple[tuple[float, int, int], ...] = STAGES
    validation: tuple[int, int, int, int] = (8, 32, 256, 160)
    rate: float = 2e-3
    decay: float = 0.01
    seed: int = 0
    threads: int = 1
    log_every: int = 50
    validate_every: int = 500
    keep_every: int = 1000
    checkpoint_every: float = 180.0

    @classmethod
    def of(cls, config: PfnConfig, steps: int, *, rows: int | None, rate: float, seed: int) -> "Plan":
        """A plan for ``steps`` in all: validated about ten times, tables of at most ``rows`` rows."""
        stages = STAGES if rows is None else ((math.inf, rows, max(4096, 4 * rows)),)
        every = max(1, min(500, steps // 10))
        threads = torch.get_num_threads()
        return cls(config, stages, rate=rate, seed=seed, threads=threads, log_every=every, validate_every=every)

    def tables(self, step: int) -> Tables:
        """The step's tables: their size by the logarithm, a share of 0.4 to 0.9 of the rows as context."""
        rng = np.random.default_rng((self.seed, 0, step))
        most, budget = next((most, budget) for last, most, budget in self.stages if step < last)
        rows = round(math.exp(rng.uniform(math.log(FEWEST_ROWS), math.log(most))) / 8) * 8
        sizes = (self.config.columns, self.config.classes)
        return draw_tables(rng, budget // rows, rows, int(rows * rng.uniform(0.4, 0.9)), *sizes)


def loss_of(logits: Tensor, tables: Tables) -> Tensor:
    """Mean negative log-likelihood of the queries' labels over the classes that the context shows, in nats."""
    logits = logits.masked_fill(torch.arange(logits.shape[-1]) >= tables.classes[:, None, None], -torch.inf)
    return cross_entropy(logits.flatten(0, 1), tables.labels[:, tables.context :].flatten(), ignore_index=UNKNOWN)


def training_loss(net: Pfn, tables: Tables) -> Tensor:
    """Loss with weights and activations in bfloat16, which CPUs that know it multiply thrice as fast."""
    n = tables.context
    half = {name: weight.bfloat16() for name, weight in net.named_parameters()}
    rows = tables.rows.bfloat16()
    return loss_of(functional_call(net, half, (rows[:, :n], tables.labels[:, :n], rows[:, n:])), tables)


@torch.no_grad()
def validation(net: Pfn, average: dict[str, Tensor], plan: Plan) -> dict[str, float]:
    """Loss and accuracy on tables that are not trained on, beside guessing by the context's class frequencies."""
    draws, number, rows, n = plan.validation
    figures = []
    for draw in range(draws):
        rng = np.random.default_rng((plan.seed, 1, draw))
        tables = draw_tables(rng, number, rows, n, plan.config.columns, plan.config.classes)
        labels, queries = tables.labels[:, :n], tables.labels[:, n:]
        logits = functional_call(net, average, (tables.rows[:, :n], labels, tables.rows[:, n:]))
        known = queries != UNKNOWN
        hit = logits.masked_fill(torch.arange(logits.shape[-1]) >= tables.classes[:, None, None], -torch.inf).argmax(-1)
        counts = torch.zeros(len(labels), logits.shape[-1]).scatter_add_(1, labels, torch.ones(labels.shape))
        guess = counts.log()[:, None].expand(logits.shape)
        accuracy = (hit == queries)[known].float().mean().item()
        figures.append((loss_of(logits, tables).item(), accuracy, loss_of(guess, tables).item()))
    return dict(zip(("validation", "accuracy", "guessing"), np.mean(figures, 0).tolist(), strict=True))


def optimizers(net: Pfn, rate: float, decay: float) -> list[torch.optim.Optimizer]:
    """Muon for the matrices between hidden states, Adam for all others, at one rate (Liu et al. 2025)."""
    hidden = [p for name, p in net.named_parameters() if name.startswith("layers.") and p.ndim == 2]
    others = [p for name, p in net.named_parameters() if not (name.startswith("layers.") and p.ndim == 2)]
    return [
        torch.optim.Muon(hidden, lr=rate, weight_decay=decay, momentum=0.95, adjust_lr_fn="match_rms_adamw"),
        torch.optim.AdamW(others, lr=rate, weight_decay=0.0, betas=(0.9, 0.98), fused=True),
    ]


def rate_at(step: int, decay_from: int | None, decay_steps: int) -> float:
    """Share of the peak rate: linear warm-up, constant, and where asked a linear fall."""
    share = min((step + 1) / WARMUP, 1.0)
    if decay_from is None or step < decay_from:
        return share
    return share * max(LAST_RATE, 1 - (1 - LAST_RATE) * (step + 1 - decay_from) / decay_steps)


def pretrain(
    work: Path,
    plan: Plan,
    *,
    until: int | None = None,
    decay_from: int | None = None,
    decay_steps: int = 4000,
    say: Callable[[Log], None] = lambda _: None,
) -> Log:
    """Train on from the last checkpoint in ``work``.

    Args:
        until: stop before this step; without, and without ``decay_from``, training has no end.
        decay_from: a kept step, from which the rate falls over ``decay_steps``; then the network is in ``work``.
        say: told of every ``log_every`` steps.

    Raises:
        InputError: the folder's checkpoint is of another plan, or the step was not kept.
    """
    torch.use_deterministic_algorithms(True)
    setattr(torch.utils.deterministic, "fill_uninitialized_memory", False)  # noqa: B010 (unknown to type stubs)
    try:
        return _pretrain(work, plan, until, decay_from, decay_steps, say)
    finally:
        torch.use_deterministic_algorithms(False)


def _pretrain(
    work: Path,
    plan: Plan,
    until: int | None,
    decay_from: int | None,
    decay_steps: int,
    say: Callable[[Log], None],
) -> Log:
    work.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(plan.seed)
    net = NanoPfn(plan.config)
    average = {name: weight.detach().clone() for name, weight in net.named_parameters()}
    optimizer = optimizers(net, plan.rate, plan.decay)
    settings = {"rate": plan.rate, "decay": plan.decay, "seed": plan.seed, "threads": plan.threads}
    log: Log = {
        "settings": settings,
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "parameters": sum(p.numel() for p in net.parameters()),
        "rows": 0,
        "tables": 0,
        "seconds": 0.0,
        "processor_seconds": 0.0,
        "steps": [],
    }
    kept = work / f"step-{decay_from}.pt"
    checkpoint = work / ("checkpoint.pt" if decay_from is None else f"decay-{decay_from}.pt")
    step, running = 0, []
    if decay_from is not None and not (checkpoint.exists() or kept.exists()):
        raise InputError(f"{kept} is not there", hint="train to that step first")
    if checkpoint.exists() or decay_from is not None:
        state = torch.load(checkpoint if checkpoint.exists() else kept, weights_only=True)
        if state["log"]["settings"] != settings or state["config"] != asdict(plan.config):
            raise InputError(f"{checkpoint} was made with other settings: {state['log']['settings']}")
        net.load_state_dict(state["model"])
        for each, saved in zip(optimizer, state["optimizer"], strict=True):
            each.load_state_dict(saved)
        average, log, step, running = state["average"], state["log"], state["step"], state["running"]

    decayed = math.inf if decay_from is None else decay_from + decay_steps
    last = min(decayed, until or math.inf)
    started, busy = time.monotonic() - log["seconds"], time.process_time() - log["processor_seconds"]
    saved_at = time.monotonic()
    while step < last:
        for group in (group for each in optimizer for group in each.param_groups):
            group["lr"] = plan.rate * rate_at(step, decay_from, decay_steps)
        tables = plan.tables(step)
        loss = training_loss(net, tables)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        for each in optimizer:
            each.step()
            each.zero_grad()
        weight = min(AVERAGE, (step + 1) / (step + 10))
        for mean, now in zip(average.values(), net.parameters(), strict=True):
            mean.lerp_(now.detach(), 1 - weight)
        running.append(loss.item())
        log["rows"] += tables.labels.numel()
        log["tables"] += len(tables.labels)
        step += 1
        log["seconds"], log["processor_seconds"] = time.monotonic() - started, time.process_time() - busy
        if step % plan.log_every == 0:
            line = {"step": step, "training": float(np.mean(running)), "rate": optimizer[0].param_groups[0]["lr"]}
            if step % plan.validate_every == 0:
                line |= validation(net, average, plan)
            log["steps"].append(line)
            say(line | {name: round(log[name]) for name in ("rows", "seconds", "processor_seconds")})
            running = []
        if step % plan.keep_every == 0 or step == last or time.monotonic() - saved_at > plan.checkpoint_every:
            saved_at = time.monotonic()
            states = {"model": net.state_dict(), "optimizer": [each.state_dict() for each in optimizer]}
            everything = states | {"average": average, "log": log, "step": step, "running": running}
            everything["config"] = asdict(plan.config)
            _write_state(checkpoint, everything)
            if step % plan.keep_every == 0 and decay_from is None:
                _write_state(work / f"step-{step}.pt", everything)
    if step == decayed:
        net.load_state_dict(average)
        save_pfn(net, work / NETWORK, force=True)
        (work / NETWORK / "training_log.json").write_text(json.dumps(log, indent=1) + "\n", encoding="utf-8")
    return log


def _write_state(path: Path, state: dict) -> None:
    beside = path.with_suffix(".part")
    torch.save(state, beside)
    os.replace(beside, path)


def whole_training(
    work: Path, plan: Plan, steps: int, fall: int, progress: Callable[[int], None] = lambda _: None
) -> Log:
    """Steps at the peak rate and then, while the rate falls, more of them; what an earlier call did is not done again.

    Args:
        progress: told how many more steps are done.

    Raises:
        InputError: as ``pretrain``.
    """
    done = 0

    def advance(line: Log) -> None:
        nonlocal done
        progress(line["step"] - done)
        done = line["step"]

    plan = replace(plan, keep_every=steps)
    if not (work / f"step-{steps}.pt").exists():
        pretrain(work, plan, until=steps, say=advance)
    return pretrain(work, plan, decay_from=steps, decay_steps=fall, say=advance)
