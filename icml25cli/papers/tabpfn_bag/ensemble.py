"""An ensemble ready to predict: tasks with their contexts, whose keys and values are computed once (section 3.4).

Knows prepared rows, the network, and how answers become class probabilities. Does not know training or files.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Literal, Protocol

import numpy as np
import torch
from jaxtyping import Float, Float64, Int64
from numpy import ndarray
from torch import Tensor

from icml25cli.papers.tabpfn_bag.contexts import Tasks
from icml25cli.papers.tabpfn_bag.encoders import Rows
from icml25cli.papers.tabpfn_bag.network import Context, Pfn

Aggregate = Literal["logit", "prob", "weighted"]
TOKENS = 2**14  # of queries, over all tasks, at a time
WITNESSES = 2.0  # best on the development tables of more than ten classes, for bits and for larger alphabets alike
TEMPERATURE = 0.05  # nats: of weights by validation loss


class Paths(Protocol):
    """Rows as the network takes them, in K ways."""

    def __call__(self, rows: Rows, path: slice = slice(None)) -> Float[Tensor, "paths rows columns"]: ...


class Predictor(ABC):
    """Answers tasks about rows, and makes class probabilities of the answers."""

    def __init__(self, tasks: Tasks, aggregate: Aggregate = "logit") -> None:
        self.tasks = tasks
        self.aggregate: Aggregate = aggregate
        self.weights: Float64[ndarray, " tasks"] | None = None  # of tasks within their group, for ``weighted``

    @abstractmethod
    def task_scores(
        self, rows: Rows, progress: Callable[[int], None] = lambda _: None
    ) -> Float[Tensor, "tasks queries classes"]:
        """Log-probability, in each task, of the symbol of each class."""

    def __call__(self, rows: Rows, progress: Callable[[int], None] = lambda _: None) -> Float64[ndarray, "n classes"]:
        """Class probabilities. ``progress`` is told how many more rows are done."""
        return probabilities(self.task_scores(rows, progress), self.tasks, self.aggregate, self.weights)


class Ensemble(Predictor):
    """Tasks of paths over rows of a training set, asked of the network.

    Args:
        rows: the training set, prepared.
        labels: its classes.
        contexts: for each path the rows that it is shown, as many for each.
    """

    def __init__(
        self,
        net: Pfn,
        paths: Paths,
        tasks: Tasks,
        rows: Rows,
        labels: Int64[ndarray, "n"],
        contexts: list[Int64[ndarray, "context"]],
        aggregate: Aggregate = "logit",
    ) -> None:
        super().__init__(tasks, aggregate)
        self.net, self.paths = net, paths
        self.rows, self.labels, self.contexts = rows, labels, contexts
        self._context: Context | None = None

    @torch.inference_mode()
    def encode(self) -> Context:
        """Keys and values of every task's context, computed once, and once for a row that a bootstrap drew twice."""
        if self._context is None:
            used = [np.unique(self.contexts[k], return_counts=True) for k in range(max(self.tasks.path) + 1)]
            most = max(len(index) for index, _ in used)
            shown = np.stack([np.pad(index, (0, most - len(index)), mode="edge") for index, _ in used])
            counts = torch.from_numpy(np.stack([np.pad(count, (0, most - len(count))) for _, count in used]))
            x = [
                self.paths(self.rows.take(torch.from_numpy(index)), slice(k, k + 1))[0] for k, index in enumerate(shown)
            ]
            labels = [s[self.labels[shown[k]]] for k, s in zip(self.tasks.path, self.tasks.symbols, strict=True)]
            path = torch.from_numpy(self.tasks.path)
            repeated = None if bool((counts == 1).all()) else counts[path]
            self._context = self.net.encode(torch.stack(x)[path], torch.from_numpy(np.stack(labels)), repeated)
        return self._context

    @torch.inference_mode()
    def task_scores(
        self, rows: Rows, progress: Callable[[int], None] = lambda _: None
    ) -> Float[Tensor, "tasks queries classes"]:
        """Log-probability, in each task, of the symbol of each class; tasks in the order of ``tasks``."""
        context, path = self.encode(), torch.from_numpy(self.tasks.path)
        chunk = max(1, TOKENS // len(self.tasks))
        parts = [torch.empty(len(self.tasks), 0, self.tasks.symbols.shape[1])]
        for start in range(0, len(rows), chunk):
            part = rows.take(slice(start, start + chunk))
            parts.append(class_scores(self.net.predict(context, self.paths(part)[path]), self.tasks))
            progress(len(part))
        return torch.cat(parts, 1)


def class_scores(
    logits: Float[Tensor, "tasks queries symbols"], tasks: Tasks
) -> Float[Tensor, "tasks queries classes"]:
    """Log-probabilities of the symbols of classes."""
    log_p = logits[..., : tasks.alphabet].log_softmax(-1)
    symbols = torch.from_numpy(tasks.symbols)[:, None].expand(-1, logits.shape[1], -1)
    return log_p.gather(2, symbols)


def probabilities(
    scores: Float[Tensor, "tasks queries classes"],
    tasks: Tasks,
    aggregate: Aggregate = "logit",
    weights: Float64[ndarray, "tasks"] | None = None,
) -> Float64[ndarray, "queries classes"]:
    """One answer out of all tasks' log-probabilities.

    ``logit`` averages them (normalised logits, in a group, differ from raw ones by what softmax removes), ``prob``
    averages probabilities, ``weighted`` is ``logit`` with weights. Of a code's groups log-probabilities add up to a
    class's score (loss-based decoding). They are no independent witnesses, being of the same rows and network: of those
    that tell two classes apart, ``WITNESSES`` count, however many there are.
    """
    total = torch.zeros(scores.shape[1:], dtype=torch.float64)
    for group in np.unique(tasks.group):
        members = np.flatnonzero(tasks.group == group)
        own = scores[torch.from_numpy(members)].double()
        if aggregate == "prob":
            total += own.logsumexp(0) - np.log(len(members))
        elif aggregate == "weighted" and weights is not None:
            w = torch.from_numpy(weights[members] / weights[members].sum())
            total += torch.tensordot(w, own, dims=1)
        else:
            total += own.mean(0)
    return (total / max(1.0, tasks.redundancy() / WITNESSES)).softmax(-1).numpy()


def weights_by_loss(losses: Float64[ndarray, "tasks"]) -> Float64[ndarray, "tasks"]:
    """Softmax of negative validation losses."""
    w = np.exp(-(losses - losses.min()) / TEMPERATURE)
    return w / w.sum()


def task_losses(scores: Float[Tensor, "tasks queries classes"], labels: Int64[ndarray, "queries"]) -> ndarray:
    """Mean negative log-probability of the right symbol, for each task."""
    right = torch.from_numpy(labels)[None, :, None].expand(len(scores), -1, 1)
    return -scores.gather(2, right)[..., 0].double().mean(1).numpy()
