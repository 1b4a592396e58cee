"""What is said of files of codes against what is in them, and codes that were spoilt."""

import json
from math import log2
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file
from safetensors.torch import load_file as load_tensors
from safetensors.torch import save_file as save_tensors

from icml25cli.core.errors import InputError
from icml25cli.papers.quantize.arrays import encode_array
from icml25cli.papers.quantize.contents import array_contents, entropy, model_contents
from icml25cli.papers.quantize.packing import unpack
from icml25cli.papers.quantize.rotation import Rotation
from icml25cli.papers.quantize.scales import reference_code
from tests.make_models import make_model
from tests.make_packed import make_packed


@pytest.fixture
def vectors(tmp_path) -> Path:
    """More numbers than are worked on together."""
    x = np.random.default_rng(0).standard_normal((3000, 400)).astype(np.float32)
    encode_array(x, reference_code("activations", 13), Rotation("hadamard", 400)).save(tmp_path / "x.nq")
    return tmp_path / "x.nq"


@pytest.fixture(scope="module")
def llama(tmp_path_factory) -> Path:
    return make_model(tmp_path_factory.mktemp("models") / "llama", hidden_size=64, intermediate_size=128, head_dim=16)


@pytest.fixture(params=[False, True], ids=["plain", "entropy"])
def packed(request, llama, tmp_path) -> Path:
    return make_packed(tmp_path / "packed", llama, entropy=request.param)


def test_a_file_is_described_by_what_its_codes_are(vectors):
    found = array_contents(vectors)
    (coded,) = found.coded
    digits, beta_index = unpack({k: v for k, v in load_file(vectors).items() if k != "scales"}, 13, 4)
    assert coded.shape == (3000, 400)
    assert coded.dtype == "float32"
    assert coded.rotation is not None
    assert (coded.code.q, coded.rotation.kind) == (13, "hadamard")
    np.testing.assert_array_equal(coded.digits, [(digits == i).sum() for i in range(13)])
    np.testing.assert_array_equal(coded.scales, [(beta_index == j).sum() for j in range(4)])
    assert coded.digits.sum() == coded.values
    assert sum(found.bytes.values()) == pytest.approx(vectors.stat().st_size, rel=1e-9)
    assert found.bytes["header"] < 0.01 * vectors.stat().st_size
    assert found.bytes["code"] == pytest.approx(1_200_000 * log2(13) / 8)
    assert coded.relative_mse == pytest.approx(0.0075, rel=0.03)  # table 4.2, 0.00646 at q = 14


def test_entropies():
    assert entropy(np.array([4, 4, 4, 4])) == 2
    assert entropy(np.array([0, 7])) == 0
    assert entropy(np.array([3, 1])) == pytest.approx(0.811278, abs=1e-6)
    assert entropy(np.zeros(3, int)) == 0


def test_a_spoilt_code_is_named_by_row_and_block_of_the_file(vectors):
    """Codes of q = 13 with four scales leave a fifth of the words of 32 bits unused."""
    tensors = load_file(vectors)
    tensors["codes"][2777, 31] = 2**32 - 1
    from safetensors import safe_open

    with safe_open(vectors, framework="numpy") as file:
        metadata = file.metadata()
    save_file(tensors, vectors, metadata=metadata)
    with pytest.raises(InputError, match=r"x\.nq: the code of row 2777, block 31"):
        array_contents(vectors)


def test_a_packed_directory_is_described_matrix_by_matrix(packed):
    found = model_contents(packed)
    assert len(found.coded) == 7 * 3
    shapes = {coded.name: coded.shape for coded in found.coded}
    assert shapes["model.layers.2.mlp.down_proj"] == (64, 128)
    files = sum(file.stat().st_size for file in packed.glob("*.safetensors"))
    assert sum(found.bytes.values()) == pytest.approx(files, rel=1e-9)
    stored = {name: x for file in packed.glob("*.safetensors") for name, x in load_tensors(file).items()}
    names = tuple(f"{coded.name}." for coded in found.coded)
    assert found.bytes["other"] == sum(x.nbytes for name, x in stored.items() if not name.startswith(names))
    mine = sum(x.nbytes for name, x in stored.items() if name.startswith(names))
    assert sum(found.bytes[part] for part in ("code", "beta", "scale", "padding")) == pytest.approx(mine, rel=1e-9)
    for coded in found.coded:
        assert coded.digits.sum() == coded.values
        assert coded.scales.sum() == coded.values / 8
        assert (coded.relative_mse, coded.overloads) == (None, None)


def test_what_a_run_recorded_beside_the_directory_is_read(packed):
    name = "model.layers.0.mlp.up_proj"
    rows = [{"tensor": name, "relative_mse": 0.006, "overloads": 2}]
    (packed.parent / "report.json").write_text(json.dumps({"tables": {"tensors": rows}}))
    found = {coded.name: coded for coded in model_contents(packed.parent).coded}
    assert (found[name].relative_mse, found[name].overloads) == (0.006, 2)
    (packed.parent / "report.json").write_text('{"tables": 3}')
    assert all(coded.relative_mse is None for coded in model_contents(packed).coded)


def shard_of(packed: Path, name: str) -> Path:
    return next(file for file in packed.glob("*.safetensors") if name in load_tensors(file))


def change(packed: Path, name: str, to) -> None:
    shard = shard_of(packed, name)
    tensors = load_tensors(shard)
    tensors[name] = to(tensors[name])
    save_tensors(tensors, shard, metadata={"format": "pt"})


@pytest.mark.parametrize(
    ("part", "to", "says"),
    [
        ("codes", lambda x: x[:-1].clone(), "do not fit|high bits"),
        ("codes", lambda x: x.float(), "codes of float32"),
        ("scales", lambda x: x * torch.nan, "scales are not finite"),
        ("scales", lambda x: x[:-1].clone(), "do not fit|of blocks|rows hold"),
    ],
    ids=["rows", "dtype", "nan", "scales"],
)
def test_parts_that_do_not_fit_are_named(packed, part, to, says):
    name = "model.layers.1.self_attn.q_proj"
    change(packed, f"{name}.{part}", to)
    with pytest.raises(InputError, match=f"{name}.*({says})"):
        model_contents(packed)


def test_a_spoilt_code_of_a_matrix_is_named(llama, tmp_path):
    packed = make_packed(tmp_path / "packed", llama, q=13)
    name = "model.layers.1.mlp.down_proj"

    def spoil(codes):
        words = codes.to(torch.int64)
        words[60, 15] = 2**32 - 1
        return words.to(torch.uint32)

    change(packed, f"{name}.codes", spoil)
    with pytest.raises(InputError, match=f"{name}: the code of row 60, block 15 is out of range"):
        model_contents(packed)


def test_codes_that_no_description_covers_are_refused(packed):
    config = json.loads((packed / "config.json").read_text())
    del config["quantization_config"]["tensors"]["model.layers.0.mlp.up_proj"]
    (packed / "config.json").write_text(json.dumps(config))
    with pytest.raises(InputError, match=r"does not describe model\.layers\.0\.mlp\.up_proj"):
        model_contents(packed)


def test_a_directory_without_codes_is_refused(llama):
    with pytest.raises(InputError, match="no directory of packed codes"):
        model_contents(llama)


def test_a_description_of_nothing_is_refused(packed):
    config = json.loads((packed / "config.json").read_text())
    config["quantization_config"]["tensors"] = {}
    (packed / "config.json").write_text(json.dumps(config))
    with pytest.raises(InputError, match="describes no codes"):
        model_contents(packed)
