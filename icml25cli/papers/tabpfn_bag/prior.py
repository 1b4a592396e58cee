"""Synthetic classification tables on which the network is trained: the prior that it is fitted to.

After the prior of TabPFN v1 (Hollmann, Müller, Eggensperger and Hutter 2023): random networks of noisy units, read as
structural causal models, whose units are a table's columns and target; beside them forests of random trees, for rules
along single columns, and classes that move the causes, for clusters. Tables come in groups that share the shape of
their model, so that a group is a few batched products; everything else differs from table to table.

Knows tensors and random generators. Does not know the network, nor any real data.
"""

from dataclasses import dataclass
from math import exp, log

import numpy as np
import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from icml25cli.papers.tabpfn_bag.preprocess import standardise

GROUPS = 12  # of tables that share a model's shape, in one draw
UNKNOWN = -100  # label of a query whose class the context does not show
FAMILIES = {"causal": 0.4, "direct": 0.15, "forest": 0.25, "classes": 0.2}
MOST_LAYERS = 6
MOST_UNITS = 128  # of a layer, but for tables that need more to have their columns
DEEPEST = 5  # levels of a tree


@dataclass(frozen=True)
class Tables:
    """Tables of one size, ready for the network: the first ``context`` rows are the context."""

    rows: Float[Tensor, "tables rows columns"]
    labels: Int64[Tensor, "tables rows"]  # in [0, classes) of its table; UNKNOWN for queries that cannot be answered
    classes: Int64[Tensor, "tables"]  # how many the context shows, at least two
    context: int


def draw_tables(
    rng: np.random.Generator, tables: int, rows: int, context: int, columns: int = 64, classes: int = 10
) -> Tables:
    """At most ``tables`` tables: without those whose context shows one class only, or in which a number overflowed.

    The draw is a function of the generator's state.
    """
    source = torch.Generator().manual_seed(int(rng.integers(2**63)))
    sizes = [len(part) for part in np.array_split(np.arange(tables), min(GROUPS, tables))]
    drawn = [_Group(rng, source, size, rows, columns, classes).table(context) for size in sizes]
    x = torch.cat([standardise(x, context, columns) for x, _ in drawn])
    y = torch.cat([y for _, y in drawn])
    labels, present = _relabelled(y, context, classes, source)
    good = (present >= 2) & torch.isfinite(x).flatten(1).all(1) & (labels[:, context:] != UNKNOWN).any(1)
    return Tables(x[good], labels[good], present[good], context)


def _relabelled(
    y: Int64[Tensor, "tables rows"], context: int, classes: int, source: torch.Generator
) -> tuple[Int64[Tensor, "tables rows"], Int64[Tensor, "tables"]]:
    """Classes of the context in random order as 0, 1, ...; their number. Other classes become UNKNOWN."""
    shown = torch.zeros(len(y), classes).scatter_(1, y[:, :context], 1.0)
    order = (torch.rand(len(y), classes, generator=source) - 2 * shown).argsort(1)  # those shown come first
    place = order.argsort(1)
    number = shown.sum(1).long()
    labels = place.gather(1, y)
    return labels.where(labels < number[:, None], torch.tensor(UNKNOWN)), number


