"""An estimate counts what a real run writes, and its seconds grow with the work."""

from dataclasses import replace

import pytest
import torch

from icml25cli.core.models import resolve
from icml25cli.core.streaming import StreamedModel
from icml25cli.papers.quantize.estimate import estimate
from icml25cli.papers.quantize.export import write_model
from icml25cli.papers.quantize.job import carry_out
from icml25cli.papers.quantize.plan import Options, make_plan

OPTIONS = Options(betas="ref", calibration_tokens=2048, evaluation_tokens=1024, window=128)


def size(directory) -> int:
    return sum(file.stat().st_size for file in directory.rglob("*.safetensors"))


def test_disk_is_what_a_run_writes(tmp_path):
    source = resolve("tiny")
    model = StreamedModel(source)
    plan, _ = make_plan(model, OPTIONS)
    found = estimate(model, plan)
    with carry_out(source, OPTIONS, output=tmp_path / "out") as job:
        write_model(job, tmp_path, ("bf16", "packed"))
    assert size(tmp_path / "bf16") == pytest.approx(found.bf16_bytes, rel=0.02)
    assert size(tmp_path / "packed") == pytest.approx(found.packed_bytes, rel=0.02)


def test_more_work_takes_more():
    model = StreamedModel(resolve("tiny"))
    plan, _ = make_plan(model, OPTIONS)
    once = estimate(model, plan)
    assert {stage.stage for stage in once.stages} >= {"calibration", "quantising", "evaluation", "scoring"}
    assert all(stage.seconds >= 0 for stage in once.stages)
    longer = estimate(model, replace(plan, calibration=torch.cat([plan.calibration] * 4)))
    assert longer.memory_bytes > once.memory_bytes
    assert longer.run_bytes > once.run_bytes
