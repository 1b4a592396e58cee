"""The network as it is: class probabilities of queries, averaged over rotations of columns and classes.

Rotations undo what the network's input and output owe to places: column and class numbers mean nothing in a table.

Knows arrays of numbers. Does not know categories, tables wider than the network, or files.
"""

import numpy as np
import torch
from jaxtyping import Float, Int64
from numpy import ndarray

from icml25cli.papers.tabpfn_bag.network import Pfn
from icml25cli.papers.tabpfn_bag.preprocess import standardise

CHUNK = 4096  # queries


@torch.inference_mode()
def frozen_probabilities(
    net: Pfn,
    rows: Float[ndarray, "context used"],
    labels: Int64[ndarray, "context"],
    queries: Float[ndarray, "queries used"],
    *,
    members: int = 8,
) -> Float[ndarray, "queries classes"]:
    """Mean probabilities over ``members`` of the ensemble (TabPFN v1): member i rotates columns and classes by i steps.

    Args:
        rows: at most as many columns as the network has; NaN is a missing value.
        labels: in [0, C), every class present, C at most what the network can tell apart.
        queries: columns as those of ``rows``.
    """
    number = int(labels.max()) + 1
    table = torch.from_numpy(np.concatenate([rows, queries])).float()
    y = torch.from_numpy(labels)
    total = torch.zeros(len(queries), number)
    for member in range(members):
        turned = table.roll(member * table.shape[1] // members, 1)
        x = standardise(turned, len(rows), net.config.columns, net.spread)[None]
        context = net.encode(x[:, : len(rows)], ((y + member) % number)[None])
        logits = torch.cat([net.predict(context, part)[0] for part in x[:, len(rows) :].split(CHUNK, 1)])
        total += logits[:, :number].softmax(1).roll(-(member % number), 1)
    return (total / members).numpy()
