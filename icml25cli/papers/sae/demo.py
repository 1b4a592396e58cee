"""The methods on made-up data whose atoms are known (section 10, P4). Knows everything but the command line."""

from typing import Any

import numpy as np

from icml25cli.core.embeddings import of_array
from icml25cli.core.survey import survey
from icml25cli.papers.sae.config import Budget, Config
from icml25cli.papers.sae.metrics import as_row, evaluate
from icml25cli.papers.sae.model import Scaling
from icml25cli.papers.sae.synthetic import dictionary
from icml25cli.papers.sae.training import Trained, train

ROWS, HELD_OUT, D, N, ACTIVE = 20_000, 1000, 32, 64, 3
LEVELS, KS = (2, 4, 8, 16, 32, 64), (2, 3, 4, 8, 16, 64)
METHODS = (
    Config("msae", D, N, "uw", LEVELS),
    Config("msae", D, N, "rw", LEVELS),
    Config("topk", D, N, k=ACTIVE),
    Config("batchtopk", D, N, k=ACTIVE),
    Config("relu", D, N),
)
FOUND = 0.9  # cosine of an atom that counts as found


def demonstrate(epochs: int, seed: int) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Quality of each method at each k on held-out rows, and how well each found the atoms."""
    made = dictionary(ROWS, D, N, ACTIVE, seed=seed)
    training, test = of_array("synthetic", made.rows[HELD_OUT:]), of_array("synthetic", made.rows[:HELD_OUT])
    scaling = Scaling.of(survey(training))
    rows, recovered = [], []
    for config in METHODS:
        trained: Trained = train(config, Budget(epochs, 1024, 2e-3, seed), training, scaling)
        rows += [as_row(config.label, quality, trained.seconds) for quality in evaluate(trained.model, test, KS)]
        cosines = (made.atoms @ trained.model.parameters.W_dec.numpy().T).max(axis=1)
        recovered.append(
            {
                "method": config.label,
                "atom_cosine": float(cosines.mean()),
                "found_share": float(np.mean(cosines > FOUND)),
                "seconds": trained.seconds,
            }
        )
    return rows, recovered
