"""`icml25 tabpfn-bag --pfn`: a checkpoint of the user's own, from the fit to predictions without it."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch

from icml25cli.papers.tabpfn_bag.learners import random_net
from icml25cli.papers.tabpfn_bag.network import PfnConfig
from icml25cli.papers.tabpfn_bag.tabpfn_v1 import TabPfnV1

QUICK = ("--target", "kind", "--k", 2, "--epochs", 1, "--no-fallback")


@pytest.fixture
def checkpoint(tmp_path):
    """Small, and random in every weight."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"a": rng.normal(size=90), "b": rng.normal(size=90), "kind": np.arange(90) % 3})
    frame.to_csv(tmp_path / "t.csv", index=False)
    net = random_net(TabPfnV1(PfnConfig(columns=8, classes=4, width=16, heads=2, layers=2, hidden=32)))
    settings = {"num_features": 8, "max_num_classes": 4, "emsize": 16, "nhead": 2, "nlayers": 2, "nhid_factor": 2}
    torch.save((net.state_dict(), None, settings), tmp_path / "v1.cpkt")
    return tmp_path / "v1.cpkt"


def test_a_model_is_fitted_with_a_checkpoint_and_predicts_without_it(icml25, checkpoint):
    done = icml25("tabpfn-bag", "inspect", "tabpfn-v1:v1.cpkt", "--json")
    assert done.json["answer"]["form"] == "tabpfn-v1"
    assert done.json["metrics"]["layers"] == 2
    done = icml25("tabpfn-bag", "fit", "t.csv", "-o", "m", "--pfn", "tabpfn-v1:v1.cpkt", *QUICK)
    assert done.code == 0, done.err
    checkpoint.unlink()
    assert icml25("tabpfn-bag", "inspect", "m", "--json").json["answer"]["network"] == "tabpfn-v1"
    done = icml25("tabpfn-bag", "predict", "m", "t.csv", "--json")
    assert {row["class"] for row in done.json["rows"]} <= {0, 1, 2}


def test_what_is_no_network_is_refused(icml25, checkpoint):
    checkpoint.with_name("torn.cpkt").write_bytes(checkpoint.read_bytes()[:-100])
    for name, said in (
        ("tabpfn-v1:none.cpkt", "none.cpkt is no file"),
        ("tabpfn-v1:torn.cpkt", "torn.cpkt is no whole checkpoint"),
        ("tabpfn-v1:t.csv", "t.csv is no whole checkpoint"),
        ("v1.cpkt", "tabpfn-v1:FILE"),
    ):
        done = icml25("tabpfn-bag", "fit", "t.csv", "-o", "m", "--pfn", name, *QUICK)
        assert (done.code, done.out) == (3, ""), name
        assert said in done.err
