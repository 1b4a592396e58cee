"""Embeddings of every format read alike, in blocks and at random, and what is wrong with a file is said."""

import io
import subprocess
import sys

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from safetensors.torch import save_file

from icml25cli.core.embeddings import of_array, open_embeddings, open_layers
from icml25cli.core.errors import InputError
from icml25cli.core.survey import survey, usable

X = np.random.default_rng(0).standard_normal((100, 6)).astype(np.float32)


@pytest.fixture(autouse=True)
def cache(monkeypatch, tmp_path):
    monkeypatch.setenv("ICML25_CACHE_DIR", str(tmp_path / "cache"))


def write(path, form):
    if form == "npy":
        np.save(path, X)
    elif form == "fortran.npy":
        np.save(path, np.asfortranarray(X))
    elif form == "npz":
        np.savez(path, x=X, other=X[:1])
    elif form == "compressed.npz":
        np.savez_compressed(path, x=X)
    elif form == "safetensors":
        save_file({"x": torch.from_numpy(X), "b": torch.zeros(3)}, path)
    elif form == "bf16.safetensors":
        save_file({"x": torch.from_numpy(X).bfloat16()}, path)
    elif form == "columns.parquet":
        pq.write_table(pa.table({f"c{i}": X[:, i] for i in range(6)}), path)
    elif form == "list.parquet":
        pq.write_table(pa.table({"text": ["a"] * 100, "x": X.tolist()}), path, row_group_size=7)
    elif form == "fixed.parquet":
        pq.write_table(pa.table({"x": pa.FixedSizeListArray.from_arrays(pa.array(X.ravel()), 6)}), path)
    elif form == "pt":
        torch.save(torch.from_numpy(X), path)
    elif form == "bf16.pt":
        torch.save({"x": torch.from_numpy(X).bfloat16(), "n": 3}, path)
    return path


FORMS = ["npy", "fortran.npy", "npz", "compressed.npz", "safetensors", "bf16.safetensors", "columns.parquet"]
FORMS += ["list.parquet", "fixed.parquet", "pt", "bf16.pt"]


@pytest.mark.parametrize("form", FORMS)
def test_every_format_gives_the_same_rows(tmp_path, form):
    file = write(tmp_path / f"x.{form}", form)
    x = open_embeddings(f"{file}:x" if form == "npz" else str(file))
    wanted = torch.from_numpy(X).bfloat16().float().numpy() if "bf16" in form else X
    assert (x.rows, x.columns) == X.shape
    np.testing.assert_array_equal(np.concatenate([block for _, block in x.blocks(7)]), wanted)
    np.testing.assert_array_equal(x.select(np.arange(1, 100, 3))[np.array([0, 2, 30])], wanted[[1, 7, 91]])
    assert x[3:5].dtype == np.float32
    assert not list((tmp_path / "cache").rglob("*.*"))


def test_the_index_of_a_frame_is_no_column(tmp_path):
    frame = pd.DataFrame(X, columns=[f"c{i}" for i in range(X.shape[1])]).iloc[::-1]
    frame.to_parquet(tmp_path / "turned.parquet")
    np.testing.assert_array_equal(open_embeddings(str(tmp_path / "turned.parquet"))[:], X[::-1])


def test_layers_are_those_of_an_array_or_the_matrices_of_a_file(tmp_path):
    layers = np.stack([X, 2 * X, 3 * X], axis=1)
    np.save(tmp_path / "a.npy", layers)
    np.savez(tmp_path / "b.npz", first=X, second=2 * X, ids=np.arange(100).astype(str), third=3 * X)
    np.savez(tmp_path / "c.npz", x=X, ids=np.arange(100))
    save_file({f"{i}": torch.from_numpy(layers[:, i].copy()) for i in range(3)}, tmp_path / "d.safetensors")
    for file in ("a.npy", "b.npz", "d.safetensors"):
        found = open_layers(str(tmp_path / file))
        assert [x[5:6].tolist() for x in found] == [(i * X[5:6]).tolist() for i in (1, 2, 3)]
    assert len(open_layers(str(tmp_path / "c.npz"))) == 1
    assert open_embeddings(str(tmp_path / "c.npz")).columns == 6
    with pytest.raises(InputError, match=r"shape \(100, 3, 6\)"):
        open_embeddings(str(tmp_path / "a.npy"))


