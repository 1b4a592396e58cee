"""Keys, values and activations quantised beside weights: the streamed model is the whole one, noise is what it says."""

from pathlib import Path

import pytest
import torch
from torch import Tensor

from icml25cli.core import blockwise
from icml25cli.core.errors import InputError
from icml25cli.core.models import load_model, resolve
from icml25cli.core.runs import Run
from icml25cli.core.streaming import StreamedModel
from icml25cli.papers.quantize.kv_cache import KVCache
from icml25cli.papers.quantize.matrix import Coded, Method, Noise, absmax, nestquant, quantize_matrix
from icml25cli.papers.quantize.model import Judged, quantize_model
from icml25cli.papers.quantize.packing import block_bits
from icml25cli.papers.quantize.pipeline import Candidate, NoiseModel, Plan, Scope
from icml25cli.papers.quantize.plan import Options, make_plan
from icml25cli.papers.quantize.rotation import Rotation
from icml25cli.papers.quantize.scales import reference_code
from icml25cli.papers.quantize.vectors import AbsmaxVectors, LatticeVectors
from icml25cli.papers.quantize.voronoi import LatticeCode
from tests.make_models import make_model

KEYS = LatticeVectors(reference_code("keys", 14), "random-hadamard")
VALUES = LatticeVectors(reference_code("values", 14))
ACTIVATIONS = LatticeVectors(reference_code("activations", 14), "random-hadamard")
KV = Scope("w+kv", (KEYS, VALUES))
KVA = Scope("w+kv+a", (KEYS, VALUES), ACTIVATIONS)
ROTATION = "random-hadamard"


def tokens(*shape: int, seed: int = 0) -> Tensor:
    return torch.randint(0, 256, shape, generator=torch.Generator().manual_seed(seed))


def judge(directory: Path, work: Path, *candidates: Candidate) -> list[Judged]:
    model = StreamedModel(resolve(directory))
    plan = Plan(candidates, calibration=tokens(4, 32), evaluation=tokens(3, 24, seed=1))
    with Run.open(work, {}) as run:
        return list(quantize_model(model, plan, run))


def nll(model: torch.nn.Module, ids: Tensor, **how) -> Tensor:
    with torch.no_grad():
        logits = model(ids, **how).logits[:, :-1].double()
    return torch.nn.functional.cross_entropy(logits.transpose(1, 2), ids[:, 1:], reduction="none").sum(dim=1)


@pytest.mark.parametrize("family", ["llama", "gpt2", "gemma2", "phi", "qwen3", "gpt_neox"])
def test_scoring_block_by_block_is_the_whole_model_with_its_cache_and_hooks(tmp_path, family):
    """Weights stay as they are, so that the whole model need not be rebuilt from codes."""
    directory = make_model(tmp_path / "m", family)
    same = Method("same", False, {}, lambda weight, *_: Coded(weight, {"code": 32 * weight.numel()}))
    kv, kva, *_ = judge(directory, tmp_path / "run", Candidate(same, "none", KV), Candidate(same, "none", KVA))
    model = load_model(resolve(directory)).eval()
    ids = tokens(3, 24, seed=1)
    torch.testing.assert_close(kv.score.nll, nll(model, ids, cache=KVCache(KEYS, VALUES)), rtol=1e-4, atol=0)
    blocks = StreamedModel(resolve(directory))
    for index in range(blocks.block_count):
        name = blocks.block_prefix(index).rstrip(".")
        name = name if any(n == name for n, _ in model.named_modules()) else f"{model.base_model_prefix}.{name}"
        for linear in blocks.linears(model.get_submodule(name)).values():
            linear.module.register_forward_pre_hook(lambda _, args: (ACTIVATIONS.roundtrip(args[0])[0], *args[1:]))
    torch.testing.assert_close(kva.score.nll, nll(model, ids, cache=KVCache(KEYS, VALUES)), rtol=1e-4, atol=0)
    assert kva.kv.bits_each == kv.kv.bits_each == (KEYS.bits(8) + VALUES.bits(8)) / 2
    assert kv.activations.bits_each is None


def test_scopes_share_weights_and_only_add_error(tmp_path):
    method = nestquant(reference_code("weights", 14))
    judged = judge(
        make_model(tmp_path / "m"), tmp_path / "run", *(Candidate(method, ROTATION, s) for s in (Scope(), KV, KVA))
    )
    kl = [j.score.mean_kl.mean for j in judged[:3]]
    assert kl == sorted(kl)
    assert kl[0] < 0.5 * kl[2]
    assert judged[0].tensors == judged[1].tensors == judged[2].tensors


