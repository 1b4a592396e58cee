"""The paper's controlled experiment: alignment against uniqueness, heterogeneity and performance (sections 4.1, 5).

One modality is encoded at a fixed depth, the other, made heterogeneous, at several; alignment is the largest over pairs
of layers on one batch of test rows. Knows the generator, encoders and metrics. Does not know the command line.
"""

import csv
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Float64
from numpy import ndarray
from torch import Tensor

from icml25cli.core.embeddings import of_array
from icml25cli.core.errors import InputError
from icml25cli.core.plots import save_figure
from icml25cli.core.progress import Progress
from icml25cli.core.runs import Run, fingerprint, run_directory
from icml25cli.papers.align import encoders, generator, symmetric
from icml25cli.papers.align.encoders import Split, Training
from icml25cli.papers.align.figures import by_uniqueness
from icml25cli.papers.align.lists import neighbour_lists
from icml25cli.papers.align.overlap import mutual
from icml25cli.papers.align.prepared import prepare

ALIGNED_ROWS, NEIGHBOURS = 512, 100
FIXED_DEPTH = 2  # of the modality that is not transformed


@dataclass(frozen=True)
class Design:
    """What is varied.

    Attributes:
        unique: of the label's eight bits, how many only one view holds.
        heterogeneity: depths of the map that the second view goes through; -1 for none.
        depths: of the second view's encoder.
        rows: items, split 70/15/15.
        epochs: of the first and of the second view's encoders.
    """

    unique: tuple[int, ...] = tuple(range(9))
    heterogeneity: tuple[int, ...] = (1,)
    depths: tuple[int, ...] = (1, 3, 6)
    seeds: int = 2
    rows: int = 24_576
    epochs: tuple[int, int] = (30, 60)
    rate: float = 0.01


@dataclass(frozen=True)
class Encoded:
    """One encoder of the second view beside the first view's.

    Attributes:
        alignment: the largest unbiased CKA over pairs of layers; last_alignment that of the last ones.
        mknn: the largest share of 100 mutual neighbours of 512.
        accuracy, first_accuracy: of this encoder and of the first view's, expected over all combinations of bits.
    """

    unique: int
    heterogeneity: int
    depth: int
    seed: int
    alignment: float
    last_alignment: float
    mknn: float
    accuracy: float
    first_accuracy: float


def simulate(design: Design, seed: int = 0, run: Run | None = None) -> list[Encoded]:
    """Train all encoders of a design and measure alignment, in the order unique, heterogeneity, depth, seed.

    What ``run`` holds of an earlier call is not done again.
    """
    cells = [(u, s) for u in design.unique for s in range(design.seeds)]
    stacks = [(bend, depth) for bend in design.heterogeneity for depth in design.depths]
    units = {stack: f"heterogeneity_{stack[0]}_depth_{stack[1]}.json" for stack in stacks}
    found = [row for stack in stacks if run and run.has(units[stack]) for row in _read(run.path(units[stack]))]
    missing = [stack for stack in stacks if not (run and run.has(units[stack]))]
    if missing:
        tasks = [generator.task(8 - u) for u, _ in cells]
        drawn = [generator.draw(of, design.rows, seed + s) for of, (_, s) in zip(tasks, cells, strict=True)]
        labels = [d.label for d in drawn]
        known = [[generator.view(of, second) for of in tasks] for second in (False, True)]
        with Progress("stacks of encoders", 1 + len(missing)) as progress:
            how = Training(design.epochs[0], rate=design.rate)
            first = _tested(*_trained([d.x1 for d in drawn], labels, FIXED_DEPTH, how, seed), known[0])
            progress.advance()
            how = Training(design.epochs[1], rate=design.rate)
            for bend, depth in missing:
                views = [generator.heterogeneous(d.x2, bend) for d in drawn]
                seen = [(generator.heterogeneous(bits, bend), given) for bits, given in known[1]]
                second = _tested(*_trained(views, labels, depth, how, seed + 1000 + depth), seen)
                rows = _encoded(cells, bend, depth, first, second)
                if run:
                    run.write(units[bend, depth], lambda path, rows=rows: path.write_text(json.dumps(as_rows(rows))))
                found += rows
                progress.advance()
    return sorted(found, key=lambda row: (row.unique, row.heterogeneity, row.depth, row.seed))


