"""The demonstration: NICE finds the rows that help where LESS buys the style of the references."""

import numpy as np
import pytest

from icml25cli.papers.select_data.demo import rows, run_world, summary
from icml25cli.papers.select_data.workspace import Means, Workspace
from icml25cli.papers.select_data.worlds import COLOURS, Sizes, make_world, right_colour


@pytest.mark.slow
def test_in_the_unseen_style_nice_beats_less_random_and_all_rows(tmp_path):
    """Five worlds, about a minute each."""
    results = []
    for seed in range(5):
        with Workspace(tmp_path / f"work-{seed}") as space:
            results += run_world(tmp_path / f"world-{seed}", "unseen-style", seed, space, Means())
    helping = [result.helping for result in results if result.method == "nice"]
    assert sum(count >= 108 for count in helping) >= 4
    found = {row["method"]: row["metric"] for row in summary(results)}
    assert found["nice"] >= 0.5
    assert found["nice"] > found["full"]
    assert found["nice"] > found["less"] + 0.3
    assert found["nice"] > found["random"] + 0.3
    assert len(rows(results)) == 25


@pytest.mark.slow
def test_in_the_seen_style_nice_finds_more_than_less_and_less_more_than_chance(tmp_path):
    """Ten worlds, half a minute each: of five the differences, 15 ± 8 rows, leave it open; of ten they are 22 ± 6."""
    helping: dict[str, list[int]] = {}
    for seed in range(10):
        with Workspace(tmp_path / f"work-{seed}") as space:
            methods = ("nice", "less", "random")
            for result in run_world(
                tmp_path / f"world-{seed}", "seen-style", seed, space, Means(), methods=methods, tune=False
            ):
                helping.setdefault(result.method, []).append(result.helping)
    more = np.array(helping["nice"]) - helping["less"]
    assert more.mean() > 2 * more.std(ddof=1) / len(more) ** 0.5
    assert np.mean(helping["less"]) > np.mean(helping["random"])


def test_a_world_is_what_it_says(tmp_path, monkeypatch):
    from icml25cli.papers.select_data import worlds
    from icml25cli.papers.select_data.rewards import Asked
    from icml25cli.papers.select_data.rows import read_rows

    monkeypatch.setattr(worlds, "STEPS", 2)
    sizes = Sizes(helpful=20, same_style=10, wrong=15, other=30)
    world = make_world(tmp_path / "a", "unseen-style", 3, sizes)
    again = make_world(tmp_path / "b", "unseen-style", 3, sizes)
    assert world.pool.read_bytes() == again.pool.read_bytes()
    assert [world.kinds.count(kind) for kind in ("helpful", "same style", "wrong", "other")] == [20, 10, 15, 30]
    truth = {row.record["prompt"]: row.record["colour"] for row in read_rows([world.validation])}
    assert len(truth) == 20
    for kind, row in zip(world.kinds, read_rows([world.pool]), strict=True):
        told = [word for word in row.record["completion"].split() if word in COLOURS]
        assert len(told) == 1
        if kind != "other":
            assert (told[0] == truth[row.record["prompt"]]) == (kind != "wrong")
            assert ("u0" in row.record["completion"]) == (kind != "helpful")
    row = read_rows([world.validation])[0]
    right = row.record["colour"]
    wrong = next(colour for colour in COLOURS if colour != right)
    reward = right_colour()
    texts = [f"f1 {right} {wrong}", f"f1 {wrong} {right}", "f1"]
    assert reward([Asked.of(row, text) for text in texts]) == [1, 0, 0]
