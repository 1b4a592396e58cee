"""The paper's order on real models: NestQuant nearer to the float model than GPTQ, GPTQ than RTN, at no more bits.

By mean KL(float || quantised) per token, paired over evaluation windows, for every seed, with and without the same
rotation for all. Each difference has to be beyond twice its standard error.
"""

from pathlib import Path

import pytest

from icml25cli.core import store
from icml25cli.core.likelihood import paired_difference
from icml25cli.core.models import resolve
from icml25cli.papers.quantize.job import carry_out
from icml25cli.papers.quantize.plan import Options


def check_orders(model: str, output: Path, **options) -> None:
    rotations = ("random-hadamard", "none")
    with carry_out(resolve(model), Options(rotations=rotations, **options), output=output) as job:
        found = {(j.candidate.method.name, j.candidate.rotation): j for j in job.judged if j.candidate}
    main = found["nestquant", "random-hadamard"]
    for rotation in rotations:
        nestquant, gptq, rtn = (found[name, rotation] for name in ("nestquant", "gptq", "rtn"))
        assert nestquant.bits_per_weight <= min(gptq.bits_per_weight, rtn.bits_per_weight)
        for better, worse in ((nestquant, gptq), (gptq, rtn)):
            more = paired_difference(worse.score.kl, better.score.kl)
            assert more.mean > 2 * more.standard_error, (model, options, rotation, more)
    for other in found.values():
        if other is not main:
            more = paired_difference(other.score.kl, main.score.kl)
            assert more.mean > 2 * more.standard_error


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_on_tiny(tmp_path, seed):
    check_orders("tiny", tmp_path / "out", seed=seed)


@pytest.mark.slow
@pytest.mark.assets
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_on_smollm2(tmp_path, monkeypatch, fetched_cache, seed):
    monkeypatch.setenv("ICML25_CACHE_DIR", str(fetched_cache))
    sotu = store.path("sotu")
    texts = {}
    for name, years in (("calibration", range(1961, 1991)), ("evaluation", range(1991, 2022))):
        files = sorted(file for file in sotu.glob("*.txt") if int(file.name[:4]) in years)
        texts[name] = tmp_path / f"{name}.txt"
        texts[name].write_text("\n\n".join(file.read_text(encoding="utf-8") for file in files))
    check_orders(
        "smollm2-135m",
        tmp_path / "out",
        seed=seed,
        calibration=str(texts["calibration"]),
        evaluation=str(texts["evaluation"]),
        evaluation_tokens=8192,
    )