def test_standard_input_is_an_npy(tmp_path):
    code = "from icml25cli.core.embeddings import open_embeddings as o; print(o('-')[5:6].tolist())"
    stream = io.BytesIO()
    np.save(stream, X)
    done = subprocess.run([sys.executable, "-c", code], input=stream.getvalue(), capture_output=True, check=True)
    assert done.stdout.decode().strip() == str(X[5:6].tolist())


def test_the_built_in_model_stands_for_its_token_embeddings():
    x = open_embeddings("tiny")
    assert x.rows > 1000
    assert np.isfinite(x[:10]).all()


def torn(path):
    np.save(path, X)
    path.write_bytes(path.read_bytes()[:-10])


def objects(path):
    np.save(path, np.array([{}], dtype=object), allow_pickle=True)


BAD = {
    "torn": ("a.npy", torn, "2518 bytes where 2528 are expected"),
    "raw": ("a.npy", lambda path: X.tofile(path), "no .npy header"),
    "objects": ("a.npy", objects, "Python objects"),
    "vector": ("a.npy", lambda path: np.save(path, X[0]), "shape \\(6,\\)"),
    "empty": ("a.npy", lambda path: np.save(path, X[:0]), "no number"),
    "text": ("a.npy", lambda path: np.save(path, np.array([["a"]])), "should hold numbers"),
    "absent": ("a.npy", lambda path: None, "no such file"),
    "several": ("a.npz", lambda path: np.savez(path, a=X, b=X), "holds 2 matrices"),
    "no zip": ("a.npz", lambda path: path.write_bytes(b"nonsense"), "not a whole .npz"),
    "pickle": ("a.pt", lambda path: torch.save({"x": slice(3)}, path), "not a whole .pt file of tensors alone"),
    "ragged": (
        "a.parquet",
        lambda path: pq.write_table(pa.table({"x": [[1.0], [1.0, 2.0]]}), path),
        "differ in length",
    ),
    "no parquet": ("a.parquet", lambda path: path.write_bytes(b"nonsense"), "not a whole parquet"),
    "words": ("a.parquet", lambda path: pq.write_table(pa.table({"x": ["a"]}), path), "no column of numbers"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_is_wrong_is_named(tmp_path, name):
    file, make, says = BAD[name]
    make(tmp_path / file)
    with pytest.raises(InputError, match=says):
        open_embeddings(str(tmp_path / file))


def test_mean_and_scale_are_those_of_float64():
    rng = np.random.default_rng(1)
    x = (1000 + rng.standard_normal((300_000, 3))).astype(np.float32)  # a running float32 sum is off by whole units
    found = survey(of_array("x", x))
    np.testing.assert_allclose(found.mean, x.mean(axis=0, dtype=np.float64), rtol=1e-12)
    exact = np.square(x - x.mean(axis=0, dtype=np.float64)).sum(axis=1).mean()
    assert found.mean_square == pytest.approx(exact, rel=1e-9)


def test_bad_constant_and_repeated_rows_are_counted():
    x = X.copy()
    x[3, 2], x[50, 0] = np.nan, np.inf
    x[7], x[8], x[:, 4] = x[9], 0, 0
    found = survey(of_array("x", x))
    assert found.bad.tolist() == [3, 50]
    assert (found.rows, found.constant_rows, found.constant_columns, found.repeated_rows) == (98, 1, 1, 1)
    with pytest.raises(InputError, match="2 of 100 rows hold NaN or infinity: 3, 50"):
        usable(of_array("x", x))
    with pytest.warns(UserWarning, match="are left out"):
        kept, _ = usable(of_array("x", x), drop_bad=True)
    assert kept.rows == 98
    np.testing.assert_array_equal(kept[:4], x[[0, 1, 2, 4]])
