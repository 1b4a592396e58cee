"""What was quantised beside weights goes with the packed directory, and works after loading as it was judged."""

import json
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

import icml25cli.hf
from icml25cli.core.errors import InputError
from icml25cli.core.models import resolve
from icml25cli.papers.quantize.export import write_model
from icml25cli.papers.quantize.job import carry_out
from icml25cli.papers.quantize.plan import Options
from tests.make_models import make_model


def packed(tmp_path, method: str = "nestquant", **changes) -> tuple[Any, Any]:
    options = Options(method=method, baselines=(), calibration_tokens=512, evaluation_tokens=256, window=64, **changes)
    directory = make_model(tmp_path / "m")
    # In bfloat16, as what is not quantised is written: then nothing else differs.
    AutoModelForCausalLM.from_pretrained(directory, dtype=torch.bfloat16).save_pretrained(directory)
    with carry_out(resolve(directory), options, output=tmp_path / "out") as job:
        write_model(job, tmp_path, ("packed",))
        judged, ids = job.judged[0], job.plan.evaluation
    return judged, ids


def nll(model: Any, ids: torch.Tensor, cache: Any = None) -> torch.Tensor:
    with torch.no_grad():
        logits = model(ids, cache=cache).logits[:, :-1].double()
    return torch.nn.functional.cross_entropy(logits.transpose(1, 2), ids[:, 1:], reduction="none").sum(dim=1)


@pytest.mark.parametrize("method", ["nestquant", "nestquant-m"])
@pytest.mark.parametrize("changes", [{}, {"entropy": True, "beta_rule": "first"}, {"rotations": ("none",), "q": 13}])
def test_a_loaded_model_with_its_cache_is_the_one_that_was_judged(tmp_path, method, changes):
    judged, ids = packed(tmp_path, method, scopes=("w+kv+a",), **changes)
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "packed", dtype=torch.float32)
    found = torch.cat([nll(model, window[None], icml25cli.hf.kv_cache(model)) for window in ids])
    torch.testing.assert_close(found, judged.score.nll, rtol=4e-3, atol=0)
    icml25cli.hf.use_coded_cache(model)
    torch.testing.assert_close(nll(model, ids), found, rtol=4e-3, atol=0)
    plain = AutoModelForCausalLM.from_pretrained(tmp_path / "m", dtype=torch.float32)
    assert not torch.allclose(nll(plain, ids), judged.score.nll, rtol=4e-3)


def test_a_model_of_weights_alone_has_no_codes_for_a_cache(tmp_path):
    packed(tmp_path)
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "packed")
    with pytest.raises(InputError, match="no codes for keys"):
        icml25cli.hf.kv_cache(model)


@pytest.mark.parametrize(
    ("field", "value", "says"),
    [
        ("keys", {}, "a code of vectors"),
        ("values", 3, "a code of vectors"),
        (
            "activations",
            {"q": 14, "betas": [0.3], "rule": "opt", "rotation": {"kind": "spin", "seed": 0}},
            "no rotation 'spin'",
        ),
        ("keys", {"q": 14, "betas": [0.3], "rule": "last", "rotation": {"kind": "none", "seed": 0}}, "no rule 'last'"),
        ("activations", {"q": 1e9, "betas": [0.3], "rule": "opt", "rotation": {"kind": "none", "seed": 0}}, "q"),
    ],
)
def test_an_edited_description_is_refused(tmp_path, field, value, says):
    packed(tmp_path, scopes=("w+kv+a",))
    file = tmp_path / "packed/config.json"
    config = json.loads(file.read_text())
    config["quantization_config"][field] = value
    file.write_text(json.dumps(config))
    with pytest.raises(InputError, match=says):
        AutoModelForCausalLM.from_pretrained(tmp_path / "packed")
