"""Arrays through the file: error, size, and every way a file can lie."""

import json
import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.numpy import load_file, save_file
from safetensors.torch import save_file as save_torch

from icml25cli.core.errors import InputError, OutputError
from icml25cli.papers.quantize.arrays import EncodedArray, encode_array, sample_blocks
from icml25cli.papers.quantize.rotation import Rotation
from icml25cli.papers.quantize.scales import reference_code
from icml25cli.papers.quantize.voronoi import LatticeCode

CODE = reference_code("weights", 14)


def normal(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)


def relative(x, y):
    x, y = x.astype(np.float64), y.astype(np.float64)
    return ((x - y) ** 2).sum() / (x**2).sum()


DECODE = """
import sys
import numpy as np
from icml25cli.papers.quantize.arrays import EncodedArray
np.save(sys.argv[2], EncodedArray.load(sys.argv[1]).decode())
"""


@pytest.mark.parametrize("kind", [None, "random-hadamard"])
def test_another_process_decodes_the_file_to_the_encoders_error(tmp_path, kind):
    x = normal(300, 200) * np.exp2(np.arange(300) % 20)[:, None].astype(np.float32)
    encoded = encode_array(x, CODE, kind and Rotation(kind, 200, seed=3))
    encoded.save(tmp_path / "x.nq")
    subprocess.run([sys.executable, "-c", DECODE, tmp_path / "x.nq", tmp_path / "x.npy"], check=True)
    error = relative(x, np.load(tmp_path / "x.npy"))
    assert error == pytest.approx(encoded.relative_mse, rel=1e-6, abs=1e-6)
    assert error == pytest.approx(0.00691, rel=0.02)


def test_code_scale_index_row_scale_and_padding_sum_to_the_file(tmp_path):
    x = normal(700, 1001)
    for q, betas in ((14, CODE.betas), (13, (0.3, 0.4, 0.5, 1.3)), (7, (0.5, 2.5))):
        encoded = encode_array(x, LatticeCode(q, betas))
        encoded.save(tmp_path / f"{q}.nq")
        bits = encoded.bits
        stored = 8 * (encoded.scales.nbytes + sum(array.nbytes for array in encoded.packed.values()))
        assert bits.code + bits.beta + bits.scale + bits.padding == pytest.approx(stored, abs=1e-3)
        assert bits.total == pytest.approx(8 * (tmp_path / f"{q}.nq").stat().st_size, rel=0.01)
        assert bits.scale == 16 * 700


