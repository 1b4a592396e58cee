"""The whole job: split, draw, fit and judge every method on one graph, over several splits; resumable.

Knows run directories and all parts of the paper. Does not know how its result is shown.
"""

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from icml25cli.core.errors import UsageError
from icml25cli.core.progress import track
from icml25cli.core.runs import Run, fingerprint, run_directory
from icml25cli.papers.linkpred.encoders import Encoder
from icml25cli.papers.linkpred.evaluation import Judged, judge_heuristics
from icml25cli.papers.linkpred.fusion import LinkFusion, MixtureOfScores, NodeFusion
from icml25cli.papers.linkpred.graph import Graph
from icml25cli.papers.linkpred.heuristics import HEURISTICS
from icml25cli.papers.linkpred.metrics import headline_notes, summary
from icml25cli.papers.linkpred.splits import Split
from icml25cli.papers.linkpred.study import METHODS, PICTURED, Options, Scored, Study

DEFAULT_BASELINES = ("base", "base+degree", "gvn", "e-gvn", "vision-only", "counts-only", "heuristics")
WITH_PICTURES = ("gvn", "e-gvn", "vision-only", "moe", "concat")  # methods that have pictures to shuffle
PLACEBO = "placebo"
Row = dict[str, float | int | str | None]


@dataclass(frozen=True)
class Plan:
    """What is compared.

    Attributes:
        method: the main one, of ``METHODS``.
        baselines: further ones, names of heuristics, or ``heuristics`` for all.
        placebo: whether the main method is also run on shuffled pictures.
    """

    method: str = "gvn"
    baselines: tuple[str, ...] = DEFAULT_BASELINES
    placebo: bool = True

    def __post_init__(self) -> None:
        for name in (self.method, *self.baselines):
            if name not in (*METHODS, *(() if name == self.method else ("heuristics", *HEURISTICS))):
                raise UsageError(f"no method is called '{name}'", hint=f"one of {', '.join(METHODS)}")

    @property
    def methods(self) -> tuple[str, ...]:
        """Those that are trained, the main one first."""
        return tuple(dict.fromkeys([self.method, *(name for name in self.baselines if name in METHODS)]))

    @property
    def heuristics(self) -> tuple[str, ...]:
        return tuple(name for name in HEURISTICS if name in self.baselines or "heuristics" in self.baselines)

    @property
    def with_placebo(self) -> bool:
        """Without pictures in the main method there are none to shuffle."""
        return self.placebo and self.method in WITH_PICTURES


