"""Arrays from files: read as numbers or refused by name."""

import numpy as np
import pytest

from icml25cli.core.errors import InputError, OutputError
from icml25cli.core.tables import read_array, write_array


def test_an_array_comes_back_as_it_was_written(tmp_path):
    x = np.arange(6, dtype=np.float16).reshape(2, 3)
    write_array(tmp_path / "x.npy", x)
    y = read_array(tmp_path / "x.npy")
    assert y.dtype == x.dtype
    np.testing.assert_array_equal(x, y)


def test_the_only_array_of_an_npz_is_read_and_several_are_refused_by_name(tmp_path):
    np.savez(tmp_path / "one.npz", rows=np.ones(3))
    np.savez(tmp_path / "two.npz", left=np.ones(3), right=np.ones(3))
    np.testing.assert_array_equal(read_array(tmp_path / "one.npz"), np.ones(3))
    with pytest.raises(InputError, match="2 arrays"):
        read_array(tmp_path / "two.npz")
    np.savez(tmp_path / "none.npz")
    with pytest.raises(InputError, match="no arrays"):
        read_array(tmp_path / "none.npz")


def test_a_pickle_is_never_loaded(tmp_path):
    class Trap:
        def __reduce__(self):
            return (tmp_path.joinpath("sprung").write_text, ("x",))

    np.save(tmp_path / "x.npy", np.array([Trap()], dtype=object), allow_pickle=True)
    with pytest.raises(InputError, match="never loaded"):
        read_array(tmp_path / "x.npy")
    assert not (tmp_path / "sprung").exists()


@pytest.mark.parametrize("kept", [0, 5, 90, 140])
@pytest.mark.parametrize("name", ["x.npy", "x.npz"])
def test_a_torn_file_is_named(tmp_path, name, kept):
    (np.save if name.endswith("y") else np.savez)(tmp_path / name, np.ones(1000))
    (tmp_path / name).write_bytes((tmp_path / name).read_bytes()[:kept])
    with pytest.raises(InputError, match=name):
        read_array(tmp_path / name)


def test_a_number_is_no_array(tmp_path):
    np.save(tmp_path / "x.npy", np.float32(1))
    with pytest.raises(InputError, match="shape"):
        read_array(tmp_path / "x.npy")


@pytest.mark.parametrize("shape", [(0, 8), (4, 0), (0,)])
def test_an_array_without_numbers_is_refused(tmp_path, shape):
    np.save(tmp_path / "x.npy", np.ones(shape))
    with pytest.raises(InputError, match="no number"):
        read_array(tmp_path / "x.npy")


def test_an_existing_file_is_kept_without_force(tmp_path):
    (tmp_path / "x.npy").write_text("mine")
    with pytest.raises(OutputError, match="exists"):
        write_array(tmp_path / "x.npy", np.ones(2))
    assert (tmp_path / "x.npy").read_text() == "mine"
