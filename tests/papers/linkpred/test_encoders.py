"""Vision encoders against independent implementations of the same networks, and weight files that cannot be used."""

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from icml25cli.core.errors import InputError, MissingError, UsageError
from icml25cli.papers.linkpred.backbones import VGG16, ResNet50, ViTB16
from icml25cli.papers.linkpred.encoders import load_encoder
from icml25cli.papers.linkpred.raster import BROWN, TARGET
from icml25cli.papers.linkpred.vsf_tiny import planes


def scrambled(network: torch.nn.Module) -> torch.nn.Module:
    """Every parameter and statistic different from its neutral start, so that none can be left out unnoticed."""
    generator = torch.Generator().manual_seed(0)
    for name, value in network.state_dict().items():
        if value.is_floating_point():
            noise = torch.randn(value.shape, generator=generator)
            if name.endswith("running_var"):
                value.copy_(1 + noise.abs() / 4)
            elif value.ndim > 1:
                value.mul_(1 + noise / 4)
            else:
                value.add_(noise / 8)
    return network.eval()


def picture(size: int) -> torch.Tensor:
    return torch.randn(1, 3, size, size, generator=torch.Generator().manual_seed(1))


def without_start(made, *args, **kwargs) -> torch.nn.Module:
    """A network whose parameters come later: drawing millions of them takes seconds."""
    with torch.device("meta"):
        return made(*args, **kwargs).eval()


def test_resnet50_is_that_of_transformers():
    from transformers import ResNetConfig, ResNetModel

    ours = scrambled(ResNet50())
    theirs = without_start(ResNetModel, ResNetConfig())
    names = {"downsample.0": "shortcut.convolution", "downsample.1": "shortcut.normalization"}
    state = {}
    for name, value in ours.state_dict().items():
        if name.startswith("layer"):
            stage, block, *rest = name[5:].split(".")
            *unit, kind = rest
            place = ".".join(unit)
            if place not in names:
                number = int(place[-1]) - 1
                place = f"layer.{number}." + ("convolution" if place.startswith("conv") else "normalization")
            name = f"encoder.stages.{int(stage) - 1}.layers.{block}.{names.get(place, place)}.{kind}"
        else:
            unit, kind = name.split(".")
            name = f"embedder.embedder.{'convolution' if unit == 'conv1' else 'normalization'}.{kind}"
        state[name] = value
    theirs.load_state_dict(state, assign=True)
    with torch.no_grad():
        expected = theirs(picture(64)).pooler_output.flatten(1)
        torch.testing.assert_close(ours(picture(64)), expected, rtol=1e-4, atol=1e-4)


def test_vit_b16_is_that_of_transformers():
    from transformers import ViTConfig, ViTModel

    ours = scrambled(ViTB16())
    theirs = without_start(ViTModel, ViTConfig(layer_norm_eps=1e-6), add_pooling_layer=False)
    given, state = ours.state_dict(), theirs.state_dict()
    parts = {
        "embeddings.cls_token": given["class_token"],
        "embeddings.position_embeddings": given["encoder.pos_embedding"],
        "embeddings.patch_embeddings.projection.weight": given["conv_proj.weight"],
        "embeddings.patch_embeddings.projection.bias": given["conv_proj.bias"],
        "layernorm.weight": given["encoder.ln.weight"],
        "layernorm.bias": given["encoder.ln.bias"],
    }
    for i in range(12):
        for kind in ("weight", "bias"):
            layer = f"encoder.layers.encoder_layer_{i}"
            q, k, v = given[f"{layer}.self_attention.in_proj_{kind}"].chunk(3)
            units = {
                "q": q,
                "k": k,
                "v": v,
                "out": given[f"{layer}.self_attention.out_proj.{kind}"],
                "up": given[f"{layer}.mlp.0.{kind}"],
                "down": given[f"{layer}.mlp.3.{kind}"],
                "before": given[f"{layer}.ln_1.{kind}"],
                "after": given[f"{layer}.ln_2.{kind}"],
            }
            for unit, value in units.items():
                parts[f"{i}.{unit}.{kind}"] = value
    for name in state:
        state[name] = parts[named(name)]
    theirs.load_state_dict(state, assign=True)
    with torch.no_grad():
        expected = theirs(picture(224)).last_hidden_state[:, 0]
        torch.testing.assert_close(ours(picture(224)), expected, rtol=1e-4, atol=1e-4)


def named(name: str) -> str:
    """A parameter of transformers' ViT by layer and role, however its modules are called in this version."""
    words = name.split(".")
    numbers = [word for word in words if word.isdecimal()]
    if not numbers:
        return name
    roles = {
        "q_proj": "q", "k_proj": "k", "v_proj": "v", "query": "q", "key": "k", "value": "v", "o_proj": "out",
        "layernorm_before": "before", "layernorm_after": "after", "fc1": "up", "fc2": "down",
    }  # fmt: skip
    for word, role in roles.items():
        if word in words:
            return f"{numbers[0]}.{role}.{words[-1]}"
    if "attention" in words:
        return f"{numbers[0]}.out.{words[-1]}"
    return f"{numbers[0]}.{'up' if 'intermediate' in words else 'down'}.{words[-1]}"


def test_sizes_are_those_that_are_published():
    # torchvision: 25,557,032, 138,357,544 and 86,567,656 parameters, here without classifiers
    with torch.device("meta"):
        sizes = [sum(p.numel() for p in network().parameters()) for network in (ResNet50, VGG16, ViTB16)]
    assert sizes == [25_557_032 - 2_049_000, 138_357_544 - 123_642_856, 86_567_656 - 769_000]


