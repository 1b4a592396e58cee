"""The network that ships, as it is, on sets that scikit-learn brings and that it was not trained on."""

import numpy as np
import pytest
from sklearn import datasets
from sklearn.model_selection import train_test_split

from icml25cli.papers.tabpfn_bag.frozen import frozen_probabilities
from icml25cli.papers.tabpfn_bag.nets import load_net

LEAST = {"wine": 0.96, "iris": 0.92, "breast_cancer": 0.94, "digits": 0.94}  # accuracy


@pytest.mark.parametrize("name", LEAST)
def test_the_shipped_network_predicts_real_sets_in_context(name):
    x, y = getattr(datasets, f"load_{name}")(return_X_y=True)
    context, queries = train_test_split(np.arange(len(y)), train_size=0.5, stratify=y, random_state=0)
    p = frozen_probabilities(load_net(), x[context], y[context].astype(np.int64), x[queries], members=8)
    assert p.sum(1) == pytest.approx(1, abs=1e-5)
    assert (p.argmax(1) == y[queries]).mean() >= LEAST[name]


def test_labels_that_say_nothing_are_predicted_by_their_frequencies():
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((900, 8)), (rng.random(900) < 0.3).astype(np.int64)
    p = frozen_probabilities(load_net(), x[:400], y[:400], x[400:], members=8)
    assert p[:, 1].mean() == pytest.approx(y[:400].mean(), abs=0.05)
    assert p[:, 1].std() < 0.15
