"""A whole selection on a small model: what it depends on, what it does not, and work that was cut short."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from icml25cli.core.errors import CheckFailed, InputError, UsageError
from icml25cli.core.models import resolve
from icml25cli.papers.select_data import store, work
from icml25cli.papers.select_data.adapters import Adapter
from icml25cli.papers.select_data.compare import Trial, judge_selection
from icml25cli.papers.select_data.job import Job
from icml25cli.papers.select_data.methods import METHODS, Choice, select
from icml25cli.papers.select_data.policy import Policy
from icml25cli.papers.select_data.rewards import Each, make_reward
from icml25cli.papers.select_data.rows import Row, make_pool
from icml25cli.papers.select_data.sampling import Sampling
from icml25cli.papers.select_data.scoring import Subtasks
from icml25cli.papers.select_data.training import Recipe
from icml25cli.papers.select_data.warmup import Foreign, chosen_checkpoints
from icml25cli.papers.select_data.workspace import Means, Settings, Workspace
from tests.make_models import make_model

SETTINGS = Settings(
    adapter=Adapter(rank=2, alpha=4),
    recipe=Recipe(epochs=2, learning_rate=1e-3, batch_size=4, batch_tokens=256),
    warmup_fraction=0.2,
    max_length=64,
    projected=64,
    projector="countsketch",
    sampling=Sampling(count=4, max_new_tokens=6),
)
# A coin that depends on the whole answer, since a model of random weights says nothing that makes sense.
REWARD = Each("parity", lambda one: sum(map(ord, one.answer)) % 2)
OPPOSITE = Each("other parity", lambda one: sum(map(ord, one.answer)) % 2 == 0)
HERE = Means()


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    return resolve(make_model(tmp_path_factory.mktemp("models") / "llama"))


def row(number: int, **record) -> Row:
    return Row("x.jsonl", number, json.dumps(record).encode())


POOL = [row(i, prompt=f"p{i}", completion="yes" * (i % 5 + 1)) for i in range(20)]
ASKED = [row(i, prompt=f"v{i}") for i in range(3)]
ANSWERED = [row(i, prompt=f"v{i}", completion=f"a{i}") for i in range(3)]


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch):
    monkeypatch.setattr(store, "ROWS", 8)
    for module in ("job", "validation", "methods"):
        monkeypatch.setattr(f"icml25cli.papers.select_data.{module}.ROWS", 8)


def job(source, space: Workspace, settings=SETTINGS, validation=ASKED, means=HERE, **more) -> Job:
    tasks = Subtasks.of_equal_size(len(validation), 1)
    return Job(source, make_pool(POOL, validation), validation, tasks, settings, space, means, **more)


def scores(source, folder: Path, method="nice", **more) -> np.ndarray:
    with Workspace(folder) as space:
        return select(job(source, space, **more), method, Choice(4), REWARD).scores.total


@pytest.fixture(scope="module")
def reference(source, tmp_path_factory) -> np.ndarray:
    with pytest.MonkeyPatch.context() as patch:
        for module in ("store", "job", "validation", "methods"):
            patch.setattr(f"icml25cli.papers.select_data.{module}.ROWS", 8)
        return scores(source, tmp_path_factory.mktemp("whole"))


def test_nice_needs_no_answers_and_less_refuses_without(source, reference, tmp_path):
    assert reference.any()
    np.testing.assert_array_equal(scores(source, tmp_path / "a", validation=ANSWERED), reference)
    with pytest.raises(InputError, match=r"x\.jsonl, row 0 has no answer, and LESS"):
        scores(source, tmp_path / "b", method="less")
    assert not (tmp_path / "b").exists()  # before any work
    less = scores(source, tmp_path / "a", method="less", validation=ANSWERED)
    assert np.corrcoef(less, reference)[0, 1] < 0.99


def test_scores_follow_the_reward(source, reference, tmp_path):
    with Workspace(tmp_path) as space:
        made = job(source, space)
        other = select(made, "nice", Choice(4), OPPOSITE).scores.total
        assert not np.allclose(other, reference)
        with pytest.raises(CheckFailed, match="no reward signal: all 24 answers have the reward 0"):
            select(made, "nice", Choice(4), make_reward("regex:^never$"))


def test_work_cut_short_continues_to_the_same_bits(source, reference, tmp_path, monkeypatch):
    real, calls = work.write_block, []

    def stop(*args):
        calls.append(args[1])
        if len(calls) in (3, 6, 9):
            raise KeyboardInterrupt
        real(*args)

    monkeypatch.setattr(work, "write_block", stop)
    for _ in range(3):
        with pytest.raises(KeyboardInterrupt):
            scores(source, tmp_path)
    np.testing.assert_array_equal(scores(source, tmp_path), reference)
    # Three in vain; at either checkpoint three blocks of the pool and two of answers.
    assert len(calls) == 3 + 2 * 3 + 2 * 2


def test_a_damaged_block_is_made_again(source, reference, tmp_path):
    first = scores(source, tmp_path)
    for file in [*tmp_path.glob("*/units/grads-1-000001.safetensors"), *tmp_path.glob("*/units/grads-2-000000.*")]:
        file.write_bytes(file.read_bytes()[:-8] + b"\0" * 8)
    np.testing.assert_array_equal(scores(source, tmp_path), first)
    np.testing.assert_array_equal(first, reference)


def test_shards_make_the_whole(source, reference, tmp_path, monkeypatch):
    for i in (1, 2):
        with Workspace(tmp_path) as space:
            job(source, space).gradients((i, 2))
    made = []
    monkeypatch.setattr(work, "write_block", lambda *args: made.append(args[1]) or store.write_block(*args))
    np.testing.assert_array_equal(scores(source, tmp_path), reference)
    assert len(made) == 4  # of answers alone: two at each checkpoint


def test_processes_side_by_side_change_nothing(source, reference, tmp_path):
    np.testing.assert_array_equal(scores(source, tmp_path, means=Means(jobs=2)), reference)


def test_a_cluster_changes_nothing(source, reference, tmp_path):
    """Starting Ray takes seconds."""
    pytest.importorskip("ray", reason="Ray is not installed: pip install 'icml25[cluster]'")
    np.testing.assert_array_equal(scores(source, tmp_path, means=Means(jobs=2, engine="ray")), reference)


def test_another_policy_draws_no_new_answers(source, tmp_path):
    scores(source, tmp_path)
    before = {file: file.stat().st_mtime_ns for file in tmp_path.glob("select-data-answers-*/units/*")}
    scores(source, tmp_path, settings=replace(SETTINGS, policy=Policy(baseline="rloo")))
    assert {file: file.stat().st_mtime_ns for file in tmp_path.glob("select-data-answers-*/units/*")} == before
    assert len(list(tmp_path.glob("select-data-policy-*"))) == 2


def test_every_method_picks_as_many_rows(source, tmp_path):
    with Workspace(tmp_path) as space:
        made = job(source, space, validation=ANSWERED)
        for method in METHODS:
            found = select(made, method, Choice(4), REWARD)
            assert len(set(found.places.tolist())) == (20 if method == "full" else 4), method
        longest = select(made, "length", Choice(4), None)
        assert {len(POOL[i].conversation.answer or "") for i in longest.places} == {15}
        wide = select(made, "nice", Choice(3, diversity=True), REWARD)
        assert len(set(wide.places.tolist())) == 3
        with pytest.raises(UsageError, match="needs a --reward"):
            select(made, "nice", Choice(4), None)


def test_guidance_protection_and_hard_policies(source, tmp_path):
    with pytest.raises(InputError, match="--policy hard-rejection compares"):
        scores(source, tmp_path, settings=replace(SETTINGS, policy=Policy("hard-rejection")))
    answered = [row(i, prompt=f"v{i}", completion="abc def") for i in range(3)]
    hard = replace(SETTINGS, policy=Policy("hard-rejection"), guidance=True, protect=True)
    assert scores(source, tmp_path, settings=hard, validation=answered).any()
    with Workspace(tmp_path) as space:
        assert job(source, space, settings=hard, validation=answered).begun == ["abc"] * 3


def test_answers_of_another_model_are_off_policy_and_said_to_be(source, tmp_path):
    given = [["abc", "xyz"], ["xyz", "abc"], ["abc", "x"]]
    with Workspace(tmp_path) as space:
        found = select(job(source, space, given=given), "nice", Choice(4), REWARD)
    assert any("off-policy" in note for note in found.notes)
    assert found.signal is not None
    assert 0 < found.signal.success_rate < 1


def test_an_adapter_trained_elsewhere_stands_for_the_warm_up(source, tmp_path):
    with Workspace(tmp_path) as space:
        last = job(source, space).checkpoints[-1].folder
    with pytest.raises(UsageError, match="needs --optimizer"):
        scores(source, tmp_path, foreign=Foreign(last, None))
    sgd = replace(SETTINGS, precondition="sgd")
    brought = scores(source, tmp_path / "b", settings=sgd, foreign=Foreign(last, None))
    ours = scores(source, tmp_path / "c", settings=replace(sgd, checkpoints="last"))
    # The same adapter; answers are drawn by the same seed as those of a first checkpoint.
    np.testing.assert_allclose(brought, ours, atol=1e-6)


def test_two_at_once_in_one_place_are_refused(source, tmp_path):
    with Workspace(tmp_path) as first:
        _ = job(source, first).checkpoints
        import os
        import subprocess
        import sys

        lock = next(tmp_path.glob("select-data-warmup-*")) / "lock"
        code = f"from icml25cli.core.files import Lock; from pathlib import Path; Lock(Path({str(lock)!r})).acquire()"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=os.environ)
        assert "held by running process" in done.stderr


@pytest.mark.parametrize(("listed", "wanted"), [("all", [0, 1, 2]), ("last", [2]), ("1,3", [0, 2]), (" 2", [1])])
def test_checkpoints(listed, wanted):
    assert chosen_checkpoints(listed, 3) == wanted


@pytest.mark.parametrize("listed", ["0", "4", "x", "1,,2", ""])
def test_no_checkpoints(listed):
    with pytest.raises(UsageError, match="--checkpoints"):
        chosen_checkpoints(listed, 3)


def test_a_comparison_is_kept_and_paired(source, tmp_path):
    with Workspace(tmp_path) as space:
        made = job(source, space)
        trial = Trial(tuple(ANSWERED), Sampling(count=3, max_new_tokens=4), SETTINGS.recipe)
        first = judge_selection(made, [0, 1, 2], trial, REWARD, 1)
        base = judge_selection(made, [], trial, REWARD, 1)
    with Workspace(tmp_path) as space:
        again = judge_selection(job(source, space), [0, 1, 2], trial, REWARD, 1)
    assert first.values.shape == base.values.shape == (3,)
    np.testing.assert_array_equal(first.values, again.values)
    assert first.seconds == again.seconds
    assert not list(tmp_path.glob("select-data-tuned-*/units/checkpoint-*"))


@pytest.mark.parametrize("left", ["", '[[{"tok', "null", "[]", "[[]]"])
@pytest.mark.parametrize("kind", ["answers", "rewards"])
def test_damaged_answers_and_rewards_are_made_again(source, reference, tmp_path, kind, left):
    scores(source, tmp_path)
    file = sorted(tmp_path.rglob(f"{kind}-*.json"))[0]
    whole = file.read_bytes()
    file.write_text(left)
    assert np.array_equal(scores(source, tmp_path), reference)
    assert file.read_bytes() == whole


def test_rewards_that_failed_are_asked_for_again(source, tmp_path):
    broken = replace(REWARD, judge=lambda _: float("nan"))
    with Workspace(tmp_path) as space, pytest.raises(InputError, match="failed on 24 of 24"):
        job(source, space).rewarded(broken)
    with Workspace(tmp_path) as space:
        assert job(source, space).rewarded(REWARD).failed == 0


def test_an_edited_reward_is_another(source, tmp_path):
    file = tmp_path / "reward.py"
    file.write_text("1")
    with Workspace(tmp_path / "work") as space:
        before = job(source, space).rewarded(replace(REWARD, files=(file,))).rewards
    file.write_text("2")
    with Workspace(tmp_path / "work") as space:
        after = job(source, space).rewarded(replace(OPPOSITE, spec=REWARD.spec, files=(file,))).rewards
    assert np.array_equal(np.concatenate(before[0]), 1 - np.concatenate(after[0]))
