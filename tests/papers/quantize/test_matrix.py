"""One matrix, every method: the published orders, exact accounting, what a reader of the codes gets, and bad input."""

import threading
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from icml25cli.core.errors import InputError
from icml25cli.papers.quantize import scalar
from icml25cli.papers.quantize.matrix import (
    NO_TOKENS,
    NOT_DEFINITE,
    absmax,
    dequantize,
    gptq,
    nestquant,
    nf4,
    quadratic,
    quantize_matrix,
    rtn,
)
from icml25cli.papers.quantize.rotation import KINDS, Rotation
from icml25cli.papers.quantize.voronoi import LatticeCode

CODE = LatticeCode(14, tuple(b / 14 for b in (3.47, 4.74, 6.90, 18.11)))
SIMPLIFIED = LatticeCode(14, CODE.betas, simplified=True)
METHODS = [nestquant(CODE), nestquant(CODE, ldlq=False), rtn(), gptq(), nf4(), absmax()]
LATTICE = {
    "ldlq": nestquant(CODE),
    "nearest": nestquant(CODE, ldlq=False),
    "entropy": nestquant(CODE, entropy=True),
    "simplified": nestquant(SIMPLIFIED),
    "simplified-entropy": nestquant(SIMPLIFIED, ldlq=False, entropy=True),
    "first": nestquant(LatticeCode(14, CODE.betas, rule="first")),
}
FEEDBACK = [nestquant(CODE), gptq()]
NAMES = [f"{method.name}-{method.calibrated}" for method in METHODS]


def layer(seed, m=256, n=512):
    """Heavy-tailed weights and correlated inputs with three outlier channels.

    The numbers make RTN, GPTQ and rotated GPTQ err about as on the layer of the specification; the lattice code's
    errors then follow.
    """
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(4096, n, generator=generator) / 2
    x += torch.randn(4096, 32, generator=generator) @ torch.randn(32, n, generator=generator) / 32**0.5
    x[:, torch.randperm(n, generator=generator)[:3]] *= 8
    tails = torch.randn(5, m, n, generator=generator).square().mean(0).sqrt()
    return torch.randn(m, n, generator=generator) / tails, x.T @ x / 4096


@pytest.fixture(scope="module")
def losses():
    """Relative proxy loss of each method and rotation, over the same six layers."""
    methods = {"e8": nestquant(CODE), "e8-rtn": nestquant(CODE, ldlq=False), "gptq": gptq(), "rtn": rtn()}
    found = {(name, kind): [] for name in methods for kind in ("none", "random-hadamard")}
    for seed in range(6):
        weight, hessian = layer(seed)
        for name, kind in found:
            done = quantize_matrix(weight, hessian, methods[name], Rotation(kind, 512, seed))
            found[name, kind].append(done.relative_proxy_loss)
    return {key: np.array(values) for key, values in found.items()}


@pytest.mark.parametrize(
    ("better", "worse"),
    [
        (("e8", "random-hadamard"), ("gptq", "random-hadamard")),
        (("gptq", "random-hadamard"), ("gptq", "none")),
        (("gptq", "none"), ("rtn", "none")),
        (("e8", "random-hadamard"), ("e8-rtn", "random-hadamard")),
        (("e8", "random-hadamard"), ("e8", "none")),
        (("e8-rtn", "random-hadamard"), ("e8-rtn", "none")),
        (("rtn", "random-hadamard"), ("rtn", "none")),
    ],
)
def test_orders_of_the_layer_test(losses, better, worse):
    gap = np.log(losses[worse]) - np.log(losses[better])  # paired over layers
    assert gap.mean() > 4 * gap.std(ddof=1) / len(gap) ** 0.5
    assert gap.mean() > np.log(1.1)


@pytest.mark.parametrize(
    ("key", "published"),
    [
        (("e8", "random-hadamard"), 0.00132),
        (("e8-rtn", "random-hadamard"), 0.00650),
        (("gptq", "random-hadamard"), 0.00196),
        (("gptq", "none"), 0.0044),
        (("rtn", "none"), 0.0173),
    ],
)
def test_losses_of_the_layer_test(losses, key, published):
    assert losses[key].mean() == pytest.approx(published, rel=0.08)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n", [64, 200, 20])
