"""Sentence embeddings on the fetched model: cosines known from another implementation, whatever else is in a batch."""

import numpy as np
import pytest

from icml25cli.core import store
from icml25cli.core.errors import InputError
from icml25cli.core.sentences import ASSET, embed


@pytest.mark.assets
def test_cosines_are_known(fetched_cache, monkeypatch):
    monkeypatch.setenv("ICML25_CACHE_DIR", str(fetched_cache))
    if not store.is_fetched(ASSET):
        pytest.skip(f"{ASSET} is not fetched")
    texts = ["A dog runs in the park.", "A puppy is playing outside.", "The stock market fell today."]
    rows = embed(texts, store.path(ASSET))
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    assert unit[0] @ unit[1] == pytest.approx(0.4518, abs=2e-3)
    assert unit[0] @ unit[2] == pytest.approx(0.0652, abs=2e-3)
    np.testing.assert_allclose(embed(texts[:1], store.path(ASSET))[0], rows[0], atol=1e-5)


def test_another_folder_is_refused(tmp_path):
    with pytest.raises(InputError, match="cannot be loaded"):
        embed(["a"], tmp_path)
