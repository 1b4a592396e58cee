"""Projections keep inner products as well as theory says, and their bits depend on the seed alone."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from icml25cli.core.errors import MissingError, UsageError
from icml25cli.core.models import load_tokenizer, resolve
from icml25cli.papers.select_data.adapters import Adapter, adapted, linear_maps
from icml25cli.papers.select_data.gradients import feature_of, row_features
from icml25cli.papers.select_data.projection import KINDS, make_projection
from icml25cli.papers.select_data.rows import Row
from icml25cli.papers.select_data.tokens import Coder

SIZES = {"a": 700, "b": 2048, "c": 5000, "d": 300}


def project(kind: str, rows: torch.Tensor, width: int, seed: int = 0, sizes=SIZES) -> torch.Tensor:
    projection = make_projection(kind, sizes, width, seed)
    sums = projection.zeros(len(rows), "cpu")
    for name, part in zip(sizes, rows.split(list(sizes.values()), dim=1), strict=True):
        projection.add(sums, name, part)
    return projection.finish(sums)


def cosines(x: torch.Tensor) -> torch.Tensor:
    unit = torch.nn.functional.normalize(x.double(), dim=1)
    return (unit @ unit.T)[np.triu_indices(len(x), 1)]


@pytest.mark.parametrize("kind", ["countsketch", "rademacher"])
def test_the_error_of_a_cosine_is_below_one_and_a_fifth_over_the_root_of_the_width(kind):
    torch.manual_seed(0)
    rows = torch.randn(40, sum(SIZES.values())) + 0.5 * torch.randn(1, sum(SIZES.values()))
    for width in (256, 1024):
        errors = (cosines(project(kind, rows, width)) - cosines(rows)).abs()
        assert errors.mean() < 1.2 / width**0.5
        assert errors.max() < 6 / width**0.5


@pytest.mark.parametrize("kind", ["countsketch", "rademacher"])
def test_and_on_gradients_of_the_built_in_model(kind):
    source = resolve("tiny")
    coder = Coder(load_tokenizer(source), 48)
    texts = ["a file is opened", "numbers are added", "the nation prospers", "errors are raised", "the war is over"]
    rows = [
        Row("x", i, b'{"prompt": "%s?", "completion": "%s, as was said."}' % ((text + str(i)).encode(), text.encode()))
        for i, text in enumerate(texts * 3)
    ]
    model = adapted(source, Adapter(rank=8, alpha=32)).eval()
    sizes = {name: module.weight.numel() for name, module in linear_maps(model).items()}
    examples = [coder.example(row) for row in rows]
    exact = row_features(model, examples, make_projection("none", sizes), feature_of("sgd"), mean=True)
    found = row_features(model, examples, make_projection(kind, sizes, 512), feature_of("sgd"), mean=True)
    assert (cosines(found) - cosines(exact)).abs().mean() < 1.2 / 512**0.5


@pytest.mark.parametrize("kind", ["countsketch", "rademacher"])
def test_bits_depend_on_the_seed_and_not_on_threads(kind):
    rows = torch.eye(sum(SIZES.values()))[::97].contiguous()  # each shows one column of the projection
    before = torch.get_num_threads()
    try:
        found = []
        for threads in (1, 2):
            torch.set_num_threads(threads)
            found.append(project(kind, rows, 128))
    finally:
        torch.set_num_threads(before)
    assert torch.equal(*found)
    assert not torch.equal(found[0], project(kind, rows, 128, seed=1))


@given(st.integers(1, 40), st.integers(0, 5))
@settings(max_examples=25, deadline=None)
def test_a_count_sketch_puts_every_number_in_one_place_with_a_sign(width, seed):
    sizes = {"a": 3, "b": 61}
    found = project("countsketch", torch.eye(64), width, seed, sizes)
    assert (found.abs().sum(1) == 1).all()
    assert ((found != 0).sum(1) == 1).all()


def test_auto_projects_only_what_is_wide():
    assert make_projection("auto", {"a": 32768}, 8192).kind == "none"
    assert make_projection("auto", {"a": 32769}, 8192).kind == "countsketch"


def test_what_is_no_projection(monkeypatch):
    with pytest.raises(UsageError, match="--projector x"):
        make_projection("x", SIZES)
    with pytest.raises(UsageError, match="--proj-dim"):
        make_projection("none", SIZES, 0)
    monkeypatch.setitem(__import__("sys").modules, "trak", None)
    with pytest.raises(MissingError, match="traker"):
        make_projection("trak", SIZES)
    assert "trak" in KINDS


def test_trak_s_own_projector():
    pytest.importorskip("trak")
    torch.manual_seed(0)
    rows = torch.randn(10, sum(SIZES.values()))
    assert (cosines(project("trak", rows, 512)) - cosines(rows)).abs().mean() < 1.2 / 512**0.5
