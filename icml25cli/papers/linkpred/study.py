"""All methods on one split of one graph, each trained on the same pairs and judged on the same pairs.

    base          message passing alone
    gvn           pictures of pairs: late fusion with a model of pictures, or link fusion inside the base model
    e-gvn         pictures of nodes, fused before message passing
    moe, concat   pictures of pairs, fused in the two other ways of the reference
    vision-only   pictures of pairs alone
    counts-only   in the place of the picture what is easily counted on it: degrees, common neighbours, Adamic-Adar,
                  resource allocation, nodes and edges
    degree-only   in its place the two degrees
    base+degree   late fusion with these: what pictures would add if they showed no more
    placebo       the main method with every picture replaced by that of another pair or node, at random

Whatever is fitted for one method and needed by another is fitted once. Knows splits, models and pictures. Does not know
the command, nor how runs are averaged.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from jaxtyping import Float32, Float64, Int64
from numpy import ndarray
from torch import nn

from icml25cli.core.errors import UsageError
from icml25cli.core.runs import Run
from icml25cli.papers.linkpred.counts import count_features, degree_features
from icml25cli.papers.linkpred.encoders import Encoder
from icml25cli.papers.linkpred.evaluation import Judged
from icml25cli.papers.linkpred.fusion import (
    Concatenation,
    LateFusion,
    LinkFusion,
    MixtureOfScores,
    NodeFusion,
    Standardised,
    VisionHead,
    fit_late,
)
from icml25cli.papers.linkpred.graph import Graph, adjacency, codes
from icml25cli.papers.linkpred.metrics import evaluate
from icml25cli.papers.linkpred.models import HadamardModel, LinkModel, NodeInput, Sizes
from icml25cli.papers.linkpred.ncn import Completion, NcnModel, NcnSizes
from icml25cli.papers.linkpred.pictures import Look, PictureFeatures, node_features, pair_features
from icml25cli.papers.linkpred.propagation import Observed
from icml25cli.papers.linkpred.splits import Split, sample_negatives, structured_negatives
from icml25cli.papers.linkpred.training import Fitted, Pairs, Recipe, criterion_of, fit, predict

BASES = ("gcn", "sage", "gin", "ncn", "ncnc")
METHODS = ("base", "base+degree", "gvn", "e-gvn", "vision-only", "counts-only", "degree-only", "moe", "concat")
HEADS = {"vision-only": "vision", "counts-only": "counts", "degree-only": "degree"}  # models of features alone, by unit
FUSIONS = ("late", "link")
HEAD_RATE = 5e-4  # learning rate of models of features alone: pictures have many features, and edges are few
PICTURED = 20_000  # training edges that get pictures at most: more teach little, and each costs five pictures
POOL = 4  # negatives a positive that have pictures; each epoch draws of them


@dataclass(frozen=True)
class Options:
    """How a study is done.

    Attributes:
        fusion: of gvn: ``late`` or, as in the paper, ``link``.
        pair_look, node_look: what pictures of pairs and of nodes show.
        use_validation_edges: propagate over validation edges, too, when test pairs are scored. Pictures stay those of
            training edges.
    """

    base: str = "ncn"
    fusion: str = "late"
    attention: str = "sigmoid"
    hidden: int = 128
    recipe: Recipe = field(default_factory=Recipe)
    pair_look: Look = field(default_factory=Look)
    node_look: Look = field(default_factory=lambda: Look(hops=2))
    use_validation_edges: bool = False


@dataclass(frozen=True, eq=False)
class Scored:
    """What a method says of validation and test pairs, and what it is made of.

    Attributes:
        valid, test: logits of edges and of negatives.
        seconds: of fitting and scoring, and of drawing and looking at pictures where there are any.
        parameters: numbers that were learnt.
        modules: by name, what has to be kept to score other pairs.
        fitted: how training each of them went.
        late: how two scores become one, where two do.
    """

    valid: tuple[Float64[ndarray, "p"], Float64[ndarray, "*q"]]
    test: tuple[Float64[ndarray, "p"], Float64[ndarray, "*q"]]
    seconds: float
    parameters: int
    modules: dict[str, nn.Module]
    fitted: dict[str, Fitted]
    late: LateFusion | None = None


class Study:
    """One split with everything that methods on it share."""

    def __init__(self, graph: Graph, split: Split, encoder: Encoder, options: Options, run: Run | None = None) -> None:
        if options.base not in BASES:
            raise UsageError(f"no base model is called '{options.base}'", hint=f"one of {', '.join(BASES)}")
        self.graph, self.split, self.encoder, self.options, self.run = graph, split, encoder, options, run
        self.observed = Observed(adjacency(split.observed, graph.num_nodes))
        self._known = np.sort(codes(split.train, graph.num_nodes))
        self._scored: dict[tuple[str, int], Scored] = {}
        self._picture_seconds = {"pairs": 0.0, "nodes": 0.0}

    def judge(self, method: str, *, placebo: int = 0) -> Judged:
        """Figures of ``method``, or of its placebo, on the test part.

        Raises:
            UsageError: no method has that name.
            ToolboxError: as training and drawing.
        """
        scored = self.scored(method, placebo=placebo)
        return Judged("placebo" if placebo else method, evaluate(*scored.test), scored.seconds)

    @property
    def drawn_pairs(self) -> PictureFeatures | None:
        """Features of pictures of pairs, if any method needed them."""
        return self.__dict__.get("pair_pictures")

    @property
    def drawn_nodes(self) -> PictureFeatures | None:
        return self.__dict__.get("node_pictures")

    def scored(self, method: str, *, placebo: int = 0) -> Scored:
        """Scores of ``method``, fitted now unless it was before.

        Args:
            placebo: 0 for the pictures themselves, else which of many random exchanges of them.
        """
        if (method, placebo) not in self._scored:
            with torch.random.fork_rng(devices=[]):
                self._scored[method, placebo] = self._fit(method, placebo)
        return self._scored[method, placebo]

    def _fit(self, method: str, placebo: int) -> Scored:
        if method == "base":
            return self._alone("base", self._base())
        if method == "e-gvn":
            return self._node_fused(placebo)
        if method in HEADS:
            seen = self._features_of(method)
            return self.head(HEADS[method], seen, placebo=placebo)
        if method == "base+degree":
            return self._late("degree-only", placebo)
        if method == "gvn" and self.options.fusion == "late":
            return self._late("vision-only", placebo)
        return self._pair_fused(method, placebo)

    # --- pairs and their pictures --------------------------------------------------------------------------------

    @cached_property
    def _pictured(self) -> Int64[ndarray, "p 2"]:
        """Positives of training that have pictures."""
        positives = self.split.supervised
        if len(positives) <= PICTURED:
            return positives
        return positives[np.random.default_rng((self.split.seed, 0)).permutation(len(positives))[:PICTURED]]

    @cached_property
    def _pool(self) -> Int64[ndarray, "k 2"]:
        """Negatives of training that have pictures: uniform, never training edges."""
        n = self.graph.num_nodes
        free = n * (n - 1) // 2 - len(self._known)
        rng = np.random.default_rng((self.split.seed, 1))
        return sample_negatives(n, min(POOL * len(self._pictured), free), self._known, rng)

    @cached_property
    def _parts(self) -> dict[str, Int64[ndarray, "*b 2"]]:
        valid, test = self.split.valid, self.split.test
        return {
            "positives": self._pictured,
            "pool": self._pool,
            "valid": valid.positives,
            "valid_negatives": valid.negatives,
            "test": test.positives,
            "test_negatives": test.negatives,
        }

    @cached_property
    def all_pairs(self) -> Int64[ndarray, "k 2"]:
        """Every pair that is trained on or judged, whether it needs a picture or not."""
        return np.concatenate([pairs.reshape(-1, 2) for pairs in self._parts.values()])

    def _slices(self) -> dict[str, slice]:
        ends = np.cumsum([pairs.size // 2 for pairs in self._parts.values()]).tolist()
        return {name: slice(begin, end) for name, begin, end in zip(self._parts, [0, *ends], ends, strict=False)}

    @cached_property
    def pair_pictures(self) -> PictureFeatures:
        """Features of the pictures of all pairs of the study, drawn on observed edges."""
        started = time.monotonic()
        found = pair_features(
            self.observed.pattern, self.all_pairs, self.encoder, self.options.pair_look, split=self.split.id
        )
        self._picture_seconds["pairs"] = time.monotonic() - started
        return found

    @cached_property
    def node_pictures(self) -> PictureFeatures:
        """Features of the pictures of all nodes."""
        started = time.monotonic()
        nodes = np.arange(self.graph.num_nodes)
        found = node_features(self.observed.pattern, nodes, self.encoder, self.options.node_look, split=self.split.id)
        self._picture_seconds["nodes"] = time.monotonic() - started
        return found

    @cached_property
    def _degrees(self) -> PictureFeatures:
        """log(1 + degree) of both ends in the observed graph without the pair's own edge."""
        return PictureFeatures(*degree_features(self.observed, self.all_pairs), cut=0)

    @cached_property
    def _counts(self) -> PictureFeatures:
        table = count_features(self.observed, self.all_pairs, self.options.pair_look)
        return PictureFeatures(table, np.arange(len(table)), cut=0)

    def _shuffled(self, seen: PictureFeatures, placebo: int) -> PictureFeatures:
        """Every pair with the features of another pair of training, validation or test, edges and negatives mixed."""
        if not placebo:
            return seen
        rng = np.random.default_rng((self.split.seed, 1 + placebo))
        where = self._slices()
        kind = seen.kind.copy()
        for first, last in (("positives", "pool"), ("valid", "valid_negatives"), ("test", "test_negatives")):
            part = slice(where[first].start, where[last].stop)
            kind[part] = rng.permutation(kind[part])
        return replace(seen, kind=kind)

    def _pairs(self, seen: PictureFeatures | None) -> dict[str, Pairs]:
        where = self._slices()

        def rows_of(part: slice):
            held = seen
            return None if held is None else lambda rows: held.rows(part.start + rows)

        return {name: Pairs(pairs, rows_of(where[name])) for name, pairs in self._parts.items()}

    # --- models --------------------------------------------------------------------------------------------------

    def _base(self, seen: Float32[ndarray, "n s"] | None = None) -> LinkModel:
        """A new base model, with node fusion of ``seen`` where that is given."""
        torch.manual_seed(self.split.seed)
        return base_model(self.graph, self.observed, self.options, seen)

    def _alone(self, unit: str, model: LinkModel, placebo: int = 0, seconds: float = 0.0) -> Scored:
        """Train a model that needs no pictures of pairs."""
        positives = self.split.supervised
        draw = structured_negatives if self.options.base.startswith("ncn") else _uniform

        def negatives(rng: np.random.Generator) -> tuple[Pairs, ndarray]:
            drawn = draw(positives, self.graph.num_nodes, self._known, rng)
            return Pairs(drawn), np.arange(len(positives))

        pairs = {name: Pairs(part) for name, part in self._parts.items()} | {"positives": Pairs(positives)}
        return self._trained(unit, placebo, model, pairs, negatives, self.options.recipe, seconds)

    def _node_fused(self, placebo: int) -> Scored:
        pictures = self.node_pictures
        seen = pictures.rows()
        if placebo:
            seen = np.random.default_rng((self.split.seed, 1 + placebo)).permutation(seen)
        model = self._base(seen)
        return self._alone("e-gvn", model, placebo, self._picture_seconds["nodes"])

    def _pair_fused(self, method: str, placebo: int) -> Scored:
        """Train a base model together with what fuses pictures of pairs into it."""
        seen = self._shuffled(self.pair_pictures, placebo)
        base = self._base()
        standardised = self._standardised(seen)
        if method == "gvn":
            model: nn.Module = LinkFusion(base, standardised, self.options.attention)
        elif method == "moe":
            model = MixtureOfScores(base, standardised)
        elif method == "concat":
            model = Concatenation(base, standardised)
        else:
            raise UsageError(f"no method is called '{method}'", hint=f"one of {', '.join(METHODS)}")
        unit = f"{method}-link" if method == "gvn" else method
        pairs, recipe = self._pairs(seen), self.options.recipe
        seconds = self._picture_seconds["pairs"]
        return self._trained(unit, placebo, model, pairs, self._pooled(pairs), recipe, seconds)

    def _features_of(self, method: str) -> PictureFeatures:
        if method == "vision-only":
            return self.pair_pictures
        return self._counts if method == "counts-only" else self._degrees

    def head(self, unit: str, seen: PictureFeatures, *, placebo: int = 0) -> Scored:
        """Train a model of features alone, which are of all pairs of the study, in the order of ``all_pairs``."""
        seen = self._shuffled(seen, placebo)
        torch.manual_seed(self.split.seed)
        model = VisionHead(self._standardised(seen))
        recipe = replace(self.options.recipe, base_rate=HEAD_RATE)
        pairs = self._pairs(seen)
        seconds = self._picture_seconds["pairs"] if unit == "vision" else 0.0
        return self._trained(unit, placebo, model, pairs, self._pooled(pairs), recipe, seconds)

    def _late(self, head_method: str, placebo: int) -> Scored:
        """Two scores of each pair, and one made of them by a logistic model of validation pairs."""
        base, head = self.scored("base"), self.scored(head_method, placebo=placebo)
        late = fit_late((base.valid[0], head.valid[0]), (base.valid[1], head.valid[1]))

        def fused(part: str) -> tuple[ndarray, ndarray]:
            return tuple(late(b, v) for b, v in zip(getattr(base, part), getattr(head, part), strict=True))  # type: ignore[return-value]

        return Scored(
            fused("valid"),
            fused("test"),
            base.seconds + head.seconds,
            base.parameters + head.parameters + 3,
            {**base.modules, **head.modules},
            {**base.fitted, **head.fitted},
            late,
        )

    def _standardised(self, seen: PictureFeatures) -> Standardised:
        where = self._slices()
        training = slice(where["positives"].start, where["pool"].stop)
        return Standardised(seen.rows(training))

    def _pooled(self, pairs: dict[str, Pairs]) -> Callable[[np.random.Generator], tuple[Pairs, ndarray]]:
        def negatives(rng: np.random.Generator) -> tuple[Pairs, ndarray]:
            count = len(self._pictured)
            size = len(self._pool)
            return pairs["pool"], rng.permutation(size)[:count] if size >= count else rng.integers(size, size=count)

        return negatives

    def _trained(
        self,
        unit: str,
        placebo: int,
        model: Any,
        pairs: dict[str, Pairs],
        negatives: Callable[[np.random.Generator], tuple[Pairs, ndarray]],
        recipe: Recipe,
        seconds: float,
    ) -> Scored:
        name = f"{unit}-placebo-{placebo}" if placebo else unit
        fitted = fit(
            model,
            self.observed,
            pairs["positives"],
            negatives,
            (pairs["valid"], pairs["valid_negatives"]),
            criterion_of(self.split.metric, self.split.valid),
            recipe,
            seed=self.split.seed,
            run=self.run,
            unit=f"{self.split.seed}-{name}",
            description=f"training {name}, epochs",
        )
        started = time.monotonic()
        context = self.observed.everything
        valid = predict(model, context, pairs["valid"]), predict(model, context, pairs["valid_negatives"])
        if self.options.use_validation_edges:
            context = self._late_observed.everything
        test = predict(model, context, pairs["test"]), predict(model, context, pairs["test_negatives"])
        seconds += fitted.seconds + time.monotonic() - started
        parameters = sum(p.numel() for p in model.parameters())
        return Scored(valid, test, seconds, parameters, {unit: model}, {name: fitted})

    @cached_property
    def _late_observed(self) -> Observed:
        edges = np.concatenate([self.split.observed, self.split.valid.positives])
        return Observed(adjacency(edges, self.graph.num_nodes))


def _uniform(
    positives: Int64[ndarray, "p 2"], num_nodes: int, known: Int64[ndarray, "m"], rng: np.random.Generator
) -> Int64[ndarray, "p 2"]:
    return sample_negatives(num_nodes, len(positives), known, rng)


def base_model(
    graph: Graph, observed: Observed, options: Options, seen: Float32[ndarray, "n s"] | None = None
) -> LinkModel:
    """A new base model; ``seen`` are features of a picture of each node, for node fusion."""
    nodes: NodeInput | NodeFusion = NodeInput(graph.features, graph.num_nodes, options.hidden)
    width = nodes.width
    if seen is not None:
        nodes = NodeFusion(nodes, seen, options.attention)
    if options.base in ("ncn", "ncnc"):
        completion = Completion() if options.base == "ncnc" else None
        return NcnModel(nodes, width, observed, NcnSizes(hidden=options.hidden), completion)
    return HadamardModel(options.base, nodes, width, Sizes(hidden=options.hidden))
