"""Encoders: BatchEnsemble from its definition, how scales start, what the embedding is, counts of parameters."""

from __future__ import annotations

from math import pi

import pytest
import torch

from icml25cli.papers.tabpfn_bag.encoders import KINDS, EncoderConfig, PathEncoder, Rows, encoder_config


def rows_of(n: int = 7, numbers: int = 3, levels: tuple[int, ...] = (2, 4), seed: int = 0) -> Rows:
    source = torch.Generator().manual_seed(seed)
    codes = torch.stack([torch.randint(-1, level, (n,), generator=source) for level in levels], 1)
    return Rows(torch.randn(n, numbers, generator=source), codes)


def encoder(kind: str, *, frequencies: int = 5, seed: int = 0) -> PathEncoder:
    """All factors moved from where they start, so that none hides."""
    made = PathEncoder(EncoderConfig(3, (2, 4), 4, kind, width=6, frequencies=frequencies, embedding=4), seed)
    if kind != "vanilla":
        source = torch.Generator().manual_seed(1)
        for name, weight in made.named_parameters():
            if "scale" in name or (weight.ndim == 2 and "bias" in name):
                weight.data += 0.3 * torch.randn(weight.shape, generator=source)
    return made


def first_scale(made: PathEncoder) -> torch.Tensor:
    scale = made.blocks[0].scale_in
    assert scale is not None
    return scale


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "vanilla"])
def test_a_path_is_an_ordinary_network_with_scaled_weights(kind):
    made, rows = encoder(kind), rows_of()
    together = made(rows)
    for k in range(4):
        x = made.embed(rows)
        for layer in made.blocks:
            r = layer.scale_in[k] if layer.scale_in is not None else torch.ones(layer.weight.shape[1])
            s = layer.scale_out[k] if layer.scale_out is not None else torch.ones(layer.weight.shape[0])
            weight = layer.weight * torch.outer(s, r)
            bias = layer.bias[k] if layer.bias.ndim == 2 else layer.bias
            x = torch.selu(torch.nn.functional.linear(x, weight, bias))
        torch.testing.assert_close(together[k], x, atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(made(rows, slice(k, k + 1))[0], together[k], atol=1e-5, rtol=1e-5)


def test_mini_without_scales_has_paths_that_are_the_same():
    made = encoder("tabm-mini")
    first_scale(made).data.fill_(1)
    out = made(rows_of())
    torch.testing.assert_close(out, out[:1].expand_as(out), atol=1e-6, rtol=1e-6)  # sums of one product end anyhow


def test_a_section_starts_with_one_draw_that_differs_by_path_and_section():
    made = PathEncoder(EncoderConfig(3, (2, 4), 4, "tabm-mini", width=6, frequencies=5, embedding=4))
    parts = first_scale(made).split([4, 4, 4, 2, 4], 1)
    for part in parts:
        assert (part == part[:, :1]).all()
    firsts = torch.stack([part[:, 0] for part in parts], 1)
    assert firsts.unique().numel() == firsts.numel()


def test_without_an_embedding_scales_are_signs():
    made = PathEncoder(EncoderConfig(30, (), 8, "tabm-mini", width=6, frequencies=0))
    assert set(first_scale(made).unique().tolist()) == {-1.0, 1.0}


def test_the_embedding_is_plr_lite_and_an_unknown_level_is_all_zeros():
    made, rows = encoder("tabm-mini"), Rows(torch.tensor([[0.5, -1.0, float("nan")]]), torch.tensor([[1, -1]]))
    x = torch.tensor([0.5, -1.0, 0.0])
    expected = []
    for f in range(3):
        wave = 2 * pi * made.frequency[f] * x[f]
        expected.append(torch.relu(made.lift(torch.cat([wave.cos(), wave.sin()]))))
    hot = torch.tensor([0.0, 1.0, 0, 0, 0, 0])
    torch.testing.assert_close(made.embed(rows)[0], torch.cat([*expected, hot]))


def test_the_number_of_parameters_is_the_closed_form():
    d, m, de, paths, width = 7, 24, 16, 8, 100
    made = PathEncoder(encoder_config(d, (), paths=paths, kind="tabm-mini", width=width, frequencies=m, embedding=de))
    flat = d * de
    expected = d * m + (2 * m * de + de) + paths * flat + (flat * width + width) + (width * width + width)
    assert sum(p.numel() for p in made.parameters()) == expected


def test_many_numbers_have_no_embedding():
    assert encoder_config(600, (), paths=2, kind="tabm-mini", frequencies=24).frequencies == 0


def test_dropout_is_drawn_from_the_generator_alone():
    made, rows = encoder("tabm"), rows_of()
    first, again = (made(rows, generator=torch.Generator().manual_seed(3)) for _ in range(2))
    assert torch.equal(first, again)
    assert not torch.equal(first, made(rows))
