"""Stamps as pairs: which pictures count, and on the fetched assets, how far they agree with their captions."""

import numpy as np
import pytest
from PIL import Image

from icml25cli.core.embeddings import of_array
from icml25cli.core.errors import InputError, MissingError
from icml25cli.papers.align.measure import measure
from icml25cli.papers.align.metrics import Pair, Settings
from icml25cli.papers.align.prepared import prepare
from icml25cli.papers.align.stamps import FILES, stamps, words, write_stamps


def test_captioned_pictures_that_are_no_symbols_count(tmp_path):
    given = {"animals/cat": "A cat.\nde.utf8=Katze", "symbols/a": "A", "town/b": None, "food/c": ""}
    for name, caption in given.items():
        file = tmp_path / f"{name}.png"
        file.parent.mkdir(exist_ok=True)
        Image.new("RGBA", (4, 4)).save(file)
        if caption is not None:
            file.with_suffix(".txt").write_text(caption)
    (found,) = stamps(tmp_path)
    assert (found.name, found.caption, found.category) == ("animals/cat", "A cat.", "animals")
    with pytest.raises(InputError, match="no captioned pictures"):
        stamps(tmp_path / "town")


def test_words_of_captions_come_once():
    assert words(["A frog.", "The Frog's tea-cup"]) == ["cup", "frog", "tea", "the"]


def test_without_the_assets_it_says_how_to_get_them(monkeypatch, tmp_path):
    monkeypatch.setenv("ICML25_CACHE_DIR", str(tmp_path))
    with pytest.raises(MissingError, match="tuxpaint-stamps"):
        write_stamps(tmp_path)


@pytest.mark.assets
def test_pictures_agree_with_their_captions(fetched_cache, monkeypatch, tmp_path):
    monkeypatch.setenv("ICML25_CACHE_DIR", str(fetched_cache))
    try:
        found = write_stamps(tmp_path)
    except MissingError as error:
        pytest.skip(str(error))
    assert (found["items"], found["image_width"], found["caption_width"]) == (538, 1280, 384)
    assert np.load(tmp_path / FILES[4]).shape == (found["words"], 384)
    assert len((tmp_path / FILES[5]).read_text().splitlines()) == found["words"]
    images, captions = (np.load(tmp_path / name) for name in FILES[:2])
    np.testing.assert_array_equal(images["id"], captions["id"])
    x, y = (prepare(of_array("x", side["x"] - side["x"].mean(axis=0))) for side in (images, captions))
    (mutual,) = measure(Pair(x, y, Settings(permutations=20, intervals=False)), ("mknn",))
    assert mutual.value == pytest.approx(0.195, abs=0.02)
    assert mutual.row()["null_mean"] == pytest.approx(10 / 537)