@given(
    seed=st.integers(0, 2**32 - 1),
    n=st.integers(1, 9),
    d=st.integers(1, 40),
    dtype=st.sampled_from(["float16", "float32", "float64"]),
    rotated=st.booleans(),
)
@settings(deadline=None, max_examples=60)
def test_any_shape_and_dtype_comes_back_near(seed, n, d, dtype, rotated):
    x = normal(n, d, seed=seed).astype(dtype)
    back = encode_array(x, CODE, Rotation("random-hadamard", d, seed=1) if rotated else None).decode()
    assert (back.shape, back.dtype) == (x.shape, x.dtype)
    # A cell reaches at most the covering radius 1 of E8 from its point, here at β_k or below.
    rows = np.sqrt((x.astype(float) ** 2).mean(1))
    assert (np.linalg.norm(x.astype(float) - back, axis=1) <= rows * CODE.betas[-1] * np.sqrt(-(-d // 8)) * 1.01).all()


def test_a_vector_is_one_row(tmp_path):
    x = normal(100)
    encode_array(x, CODE).save(tmp_path / "v.nq")
    back = EncodedArray.load(tmp_path / "v.nq").decode()
    np.testing.assert_array_equal(back, encode_array(x[None], CODE).decode()[0])
    assert back.shape == (100,)


def test_the_simplified_code_is_read_as_what_it_is(tmp_path):
    x = normal(50, 24)
    encoded = encode_array(x, LatticeCode(14, CODE.betas, simplified=True))
    encoded.save(tmp_path / "x.nq")
    read = EncodedArray.load(tmp_path / "x.nq")
    assert read.code.simplified
    assert np.array_equal(read.decode(), encoded.decode())
    assert relative(x, read.decode()) == pytest.approx(encoded.relative_mse, rel=1e-5)


def test_zero_rows_stay_zero():
    x = normal(5, 24)
    x[[0, 3]] = 0
    encoded = encode_array(x, CODE, Rotation("hadamard", 24))
    back = encoded.decode()
    assert not back[[0, 3]].any()
    assert encoded.scales[0] == 0
    assert relative(x, back) < 0.02
    zeros = encode_array(np.zeros((2, 3)), CODE)
    assert zeros.relative_mse == 0
    assert not zeros.decode().any()


def test_scale_is_the_root_mean_square_and_divides_out():
    x = normal(4, 64)
    encoded = encode_array(x * np.float32(8), CODE)
    np.testing.assert_allclose(encoded.scales, 8 * np.sqrt((x**2).mean(1)), rtol=5e-4)
    np.testing.assert_array_equal(encoded.packed["codes"], encode_array(x, CODE).packed["codes"])


@pytest.mark.parametrize("factor", [1e-30, 1e-6, 1e6, 1e30])
def test_scales_beyond_half_precision_are_kept_in_single(factor):
    x = normal(3, 64)
    x[1] *= np.float32(factor)
    encoded = encode_array(x, CODE)
    assert encoded.scales.dtype == np.float32
    back = encoded.decode()
    assert max(relative(x[i], back[i]) for i in range(3)) < 0.02
    assert encoded.bits.scale == 32 * 3


def test_half_precision_never_decodes_to_infinity():
    x = np.full((1, 8), np.finfo(np.float16).max, np.float16)
    x[0, 0] = 0
    assert np.isfinite(encode_array(x, CODE).decode()).all()


def test_rotation_brings_an_outlier_back_inside_the_code():
    x = normal(50, 256)
    x[:, 7] = 100
    code = reference_code("gaussian", 14)
    plain, turned = encode_array(x, code), encode_array(x, code, Rotation("random-hadamard", 256))
    assert plain.overloads == 50
    assert turned.overloads == 0
    assert turned.relative_mse < plain.relative_mse / 3


def test_sampled_blocks_are_those_of_the_rows():
    x = normal(40, 20)
    blocks = sample_blocks(x)
    assert blocks.shape == (120, 8)
    np.testing.assert_allclose(np.square(blocks.reshape(40, -1)).sum(1), 20, rtol=2e-3)
    few = sample_blocks(x, count=9, seed=1)
    assert few.shape == (12, 8)
    assert {block.tobytes() for block in few} <= {block.tobytes() for block in blocks}


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_row_that_is_not_finite_is_named(bad):
    x = normal(2000, 900)
    x[1703, 2] = bad
    with pytest.raises(InputError, match="row 1703"):
        encode_array(x, CODE)
    with pytest.raises(InputError, match="row 1703"):
        sample_blocks(x, count=8)


def test_a_row_beyond_single_precision_is_named():
    x = np.ones((3, 8))
    x[2, 0] = 1e300
    with pytest.raises(InputError, match="row 2"):
        encode_array(x, CODE)


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (np.zeros((2, 2, 2)), "shape"),
        (np.zeros((0, 8)), "shape"),
        (np.zeros(()), "shape"),
        (np.zeros((2, 8), np.int32), "int32"),
        (np.zeros((2, 8), object), "object"),
        (np.zeros((2, 8), complex), "complex128"),
    ],
)
def test_arrays_of_another_kind_are_refused(x, message):
    with pytest.raises(InputError, match=message):
        encode_array(x, CODE)


def test_a_rotation_of_another_width_is_refused():
    with pytest.raises(InputError, match="width 16"):
        encode_array(normal(2, 24), CODE, Rotation("hadamard", 16))


@pytest.fixture
def saved(tmp_path):
    encode_array(normal(20, 24), LatticeCode(13, (0.3, 0.4, 0.5, 1.3)), Rotation("hadamard", 24)).save(
        tmp_path / "a.nq"
    )
    return tmp_path / "a.nq"


def rewrite(path, tensors=None, **metadata):
    with safe_open(path, framework="numpy") as file:
        old = file.metadata()
    new = {k: v for k, v in (old | metadata).items() if v is not None}
    save_file(load_file(path) | (tensors or {}), path, metadata=new)


def test_the_file_says_what_it_is(saved):
    with safe_open(saved, framework="numpy") as file:
        metadata = file.metadata()
    assert metadata["format"] == "icml25/nq/1"
    assert json.loads(metadata["betas"]) == [0.3, 0.4, 0.5, 1.3]
    assert json.loads(metadata["shape"]) == [20, 24]
    assert np.prod(np.array(json.loads(metadata["epsilon"])) ** [1, -1.0], axis=1)[1] == -37 / 1024
    assert Rotation.from_spec(json.loads(metadata["rotation"])) == Rotation("hadamard", 24)


@pytest.mark.parametrize(("value", "shown"), [(5e-324, "4.9e-324"), (1e-200, "1.0e-200"), (1e-40, "1.0e-40")])
def test_a_row_too_small_for_single_precision_is_named(value, shown):
    x = normal(4, 24).astype(np.float64)
    x[2] = value
    with pytest.raises(InputError, match=f"row 2 is too small for float32: its root mean square is {shown}"):
        encode_array(x, CODE)
    assert np.isfinite(sample_blocks(x)).all()  # which only looks at what is there


@pytest.mark.parametrize("largest", [1e-37, 1e-30, 1e37])
def test_rows_near_the_ends_of_single_precision_cost_no_more_than_others(largest):
    x = normal(64, 64).astype(np.float64)
    scaled = x * (largest / np.abs(x).max())
    assert relative(scaled, encode_array(scaled, CODE).decode()) == pytest.approx(
        encode_array(x, CODE).relative_mse, rel=0.02
    )


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        ({"format": "icml25/nq/2"}, "not a file of codes"),
        ({"q": None}, "the field q is missing"),
        ({"q": "1e999"}, "the field q is"),
        ({"q": "13.5"}, "the field q is"),
        ({"q": "14"}, "codes of q = 14|stored as"),
        ({"q": "12"}, "out of range|stored as"),
        ({"betas": "[0.3, 0.4]"}, "out of range|codes of"),
        ({"betas": "[0.3, 0.2, 0.5, 1.3]"}, "strictly increasing"),
        ({"betas": "{"}, "header"),
        ({"epsilon": "[[0, 1024]]"}, "tie offset"),
        ({"shape": "[19, 24]"}, "19 rows"),
        ({"shape": "[20, 32]", "rotation": "null"}, "32 columns need 4"),
        ({"shape": "[20, 23]"}, "rotation has width 24"),
        ({"shape": "[20, 0]"}, "shape"),
        ({"shape": "[20, 24, 1]"}, "shape"),
        ({"shape": "[99999999999999999999, 24]"}, "rows"),
        ({"shape": "7"}, "header"),
        ({"dtype": "int8"}, "int8"),
        ({"rotation": '{"kind": "spin"}'}, "rotation"),
        ({"rotation": '{"kind": "hadamard", "n": 1e999, "seed": 0, "factors": []}'}, "rotation: the field n is"),
        ({"rotation": "[" * 100_000}, "not JSON"),
        ({"shape": "[20, 1e999]"}, r"shape\[1\] is"),
        ({"shape": "[20, 1000000000000000]", "rotation": "null"}, "1000000000000000 columns need"),
        ({"shape": "[true]"}, r"shape\[0\] is"),
        ({"q": "true"}, "the field q is"),
        ({"q": "1" + "0" * 400}, "outside 2..256"),
        ({"betas": "[1e999]"}, "scale inf is not"),
        ({"betas": "[1" + "0" * 400 + "]"}, "is not a positive number"),
        ({"simplified": "1"}, "simplified"),
        ({"shaping": '"cube"'}, "'shaping', unknown"),
        ({"relative_mse": "NaN"}, "an error of nan"),
        ({"relative_mse": "1e999"}, "an error of inf"),
        ({"overloads": "-1"}, "-1 overloads"),
    ],
)
def test_a_header_that_lies_is_refused(saved, metadata, message):
    rewrite(saved, **metadata)
    with pytest.raises(InputError, match=message) as caught:
        EncodedArray.load(saved)
    assert str(saved) in caught.value.message


