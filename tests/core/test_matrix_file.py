"""A matrix out of every kind of file that may hold one, and files that hold none or too many."""

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from icml25cli.core.errors import InputError
from icml25cli.core.matrix_file import is_matrix_file, read_matrix

X = np.arange(12, dtype=np.float32).reshape(3, 4)


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save("x.npy", X)
    np.savez("one.npz", x=X)
    np.savez("two.npz", x=X, y=2 * X)
    np.savez("none.npz")
    np.savez("objects.npz", x=np.array([{}], dtype=object))
    tensors = {"w": torch.from_numpy(X).bfloat16(), "b": torch.ones(4), "i": torch.ones(2, 2, dtype=torch.int32)}
    save_file(tensors, "one.safetensors")
    save_file(tensors | {"v": torch.from_numpy(X) + 1}, "two.safetensors")
    np.save("a:b.npy", X)
    (tmp_path / "text.npy").write_text("1 2 3")
    (tmp_path / "text.npz").write_text("1 2 3")
    (tmp_path / "empty.safetensors").write_bytes(b"")
    return tmp_path


@pytest.mark.parametrize(
    ("named", "expected"),
    [
        ("x.npy", X),
        ("one.npz", X),
        ("one.npz:x", X),
        ("two.npz:y", 2 * X),
        ("one.safetensors", X),
        ("two.safetensors:w", X),
        ("two.safetensors:v", X + 1),
        ("a:b.npy", X),
    ],
)
def test_a_matrix_is_found(named, expected):
    found = read_matrix(named)
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(
    ("named", "says"),
    [
        ("absent.npy", "absent.npy"),
        ("absent.npz:x", "absent.npz"),
        ("absent.safetensors", "absent.safetensors"),
        ("text.npy", "text.npy"),
        ("text.npz", "text.npz"),
        ("empty.safetensors", "cut short"),
        ("objects.npz", "objects.npz"),
        ("two.npz", "holds 2 matrices"),
        ("two.safetensors", "holds 2 matrices"),
        ("none.npz", "holds no matrix"),
        ("two.npz:z", "holds no z"),
        ("two.safetensors:z", "holds no z"),
        ("two.safetensors:i", "stored as I32"),
        ("two.safetensors:b", r"shape \(4,\)"),
        ("x.npy:x", "no name"),
    ],
)
def test_what_is_no_matrix_is_named(named, says):
    with pytest.raises(InputError, match=says):
        read_matrix(named)


@pytest.mark.parametrize(
    ("named", "does"),
    [("x.npy", True), ("m.safetensors:a.b", True), ("tiny", False), ("org/model", False), ("model.gguf", False)],
)
def test_names_of_models_are_told_from_names_of_matrices(named, does):
    assert is_matrix_file(named) == does