def test_brought_weights_see_the_colours_normalised_as_imagenet(tmp_path):
    torch.manual_seed(0)
    network = scrambled(ResNet50())
    file = tmp_path / "weights.safetensors"
    save_file({**network.state_dict(), "fc.weight": torch.ones(2)}, file)
    encoder = load_encoder("resnet50", weights=file, size=64)
    drawn = np.zeros((1, 64, 64), np.uint8)
    drawn[0, :9, :9] = TARGET
    rgb = torch.ones(3, 64, 64)
    rgb[:, :9, :9] = torch.tensor(BROWN)[:, None, None] / 255
    mean, std = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])
    with torch.no_grad():
        expected = network(((rgb - mean[:, None, None]) / std[:, None, None])[None])
    found = encoder(drawn)
    assert (found.shape, found.dtype) == ((1, 2048), np.float16)
    torch.testing.assert_close(torch.from_numpy(found).float(), expected, rtol=0.1, atol=0.02 * expected.max().item())
    save_file({**network.state_dict(), "bn1.bias": torch.zeros(64)}, tmp_path / "other.safetensors")
    assert load_encoder("resnet50", weights=tmp_path / "other.safetensors", size=64).weights != encoder.weights


def test_planes_hold_ink_and_targets_apart():
    found = planes(torch.tensor([[[0, 127, 254, 255]]], dtype=torch.uint8))
    torch.testing.assert_close(found[0, :, 0], torch.tensor([[0, 0.5, 1, 0], [0, 0, 0, 1.0]]))


def test_the_untrained_control_tells_pictures_apart_and_is_always_the_same():
    drawn = np.zeros((2, 96, 96), np.uint8)
    drawn[1, 10:30, 10:40] = 254
    first, second = load_encoder("random"), load_encoder("random")
    assert first.identity == second.identity
    features = first(drawn)
    assert np.isfinite(features).all()
    assert np.abs(features[0] - features[1]).max() > 0.01
    assert (features == second(drawn)).all()


@pytest.mark.assets
def test_efficientnet_lite0_gives_what_an_independent_implementation_gave(fetched_cache, monkeypatch):
    from icml25cli.core import store
    from icml25cli.core.efficientnet import EfficientNetLite0

    monkeypatch.setenv("ICML25_CACHE_DIR", str(fetched_cache))
    if not store.is_fetched("efficientnet-lite0"):
        pytest.skip("efficientnet-lite0 is not fetched")
    network = EfficientNetLite0(torch.load(store.path("efficientnet-lite0"), weights_only=True)).eval()
    y, x = torch.meshgrid(torch.linspace(-1, 1, 224), torch.linspace(-1, 1, 224), indexing="ij")
    with torch.no_grad():
        (features,) = network(torch.stack([y, x, y * x])[None])
    # efficientnet-lite-pytorch 0.1.0 with the same weights, mean of extract_features over the map
    assert features[2].item() == pytest.approx(0.368880, abs=1e-4)
    assert features.norm().item() == pytest.approx(13.267688, abs=1e-3)
    assert (features == 0).sum() > 100
    assert load_encoder("efflite0")(np.zeros((1, 112, 112), np.uint8)).shape == (1, 1280)


# --- what cannot be used -----------------------------------------------------------------------------------------


def test_names_sizes_and_weights_that_do_not_go_together(tmp_path):
    with pytest.raises(UsageError, match="clip"):
        load_encoder("clip")
    with pytest.raises(UsageError, match="96 pixels, not 64"):
        load_encoder("random", size=64)
    with pytest.raises(UsageError, match="efflite0"):
        load_encoder("efflite0", weights=tmp_path / "x.pth")
    with pytest.raises(MissingError, match="vgg16"):
        load_encoder("vgg16")


def test_without_its_asset_efflite0_says_what_to_fetch(monkeypatch, tmp_path):
    monkeypatch.setenv("ICML25_CACHE_DIR", str(tmp_path))
    with pytest.raises(MissingError) as raised:
        load_encoder("efflite0")
    assert "icml25 assets fetch efficientnet-lite0" in str(raised.value.hint)


def test_weights_of_another_network_are_refused_by_name(tmp_path):
    file = tmp_path / "w.pth"
    torch.save({"conv1.weight": torch.zeros(64, 3, 3, 3)}, file)
    with pytest.raises(InputError, match=r"conv1.weight has shape \(64, 3, 3, 3\), expected \(64, 3, 7, 7\)"):
        load_encoder("resnet50", weights=file)
    torch.save({"a": torch.zeros(1)}, file)
    with pytest.raises(InputError, match="is missing"):
        load_encoder("resnet50", weights=file)


def test_a_pickle_is_not_run(tmp_path):
    class Bomb:
        def __reduce__(self):
            return (open, (str(tmp_path / "ran"), "w"))

    file = tmp_path / "w.pth"
    torch.save({"conv1.weight": Bomb()}, file)
    with pytest.raises(InputError, match="no plain tensors"):
        load_encoder("resnet50", weights=file)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(("name", "content"), [("w.pth", b"\0\1"), ("w.safetensors", b"\xff" * 9), ("w.pth", b"")])
def test_torn_weights_are_refused(tmp_path, name, content):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=name):
        load_encoder("resnet50", weights=tmp_path / name)
    with pytest.raises(InputError, match="is no file"):
        load_encoder("resnet50", weights=tmp_path)
