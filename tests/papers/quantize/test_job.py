"""A job is keyed by what it is of, and continues what an earlier call finished."""

import pytest

from icml25cli.core.checkpoint import model_files
from icml25cli.core.models import resolve
from icml25cli.core.runs import commit_output
from icml25cli.papers.quantize import job
from tests.make_models import make_model

QUICK = job.Options(betas="ref", calibration_tokens=64, evaluation_tokens=128, window=64, baselines=())


def test_an_output_inside_the_models_own_folder_is_no_part_of_the_model(tmp_path, monkeypatch):
    source = resolve(make_model(tmp_path / "llama"))
    out = source.path / "out"

    def cut_short(model, plan, run):
        run.write("block-0000", lambda path: path.write_bytes(b"done"))
        raise KeyboardInterrupt

    monkeypatch.setattr(job, "quantize_model", cut_short)
    with pytest.raises(KeyboardInterrupt), job.carry_out(source, QUICK, output=out):
        pass
    (out / "report.json").write_text("{}")
    monkeypatch.setattr(job, "quantize_model", lambda model, plan, run: run.has("block-0000"))
    with job.carry_out(source, QUICK, output=out, resume=True) as resumed:
        assert resumed.judged
        (out / "report.json").unlink()
        with commit_output(out) as written:
            (written / "report.json").write_text("{}")
    assert not (out / ".run").exists()


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "tokenizer.json"])
def test_a_model_that_changed_is_another_model(tmp_path, name):
    model = make_model(tmp_path / "llama")
    before = job.fingerprint(model_files(model))
    (model / name).write_bytes((model / name).read_bytes() + b" ")
    assert job.fingerprint(model_files(model)) != before
