"""Each query with a context of its own: the nearest rows of the training set (LocalPFN, Thomas and others 2024).

Knows prepared rows and the network. The network stays as it is: joint fine-tuning is not done.
"""

from collections.abc import Callable
from math import sqrt

import numpy as np
import torch
from jaxtyping import Int64
from numpy import ndarray
from torch import Tensor

from icml25cli.papers.tabpfn_bag.contexts import Tasks
from icml25cli.papers.tabpfn_bag.encoders import Rows
from icml25cli.papers.tabpfn_bag.ensemble import Aggregate, Paths, Predictor, class_scores
from icml25cli.papers.tabpfn_bag.network import Pfn

MOST = 1000  # neighbours
TOKENS = 2**14  # of contexts at a time
MEMBERS = 2  # tasks of a plain question: each costs a context a query


class LocalEnsemble(Predictor):
    """min(10 sqrt(n), 1000) neighbours of each query in the standardised columns."""

    def __init__(
        self,
        net: Pfn,
        paths: Paths,
        tasks: Tasks,
        rows: Rows,
        labels: Int64[ndarray, "n"],
        aggregate: Aggregate = "logit",
    ) -> None:
        members = np.arange(MEMBERS if len(np.unique(tasks.group)) == 1 and len(tasks) > MEMBERS else len(tasks))
        super().__init__(tasks.take(members), aggregate)
        self.net, self.paths, self.rows, self.labels = net, paths, rows, labels
        self.neighbours = min(len(rows), max(1, round(10 * sqrt(len(rows)))), MOST)

    @torch.inference_mode()
    def task_scores(self, rows: Rows, progress: Callable[[int], None] = lambda _: None) -> Tensor:
        from sklearn.neighbors import NearestNeighbors

        table = self.paths(self.rows)
        index = NearestNeighbors(n_neighbors=self.neighbours).fit(table[0].numpy())
        parts = [torch.empty(len(self.tasks), 0, self.tasks.symbols.shape[1])]
        chunk = max(1, TOKENS // self.neighbours)
        for start in range(0, len(rows), chunk):
            queries = self.paths(rows.take(slice(start, start + chunk)))
            near = torch.from_numpy(index.kneighbors(queries[0].numpy(), return_distance=False))
            scores = []
            for path, symbols in zip(self.tasks.path.tolist(), self.tasks.symbols, strict=True):
                context = table[path][near]
                y = torch.from_numpy(symbols[self.labels[near.numpy()]])
                scores.append(self.net(context, y, queries[path][:, None])[:, 0])
            parts.append(class_scores(torch.stack(scores), self.tasks))
            progress(queries.shape[1])
        return torch.cat(parts, 1)