def _read(path: Path) -> list[Encoded]:
    return [Encoded(**row) for row in json.loads(path.read_text())]


def _encoded(cells, bend: int, depth: int, first, second) -> list[Encoded]:
    """A row each member of a stack, whose layers and accuracies are beside those of the first view's."""
    rows = []
    for e, (unique, s) in enumerate(cells):
        ucka, mknn = _alignment([x[e] for x in first[0]], [x[e] for x in second[0]])
        values = (float(ucka.max()), float(ucka[-1, -1]), float(mknn.max()), float(second[1][e]), float(first[1][e]))
        rows.append(Encoded(unique, bend, depth, s, *values))
    return rows


@dataclass(frozen=True)
class _Standard:
    """Mean and deviation of each member's training rows, by which all its rows are standardised."""

    mean: Float64[ndarray, "E 1 d"]
    sd: Float64[ndarray, "E 1 d"]

    def __call__(self, x: Float64[ndarray, "E N d"]) -> Float[Tensor, "E N d"]:
        return torch.from_numpy((x - self.mean) / np.where(self.sd == 0, 1, self.sd)).float()


def _trained(views, labels, depth: int, how: Training, seed: int) -> tuple[encoders.Stack, _Standard, Tensor]:
    """A stack trained on 70 % of each member's rows, what standardises its input, and the first of its test rows."""
    x, y = np.stack(views), np.stack(labels)
    train, validation = round(0.7 * x.shape[1]), round(0.85 * x.shape[1])
    standard = _Standard(x[:, :train].mean(axis=1, keepdims=True), x[:, :train].std(axis=1, keepdims=True))
    rows, label = standard(x), torch.from_numpy(y)
    edges = (slice(None, train), slice(train, validation))
    splits = [Split(rows[:, edge].contiguous(), label[:, edge].contiguous()) for edge in edges]
    start = encoders.started(len(x), x.shape[2], generator.CLASSES, depth, seed)
    stack = encoders.train(start, splits[0], splits[1], how, seed)
    return stack, standard, rows[:, validation : validation + ALIGNED_ROWS].contiguous()


@torch.no_grad()
def _tested(
    stack: encoders.Stack, standard: _Standard, test: Float[Tensor, "E N d"], known
) -> tuple[list[ndarray], Float64[ndarray, "E"]]:
    """Representations of test rows by layer; and accuracy over all combinations of bits, which no draw blurs."""
    bits, given = (np.stack(part) for part in zip(*known, strict=True))
    said = stack.logits(standard(bits)).argmax(dim=2, keepdim=True).numpy()
    layers = [x.numpy() for x in stack.representations(test)]
    return layers, np.take_along_axis(given, said, 2)[:, :, 0].mean(axis=1)


def _alignment(first, second) -> tuple[Float64[ndarray, "L M"], Float64[ndarray, "L M"]]:
    """Unbiased CKA and mutual neighbours of every pair of layers, of rows of length 1."""
    sides = [[prepare(of_array("layer", np.ascontiguousarray(x))) for x in layers] for layers in (first, second)]
    kernels = [[symmetric.u_centred(symmetric.linear_kernel(x[:])) for x in layers] for layers in sides]
    k = min(NEIGHBOURS, sides[0][0].rows - 1)
    lists = [[neighbour_lists(x, k).index for x in layers] for layers in sides]
    count = sides[0][0].rows
    ucka = np.array([[symmetric.association(a, b) for b in kernels[1]] for a in kernels[0]])
    mknn = np.array([[mutual(a, b, count).mean() for b in lists[1]] for a in lists[0]])
    return np.nan_to_num(ucka), mknn


