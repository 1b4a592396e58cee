"""Figures: the format by suffix, whole or not at all, the same bytes for the same figure."""

import os
import subprocess
import sys
import xml.etree.ElementTree as ET

import numpy as np
import pytest
from matplotlib.figure import Figure

from icml25cli.core.errors import OutputError, UsageError
from icml25cli.core.plots import check_figure, save_figure


@pytest.fixture
def figure():
    drawn = Figure()
    drawn.subplots().plot([1, 2, 3], label="perplexity")
    return drawn


@pytest.mark.parametrize(
    ("suffix", "begins"), [(".svg", b"<?xml"), (".png", b"\x89PNG"), (".pdf", b"%PDF"), (".SVG", b"<?xml")]
)
def test_the_suffix_chooses_the_format(figure, tmp_path, suffix, begins):
    save_figure(figure, tmp_path / f"f{suffix}")
    assert (tmp_path / f"f{suffix}").read_bytes().startswith(begins)
    assert os.listdir(tmp_path) == [f"f{suffix}"]


SCRIPT = """
import sys
from pathlib import Path
from matplotlib.figure import Figure
from icml25cli.core.plots import save_figure
figure = Figure()
axes = figure.subplots()
axes.plot([1, 2, 3], marker="o", label="perplexity")
axes.fill_between([0, 1], [0, 1], alpha=0.5)
axes.legend()
save_figure(figure, Path(sys.argv[1]))
"""


@pytest.mark.parametrize("suffix", [".svg", ".png", ".pdf"])
def test_another_process_another_day_draws_the_same_bytes(tmp_path, suffix):
    drawn = []
    for day in ("0", "86400"):
        path = tmp_path / (day + suffix)
        # matplotlib dates its files by SOURCE_DATE_EPOCH where that is set
        subprocess.run([sys.executable, "-c", SCRIPT, path], env=os.environ | {"SOURCE_DATE_EPOCH": day}, check=True)
        drawn.append(path.read_bytes())
    assert drawn[0] == drawn[1]


def test_words_in_a_drawing_can_be_searched(figure, tmp_path):
    figure.axes[0].set_title("bits per weight")
    save_figure(figure, tmp_path / "f.svg")
    texts = [element.text for element in ET.parse(tmp_path / "f.svg").iter("{http://www.w3.org/2000/svg}text")]
    assert "bits per weight" in texts


@pytest.mark.parametrize("name", ["f.jpg", "f", "svg"])
def test_another_suffix_is_refused_before_the_work(figure, tmp_path, name):
    for refuse in (check_figure, lambda path: save_figure(figure, path)):
        with pytest.raises(UsageError, match="no figure file") as caught:
            refuse(tmp_path / name)
        assert caught.value.hint == "end its name in .svg, .png, .pdf"
    assert os.listdir(tmp_path) == []


def test_an_existing_figure_needs_force(figure, tmp_path):
    (tmp_path / "f.svg").write_text("old")
    for refuse in (check_figure, lambda path: save_figure(figure, path)):
        with pytest.raises(OutputError, match="exists"):
            refuse(tmp_path / "f.svg")
    save_figure(figure, tmp_path / "f.svg", force=True)
    assert (tmp_path / "f.svg").read_text().startswith("<?xml")


def test_a_figure_on_a_full_disk(figure, small_disk):
    figure.axes[0].imshow(np.random.default_rng(0).random((500, 500)))  # noise does not compress
    with pytest.raises(OutputError, match="no space left"):
        save_figure(figure, small_disk / "f.png")
    assert os.listdir(small_disk) == []


def test_the_module_does_not_load_matplotlib():
    script = "import sys, icml25cli.core.plots; print('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], capture_output=True, text=True).stdout == "False\n"
