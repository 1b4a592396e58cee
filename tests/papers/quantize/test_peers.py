"""Other libraries' rows: their own codes at their own size where they are installed, and a word where they are not."""

import warnings
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import pytest
import torch

from icml25cli.core.models import resolve
from icml25cli.core.streaming import StreamedModel
from icml25cli.papers.quantize import peers
from icml25cli.papers.quantize.matrix import Coded, quantize_matrix
from icml25cli.papers.quantize.peers import PEERS, Peer, peer, usable
from icml25cli.papers.quantize.plan import Options, make_plan
from icml25cli.papers.quantize.rotation import Rotation
from icml25cli.papers.quantize.scalar import nf4, rtn


def installed(name):
    try:
        version(PEERS[name].package)
    except PackageNotFoundError:
        return False
    return True


def needs(name):
    return pytest.mark.skipif(not installed(name), reason=f"needs {PEERS[name].package}: pip install -e '.[peers]'")


each_library = pytest.mark.parametrize("name", [pytest.param(name, marks=needs(name)) for name in PEERS])


def gaussian(m, n, seed=0):
    return torch.randn(m, n, generator=torch.Generator().manual_seed(seed))


def relative_mse(values, weight):
    return float((values - weight).square().sum() / weight.square().sum())


def absent(package):
    raise PackageNotFoundError(package)


def code_of(name, weight):
    return peer(name).quantize(weight, None, 0.01)


# --- which rows there are ----------------------------------------------------------------------------------------


def test_a_library_that_is_absent_is_named_and_left_out(monkeypatch):
    monkeypatch.setattr(peers, "version", absent)
    message = "^quanto is not installed, its row is left out: pip install optimum-quanto$"
    with pytest.warns(UserWarning, match=message) as said:
        assert usable(("rtn", "quanto", "gptq")) == ("rtn", "gptq")
    assert len(said) == 1


def test_a_run_goes_on_without_absent_libraries(monkeypatch):
    monkeypatch.setattr(peers, "version", absent)
    options = Options(baselines=("rtn", "peers"), betas="ref", calibration_tokens=64, evaluation_tokens=64, window=32)
    with pytest.warns(UserWarning, match="its row is left out") as said:
        plan, _ = make_plan(StreamedModel(resolve("tiny")), options)
    assert [candidate.method.name for candidate in plan.candidates] == ["nestquant", "rtn"]
    assert [str(warning.message).split()[0] for warning in said] == list(PEERS)


def test_a_library_that_fails_here_is_named_with_the_first_line_of_its_error(monkeypatch):
    def fails(_):
        raise RuntimeError("no kernel for this processor\nbuilt for another")

    monkeypatch.setitem(PEERS, "hqq", Peer("pytest", {}, fails))
    message = f"^pytest {version('pytest')} does not work here, its row is left out: no kernel for this processor$"
    with pytest.warns(UserWarning, match=message):
        assert usable(("hqq",)) == ()


def test_peers_are_all_of_them_and_each_once(monkeypatch):
    for name in PEERS:
        monkeypatch.setitem(PEERS, name, Peer("pytest", {}, lambda weight: Coded(weight, {})))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert usable(("hqq", "rtn", "peers")) == ("hqq", "rtn", "torchao", "quanto", "bitsandbytes")


def test_another_version_is_another_method(monkeypatch):
    specs = []
    for release in ("1.0", "1.1"):
        monkeypatch.setattr(peers, "version", lambda package, release=release: f"{package}-{release}")
        specs.append(peer("quanto").spec())
    assert specs[0] == {"name": "quanto", "version": "optimum-quanto-1.0", "bits": 4, "group_size": 128}
    assert specs[1] == specs[0] | {"version": "optimum-quanto-1.1"}


def test_a_matrix_that_a_library_refuses_stays_as_it_is_at_its_size(monkeypatch):
    def refuses(_):
        raise ValueError("odd rows")

    monkeypatch.setitem(PEERS, "hqq", Peer("pytest", {}, refuses))
    weight = gaussian(3, 16)
    done = quantize_matrix(weight, None, peer("hqq"), Rotation("none", 16))
    assert torch.equal(done.weight, weight)
    assert sum(done.bits.values()) == 32 * weight.numel()
    assert done.fallback == "left in float, as pytest says: odd rows"


# --- what the libraries make of a matrix -------------------------------------------------------------------------


@each_library
def test_error_on_gaussian_weights(name):
    weight = gaussian(512, 1024)
    found = relative_mse(code_of(name, weight).values, weight)
    # An asymmetric grid by 128 has 0.0100; half-quadratic quantisation betters the grid by 64 that it starts from.
    expected = {
        "hqq": 0.91 * relative_mse(rtn(weight, 4, 64).values, weight),
        "torchao": 0.0100,
        "quanto": 0.0100,
        "bitsandbytes": relative_mse(nf4(weight).values, weight),
    }
    assert found == pytest.approx(expected[name], rel=0.025)