def test_a_block_without_a_cache_is_refused_by_name(tmp_path):
    with pytest.raises(InputError, match="cache"):
        judge(make_model(tmp_path / "m", "openai-gpt"), tmp_path / "run", Candidate(absmax(4), "none", KV))


def test_an_activation_that_overflows_is_found_in_its_block(tmp_path):
    model = load_model(resolve(make_model(tmp_path / "m")))
    with torch.no_grad():
        model.get_parameter("model.layers.1.input_layernorm.weight").fill_(1e30)
        model.get_parameter("model.layers.1.self_attn.v_proj.weight").mul_(1e9)
    model.save_pretrained(tmp_path / "m")
    with pytest.raises(InputError, match=r"model\.layers\.1\."):
        judge(tmp_path / "m", tmp_path / "run", Candidate(absmax(4), "none", KV))


@pytest.mark.parametrize("kind", ["white", "normalized", "diagonal", "full"])
def test_every_model_of_the_noise_finds_about_as_much_as_the_code_makes(tmp_path, kind):
    directory = make_model(tmp_path / "m")
    method = nestquant(reference_code("weights", 14))
    aware = Candidate(method, ROTATION, KVA, NoiseModel(kind, 1 / 155))
    judged = judge(directory, tmp_path / "run", aware)[0]
    # What the noise costs, D, and what weights cost, at most D: in block 0, for there is no measured noise from before.
    for tensor in judged.tensors[:3]:
        assert 0.5 / 155 < tensor["relative_noisy_loss"] < 2.5 / 155


def test_measured_noise_of_an_exact_code_leaves_the_weights_alone(tmp_path):
    """At layer 0 nothing came before; with fine codes for activations, too, J is next to nothing."""
    directory = make_model(tmp_path / "m")
    fine = LatticeVectors(LatticeCode(200, (0.1,)))
    method = nestquant(reference_code("weights", 14))
    scope = Scope("w+kv+a", (fine, fine), fine)
    plain, full = judge(
        directory,
        tmp_path / "run",
        Candidate(method, ROTATION),
        Candidate(method, ROTATION, scope, NoiseModel("full", 0)),
    )[:2]
    for one, other in zip(plain.tensors[:3], full.tensors[:3], strict=True):  # query, key, value of block 0
        assert other["relative_proxy_loss"] == pytest.approx(one["relative_proxy_loss"], rel=0.2)


# --- the formula ------------------------------------------------------------------------------------------------------