def summary(found: Sequence[Encoded]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """A row each uniqueness and heterogeneity, and a row each heterogeneity: how alignment follows uniqueness."""
    from scipy.stats import spearmanr

    rows = []
    for bend in dict.fromkeys(row.heterogeneity for row in found):
        for unique in dict.fromkeys(row.unique for row in found):
            here = [row for row in found if (row.heterogeneity, row.unique) == (bend, unique)]
            exact = generator.exact(generator.task(8 - unique))
            alignment = np.array([row.alignment for row in here])
            rows.append(
                {
                    "heterogeneity": bend,
                    "unique": unique,
                    "max_ucka": float(alignment.max()),
                    "ucka": float(alignment.mean()),
                    "ucka_sd": float(alignment.std(ddof=1)) if len(here) > 1 else None,
                    "mknn": float(np.mean([row.mknn for row in here])),
                    "accuracy": float(np.mean([row.accuracy for row in here])),
                    "best_accuracy": exact.accuracy_second,
                    "alignment_performance": _pearson(here, "alignment", "accuracy"),
                    "alignment_depth": _pearson(here, "alignment", "depth"),
                }
            )
    trends = []
    for bend in dict.fromkeys(row["heterogeneity"] for row in rows):
        here = [row for row in rows if row["heterogeneity"] == bend]
        if len(here) > 2:
            rho = np.asarray(spearmanr([row["unique"] for row in here], [row["max_ucka"] for row in here]))[0]
            trends.append({"heterogeneity": bend, "spearman": float(rho), "levels": len(here)})
    return rows, trends


def _pearson(rows: Sequence[Encoded], one: str, other: str) -> float | None:
    x, y = (np.array([getattr(row, name) for row in rows], np.float64) for name in (one, other))
    if len(rows) < 3 or x.std() == 0 or y.std() == 0:
        return None
    return float(np.corrcoef(x, y)[0, 1])


def write_data(design: Design, directory: Path, seed: int) -> list[str]:
    """Write each task's views and labels as x1, x2 (a heterogeneity each) and y; names of the files."""
    names = []
    for unique in design.unique:
        of = generator.task(8 - unique)
        drawn = generator.draw(of, design.rows, seed)
        arrays = {"x1": drawn.x1.astype(np.float32), "y": drawn.label}
        for bend in design.heterogeneity:
            arrays[f"x2_{bend}"] = generator.heterogeneous(drawn.x2, bend).astype(np.float32)
        name = f"unique_{unique}.npz"
        np.savez(directory / name, **arrays)
        names.append(name)
    return names


def as_rows(found: Sequence[Encoded]) -> list[dict[str, Any]]:
    return [asdict(row) for row in found]


# --- the job -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Simulated:
    """Encoders of a design and what they say."""

    found: tuple[Encoded, ...]
    rows: tuple[dict[str, Any], ...]
    trends: tuple[dict[str, Any], ...]

    def encoders(self) -> list[dict[str, Any]]:
        return as_rows(self.found)

    def headline(self) -> dict[str, float]:
        """Of the least heterogeneity."""
        return {"spearman": self.trends[0]["spearman"]} if self.trends else {"max_ucka": self.rows[0]["max_ucka"]}

    def write(self, directory: Path) -> list[str]:
        """Write a line an encoder, and the figure; names of the files."""
        with open(directory / "encoders.csv", "w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, list(asdict(self.found[0])), lineterminator="\n")
            writer.writeheader()
            writer.writerows(self.encoders())
        save_figure(by_uniqueness(self.rows), directory / "uniqueness.svg")
        return ["encoders.csv", "uniqueness.svg"]


def checked(
    *,
    unique: tuple[int, ...],
    heterogeneity: tuple[int, ...],
    depths: tuple[int, ...],
    seeds: int,
    rows: int,
    epochs: int,
    rate: float,
) -> Design:
    """A design of these numbers; the first view's encoders take half the epochs.

    Raises:
        InputError: one of them cannot be.
    """
    for name, values, low, high in (
        ("unique bits", unique, 0, generator.CHOSEN),
        ("heterogeneity", heterogeneity, -1, 50),
        ("encoder depth", depths, 1, 50),
    ):
        if outside := [value for value in values if not low <= value <= high]:
            raise InputError(f"{name} {outside[0]} is not in {low} to {high}")
    return Design(unique, heterogeneity, depths, seeds, rows, (max(1, epochs // 2), epochs), rate)


def carry_out(design: Design, seed: int, *, resume: bool = False, fresh: bool = False) -> Simulated:
    """Simulate, continuing what an earlier call with the same design and seed finished.

    Raises:
        ToolboxError: as ``Run.open``.
    """
    inputs = {"design": asdict(design), "seed": seed}
    directory = run_directory("align-simulate", fingerprint(inputs), None)
    with Run.open(directory, inputs, resume=resume, fresh=fresh) as run:
        found = simulate(design, seed, run)
    rows, trends = summary(found)
    return Simulated(tuple(found), tuple(rows), tuple(trends))