class _Group:
    """Some tables whose models have the same shape."""

    def __init__(
        self, rng: np.random.Generator, source: torch.Generator, tables: int, rows: int, columns: int, classes: int
    ) -> None:
        self.rng, self.source = rng, source
        self.tables, self.rows, self.classes = tables, rows, classes
        self.family = rng.choice(list(FAMILIES), p=list(FAMILIES.values()))
        # Small tables are what people have; all columns in use is what an encoder gives.
        self.columns = (
            int(exp(rng.uniform(0, log(columns + 1)))) if rng.random() < 0.6 else int(rng.integers(columns) + 1)
        )
        # v1 draws the most there may be first, and so hardly ever as many as ten.
        self.number = torch.where(self.rand(tables) < 0.5, 2, 2 + (self.rand(tables) * (classes - 1)).long())

    def rand(self, *shape: int) -> Tensor:
        return torch.rand(shape, generator=self.source)

    def randn(self, *shape: int) -> Tensor:
        return torch.randn(shape, generator=self.source)

    def between(self, low: float, high: float) -> Float[Tensor, "tables 1 1"]:
        """One number a table, its logarithm uniform."""
        return torch.exp(self.rand(self.tables, 1, 1) * log(high / low) + log(low))

    def gamma(self, most_shape: float, most_scale: float, least: int) -> int:
        """The meta-distribution of v1 for counts: shape and scale are drawn first."""
        shape = exp(self.rng.uniform(0, log(most_shape)))
        return least + round(self.rng.gamma(shape, self.rng.uniform(0, most_scale) / shape))

    def table(self, context: int) -> tuple[Float[Tensor, "tables rows used"], Int64[Tensor, "tables rows"]]:
        """Columns, some with gaps, and the class of every row."""
        if self.family == "classes":
            y = self._classes()
            x, _ = self._causal(self._moved_causes(y))
        elif self.family == "direct":
            x = self._causes(self.columns)
            y = self._cut(self._units(x)[..., -1])
        else:
            causes = self._causes(self.gamma(3, 7, 2))
            if self.family == "forest":
                x = self._causal(causes)[0] if self.rng.random() < 0.5 else self._causes(self.columns)
                y = self._cut(self._forest(x))
            else:
                x, target = self._causal(causes)
                y = self._cut(target)
        return self._with_gaps(self._with_levels(self._warped(x))), y

    # what moves a model

    def _causes(self, number: int) -> Float[Tensor, "tables rows causes"]:
        """Normal, with mean and spread of their own; in a third of the groups around a few centres."""
        mean = self.randn(self.tables, 1, number)
        causes = self.randn(self.tables, self.rows, number)
        if self.rng.random() < 1 / 3:
            centres = self.randn(self.tables, int(self.rng.integers(2, 11)), number)
            of_row = (self.rand(self.tables, self.rows) * centres.shape[1]).long()
            causes = causes * self.between(0.1, 1) + _rows_of(centres, of_row)
        return mean + causes * (self.randn(self.tables, 1, number) * mean).abs()

    def _classes(self) -> Int64[Tensor, "tables rows"]:
        """Classes with frequencies of their own."""
        frequency = torch.softmax(self.randn(self.tables, self.classes) * self.rand(self.tables, 1), 1)
        frequency = frequency * (torch.arange(self.classes) < self.number[:, None])
        return torch.multinomial(frequency, self.rows, replacement=True, generator=self.source)

    def _moved_causes(self, y: Int64[Tensor, "tables rows"]) -> Float[Tensor, "tables rows causes"]:
        """Normal causes whose mean, and in half of the groups spread, depend on the class."""
        number = self.gamma(3, 7, 2)
        distance = self.between(0.7, 8) / (2 * number) ** 0.5  # between two classes, in deviations
        causes = self.randn(self.tables, self.rows, number)
        if self.rng.random() < 0.5:
            causes = causes * _rows_of(torch.exp(0.5 * self.randn(self.tables, self.classes, number)), y)
        return causes + distance * _rows_of(self.randn(self.tables, self.classes, number), y)

    # from causes to columns and targets

    def _units(self, causes: Float[Tensor, "tables rows causes"]) -> Float[Tensor, "tables rows units"]:
        """All units after the first layer of a random network with noise in every unit, last layer last."""
        layers = min(self.gamma(2, 3, 2), MOST_LAYERS)
        width = max(min(self.gamma(3, 100, 4), MOST_UNITS), 1 + 2 * self.columns)
        name = self.rng.choice(list(ACTIVATIONS))
        gain = self.between(0.3, 3 if name in ("sin", "bump") else 10)
        noise = self.between(1e-4, 0.3) * (self.randn(self.tables, 1, width).abs() if self.rng.random() < 0.5 else 1)
        blocks, dropped = 1, torch.zeros(self.tables, 1, 1)
        if self.rng.random() < 0.5:
            blocks = int(self.rng.integers(1, int(width**0.5) + 2))
        else:
            a, b = self.rng.uniform(0.1, 5, 2)
            dropped = torch.from_numpy(0.6 * self.rng.beta(a, b, (self.tables, 1, 1))).float()
        block = torch.arange(width) * blocks // width
        kept_units = block[:, None] == block
        h = causes @ (self.randn(self.tables, causes.shape[-1], width) / causes.shape[-1] ** 0.5)
        h = h + noise * self.randn(self.tables, self.rows, width)
        units = []
        for _ in range(layers - 1):
            kept = kept_units & (self.rand(self.tables, width, width) >= dropped)
            weight = self.randn(self.tables, width, width) * kept / ((1 - dropped) * (width / blocks) ** 0.5)
            h = ACTIVATIONS[name](h * gain) @ weight + noise * self.randn(self.tables, self.rows, width)
            units.append(h)
        return torch.cat(units, -1)

    def _causal(
        self, causes: Float[Tensor, "tables rows causes"]
    ) -> tuple[Float[Tensor, "tables rows used"], Float[Tensor, "tables rows"]]:
        """Columns and target are different units: neighbours or any, in the network's order or any."""
        units = self._units(causes)
        number = units.shape[-1]
        target = torch.full((self.tables, 1), number - 1)
        if self.rng.random() < 0.5:
            target = (self.rand(self.tables, 1) * number).long()
        if self.rng.random() < 0.5:
            chosen = (self.rand(self.tables, 1) * (number - self.columns)).long() + torch.arange(self.columns)
        else:
            chosen = self.rand(self.tables, number - 1).argsort(1)[:, : self.columns].sort(1).values
        if self.rng.random() < 0.5:
            chosen = chosen.gather(1, self.rand(*chosen.shape).argsort(1))
        chosen = chosen + (chosen >= target)  # the target is not among the columns
        every_row = (self.tables, self.rows, -1)
        x = units.gather(2, chosen[:, None].expand(*every_row))
        return x, units.gather(2, target[:, None].expand(*every_row)).squeeze(2)

    def _forest(self, x: Float[Tensor, "tables rows used"]) -> Float[Tensor, "tables rows"]:
        """Sum of oblivious trees: a level asks one question of all rows, the answers number the leaf.

        Some columns are asked more often than others; thresholds are values of random rows.
        """
        trees, depth = int(exp(self.rng.uniform(0, log(30)))), int(self.rng.integers(1, DEEPEST + 1))
        weight = torch.softmax(1.5 * self.randn(self.tables, x.shape[-1]), 1)
        asked = torch.multinomial(weight, trees * depth, replacement=True, generator=self.source)
        values = x.gather(2, asked[:, None].expand(-1, self.rows, -1))
        threshold = values.gather(1, (self.rand(self.tables, 1, trees * depth) * self.rows).long())
        answers = (values > threshold).long().unflatten(2, (trees, depth))
        leaf = (answers << torch.arange(depth)).sum(3)
        height = self.randn(self.tables, 2**depth, trees).gather(1, leaf).sum(2) / trees**0.5
        return height + self.between(1e-3, 0.5).squeeze(2) * self.randn(self.tables, self.rows)

    def _cut(self, target: Float[Tensor, "tables rows"]) -> Int64[Tensor, "tables rows"]:
        """Classes are ranges of the target, cut at random rows' values or, in half of the tables, into equal parts."""
        equal = torch.arange(1, self.classes) / self.number[:, None]
        share = torch.where(self.rand(self.tables, 1) < 0.5, equal, self.rand(self.tables, self.classes - 1))
        in_use = torch.arange(1, self.classes) < self.number[:, None]
        place = (share.clamp(max=1) * (self.rows - 1)).long()
        bounds = target.sort(1).values.gather(1, place).where(in_use, torch.tensor(torch.inf))
        return (target[:, :, None] > bounds[:, None]).sum(2)

    # what measuring does to columns

    def _some(self, share_of_tables: float, width: int) -> Bool[Tensor, "tables 1 used"]:
        """Columns of a share of the tables, each table taking a part of its own."""
        tables = self.rand(self.tables, 1, 1) < share_of_tables
        return tables & (self.rand(self.tables, 1, width) < self.rand(self.tables, 1, 1))

    def _warped(self, x: Float[Tensor, "tables rows used"]) -> Float[Tensor, "tables rows used"]:
        """Some columns skewed as amounts and durations are: the exponential of a standardised value."""
        skewed = self._some(0.3, x.shape[-1])
        z = (x - x.mean(1, keepdim=True)) / x.std(1, keepdim=True).clamp(min=1e-30)
        return torch.where(skewed, torch.exp(self.randn(self.tables, 1, x.shape[-1]) * z.clamp(-8, 8)), x)

    def _with_levels(self, x: Float[Tensor, "tables rows used"]) -> Float[Tensor, "tables rows used"]:
        """Some columns cut by rank into a few levels, whose numbers then mostly lose their order."""
        coded = self._some(0.2, x.shape[-1])
        if not coded.any():
            return x
        by_column = x.transpose(1, 2).contiguous()
        rank = torch.searchsorted(by_column.sort(2).values, by_column).transpose(1, 2) / self.rows
        levels = torch.from_numpy(self.rng.gamma(1, 10, (self.tables, 1, x.shape[-1])).round().clip(2, 50))
        share = rank ** torch.exp(0.5 * self.randn(self.tables, 1, x.shape[-1]))
        level = (share * levels).long()
        other = self.rand(self.tables, 51, x.shape[-1]).argsort(1).gather(1, level)
        shuffled = self.rand(self.tables, 1, x.shape[-1]) < 0.7
        return torch.where(coded, torch.where(shuffled, other, level).float(), x)

    def _with_gaps(self, x: Float[Tensor, "tables rows used"]) -> Float[Tensor, "tables rows used"]:
        """In a third of the tables up to a tenth of the values are missing."""
        share = 0.1 * self.rand(self.tables, 1, 1) * (self.rand(self.tables, 1, 1) < 1 / 3)
        return x.masked_fill(self.rand(*x.shape) < share, torch.nan)


def _rows_of(table: Float[Tensor, "tables keys width"], key: Int64[Tensor, "tables rows"]) -> Tensor:
    return table.gather(1, key[:, :, None].expand(-1, -1, table.shape[2]))


ACTIVATIONS = {
    "tanh": torch.tanh,
    "identity": lambda x: x,
    "relu": torch.relu,
    "sin": torch.sin,
    "root": lambda x: x.sign() * x.abs().sqrt(),
    "bump": lambda x: torch.exp(-x.square()),
    "step": torch.sign,
}