def test_an_identity_hessian_leaves_rounding(kind, n):
    weight = layer(0, 24, n)[0]
    rotation = Rotation(kind, n)
    for with_feedback, without in [(nestquant(CODE), nestquant(CODE, ldlq=False)), (gptq(), rtn())]:
        done = quantize_matrix(weight, torch.eye(n), with_feedback, rotation)
        assert done.damping == 0.01
        if kind in ("none", "hadamard"):  # R^T R is the identity only to rounding for the others
            plain = quantize_matrix(weight, torch.eye(n), without, rotation)
            torch.testing.assert_close(done.weight, plain.weight, atol=1e-5, rtol=0)


@pytest.mark.parametrize("method", METHODS, ids=NAMES)
@pytest.mark.parametrize("kind", ["none", "random-hadamard"])
def test_arguments_are_left_alone(method, kind):
    weight, hessian = layer(1, 16, 100)
    before = weight.clone(), hessian.clone()
    done = quantize_matrix(weight, hessian, method, Rotation(kind, 100))
    done.weight.zero_()  # nor is the result a view of them
    assert torch.equal(weight, before[0])
    assert torch.equal(hessian, before[1])


@pytest.mark.parametrize("method", METHODS, ids=NAMES)
@pytest.mark.parametrize("n", [5, 96, 200, 520])
def test_reported_errors_are_those_of_the_weight(method, n):
    weight, hessian = layer(2, 16, n)
    done = quantize_matrix(weight, hessian, method, Rotation("random-hadamard", n))
    error, exact, h = (weight - done.weight).double(), weight.double(), hessian.double()
    loss = (error @ h * error).sum() / (exact @ h * exact).sum()
    assert done.relative_proxy_loss == pytest.approx(float(loss), rel=1e-4)
    assert done.relative_mse == pytest.approx(float(error.square().sum() / exact.square().sum()), rel=1e-5)
    assert 1e-5 < done.relative_mse < 0.3


def test_quadratic_known_answer():
    rows = torch.tensor([[1.0, 2.0], [0.0, -1.0]])
    assert quadratic(rows, torch.tensor([[3.0, 1.0], [1.0, 5.0]])) == 3 + 4 + 20 + 5


