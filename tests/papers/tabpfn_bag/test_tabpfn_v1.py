"""TabPFN v1: the network against torch's own layers with a mask, models fitted with it, files that are none."""

from __future__ import annotations

import functools
import json
import pickle
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

from icml25cli.core.errors import InputError
from icml25cli.papers.tabpfn_bag.finetune import Recipe
from icml25cli.papers.tabpfn_bag.inspection import describe
from icml25cli.papers.tabpfn_bag.learners import random_net
from icml25cli.papers.tabpfn_bag.model import Options, fit_model
from icml25cli.papers.tabpfn_bag.nets import load_net
from icml25cli.papers.tabpfn_bag.network import PfnConfig
from icml25cli.papers.tabpfn_bag.preprocess import Scaling
from icml25cli.papers.tabpfn_bag.saved import load_model, save_model
from icml25cli.papers.tabpfn_bag.tabpfn_v1 import TabPfnV1, load_tabpfn_v1

from .nets import small_net

SETTINGS = {"num_features": 8, "max_num_classes": 4, "emsize": 16, "nhead": 2, "nlayers": 3, "nhid_factor": 2}
QUICK = Options(
    paths=2,
    frequencies=4,
    embedding=4,
    fallback=False,
    recipe=Recipe(context=40, batch=20, shown=60, epochs=2, patience=2),
)


class Published(nn.Module):
    """What the checkpoint says, of torch's own layers: all rows at once, and a mask that hides the queries' columns."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        columns, classes, width, heads, layers, factor = SETTINGS.values()
        torch.manual_seed(seed)
        self.encoder = nn.Linear(columns, width)
        self.y_encoder = nn.Linear(1, width)
        self.layers = [
            nn.TransformerEncoderLayer(width, heads, factor * width, 0.0, "gelu", batch_first=True)
            for _ in range(layers)
        ]
        self.transformer_encoder = nn.ModuleDict({"layers": nn.ModuleList(self.layers)})
        self.decoder = nn.Sequential(nn.Linear(width, factor * width), nn.GELU(), nn.Linear(factor * width, classes))
        self.criterion = nn.CrossEntropyLoss(torch.ones(classes))
        with torch.no_grad():
            for name, weight in self.named_parameters():
                # Sharp enough that what a row becomes depends on which rows it sees.
                noise = torch.randn_like(weight) * (3 * weight.shape[-1] ** -0.5 if weight.ndim > 1 else 0.2)
                weight.copy_(noise + 1 if name.endswith(("norm1.weight", "norm2.weight")) else noise)

    def forward(self, x, y, q):
        n = x.shape[1]
        h = torch.cat([self.encoder(x) + self.y_encoder(y.float()[..., None]), self.encoder(q)], 1)
        hidden = torch.arange(h.shape[1]).expand(h.shape[1], -1) >= n
        for layer in self.layers:
            h = layer(h, src_mask=hidden)
        return self.decoder(h[:, n:])


def checkpoint(path: Path, prefix: str = "module.", settings: dict | None = None, **changed) -> Path:
    """As the authors' program writes it; ``changed`` tensors are others, or left out where None."""
    state = {prefix + name: value for name, value in (Published().state_dict() | changed).items() if value is not None}
    torch.save((state, None, (SETTINGS | {"lr": 1e-4, "prior": ["<class 'Tanh'>"]}) | (settings or {})), path)
    return path


@pytest.fixture
def file(tmp_path) -> Path:
    return checkpoint(tmp_path / "v1.cpkt")


def numbers(batch: int = 2, rows: int = 12, queries: int = 5):
    source = torch.Generator().manual_seed(0)
    x, q = (torch.randn(batch, n, 8, generator=source) for n in (rows, queries))
    return x, torch.randint(0, 4, (batch, rows), generator=source), q


def table(n: int = 160, columns: int = 3) -> tuple[pd.DataFrame, pd.Series]:
    rng = np.random.default_rng(0)
    y = np.arange(n) % 3
    frame = pd.DataFrame({f"c{i}": rng.normal(size=n) + (y if i == 0 else 0) for i in range(columns)})
    return frame, pd.Series(np.array(["one", "two", "three"])[y])


@pytest.mark.parametrize("prefix", ["module.", ""])
def test_it_is_the_published_network(tmp_path, prefix):
    net = load_tabpfn_v1(checkpoint(tmp_path / "v1.cpkt", prefix))
    assert (net.config.columns, net.config.classes) == (8, 4)
    x, y, q = numbers()
    expected = Published()(x, y, q).detach()
    assert expected.std(1).min() > 0.1  # over queries
    assert (expected - Published()(x.flip(1), y, q)).std() > 0.1
    torch.testing.assert_close(0.8 * net(x, y, q), expected, atol=1e-5, rtol=1e-5)
    context = net.encode(x, y)
    chunks = torch.cat([net.predict(context, part) for part in q.split(2, 1)], 1)
    torch.testing.assert_close(0.8 * chunks, expected, atol=1e-5, rtol=1e-5)