@pytest.mark.parametrize(
    ("tensors", "message"),
    [
        ({"scales": np.full(20, np.nan, np.float16)}, "scale"),
        ({"scales": np.full(20, -1, np.float16)}, "scale"),
        ({"scales": np.ones(19, np.float16)}, "scales for 20 rows"),
        ({"scales": np.ones(20, np.int16)}, "scales is stored as I16"),
        ({"codes": np.full((20, 3), 2**32 - 1, np.uint32)}, "row 0, block 0"),
        ({"codes": np.zeros((19, 3), np.uint32)}, "20 rows"),
        ({"codes": np.zeros((20, 3), np.int32)}, "codes is stored as I32"),
        ({"codes": np.zeros((), np.uint32)}, "20 rows"),
        ({"more": np.zeros(20, np.uint8)}, "stored as codes"),
    ],
)
def test_tensors_that_lie_are_refused(saved, tensors, message):
    rewrite(saved, tensors)
    with pytest.raises(InputError, match=message):
        EncodedArray.load(saved)


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e8m0fnu, torch.bfloat16, torch.bool])
def test_tensors_of_kinds_that_no_code_has_are_refused(saved, dtype):
    with safe_open(saved, framework="pt") as file:
        metadata, codes = file.metadata(), file.get_tensor("codes")
    save_torch({"codes": codes, "scales": torch.ones(20).to(dtype)}, saved, metadata=metadata)
    with pytest.raises(InputError, match=r"a\.nq.* tensor scales is stored as (F8|BF16|BOOL)"):
        EncodedArray.load(saved)


@pytest.mark.parametrize("keep", [0, 4, 100, -1])
def test_a_truncated_file_is_refused(saved, keep):
    saved.write_bytes(saved.read_bytes()[:keep])
    with pytest.raises(InputError, match=r"a\.nq is cut short"):
        EncodedArray.load(saved)


def test_files_of_another_kind_are_refused(tmp_path):
    (tmp_path / "text.nq").write_text("no codes here, " * 100)
    save_file({"x": np.zeros(3, np.float32)}, tmp_path / "plain.nq")
    for name, message in (("text.nq", "not a safetensors file"), ("plain.nq", "not a file of codes")):
        with pytest.raises(InputError, match=message):
            EncodedArray.load(tmp_path / name)
    for name in ("absent.nq", "."):
        with pytest.raises(InputError):
            EncodedArray.load(tmp_path / name)


def test_an_existing_file_is_kept_unless_forced(saved):
    before = saved.read_bytes()
    other = encode_array(normal(2, 8), CODE)
    with pytest.raises(OutputError, match="exists"):
        other.save(saved)
    assert saved.read_bytes() == before
    other.save(saved, force=True)
    assert EncodedArray.load(saved).shape == (2, 8)
    assert [path.name for path in saved.parent.iterdir()] == ["a.nq"]