def layer(seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    m, n, tokens = 64, 96, 4000
    mix = torch.eye(n) + torch.randn(n, n, generator=generator) / n**0.5
    x = torch.randn(tokens, n, generator=generator) @ mix
    return torch.randn(m, n, generator=generator), x, x.T @ x / tokens


def test_the_best_matrix_for_noisy_inputs_is_the_regression_on_them():
    weight, x, hessian = layer()
    z = 0.3 * torch.randn(x.shape, generator=torch.Generator().manual_seed(9)) * torch.linspace(0.1, 2, x.shape[1])
    z -= x @ torch.linalg.lstsq(x, z).solution  # independent in this very sample
    noise = Noise(hessian, z.T @ z / len(z))
    wanted = torch.linalg.lstsq(x + z, x @ weight.T).solution.T
    torch.testing.assert_close(noise.best(weight), wanted, rtol=1e-3, atol=1e-3)
    error = (x @ weight.T - (x + z) @ wanted.T).square().sum() / (x @ weight.T).square().sum()
    assert noise.loss(weight, wanted) == pytest.approx(float(error), rel=1e-3)


def test_no_noise_changes_nothing():
    weight, _, hessian = layer()
    torch.testing.assert_close(Noise(hessian, torch.zeros(96)).best(weight), weight, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("form", ["white", "diagonal", "full"])
def test_qa_ldlq_always_has_less_loss_on_noisy_inputs_than_ldlq(seed, form):
    weight, x, hessian = layer(seed)
    z = ACTIVATIONS.roundtrip(x)[0] - x
    covariance = z.T @ z / len(z)
    j = {
        "white": (hessian.diagonal().mean() / 155).expand(96),
        "diagonal": covariance.diagonal(),
        "full": covariance,
    }[form]
    noise, method, rotation = Noise(hessian, j), nestquant(reference_code("weights", 14)), Rotation(ROTATION, 96)
    plain = quantize_matrix(weight, hessian, method, rotation)
    aware = quantize_matrix(weight, hessian, method, rotation, noise=noise)
    assert aware.relative_noisy_loss is not None
    assert aware.relative_noisy_loss < noise.loss(weight, plain.weight)


# --- from options to candidates ---------------------------------------------------------------------------------------


def test_options_become_candidates_with_codes_fitted_to_each_kind(tmp_path):
    model = StreamedModel(resolve(make_model(tmp_path / "m")))
    text = tmp_path / "text.txt"
    text.write_text("".join(f"{i * i} and {i * 7 % 13}; " for i in range(3000)))
    other = tmp_path / "other.txt"
    other.write_text("".join(f"{chr(97 + i % 26)}{chr(97 + i * 5 % 23)} " for i in range(3000)))
    options = Options(
        baselines=("absmax", "nestquant-m"),
        scopes=("w", "w+kv+a"),
        q=13,
        qa="white",
        calibration=str(text),
        evaluation=str(other),
        calibration_tokens=2048,
        evaluation_tokens=512,
        window=64,
    )
    plan, facts = make_plan(model, options)
    names = [(c.method.name, c.scope.name) for c in plan.candidates]
    assert names == [(m, s) for m in ("nestquant", "absmax", "nestquant-m") for s in ("w", "w+kv+a")]
    main, whole, _, scalar, *_ = plan.candidates
    assert main.noise is None
    assert whole.noise is not None
    assert whole.noise.kind == "white"
    assert 0.9 < 14**2 / 13**2 / 155 / whole.noise.distortion < 1.5  # D of a fitted code, no worse than the paper's
    assert whole.scope.keys_values is not None
    keys, values = whole.scope.keys_values
    assert isinstance(keys, LatticeVectors)
    assert isinstance(values, LatticeVectors)
    assert (keys.rotation, values.rotation) == (ROTATION, "none")
    assert keys.code != values.code
    assert keys.code.q == 13
    assert scalar.scope.activations == AbsmaxVectors(4, ROTATION)
    assert {row["for"] for row in facts.codes} == {"weights", "keys", "values", "activations"}
    simplified = next(c for c in plan.candidates if c.method.name == "nestquant-m")
    assert simplified.method.options["simplified"]


def test_a_rate_chooses_q_and_k(tmp_path):
    model = StreamedModel(resolve("tiny"))
    options = Options(baselines=(), rate=4.0, calibration_tokens=1024, evaluation_tokens=1024)
    plan, facts = make_plan(model, options)
    assert facts.codes[0]["raw_bits"] <= 4.0
    spec = plan.candidates[0].method.options
    assert spec["q"] == 13
    assert block_bits(13, len(spec["betas"])) == 32


# --- interruption ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cut", ["block-0000", "block-0001", "block-0002", "scores.safetensors"])
def test_a_run_cut_short_before_any_unit_ends_bit_for_bit_as_if_it_had_not_been(tmp_path, monkeypatch, cut):
    monkeypatch.setattr(blockwise, "EVERY", 0.0)
    directory = make_model(tmp_path / "m")
    method = nestquant(reference_code("weights", 14))
    candidates = (Candidate(method, ROTATION, KVA, NoiseModel("full", 1 / 155)), Candidate(absmax(4), ROTATION, KVA))
    model = StreamedModel(resolve(directory))
    plan = Plan(candidates, calibration=tokens(4, 32), evaluation=tokens(3, 24, seed=1))

    class CutShort(Exception):
        pass

    def units(work: Path) -> dict[str, bytes]:
        kept = [p for p in work.rglob("*") if p.is_file() and p.suffix == ".safetensors"]
        return {str(p.relative_to(work)): p.read_bytes() for p in kept}

    with Run.open(tmp_path / "whole", {}) as run:
        whole = quantize_model(model, plan, run)

    def work_until_cut() -> None:
        with Run.open(tmp_path / "cut", {}) as run:
            write = run.write

            def stop(name, how):
                if name == cut:
                    raise CutShort
                write(name, how)

            monkeypatch.setattr(run, "write", stop)
            quantize_model(model, plan, run)

    with pytest.raises(CutShort):
        work_until_cut()
    with Run.open(tmp_path / "cut", {}, resume=True) as run:
        resumed = quantize_model(model, plan, run)
    assert units(tmp_path / "cut") == units(tmp_path / "whole")
    for one, other in zip(whole, resumed, strict=True):
        assert torch.equal(one.score.nll, other.score.nll)
        assert torch.equal(one.score.kl, other.score.kl)