def test_rows_that_a_bootstrap_drew_several_times_count_as_often(file):
    net, (x, y, q) = load_tabpfn_v1(file), numbers(rows=4)
    counts = torch.tensor([[1, 3, 1, 2], [4, 3, 0, 0]])
    index = [torch.arange(4).repeat_interleave(count) for count in counts]
    whole = torch.stack([x[i, rows] for i, rows in enumerate(index)])
    labels = torch.stack([y[i, rows] for i, rows in enumerate(index)])
    torch.testing.assert_close(
        0.8 * net.predict(net.encode(x, y, counts), q), Published()(whole, labels, q).detach(), atol=1e-5, rtol=1e-5
    )


def test_gradients_reach_rows_through_weights_that_have_none(file):
    net, (x, y, q) = load_tabpfn_v1(file), numbers()
    net(x.requires_grad_(), y, q.requires_grad_()).square().sum().backward()
    for rows in (x, q):
        assert rows.grad is not None
        assert (rows.grad.abs().amax(-1) > 0).all()
    assert not any(weight.requires_grad for weight in net.parameters())


def test_a_table_goes_in_as_version_1_takes_it(file):
    """Standardised, times columns of the network over columns that vary, and zeros."""
    frame, y = table()
    options = replace(QUICK, method="frozen", paths=1)
    model = fit_model(frame.assign(same=1.0), y, load_tabpfn_v1(file), options)
    x = torch.tensor(frame.to_numpy(), dtype=torch.float32)
    z = nn.functional.pad(Scaling.of(x)(x) * 8 / 3, (0, 5))[None]
    numbers_of_y = torch.from_numpy(np.unique(y, return_inverse=True)[1])[None]
    with torch.no_grad():
        p = (Published()(z, numbers_of_y, z)[0, :, :3] / 0.8).softmax(1)
    np.testing.assert_allclose(model.probabilities(frame.assign(same=1.0)), p, atol=1e-3)  # rows differ by rounding


@pytest.mark.parametrize("method", ["beta", "encoder", "frozen", "bag", "full-ft", "local", "random-pfn"])
def test_every_method_takes_it_and_its_model_needs_no_checkpoint(file, tmp_path, method):
    frame, y = table()
    model = fit_model(frame, y, load_net(f"tabpfn-v1:{file}"), replace(QUICK, method=method))
    save_model(model, tmp_path / "m")
    file.unlink()
    again = load_model(tmp_path / "m")
    assert type(getattr(again.predictor, "net")) is TabPfnV1  # noqa: B009
    np.testing.assert_allclose(again.probabilities(frame), model.probabilities(frame), atol=1e-12)


