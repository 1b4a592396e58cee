"""Embeddings whose squares leave single precision are refused before any work."""

import numpy as np
import pytest

from icml25cli.core.embeddings import of_array
from icml25cli.core.errors import InputError
from icml25cli.core.survey import survey

X = np.random.default_rng(0).standard_normal((20, 4)).astype(np.float32)


@pytest.mark.parametrize(("factor", "size"), [(1e30, "large"), (1e-30, "small")])
def test_extreme_magnitudes_are_refused(factor, size):
    with pytest.raises(InputError, match=f"too {size}"):
        survey(of_array("x", X * np.float32(factor)))


@pytest.mark.parametrize("factor", [1e11, 1e-11, 0])
def test_other_magnitudes_are_not(factor):
    x = X * np.float32(factor)
    found = survey(of_array("x", x))
    np.testing.assert_allclose(found.mean, x.mean(axis=0, dtype=np.float64))
