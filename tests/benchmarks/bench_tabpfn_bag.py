"""Speed of `tabpfn-bag`'s predictions beside the form that computes contexts anew, in the same run.

    python tests/benchmarks/bench_tabpfn_bag.py

Twenty chunks of 500 rows are predicted by eight paths with contexts of 1,000 rows, as in tuned ensembles, and of 3,000,
as for the network as it is: with keys and values of the contexts computed once, and in the authors' form, in which
contexts go through all layers again for every chunk. Then fit and prediction beside scikit-learn's boosted trees.
Seconds are of the processor, one thread.
"""

import os
import time
from typing import Any

from bench_codec import cpu_model  # first: it sets one thread before torch starts its pool

# isort: split
import numpy as np
import torch
from sklearn.datasets import make_classification
from sklearn.ensemble import HistGradientBoostingClassifier
from torch.nn.functional import gelu

from icml25cli.papers.tabpfn_bag.contexts import plain_tasks
from icml25cli.papers.tabpfn_bag.encoders import PathEncoder, Rows, encoder_config
from icml25cli.papers.tabpfn_bag.ensemble import Ensemble, class_scores, probabilities
from icml25cli.papers.tabpfn_bag.finetune import draw_contexts
from icml25cli.papers.tabpfn_bag.nets import load_net
from icml25cli.papers.tabpfn_bag.network import NanoPfn

CHUNKS, CHUNK, PATHS, CONTEXTS = 20, 500, 8, (1000, 3000)


def made(rows: int, seed: int = 0) -> tuple[Rows, np.ndarray]:
    drawn: Any = make_classification(rows, 20, n_informative=8, n_classes=3, random_state=seed)
    x, y = drawn
    return Rows(torch.from_numpy(x).float(), torch.empty(rows, 0, dtype=torch.long)), y


def anew(net: NanoPfn, rows: torch.Tensor, labels: torch.Tensor, queries: torch.Tensor) -> torch.Tensor:
    """Logits as the authors' code has them: rows of the context and queries go together through every layer."""
    shown = rows.shape[1]
    x = torch.cat([net.row(rows) + net.label(labels), net.row(queries) + net.label.weight[-1]], 1)
    for layer in net.layers:
        normed = layer.norm_attention(x)
        keys, values = layer.keys_values(normed[:, :shown])
        x = layer(x, normed, keys, values, shown)
    return net.head(gelu(net.head_hidden(net.norm(x[:, shown:]))))


def compare(
    net: NanoPfn, encoder: PathEncoder, train: Rows, labels: np.ndarray, chunks: list[Rows], rows: int
) -> float:
    """Seconds with contexts of ``rows`` rows encoded once; prints them beside those of encoding them for each chunk."""
    tasks = plain_tasks(3, PATHS)
    contexts = draw_contexts(labels, PATHS, rows, np.random.default_rng(0))
    started = time.process_time()
    ready = Ensemble(net, encoder, tasks, train, labels, contexts)
    cached = [ready(chunk) for chunk in chunks]
    ours = time.process_time() - started

    started = time.process_time()
    with torch.inference_mode():
        again = []
        for chunk in chunks:
            of_path = [encoder(train.take(torch.from_numpy(contexts[k])), slice(k, k + 1))[0] for k in range(PATHS)]
            y = torch.from_numpy(np.stack([labels[index] for index in contexts]))
            again.append(probabilities(class_scores(anew(net, torch.stack(of_path), y, encoder(chunk)), tasks), tasks))
    theirs = time.process_time() - started
    apart = max(float(np.abs(a - b).max()) for a, b in zip(cached, again, strict=True))
    print(
        f"{CHUNKS} chunks of {CHUNK} rows, contexts of {rows}: once {ours:.2f} s, anew {theirs:.2f} s, "
        f"ratio {theirs / ours:.2f}; probabilities differ by at most {apart:.1e}"
    )
    return ours


def main() -> None:
    rows, labels = made(CHUNKS * CHUNK + 3000)
    train, held = rows.take(slice(0, 3000)), rows.take(slice(3000, None))
    net = load_net()
    assert isinstance(net, NanoPfn)
    encoder = PathEncoder(encoder_config(20, (), paths=PATHS, kind="tabm-mini", width=net.config.columns))
    chunks = [held.take(slice(start, start + CHUNK)) for start in range(0, CHUNKS * CHUNK, CHUNK)]
    print(f"{cpu_model()}, load {os.getloadavg()[0]:.1f}")
    ours = [compare(net, encoder, train, labels[:3000], chunks, size) for size in CONTEXTS]

    started = time.process_time()
    trees = HistGradientBoostingClassifier(random_state=0).fit(train.numbers.numpy(), labels[:3000])
    fitted = time.process_time()
    trees.predict_proba(held.numbers.numpy())
    print(
        f"boosted trees: fit {fitted - started:.2f} s, predict {time.process_time() - fitted:.2f} s for as many rows; "
        f"ours {ours[0]:.2f} s"
    )


if __name__ == "__main__":
    main()