@each_library
def test_a_matrix_is_left_alone_and_any_shape_comes_back(name):
    for shape in ((1, 1), (3, 7), (5, 24), (16, 96), (33, 64), (48, 100), (256, 704), (64, 1088)):
        weight = gaussian(*shape)
        before = weight.clone()
        done = code_of(name, weight)
        assert torch.equal(weight, before)
        assert done.values.shape == shape
        assert done.values.dtype == torch.float32
        assert relative_mse(done.values, weight) < 0.016


@each_library
def test_zeros_stay_zeros(name):
    assert not code_of(name, torch.zeros(128, 256)).values.any()


@needs("hqq")
def test_hqq_is_its_linear_layer():
    from hqq.core.quantize import BaseQuantizeConfig, HQQLinear

    weight = gaussian(96, 192)
    layer = HQQLinear.from_weights(weight.clone(), None, BaseQuantizeConfig(nbits=4, group_size=64), device="cpu")
    done = code_of("hqq", weight)
    assert torch.equal(done.values, layer.dequantize().float())
    parts = {"code": layer.W_q, "scale": layer.meta["scale"], "zero_point": layer.meta["zero"]}
    assert {part: bits for part, bits in done.bits.items() if bits} == {k: 8 * t.nbytes for k, t in parts.items()}
    assert sum(done.bits.values()) == 4.5 * weight.numel()


@needs("torchao")
def test_torchao_is_its_linear_layer():
    from torchao.prototype.quantization.int4 import PrototypeInt4WeightOnlyConfig
    from torchao.quantization import quantize_

    weight = gaussian(64, 1408)  # 1024 columns and 384, which are more than one panel
    layer = torch.nn.Linear(1408, 64, bias=False, dtype=torch.bfloat16)
    with torch.no_grad():
        layer.weight.copy_(weight)
    quantize_(layer, PrototypeInt4WeightOnlyConfig(group_size=128))
    done = code_of("torchao", weight)
    with torch.no_grad():
        assert torch.equal(done.values, layer(torch.eye(1408, dtype=torch.bfloat16)).T.float())
    stored: Any = layer.weight
    assert done.bits["code"] == 8 * stored.qdata.nbytes
    assert done.bits["scale"] + done.bits["zero_point"] == 8 * stored.scale_and_zero.nbytes
    assert sum(done.bits.values()) == 4.25 * weight.numel()


@needs("quanto")
def test_quanto_is_its_linear_layer():
    from optimum.quanto import QLinear, qint4

    weight = gaussian(48, 288)  # by 96
    layer = torch.nn.Linear(288, 48, bias=False, dtype=torch.float16)
    with torch.no_grad():
        layer.weight.copy_(weight)
    quantized = QLinear.from_module(layer, weights=qint4)
    quantized.freeze()
    stored = quantized.weight
    packed = stored._data._data
    codes = torch.cat([packed & 15, packed >> 4])  # instead of its unpacking, which would compile C++
    values = (stored._scale * codes - stored._shift).view(48, 288)
    done = code_of("quanto", weight)
    assert torch.equal(done.values, values.float())
    parts = {"code": packed, "scale": stored._scale, "zero_point": stored._shift}
    assert {part: bits for part, bits in done.bits.items() if bits} == {k: 8 * t.nbytes for k, t in parts.items()}
    assert sum(done.bits.values()) == 4 * weight.numel() + 32 * weight.numel() // 96
    assert done.fallback == "a group is 96 of its 288 columns, usually 128"


@needs("bitsandbytes")
def test_bitsandbytes_is_its_linear_layer():
    from bitsandbytes.functional import dequantize_4bit
    from bitsandbytes.nn import Params4bit

    weight = gaussian(128, 320)
    stored = Params4bit(weight.clone(), blocksize=64, compress_statistics=True, quant_type="nf4").to("cpu")
    done = code_of("bitsandbytes", weight)
    assert torch.equal(done.values, dequantize_4bit(stored.data, stored.quant_state))
    tensors = {k: t for k, t in stored.quant_state.as_dict(packed=True).items() if not k.startswith("quant_state")}
    maxima = [t.nbytes for k, t in tensors.items() if k.endswith("absmax")]
    levels = [t.nbytes for k, t in tensors.items() if k.endswith("quant_map")]
    assert len(maxima) == len(levels) == len(tensors) / 2 == 2
    assert done.bits["code"] == 8 * stored.data.nbytes == 4 * weight.numel()
    assert done.bits["scale"] == 8 * (sum(maxima) + 4)  # and the mean of the maxima, which its description holds
    assert done.bits["codebook"] == 8 * sum(levels)


@needs("bitsandbytes")
def test_rows_that_are_not_whole_blocks_come_back_right():
    weight = gaussian(100, 1568)  # its own kernel, given this shape, errs by 0.06
    assert relative_mse(code_of("bitsandbytes", weight).values, weight) < 0.0090
