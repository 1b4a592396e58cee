"""The paper's order on real models: NestQuant nearer to the float model than GPTQ, GPTQ than RTN, at no more bits.

By mean KL(float || quantised) per token, paired over evaluation windows, for every seed, with and without the same
rotation for all. Each difference has to be beyond twice its standard error.
"""

from itertools import pairwise
from pathlib import Path

import pytest

from icml25cli.core import store
from icml25cli.core.likelihood import paired_difference
from icml25cli.core.models import resolve
from icml25cli.papers.quantize.job import carry_out
from icml25cli.papers.quantize.plan import SCOPES, Options


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


def check_scopes(model: str, output: Path, **options) -> None:
    """Each scope adds error; at 4.000 bits the lattice adds less than half of what 4-bit integers add in all."""
    asked = Options(baselines=("absmax",), scopes=SCOPES, q=13, **options)
    with carry_out(resolve(model), asked, output=output) as job:
        judged = {(j.candidate.method.name, j.candidate.scope.name): j for j in job.judged if j.candidate}
    found = {key: j.score.kl for key, j in judged.items()}
    whole = SCOPES[-1]
    assert judged["nestquant", whole].bits_per_weight < judged["absmax", whole].bits_per_weight + 0.01  # scales' list
    ours, theirs = (judged[name, whole].kv.bits_each for name in ("nestquant", "absmax"))
    assert ours is not None
    assert theirs is not None
    assert ours <= theirs
    assert found["nestquant", whole].mean() < 0.5 * found["absmax", whole].mean()
    pairs = [(("nestquant", less), ("nestquant", more)) for less, more in pairwise(SCOPES)]
    pairs += [(("nestquant", scope), ("absmax", scope)) for scope in SCOPES]
    for better, worse in pairs:
        more = paired_difference(found[worse], found[better])
        assert more.mean > 2 * more.standard_error, (model, options, better, worse, more)


@pytest.fixture
def addresses(tmp_path, monkeypatch, fetched_cache) -> dict[str, str]:
    """Calibration and evaluation text for a model that was not trained on ours."""
    monkeypatch.setenv("ICML25_CACHE_DIR", str(fetched_cache))
    sotu = store.path("sotu")
    texts = {}
    for name, years in (("calibration", range(1961, 1991)), ("evaluation", range(1991, 2022))):
        files = sorted(file for file in sotu.glob("*.txt") if int(file.name[:4]) in years)
        texts[name] = tmp_path / f"{name}.txt"
        texts[name].write_text("\n\n".join(file.read_text(encoding="utf-8") for file in files))
    return {name: str(file) for name, file in texts.items()}


@pytest.mark.slow
@pytest.mark.parametrize("check", [check_orders, check_scopes])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_on_tiny(tmp_path, check, seed):
    check("tiny", tmp_path / "out", seed=seed)


@pytest.mark.slow
@pytest.mark.assets
@pytest.mark.parametrize("check", [check_orders, check_scopes])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_on_smollm2(tmp_path, addresses, check, seed):
    check(
        "smollm2-135m",
        tmp_path / "out",
        seed=seed,
        **addresses,
        calibration_tokens=8192,
        evaluation_tokens=3072,
        window=256,
    )
