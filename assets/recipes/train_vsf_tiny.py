"""Train `vsf-tiny`, the built-in vision encoder: a CNN that reads counts off pictures of synthetic graphs.

    python assets/recipes/train_vsf_tiny.py --work DIR [--steps N]

Writes weights, card and log to assets/vsf_tiny when the last step is done. Interrupted, the same command goes on from
the last checkpoint in --work and ends with the same bytes (same machine and thread count): every picture of a step is
derived from the seed and the step's number, so weights and optimiser are the whole state.

Pictures are those of vsf_tiny_pictures.py; the gate is on pictures of graphs by generators that training never used.
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
from safetensors.torch import save_file
from vsf_tiny_pictures import COUNTS, DISTANCES, OF_PAIRS, OTHERS, TRAINING, pictures

from icml25cli.core.files import atomic_path
from icml25cli.papers.linkpred.vsf_tiny import WIDTH, VsfTiny, planes

TARGET = Path(__file__).resolve().parents[1] / "vsf_tiny"
BATCH = 128
CHUNK = 16  # batches of one draw of graphs
GATE = 0.95  # R² of common neighbours on held-out generators
EVAL_EVERY, CHECKPOINT_EVERY = 500, 100
HELD_OUT = 4096  # pictures of pairs


class Reader(torch.nn.Module):
    """The encoder and what reads counts off its features."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = VsfTiny()
        self.heads = torch.nn.Linear(WIDTH, len(COUNTS) + len(DISTANCES))
        self.register_buffer("mean", torch.zeros(len(COUNTS)))
        self.register_buffer("std", torch.ones(len(COUNTS)))

    def forward(self, drawn: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            features = self.encoder(planes(drawn))
        out = self.heads(features)
        return out[:, : len(COUNTS)] * self.std + self.mean, out[:, len(COUNTS) :]


def loss_of(reader: Reader, drawn: torch.Tensor, known: torch.Tensor) -> torch.Tensor:
    values, logits = reader(drawn)
    error = (values - known[:, :-1]) / reader.std
    there = ~error.isnan()
    mse = torch.where(there, error, 0.0).square().sum(0) / there.sum(0).clamp(min=1)
    pairs = ~known[:, -1].isnan()
    weight = torch.tensor([1.0] * OF_PAIRS + [4.0] * 4) / 22  # what tells of a link counts more
    distance = torch.nn.functional.cross_entropy(logits[pairs], known[pairs, -1].long()) if pairs.any() else 0
    return (mse * weight).sum() + 0.05 * distance


@torch.no_grad()
def quality(reader: Reader, drawn: torch.Tensor, known: torch.Tensor) -> dict[str, float]:
    """R² of each count, common neighbours also on their own scale, and how often the distance is right."""
    reader.eval()
    parts = [reader(part) for part in drawn.split(256)]
    reader.train()
    values, logits = (torch.cat(part) for part in zip(*parts, strict=True))

    def r2(found: torch.Tensor, true: torch.Tensor) -> float:
        return float(1 - (found - true).square().sum() / (true - true.mean()).square().sum())

    result = {name: r2(values[:, i], known[:, i]) for i, name in enumerate(COUNTS)}
    place = COUNTS.index("common_neighbors")
    result["common_neighbors_raw"] = r2(values[:, place].clamp(min=0).square(), known[:, place].square())
    result["distance_accuracy"] = float((logits.argmax(1) == known[:, -1]).float().mean())
    return result


def rate_at(step: int, steps: int) -> float:
    return min((step + 1) / 100, 0.01 + 0.99 * 0.5 * (1 + math.cos(math.pi * step / steps)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True, help="folder for checkpoints and the log")
    parser.add_argument("--steps", type=int, default=6000, help=f"of {BATCH} pictures")
    parser.add_argument("--rate", type=float, default=2e-3, help="peak learning rate")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--pause-after", type=int, help="stop after this step; the same command goes on from there")
    args = parser.parse_args()
    args.work.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)

    held_out = np.random.default_rng((args.seed, 1, 0))
    tests = {
        "held_out": [*map(torch.from_numpy, pictures(OTHERS, HELD_OUT, held_out, pairs_only=True))],
        "same": [*map(torch.from_numpy, pictures(TRAINING, HELD_OUT, held_out, pairs_only=True))],
    }
    reader = Reader()
    optimizer = torch.optim.AdamW(reader.parameters(), lr=args.rate, weight_decay=1e-4)
    settings = {"steps": args.steps, "rate": args.rate, "seed": args.seed, "batch": BATCH}
    log = {
        "settings": settings,
        "machine": f"{platform.machine()}, 1 thread, torch {torch.__version__}, Python {platform.python_version()}",
        "parameters": sum(p.numel() for p in reader.encoder.parameters()),
        "seconds": 0.0,
        "steps": [],
    }
    checkpoint, first, running = args.work / "checkpoint.pt", 0, []
    if checkpoint.exists():
        state = torch.load(checkpoint, weights_only=True)
        if state["log"]["settings"] != settings:
            raise SystemExit(f"{checkpoint} was made with other settings: {state['log']['settings']}")
        reader.load_state_dict(state["reader"])
        optimizer.load_state_dict(state["optimizer"])
        log, first, running = state["log"], state["step"], state["running"]
    else:
        known = pictures(TRAINING, HELD_OUT, np.random.default_rng((args.seed, 2, 0)))[1][:, :-1]
        reader.mean.copy_(torch.from_numpy(np.nanmean(known, axis=0)))
        reader.std.copy_(torch.from_numpy(np.nanstd(known, axis=0)))

    started = time.monotonic() - log["seconds"]
    chunk, chunk_number = None, -1
    for step in range(first, args.steps):
        number, place = divmod(step, CHUNK)
        if number != chunk_number:
            drawn, known = pictures(TRAINING, CHUNK * BATCH, np.random.default_rng((args.seed, 0, number)))
            chunk, chunk_number = (torch.from_numpy(drawn), torch.from_numpy(known)), number
        for group in optimizer.param_groups:
            group["lr"] = args.rate * rate_at(step, args.steps)
        drawn, known = (part[place * BATCH : (place + 1) * BATCH] for part in chunk)
        if step % 2:  # a mirrored picture shows the same graph
            drawn = drawn.flip(1 + (step // 2) % 2)
        loss = loss_of(reader, drawn, known)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(reader.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        running.append(loss.item())
        done = step + 1
        if done % EVAL_EVERY == 0 or done == args.steps:
            log["seconds"] = time.monotonic() - started
            found = {name: quality(reader, *test) for name, test in tests.items()}
            log["steps"].append({"step": done, "loss": float(np.mean(running)), **found})
            print(json.dumps(log["steps"][-1] | {"seconds": round(log["seconds"])}), flush=True)
            running = []
        if done % CHECKPOINT_EVERY == 0 or done in (args.steps, args.pause_after):
            state = {"reader": reader.state_dict(), "optimizer": optimizer.state_dict(), "log": log, "step": done}
            state["running"] = running
            torch.save(state, checkpoint.with_suffix(".part"))
            os.replace(checkpoint.with_suffix(".part"), checkpoint)
        if done == args.pause_after:
            return
    finish(reader, args.seed)
    log["shipped"] = {name: quality(reader, *test) for name, test in tests.items()}
    print(json.dumps(log["shipped"]))
    write(reader, log)


@torch.no_grad()
def finish(reader: Reader, seed: int) -> None:
    """Statistics of normalisation over many pictures instead of the last ones, and weights in half precision."""
    for module in reader.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            module.reset_running_stats()
            module.momentum = None  # the mean over all batches
    reader.train()
    for part in range(8):
        drawn, _ = pictures(TRAINING, 2048, np.random.default_rng((seed, 3, part)))
        for batch in torch.from_numpy(drawn).split(512):
            reader(batch)
    for value in reader.encoder.state_dict().values():
        if value.is_floating_point():
            value.copy_(value.half())


def write(reader: Reader, log: dict) -> None:
    """Weights, the log, and the card."""
    weights = {
        name: value.half().contiguous()
        for name, value in reader.encoder.state_dict().items()
        if value.is_floating_point()
    }
    held_out = log["shipped"]["held_out"]
    gate = held_out["common_neighbors_raw"], held_out["common_neighbors"]
    with atomic_path(TARGET, force=True) as new:
        new.mkdir()
        save_file(weights, new / "model.safetensors")
        (new / "training_log.json").write_text(json.dumps(log, indent=1) + "\n")
        (new / "README.md").write_text(card(log, min(gate) >= GATE))


def card(log: dict, passes: bool) -> str:
    last, settings = log["shipped"], log["settings"]
    names = [*COUNTS, "common_neighbors_raw", "distance_accuracy"]
    rows = "\n".join(f"| {n} | {last['held_out'][n]:.3f} | {last['same'][n]:.3f} |" for n in names)
    return f"""---
license: apache-2.0
---

# vsf-tiny

The built-in vision encoder of `icml25 linkpred`: {log["parameters"]:,} parameters, 96-pixel pictures of graphs as the
native renderer draws them, 256 features. It was trained to read counts off pictures of synthetic graphs and never saw a
graph that anybody evaluates on. It knows boxes and lines, and nothing else of what pictures may show.

## Training

    python assets/recipes/train_vsf_tiny.py --work DIR

{settings["steps"]} steps of {settings["batch"]} pictures, AdamW, peak rate {settings["rate"]}, cosine, bfloat16
autocast, seed {settings["seed"]}; {log["seconds"]:.0f} seconds on {log["machine"]}.
Graphs of 100 to 1000 nodes and mean degree 2 to 16: Erdős–Rényi, Barabási–Albert with and without closed wedges,
Watts–Strogatz, stochastic blocks, planted cliques, relaxed caves, autonomous systems, trees with some more edges.
Pictures: 45 % neighbourhoods of pairs drawn by themselves (any share of common neighbours, any density), 44 % pairs of
these graphs with one hop or two, 11 % nodes; of the pairs half are edges, a quarter share a neighbour, a quarter are
any. Each count is a linear function of the features. The same machine and versions give the same bytes, interrupted or
not.

## Quality

R² on {HELD_OUT} pictures of pairs, one hop. Held-out graphs are by generators that training never used: power-law
cluster, random geometric, configuration model with a power law, duplication and divergence. Counts are of what is
drawn: clustering, jaccard and common_neighbors_raw as they are, common neighbours, Adamic-Adar and resource allocation
as roots, others as log(1 + x). The bar is {GATE} for common neighbours on held-out generators, as roots and as they
are: it {"passes" if passes else "does not pass"}.

| count | held-out generators | training generators |
|---|---|---|
{rows}
"""


if __name__ == "__main__":
    main()
