"""Models of the package `tabpfn` as the network: small ones of each of its architectures, random in every weight."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from icml25cli.core.errors import InputError, MissingError
from icml25cli.papers.tabpfn_bag.inspection import describe
from icml25cli.papers.tabpfn_bag.learners import random_net
from icml25cli.papers.tabpfn_bag.model import fit_model
from icml25cli.papers.tabpfn_bag.nets import load_net
from icml25cli.papers.tabpfn_bag.saved import load_model, save_model
from icml25cli.papers.tabpfn_bag.tabpfn_package import PackagePfn, load_tabpfn

from .test_tabpfn_v1 import QUICK, Touch, table

CELLS = {"emsize": 32, "nlayers": 2, "nhead": 2, "max_num_classes": 5}
SMALL = {
    "embed_dim": 16,
    "dist_embed_num_blocks": 1,
    "dist_embed_num_heads": 2,
    "dist_embed_num_inducing_points": 4,
    "feat_agg_num_blocks": 1,
    "feat_agg_num_heads": 2,
    "nlayers": 2,
    "icl_num_heads": 4,
    "decoder_head_dim": 8,
    "decoder_num_heads": 2,
    "max_num_classes": 5,
}
SETTINGS = {
    "tabpfn_v2": CELLS,
    "tabpfn_v2_5": CELLS | {"num_thinking_rows": 4},
    "tabpfn_v2_6": CELLS | {"num_thinking_rows": 4},
    "tabpfn_v3": SMALL,
}


def made(path: Path, name: str) -> nn.Module:
    """Write a checkpoint in the package's form; the model in it."""
    architectures = pytest.importorskip("tabpfn.architectures", reason="needs the package tabpfn").ARCHITECTURES
    torch.manual_seed(0)
    model = architectures[name].get_architecture(architectures[name].parse_config(SETTINGS[name])[0])
    for weight in model.parameters():
        if weight.ndim > 1:
            nn.init.normal_(weight, std=weight.shape[-1] ** -0.5)
    torch.save({"state_dict": model.state_dict(), "config": SETTINGS[name], "architecture_name": name}, path)
    return model.eval()


@pytest.fixture(params=SETTINGS)
def name(request) -> str:
    return request.param


def numbers():
    source = torch.Generator().manual_seed(0)
    x, q = (torch.randn(2, rows, 8, generator=source) for rows in (24, 5))
    return x, torch.randint(0, 5, (2, 24), generator=source), q


def test_it_answers_as_the_package_does(tmp_path, name):
    model, net, (x, y, q) = made(tmp_path / "c.ckpt", name), load_tabpfn(tmp_path / "c.ckpt"), numbers()
    alone = [
        model(torch.cat([x[i], q[i]])[:, None], y[i, :, None].float(), task_type="multiclass")[:, 0] for i in (0, 1)
    ]
    expected = (torch.stack(alone) / net.config.temperature).detach()
    assert expected.std(1).mean() > 1e-4
    torch.testing.assert_close(net(x, y, q), expected, atol=1e-5, rtol=1e-4)
    context = net.encode(x, y)
    chunks = torch.cat([net.predict(context, part) for part in q.split(2, 1)], 1)
    torch.testing.assert_close(chunks, expected, atol=1e-5, rtol=1e-4)


def test_rows_count_as_often_as_they_stand_there_and_zero_columns_do_not(tmp_path, name):
    made(tmp_path / "c.ckpt", name)
    net, (x, y, q) = load_tabpfn(tmp_path / "c.ckpt"), numbers()
    counts = torch.ones(2, 24, dtype=torch.long)
    counts[0, :3], counts[1, 2:5] = torch.tensor([3, 0, 0]), torch.tensor([0, 0, 3])
    index = [torch.arange(24).repeat_interleave(count) for count in counts]
    whole, labels = (torch.stack([t[i, rows] for i, rows in enumerate(index)]) for t in (x, y))
    wide, wide_q = (nn.functional.pad(rows, (0, 6)) for rows in (x, q))
    found = net.predict(net.encode(wide, y, counts), wide_q)
    torch.testing.assert_close(found, net(whole, labels, q), atol=1e-5, rtol=1e-4)


def test_gradients_reach_rows_through_weights_that_have_none(tmp_path, name):
    made(tmp_path / "c.ckpt", name)
    net, (x, y, q) = load_tabpfn(tmp_path / "c.ckpt"), numbers()
    net(x.requires_grad_(), y, q.requires_grad_()).square().sum().backward()
    for rows in (x, q):
        assert rows.grad is not None
        assert (rows.grad.abs().amax(-1) > 0).all()
    assert not any(weight.requires_grad for weight in net.parameters())
    assert not torch.equal(random_net(net, 1)(*numbers()), net(*numbers()))


@pytest.mark.parametrize("method", ["beta", "frozen", "bag", "local"])
def test_a_model_needs_the_package_and_no_checkpoint(tmp_path, monkeypatch, name, method):
    made(tmp_path / "c.ckpt", name)
    frame, y = table()
    model = fit_model(frame, y, load_net(f"tabpfn:{tmp_path / 'c.ckpt'}"), replace(QUICK, method=method))
    assert describe(f"tabpfn:{tmp_path / 'c.ckpt'}")[0]["architecture"] == name
    save_model(model, tmp_path / "m")
    (tmp_path / "c.ckpt").unlink()
    again = load_model(tmp_path / "m")
    assert type(getattr(again.predictor, "net")) is PackagePfn  # noqa: B009
    np.testing.assert_allclose(again.probabilities(frame), model.probabilities(frame), atol=1e-6)
    monkeypatch.setitem(sys.modules, "tabpfn.architectures", None)
    with pytest.raises(MissingError, match="need the package tabpfn"):
        load_model(tmp_path / "m")


@pytest.mark.parametrize("how", ["empty", "cut", "code", "another", "regressor"])
def test_what_is_no_checkpoint_is_refused_and_nothing_in_it_is_run(tmp_path, how):
    file = tmp_path / "c.ckpt"
    made(file, "tabpfn_v2")
    if how == "empty":
        file.write_bytes(b"")
    elif how == "cut":
        file.write_bytes(file.read_bytes()[:-50])
    elif how == "code":
        torch.save({"state_dict": {}, "config": Touch(tmp_path / "touched")}, file)
    elif how == "another":
        torch.save({"state_dict": {"a": torch.ones(1)}, "config": CELLS}, file)
    elif how == "regressor":
        torch.save(torch.load(file, weights_only=True) | {"config": CELLS | {"max_num_classes": -1}}, file)
    with pytest.raises(InputError, match=r"c\.ckpt is no classifier of the package tabpfn"):
        load_tabpfn(file)
    assert not (tmp_path / "touched").exists()


def test_without_the_package_it_says_how_to_get_it(tmp_path, monkeypatch):
    (tmp_path / "c.ckpt").touch()
    monkeypatch.setitem(sys.modules, "tabpfn.architectures", None)
    with pytest.raises(MissingError, match="need the package tabpfn"):
        load_net(f"tabpfn:{tmp_path / 'c.ckpt'}")
    with pytest.raises(InputError, match=r"none\.ckpt is no file"):
        load_net("tabpfn:none.ckpt")
