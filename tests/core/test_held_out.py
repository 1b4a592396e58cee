"""Windows to calibrate on and to judge by: their numbers, and that a text in both is noticed."""

import random

import pytest

from icml25cli.core.errors import CheckFailed
from icml25cli.core.held_out import Sample, calibration_sample, evaluation_sample
from icml25cli.core.models import ModelSource, load_tokenizer, resolve
from tests.make_models import make_model


@pytest.fixture(scope="module")
def source(tmp_path_factory) -> ModelSource:
    return resolve(make_model(tmp_path_factory.mktemp("models") / "gpt2", "gpt2"))  # a token a byte, windows up to 128


def test_windows_are_as_many_and_as_long_as_asked_and_drawn_by_the_seed(source):
    tokenizer = load_tokenizer(source)

    def sample(seed: int) -> Sample:
        return calibration_sample(source, tokenizer, "builtin", tokens=1000, window=64, seed=seed)

    one, same, other = (sample(seed).windows for seed in (0, 0, 1))
    assert one.shape == (15, 64)
    assert (one == same).all()
    assert (one != other).any()
    judged = evaluation_sample(tokenizer, "builtin", tokens=640, calibration=sample(0))
    assert judged.windows.shape == (10, 64)
    assert "test part" in judged.origin
    assert "640 tokens" in judged.origin


@pytest.mark.parametrize("tokens", [1, 300])
def test_no_window_is_longer_than_the_models(source, tokens):
    drawn = calibration_sample(source, load_tokenizer(source), "builtin", tokens=tokens, window=512, seed=0)
    assert drawn.windows.shape == (max(1, tokens // 128), 128)


def test_a_few_windows_in_both_are_left_out_and_many_are_a_leak(source, tmp_path):
    tokenizer = load_tokenizer(source)
    draw = random.Random(0)
    said = ["".join(draw.choices("abcdefghij klmnop", k=80)) for _ in range(200)]
    (tmp_path / "calib.txt").write_text("".join(said[:20]))
    (tmp_path / "few.txt").write_text("".join(said[100:139] + said[:1]))
    (tmp_path / "many.txt").write_text("".join(said[:20] + said[100:120]))
    drawn = calibration_sample(source, tokenizer, str(tmp_path / "calib.txt"), tokens=1600, window=80, seed=0)
    with pytest.warns(UserWarning, match="1 of 40 evaluation windows were left out"):
        judged = evaluation_sample(tokenizer, str(tmp_path / "few.txt"), tokens=3200, calibration=drawn)
    assert len(judged.windows) == 39
    with pytest.raises(CheckFailed, match="50% of the evaluation windows"):
        evaluation_sample(tokenizer, str(tmp_path / "many.txt"), tokens=3200, calibration=drawn)


def test_other_windows_of_one_text_are_said_to_be(source, tmp_path):
    draw, tokenizer = random.Random(0), load_tokenizer(source)
    text = tmp_path / "text.txt"
    text.write_text("".join(draw.choices("abcdefghij klmnop", k=80 * 500)))
    drawn = calibration_sample(source, tokenizer, str(text), tokens=80, window=80, seed=0)
    with pytest.warns(UserWarning, match="other windows of one text"):
        evaluation_sample(tokenizer, str(text), tokens=1600, calibration=drawn)


def test_windows_too_short_to_tell_are_no_leak_but_refused_for_what_they_are(source):
    tokenizer = load_tokenizer(source)
    drawn = calibration_sample(source, tokenizer, "builtin", tokens=1000, window=2, seed=0)
    with pytest.raises(CheckFailed, match="windows of 2 tokens are too short to tell"):
        evaluation_sample(tokenizer, "builtin", tokens=400, calibration=drawn)