def test_training_through_one_that_learns_in_context_lowers_the_loss_and_leaves_it_as_it_was():
    torch.manual_seed(1)
    net = TabPfnV1(PfnConfig(columns=8, classes=4, width=16, heads=2, layers=3, hidden=32))
    optimizer, source = torch.optim.AdamW(net.parameters(), lr=3e-3), torch.Generator().manual_seed(1)
    for _ in range(300):  # classes are clouds around points of their own in each table
        y = torch.randint(0, 4, (16, 40), generator=source)
        middle = 2 * torch.randn(16, 4, 8, generator=source)
        x = middle.gather(1, y[..., None].expand(-1, -1, 8)) + torch.randn(16, 40, 8, generator=source)
        loss = nn.functional.cross_entropy(net(x[:, :24], y[:, :24], x[:, 24:]).flatten(0, 1), y[:, 24:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    net.eval().requires_grad_(False)
    before = {name: value.clone() for name, value in net.state_dict().items()}
    frame, classes = table()
    model = fit_model(
        frame, classes, net, replace(QUICK, recipe=replace(QUICK.recipe, epochs=20, patience=20, rate=1e-2))
    )
    losses = [row[2] for row in model.facts["history"]]
    assert min(losses) < losses[0] - 0.1
    assert all(torch.equal(before[name], value) for name, value in net.state_dict().items())


def test_its_control_is_of_the_same_form(file):
    control, net = random_net(load_tabpfn_v1(file)), load_tabpfn_v1(file)
    assert type(control) is TabPfnV1
    assert not torch.equal(control(*numbers()), net(*numbers()))


def test_a_model_of_before_other_networks_is_of_ours(tmp_path):
    frame, y = table()
    model = fit_model(frame, y, small_net(), replace(QUICK, method="bag"))
    save_model(model, tmp_path / "new")
    with zipfile.ZipFile(tmp_path / "new") as new, zipfile.ZipFile(tmp_path / "old", "w") as old:
        document = json.loads(new.read("model.json"))
        del document["form"], document["raw"]["spread"]
        old.writestr("model.json", json.dumps(document))
        old.writestr("model.safetensors", new.read("model.safetensors"))
    np.testing.assert_array_equal(load_model(tmp_path / "old").probabilities(frame), model.probabilities(frame))


def test_inspection_names_it(file, tmp_path):
    facts = describe(f"tabpfn-v1:{file}")[0]
    parameters = sum(weight.numel() for weight in Published().parameters())
    assert (facts["form"], facts["columns"], facts["parameters"]) == ("tabpfn-v1", 8, parameters)
    frame, y = table()
    save_model(fit_model(frame, y, load_tabpfn_v1(file), replace(QUICK, method="bag")), tmp_path / "m")
    assert describe(str(tmp_path / "m"))[0]["network"] == "tabpfn-v1"


def test_settings_may_be_numbers_of_numpy(tmp_path):
    settings = {"num_features": np.int64(8), "lr": np.float64(1e-4), "balanced": np.bool_(False), "p": np.float32(0.5)}
    assert load_tabpfn_v1(checkpoint(tmp_path / "v1.cpkt", settings=settings)).config.columns == 8


@pytest.mark.parametrize(
    ("message", "changes"),
    [
        ("settings give no size emsize", {"settings": {"emsize": None}}),
        ("settings give no size nlayers", {"settings": {"nlayers": True}}),
        ("settings give no size nhead", {"settings": {"nhead": 0}}),
        ("settings give no size num_features", {"settings": {"num_features": 10**30}}),
        ("3 layers are there, and by the settings 60000", {"settings": {"nlayers": 60000}}),
        ("of width 16 with 3 heads", {"settings": {"nhead": 3}}),
        (r"'encoder.weight' has shape \(16, 8\), .* \(16, 9\)", {"settings": {"num_features": 9}}),
        (r"'decoder.2.weight' has shape", {"settings": {"max_num_classes": 10}}),
        ("trained with efficient_eval_masking = False", {"settings": {"efficient_eval_masking": False}}),
        ("trained with normalize_with_sqrt = True", {"settings": {"normalize_with_sqrt": True}}),
        ("'decoder.0.bias' is missing", {"decoder.0.bias": None}),
        ("'decoder.0.bias' is missing", {"decoder.0.bias": "text"}),
        ("'style_encoder.weight' is none of", {"style_encoder.weight": torch.ones(2)}),
    ],
)
def test_a_checkpoint_of_another_network_is_refused(tmp_path, message, changes):
    with pytest.raises(InputError, match=message):
        load_tabpfn_v1(checkpoint(tmp_path / "v1.cpkt", **changes))


class Touch:
    """Makes a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


def damaged(path: Path, how: str) -> None:
    if how == "empty":
        path.write_bytes(b"")
    elif how == "text":
        path.write_text("version https://git-lfs.github.com/spec/v1\n")
    elif how.startswith("cut"):
        path.write_bytes(path.read_bytes()[: -int(how.split()[1])])
    elif how == "no tuple":
        torch.save(Published().state_dict(), path)
    elif how == "bare pickle":
        path.write_bytes(pickle.dumps((Published().state_dict(), None, SETTINGS)))
    elif how == "code in the settings":
        checkpoint(path, settings={"sampler": Touch(path.with_name("touched"))})
    elif how == "code alone":
        path.write_bytes(pickle.dumps(Touch(path.with_name("touched")), protocol=2))
    elif how == "partial":
        checkpoint(path, settings={"sampler": functools.partial(max, 1)})


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("empty", "no whole checkpoint"),
        ("text", "no whole checkpoint"),
        ("cut 10", "no whole checkpoint"),
        ("cut 9000", "no whole checkpoint"),
        ("no tuple", "no checkpoint of TabPFN v1"),
        ("bare pickle", "only tensors and plain values|no whole checkpoint"),
        ("code in the settings", "only tensors and plain values are read"),
        ("code alone", "only tensors and plain values are read"),
        ("partial", "holds functools.partial, and only tensors"),
    ],
)
def test_a_damaged_file_is_refused_and_nothing_in_it_is_run(file, how, message):
    damaged(file, how)
    with pytest.raises(InputError, match=message):
        load_tabpfn_v1(file)
    assert not file.with_name("touched").exists()


def test_a_path_without_a_file_is_named(tmp_path):
    for path in (tmp_path / "none.cpkt", tmp_path):
        with pytest.raises(InputError, match=f"{path} is no file"):
            load_net(f"tabpfn-v1:{path}")
