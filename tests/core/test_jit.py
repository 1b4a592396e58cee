"""Kernels where numba finds no place for its cache."""

import pytest

from icml25cli.core.jit import compiled


def double(x):
    return x + x


def test_a_kernel_compiles_where_nothing_can_be_cached(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("numba.core.caching.CacheImpl._locator_classes", [])
    assert compiled(double)(3) == 6
