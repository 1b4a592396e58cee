"""Train `pfn-nano`, the built-in prior-fitted network for tables, on synthetic tables alone.

    python assets/recipes/train_pfn_nano.py --work DIR [--until STEP]
    python assets/recipes/train_pfn_nano.py --work DIR --decay-from STEP [--decay-steps N]

The first form has no end: the rate stays at its peak, and the same command goes on from the last checkpoint in --work.
The second lets the rate fall from a step that was kept (every thousandth) and writes the network to --work/pfn-nano
when that is done; the first can then be continued as if nothing had happened. Interrupted and continued, both end with
the same numbers as in one go (same machine and thread count): every random choice of a step is derived from the seed
and the step's number.
"""

import argparse
import json
import math
import os
import platform
import time
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.func import functional_call
from torch.nn.functional import cross_entropy

from icml25cli.papers.tabpfn_bag.network import Pfn, PfnConfig
from icml25cli.papers.tabpfn_bag.prior import UNKNOWN, Tables, draw_tables
from icml25cli.papers.tabpfn_bag.weights import save_pfn

STAGES = ((3000, 256, 4096), (10_000, 512, 6144), (math.inf, 1024, 8192))  # until step, most rows a table, rows a step
FEWEST_ROWS = 64
WARMUP = 200  # steps
LAST_RATE = 0.02  # share of the peak at the end of the decay
AVERAGE = 0.999  # weight of the old in the moving average of weights, which is what is evaluated and shipped
VALIDATION = (8, 32, 256, 160)  # draws, tables, rows, context
LOG_EVERY, VALIDATE_EVERY, KEEP_EVERY = 50, 500, 1000  # steps
CHECKPOINT_EVERY = 180  # seconds


def training_tables(seed: int, step: int) -> Tables:
    """The step's tables: their size by the logarithm, a share of 0.4 to 0.9 of the rows as context."""
    rng = np.random.default_rng((seed, 0, step))
    most, budget = next((most, budget) for last, most, budget in STAGES if step < last)
    rows = round(math.exp(rng.uniform(math.log(FEWEST_ROWS), math.log(most))) / 8) * 8
    return draw_tables(rng, budget // rows, rows, int(rows * rng.uniform(0.4, 0.9)))


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
def validation(net: Pfn, average: dict[str, Tensor], seed: int) -> dict[str, float]:
    """Loss and accuracy on tables that are not trained on, beside guessing by the context's class frequencies."""
    draws, number, rows, n = VALIDATION
    figures = []
    for draw in range(draws):
        tables = draw_tables(np.random.default_rng((seed, 1, draw)), number, rows, n)
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True, help="folder for checkpoints and the log")
    parser.add_argument("--until", type=int, help="stop before this step")
    parser.add_argument("--decay-from", type=int, metavar="STEP", help="a step that is a multiple of 1000 and was kept")
    parser.add_argument("--decay-steps", type=int, default=4000)
    parser.add_argument("--rate", type=float, default=2e-3, help="peak learning rate")
    parser.add_argument("--decay", type=float, default=0.01, help="weight decay of hidden matrices")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    torch.use_deterministic_algorithms(True)
    setattr(torch.utils.deterministic, "fill_uninitialized_memory", False)  # noqa: B010 (unknown to type stubs)
    args.work.mkdir(parents=True, exist_ok=True)

    torch.manual_seed(args.seed)
    net = Pfn(PfnConfig())
    average = {name: weight.detach().clone() for name, weight in net.named_parameters()}
    optimizer = optimizers(net, args.rate, args.decay)
    settings = {"rate": args.rate, "decay": args.decay, "seed": args.seed, "threads": args.threads}
    log = {
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
    kept = args.work / f"step-{args.decay_from}.pt"
    checkpoint = args.work / ("checkpoint.pt" if args.decay_from is None else f"decay-{args.decay_from}.pt")
    step, running = 0, []
    if args.decay_from is not None and not (checkpoint.exists() or kept.exists()):
        raise SystemExit(f"{kept} is not there: train to that step first")
    if checkpoint.exists() or args.decay_from is not None:
        state = torch.load(checkpoint if checkpoint.exists() else kept, weights_only=True)
        if state["log"]["settings"] != settings:
            raise SystemExit(f"{checkpoint} was made with other settings: {state['log']['settings']}")
        net.load_state_dict(state["model"])
        for each, saved in zip(optimizer, state["optimizer"], strict=True):
            each.load_state_dict(saved)
        average, log, step, running = state["average"], state["log"], state["step"], state["running"]

    decayed = math.inf if args.decay_from is None else args.decay_from + args.decay_steps
    last = min(decayed, args.until or math.inf)
    started, busy = time.monotonic() - log["seconds"], time.process_time() - log["processor_seconds"]
    saved_at = time.monotonic()
    while step < last:
        for group in (group for each in optimizer for group in each.param_groups):
            group["lr"] = args.rate * rate_at(step, args.decay_from, args.decay_steps)
        tables = training_tables(args.seed, step)
        loss = training_loss(net, tables)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        for each in optimizer:
            each.step()
            each.zero_grad()
        weight = min(AVERAGE, (step + 1) / (step + 10))
        torch._foreach_lerp_(list(average.values()), [p.detach() for p in net.parameters()], 1 - weight)
        running.append(loss.item())
        log["rows"] += tables.labels.numel()
        log["tables"] += len(tables.labels)
        step += 1
        log["seconds"], log["processor_seconds"] = time.monotonic() - started, time.process_time() - busy
        if step % LOG_EVERY == 0:
            line = {"step": step, "training": float(np.mean(running)), "rate": optimizer[0].param_groups[0]["lr"]}
            if step % VALIDATE_EVERY == 0:
                line |= validation(net, average, args.seed)
            log["steps"].append(line)
            spent = {name: round(log[name]) for name in ("rows", "seconds", "processor_seconds")}
            print(json.dumps(line | spent), flush=True)
            running = []
        if step % KEEP_EVERY == 0 or step == last or time.monotonic() - saved_at > CHECKPOINT_EVERY:
            saved_at = time.monotonic()
            states = {"model": net.state_dict(), "optimizer": [each.state_dict() for each in optimizer]}
            everything = states | {"average": average, "log": log, "step": step, "running": running}
            write_state(checkpoint, everything)
            if step % KEEP_EVERY == 0 and args.decay_from is None:
                write_state(args.work / f"step-{step}.pt", everything)
    if step == decayed:
        net.load_state_dict(average)
        save_pfn(net, args.work / "pfn-nano", force=True)
        (args.work / "pfn-nano" / "training_log.json").write_text(json.dumps(log, indent=1) + "\n")


def write_state(path: Path, state: dict) -> None:
    beside = path.with_suffix(".part")
    torch.save(state, beside)
    os.replace(beside, path)


if __name__ == "__main__":
    main()