def test_scalar_methods_quantise_what_is_rotated():
    weight, hessian = layer(3, 16, 160)
    rotation = Rotation("random-hadamard", 160, seed=4)
    done = quantize_matrix(weight, hessian, rtn(4, 64), rotation)
    expected = scalar.rtn(rotation.forward(weight), 4, 64).values
    torch.testing.assert_close(rotation.forward(done.weight), expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize("method", LATTICE.values(), ids=LATTICE)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n", [3, 8, 12, 100, 263, 576])
def test_a_reader_of_the_stored_codes_gets_the_same_bits(method, kind, n, tmp_path):
    weight, hessian = layer(4, 24, n)
    weight[5] = 0
    done = quantize_matrix(weight, hessian, method, Rotation(kind, n, seed=1))
    save_file(done.stored, tmp_path / "codes.safetensors")
    assert torch.equal(dequantize(load_file(tmp_path / "codes.safetensors"), done.meta), done.weight)
    assert not done.weight[5].any()


def test_the_number_of_threads_does_not_change_the_decoded_bits():
    weight, _ = layer(5, 300, 2048)
    done = quantize_matrix(weight, None, nestquant(CODE, ldlq=False), Rotation("random-hadamard", 2048))
    threads = torch.get_num_threads()
    try:
        for count in (1, 2):
            torch.set_num_threads(count)
            assert torch.equal(dequantize(done.stored, done.meta), done.weight)
    finally:
        torch.set_num_threads(threads)


@pytest.mark.parametrize("entropy", [False, True])
@pytest.mark.parametrize(("q", "k"), [(14, 4), (13, 4), (7, 1), (16, 5)])
@pytest.mark.parametrize("n", [512, 500, 3])
def test_bits_of_the_lattice_code_are_what_is_stored(q, k, n, entropy):
    code = LatticeCode(q, tuple(b / q for b in (3.5, 4.25, 5.25, 8.0, 18.0)[:k]))
    weight, hessian = layer(6, 16, n)
    done = quantize_matrix(weight, hessian, nestquant(code, entropy=entropy), Rotation("hadamard", n))
    held = sum(tensor.numel() * tensor.element_size() * 8 for tensor in done.stored.values())
    assert sum(done.bits.values()) == held + 32 * k  # the scales are in the configuration, not among the tensors
    assert all(isinstance(bits, int) and bits >= 0 for bits in done.bits.values())
    beta = 8 * done.stored["beta_zstd"].numel() if entropy else round(16 * -(-n // 8) * np.log2(k))
    assert done.bits["beta"] == beta
    assert done.bits["code"] == round(16 * n * np.log2(q))
    assert done.bits["scale"] == 16 * 16
    assert done.bits["zero_point"] == 0


def test_the_entropy_form_stores_the_same_weight_in_fewer_bits():
    weight, hessian = layer(6)
    rotation = Rotation("random-hadamard", 512)
    plain, packed = (quantize_matrix(weight, hessian, nestquant(CODE, entropy=on), rotation) for on in (False, True))
    assert torch.equal(plain.weight, packed.weight)
    # Rows of 32 pairs: 61 bits each, the scale indices at 1.5 bits a block, 16 bits of row scale.
    assert sum(packed.bits.values()) / weight.numel() == pytest.approx(4.00 + 16 / 512, abs=0.01)
    assert sum(plain.bits.values()) / weight.numel() == pytest.approx(33 / 8 + 16 / 512, abs=0.01)


def test_q_above_sixteen_is_refused_in_the_entropy_form_before_any_work():
    with pytest.raises(InputError, match="q = 17"):
        nestquant(LatticeCode(17, (0.25,)), entropy=True)


def test_the_simplified_decoder_and_first_fit_cost_what_they_cost_on_a_gaussian():
    weight = torch.randn(512, 4096, generator=torch.Generator().manual_seed(0))
    expected = {"nearest": 0.00646, "simplified": 0.00800, "first": 0.00649}
    for name, distortion in expected.items():
        done = quantize_matrix(weight, None, LATTICE[name], Rotation("none", 4096))
        assert done.relative_mse == pytest.approx(distortion, rel=0.01)
        assert sum(done.beta_histogram or ()) == 512 * 512
        assert done.overloads == 0


def test_bits_of_the_scalar_methods():
    weight, hessian = layer(6, 16, 500)
    rotation = Rotation("none", 500)
    grid = {
        "code": 4 * 16 * 500,
        "beta": 0,
        "scale": 16 * 16 * 4,
        "zero_point": 4 * 16 * 4,
        "codebook": 0,
        "padding": 0,
    }
    assert quantize_matrix(weight, hessian, rtn(4, 128), rotation).bits == grid
    assert quantize_matrix(weight, hessian, gptq(4, 128), rotation).bits == grid
    row = quantize_matrix(weight, hessian, rtn(3, None), rotation).bits
    assert (row["code"], row["scale"], row["zero_point"]) == (3 * 16 * 500, 16 * 16, 3 * 16)
    normal = quantize_matrix(weight, hessian, nf4(), rotation).bits
    assert (normal["code"], normal["scale"], normal["codebook"]) == (4 * 16 * 500, 16 * 16 * 8, 16 * 32)
    symmetric = quantize_matrix(weight, hessian, absmax(8), rotation).bits
    assert (symmetric["code"], symmetric["scale"], symmetric["zero_point"]) == (8 * 16 * 500, 16 * 16, 0)


def test_row_scales_are_root_mean_squares_in_half_precision():
    weight, hessian = layer(7, 16, 96)
    done = quantize_matrix(weight, hessian, nestquant(CODE), Rotation("random-hadamard", 96))
    assert torch.equal(done.stored["scales"], weight.double().square().mean(1).sqrt().half())
    assert done.beta_histogram is not None
    assert sum(done.beta_histogram) == 16 * 96 // 8


@pytest.mark.parametrize("factor", [1e-9, 1e7])
def test_row_scales_beyond_half_precision_are_kept_in_single_and_counted(factor):
    weight, hessian = layer(7, 16, 96)
    rotation = Rotation("random-hadamard", 96)
    done = quantize_matrix(weight * factor, hessian, nestquant(CODE), rotation)
    assert done.stored["scales"].dtype == torch.float32
    assert done.bits["scale"] == 32 * 16
    plain = quantize_matrix(weight, hessian, nestquant(CODE), rotation)
    assert done.relative_mse == pytest.approx(plain.relative_mse, rel=0.05)
    assert torch.equal(dequantize(done.stored, done.meta), done.weight)


@pytest.mark.parametrize("method", METHODS, ids=NAMES)
def test_degenerate_matrices(method):
    for weight in (torch.zeros(4, 24), torch.ones(4, 24), torch.eye(4, 24), torch.full((1, 1), -2.0)):
        n = weight.shape[1]
        for kind in ("none", "random-hadamard"):
            done = quantize_matrix(weight, torch.eye(n), method, Rotation(kind, n))
            assert done.weight.isfinite().all()
            assert done.fallback is None
            assert done.relative_mse < 0.2
            assert bool(done.weight.any()) == bool(weight.any())


@settings(max_examples=40, deadline=None)
@given(m=st.integers(1, 6), n=st.integers(1, 70), kind=st.sampled_from(KINDS), seed=st.integers(0, 99))
def test_any_shape_can_be_quantised_and_read(m, n, kind, seed):
    weight, hessian = layer(seed, m, n + 3)
    weight, hessian = weight[:, :n].contiguous(), hessian[:n, :n].contiguous()
    done = quantize_matrix(weight, hessian, nestquant(CODE), Rotation(kind, n, seed))
    assert done.weight.shape == (m, n)
    assert done.fallback is None
    assert torch.equal(dequantize(done.stored, done.meta), done.weight)
    assert done.relative_mse < 0.2


def test_overloads_are_counted():
    weight = torch.ones(2, 4096)
    weight[0, 100] = 1e4  # 64 times the root mean square of its row; the code of q = 14 reaches about 10
    done = quantize_matrix(weight, None, nestquant(CODE, ldlq=False), Rotation("none", 4096))
    assert done.overloads == 1
    turned = quantize_matrix(weight, None, nestquant(CODE, ldlq=False), Rotation("random-hadamard", 4096))
    assert turned.overloads == 0
    assert turned.relative_mse < done.relative_mse / 10


@pytest.mark.parametrize("method", FEEDBACK, ids=["nestquant", "gptq"])
@pytest.mark.parametrize(
    ("hessian", "reason"), [(-torch.eye(96), NOT_DEFINITE), (torch.zeros(96, 96), NO_TOKENS), (None, NO_TOKENS)]
)
def test_without_a_usable_hessian_rounding_is_used_and_said(method, hessian, reason):
    weight, _ = layer(8, 16, 96)
    rotation = Rotation("random-hadamard", 96)
    plain = nestquant(CODE, ldlq=False) if method.name == "nestquant" else rtn()
    done, expected = (quantize_matrix(weight, hessian, each, rotation) for each in (method, plain))
    assert done.fallback == reason
    assert done.damping is None
    assert torch.equal(done.weight, expected.weight)
    assert expected.fallback is None  # a method without feedback has nothing to fall back from
    assert (done.relative_proxy_loss is None) == (hessian is None)


@pytest.mark.parametrize("method", FEEDBACK, ids=["nestquant", "gptq"])
def test_dead_inputs_and_grown_damping(method):
    weight, hessian = layer(9, 16, 96)
    rotation = Rotation("none", 96)
    hessian[[3, 40]] = 0
    hessian[:, [3, 40]] = 0
    done = quantize_matrix(weight, hessian, method, rotation)
    assert (done.fallback, done.damping) == (None, 0.01)
    assert done.weight.isfinite().all()
    # One input with negative energy of 5 % of the mean: 0.01 does not lift it, 0.1 does.
    hessian[3, 3] = -0.05 * hessian.diagonal().mean()
    done = quantize_matrix(weight, hessian, method, rotation)
    assert done.damping == pytest.approx(0.1)
    assert quantize_matrix(weight, hessian, method, rotation, damping=0.2).damping == 0.2


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_values_that_are_not_finite_name_the_tensor(bad):
    weight, hessian = layer(10, 8, 24)
    rotation = Rotation("none", 24)
    hessian[0, 0] = bad
    with pytest.raises(InputError, match=r"Hessian of model\.layers\.0\.q_proj\.weight"):
        quantize_matrix(weight, hessian, rtn(), rotation, name="model.layers.0.q_proj.weight")
    weight[3, 4] = bad
    with pytest.raises(InputError, match=r"^model\.layers\.0\.q_proj\.weight"):
        quantize_matrix(weight, None, rtn(), rotation, name="model.layers.0.q_proj.weight")


def test_shapes_that_disagree_are_refused():
    weight, hessian = layer(10, 8, 24)
    with pytest.raises(InputError, match=r"down_proj has shape \(23, 23\)"):
        quantize_matrix(weight, hessian[:23, :23], rtn(), Rotation("none", 24), name="down_proj")
    with pytest.raises(InputError, match="width 16"):
        quantize_matrix(weight, hessian, rtn(), Rotation("hadamard", 16))


def test_damaged_codes_are_refused():
    weight, hessian = layer(11, 8, 24)
    done = quantize_matrix(weight, hessian, nestquant(CODE), Rotation("hadamard", 24))
    stored, meta = done.stored, done.meta
    for spoilt in (
        {"codes": stored["codes"]},
        stored | {"scales": stored["scales"][:-1]},
        stored | {"scales": torch.full((8,), float("nan"))},
        {name: tensor for name, tensor in stored.items() if name != "codes"},
        stored | {"codes_high": torch.full_like(stored["codes_high"], 255)},
        stored | {"codes": stored["codes"].view(torch.int32)},
        stored | {"codes": stored["codes"].to(torch.float8_e4m3fn)},
        stored | {"scales": stored["scales"].bfloat16()},
        stored | {"scales": torch.ones(8, dtype=torch.float8_e4m3fn)},
        stored | {"scales": torch.ones(8, 1)},
    ):
        with pytest.raises(InputError):
            dequantize(spoilt, meta)
    with pytest.raises(InputError, match=r"do not fit 8 rows of 32 weights"):
        dequantize(stored, meta | {"rotation": Rotation("hadamard", 32).spec()})
    for field, change in (
        ("q", {"method": meta["method"] | {"q": "14"}}),
        ("betas", {"method": meta["method"] | {"betas": 0.5}}),
        ("n", {"rotation": meta["rotation"] | {"n": 1e999}}),
        ("rotation", {"rotation": None}),
    ):
        with pytest.raises(InputError, match=f"the field {field} is missing or of another type"):
            dequantize(stored, meta | change)
    packed = quantize_matrix(weight, hessian, nestquant(CODE, entropy=True), Rotation("hadamard", 24))
    for spoilt in (
        stored,
        packed.stored | {"beta_zstd": packed.stored["beta_zstd"][:-1]},
        packed.stored | {"beta_zstd": torch.zeros_like(packed.stored["beta_zstd"])},
        {name: tensor for name, tensor in packed.stored.items() if name != "beta_zstd"},
    ):
        with pytest.raises(InputError):
            dequantize(spoilt, packed.meta)
    with pytest.raises(InputError):
        dequantize(packed.stored, meta)
    with pytest.raises(InputError, match="entropy"):
        dequantize(stored, meta | {"method": meta["method"] | {"entropy": 1}})
    with pytest.raises(InputError, match="pairs of blocks"):
        dequantize(packed.stored, packed.meta | {"rotation": Rotation("hadamard", 64).spec()})
    with pytest.raises(InputError, match="the field q is missing"):
        dequantize({}, quantize_matrix(weight, hessian, rtn(), Rotation("hadamard", 24)).meta)


def test_specs_are_json_and_tell_methods_apart():
    others = (*list(LATTICE.values())[2:], rtn(3), rtn(4, 64), nestquant(LatticeCode(13, CODE.betas)))
    specs = [method.spec() for method in (*METHODS, *others)]
    assert specs[0] == {"name": "nestquant", "q": 14, "betas": list(CODE.betas), "ldlq": True}
    assert len({repr(spec) for spec in specs}) == len(specs)
    assert [method.calibrated for method in METHODS] == [True, False, False, True, False, False]


def anonymous_memory():
    """Bytes that are this process's own, mapped files left out."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * int(next(line.split()[1] for line in lines if line.startswith("RssAnon")))


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux to read its own memory")
@pytest.mark.parametrize("method", FEEDBACK, ids=["nestquant", "gptq"])
def test_a_wide_layer_adds_at_most_600_megabytes(method):
    n = 5632
    weight = torch.randn(2048, n)
    hessian = torch.eye(n) + 0.1
    rotation = Rotation("random-hadamard", n)
    before, peak, done = anonymous_memory(), 0, threading.Event()

    def watch():
        nonlocal peak
        while not done.wait(0.005):
            peak = max(peak, anonymous_memory())

    watcher = threading.Thread(target=watch)
    watcher.start()
    quantize_matrix(weight, hessian, method, rotation)
    done.set()
    watcher.join()
    assert peak - before < 600e6