@dataclass(frozen=True, eq=False)
class Result:
    """Figures of every method on every split, and the first split with its models.

    Attributes:
        judged: for each split the methods, the main one first and heuristics last.
        study: of the first split.
    """

    plan: Plan
    splits: tuple[Split, ...]
    judged: tuple[tuple[Judged, ...], ...]
    study: Study

    @property
    def main(self) -> Scored:
        return self.study.scored(self.plan.method)

    @property
    def rows(self) -> list[Row]:
        """A row a method: mean and, as ``_sd``, standard deviation over splits of every figure."""
        rows: list[Row] = []
        for judged in zip(*self.judged, strict=True):
            seconds = [one.seconds for one in judged]
            deviation = float(np.std(seconds, ddof=1)) if len(seconds) > 1 else None
            rows.append(
                {
                    "method": judged[0].method,
                    **summary([one.evaluation for one in judged]),
                    "seconds": float(np.mean(seconds)),
                    "seconds_sd": deviation,
                    "parameters": self._parameters(judged[0].method),
                }
            )
        learned = len(rows) - len(self._heuristics)
        metric = self.splits[0].metric
        return rows[:learned] + sorted(rows[learned:], key=lambda row: (-row[metric], -row["auc"]))  # type: ignore[operator]

    @property
    def gains(self) -> list[Row]:
        """By how much each method is better than ``base`` on the same split, with the deviation over splits."""
        base = [next((one for one in judged if one.method == "base"), None) for judged in self.judged]
        rows: list[Row] = []
        for judged in zip(*self.judged, strict=True):
            if judged[0].method in ("base", *self._heuristics) or base[0] is None:
                continue
            row: Row = {"method": judged[0].method}
            for name in dict.fromkeys([self.splits[0].metric, "auc", "mrr"]):
                gains = [
                    one.evaluation.values[name] - other.evaluation.values[name]
                    for one, other in zip(judged, base, strict=True)
                    if other is not None
                ]
                row[f"{name}_gain"] = float(np.mean(gains))
                row[f"{name}_gain_sd"] = float(np.std(gains, ddof=1)) if len(gains) > 1 else None
            rows.append(row)
        return rows

    @property
    def models(self) -> list[Row]:
        """What was fitted on the first split, and how much of a picture came through."""
        rows: list[Row] = []
        for method, placebo in self._trained:
            scored = self.study.scored(method, placebo=int(placebo))
            row: Row = {"method": PLACEBO if placebo else method, "parameters": scored.parameters}
            for name, fitted in scored.fitted.items():
                row["epochs"], row["best_epoch"], row["validation"] = fitted.epochs, fitted.epoch, fitted.best
                row["fitted"] = name
            row |= _shares(scored)
            rows.append(row)
        return rows

    @property
    def _heuristics(self) -> tuple[str, ...]:
        return tuple(one.method for one in self.judged[0] if one.method in HEURISTICS)

    @property
    def _trained(self) -> list[tuple[str, bool]]:
        trained = [(method, False) for method in self.plan.methods]
        return [*trained, (self.plan.method, True)] if self.plan.with_placebo else trained

    def _parameters(self, method: str) -> int | None:
        if method in HEURISTICS:
            return None
        if method == PLACEBO:
            return self.study.scored(self.plan.method, placebo=1).parameters
        return self.study.scored(method).parameters

    @property
    def notes(self) -> list[str]:
        """Sentences that a report on this result must show."""
        options, split = self.study.options, self.splits[0]
        said = [*self.study.graph.notes, *split.notes]
        said.append(
            f"Every figure is of {len(split.test.positives):,} test edges against {split.test.negatives.shape[-2]:,} "
            "negatives; at another number of negatives Hits@K is another task."
        )
        said += headline_notes(split.metric, split.test.negatives.shape[-2])
        if any("base_weight" in row for row in self.models):
            said.append(
                "base_weight and vision_weight are what the scores of the two models are multiplied by before they are "
                "added, fitted on validation pairs; the scores have scales of their own, so the weights are no shares."
            )
        if len(self.splits) > 1:
            said.append("± is the standard deviation over splits; gains are paired, on the same split.")
        if self.plan.with_placebo:
            said.append("placebo is the main method with pictures of other pairs or nodes, drawn at random.")
        methods = self.plan.methods
        if self.study.drawn_pairs is not None and len(split.supervised) > PICTURED:
            said.append(f"{PICTURED:,} of {len(split.supervised):,} training edges, drawn at random, have pictures.")
        for kind, shown in (("pairs", self.study.drawn_pairs), ("nodes", self.study.drawn_nodes)):
            if shown is not None:
                said.append(f"{len(shown.kind):,} pictures of {kind}, {len(shown.table):,} of them different.")
                if shown.cut:
                    most = options.pair_look.max_nodes
                    said.append(f"{shown.cut:,} pictures of {kind} show a sample of at most {most} nodes.")
        if "e-gvn" in methods and options.node_look.hops == 1:
            said.append("With one hop e-gvn's picture is a star: it shows a node's degree and nothing else.")
        if "e-gvn" in methods and not split.hidden.any():
            said.append(
                "Training edges are visible in the pictures of nodes that should foretell them, as in the paper; "
                "--disjoint hides a share of them."
            )
        return said


def _shares(scored: Scored) -> Row:
    """The parameters that say how much of a picture comes through."""
    if scored.late is not None:
        return {"base_weight": scored.late.base, "vision_weight": scored.late.vision}
    shares: Row = {}
    for module in scored.modules.values():
        for part in module.modules():
            if isinstance(part, LinkFusion | NodeFusion | MixtureOfScores):
                shares["g"] = float(part.g.detach())
            if isinstance(part, LinkFusion):
                shares["f"] = float(part.f.detach())
    return shares


@contextlib.contextmanager
def carry_out(
    graph: Graph,
    splits: Sequence[Split],
    plan: Plan,
    options: Options,
    encoder: Encoder,
    *,
    output: Path | None = None,
    resume: bool = False,
    fresh: bool = False,
) -> Iterator[Result]:
    """Do the job, continuing what an earlier call with the same inputs finished.

    Checkpoints live in ``output/.run``, or without ``output`` in the user's cache, where features of pictures are kept,
    too. The placebo uses the same pictures and costs no drawing.

    Raises:
        ToolboxError: as drawing, training and ``Run.open``.
    """
    inputs = {
        "graph": graph.fingerprint,
        "splits": [split.id for split in splits],
        "seeds": [split.seed for split in splits],
        "options": asdict(options),
        "encoder": encoder.identity,
    }
    with Run.open(run_directory("linkpred", fingerprint(inputs), output), inputs, resume=resume, fresh=fresh) as run:
        judged, first = [], None
        for split in track(splits, "splits"):
            study = Study(graph, split, encoder, options, run)
            judged.append(_judge(study, plan))
            first = first or study
        assert first is not None
        yield Result(plan, tuple(splits), tuple(judged), first)


def _judge(study: Study, plan: Plan) -> tuple[Judged, ...]:
    judged = [study.judge(method) for method in plan.methods]
    if plan.with_placebo:
        judged.append(study.judge(plan.method, placebo=1))
    return (*judged, *judge_heuristics(study.graph, study.split, plan.heuristics))
