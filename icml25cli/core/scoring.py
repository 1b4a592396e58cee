"""How well hidden states that came out of a model's last block predict their text, one window at a time.

For work that carries the states of several models of one head through their blocks. Knows streamed models and
likelihoods. Does not know where the states come from.
"""

from collections.abc import Mapping

import torch
from jaxtyping import Float, Float64, Int64
from torch import Tensor

from icml25cli.core.likelihood import chunk_positions, kl_divergence, token_nll
from icml25cli.core.progress import track
from icml25cli.core.streaming import StreamedModel


@torch.no_grad()
def score_states(
    model: StreamedModel,
    states: Mapping[str, Float[Tensor, "windows length d"]],
    tokens: Int64[Tensor, "windows length"],
    reference: str | None = None,
) -> dict[str, Float64[Tensor, " windows"]]:
    """Losses of every window under each of ``states``, named ``KEY.nll``: sums over all tokens but the first, in nats.

    With a ``reference`` among the states also ``KEY.kl``, KL(reference || KEY), mean over the same tokens, in nats. A
    few positions' logits are in memory at once.
    """
    windows, length = tokens.shape
    keys = list(states) if reference is None else [reference, *(key for key in states if key != reference)]
    measures = ("nll", "kl") if reference else ("nll",)
    scores = {f"{key}.{what}": torch.zeros(windows, dtype=torch.float64) for key in keys for what in measures}
    with model.head():
        step = chunk_positions(model.embedding_shape[0])
        for window in track(windows, "scoring"):
            for start in range(0, length - 1, step):
                stop = min(start + step, length - 1)
                targets = tokens[window, start + 1 : stop + 1].to(model.device)
                expected = None
                for key in keys:
                    logits = model.logits(states[key][window : window + 1], slice(start, stop))[0]
                    scores[f"{key}.nll"][window] += token_nll(logits, targets).double().sum().item()
                    if reference:
                        expected = logits if expected is None else expected
                        scores[f"{key}.kl"][window] += kl_divergence(expected, logits).sum().item() / (length - 1)
    return scores
