"""Blocks of features: what is damaged is noticed, and LESS's files are read and written."""

import numpy as np
import pytest
import torch

from icml25cli.core.errors import InputError
from icml25cli.core.runs import Run
from icml25cli.papers.select_data.store import is_sound, read_block, sound_block, write_block, write_less

FEATURES = np.random.default_rng(0).standard_normal((5, 7)).astype(np.float32)


def test_a_damaged_block_is_thrown_away(tmp_path):
    with Run.open(tmp_path / "run", {}) as run:
        write_block(run, "block.safetensors", FEATURES)
        assert is_sound(run, "block.safetensors")
        file = run.path("block.safetensors")
        np.testing.assert_array_equal(read_block(file), FEATURES)
        whole = file.read_bytes()
        for damaged in (whole[:-4], whole[:-3] + b"\0\1\2", whole[:40], b""):
            file.write_bytes(damaged)
            with pytest.raises(InputError, match="is damaged"):
                sound_block(file)
            assert not is_sound(run, "block.safetensors")
            assert not file.exists()
        assert read_block(file) is None


def test_less_reads_what_is_written(tmp_path):
    write_less(tmp_path / "dim7", [FEATURES[:2], FEATURES[2:]])
    held = torch.load(tmp_path / "dim7" / "all_orig.pt", weights_only=True)
    torch.testing.assert_close(held, torch.nn.functional.normalize(torch.from_numpy(FEATURES), dim=1))
    raw = torch.load(tmp_path / "dim7" / "all_unormalized.pt", weights_only=True)
    np.testing.assert_array_equal(raw.numpy(), FEATURES)
