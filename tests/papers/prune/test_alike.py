"""Layers that all lose the same, for exports by stock classes: heads these take, and targets met all the same."""

import pytest

from icml25cli.core.errors import UsageError
from icml25cli.papers.prune.anatomy import Anatomy
from icml25cli.papers.prune.methods import Options, check_options
from icml25cli.papers.prune.ratios import ratio_quotas, removed_parameters
from icml25cli.papers.prune.units import head_units


def anatomy(layers: int, hidden: int, heads: int, kv: int, head_dim: int, inner: int) -> Anatomy:
    matrices = 2 * (heads + kv) * head_dim * hidden + 3 * hidden * inner
    return Anatomy("llama", layers, hidden, heads, kv, head_dim, inner, frozenset(), matrices + 2 * hidden)


LLAMA_7B = anatomy(32, 4096, 32, 32, 128, 11008)
SMOLLM2 = anatomy(30, 576, 9, 3, 64, 1536)


@pytest.mark.parametrize("target", [0.1, 0.2, 0.5])
@pytest.mark.parametrize("gqa", ["group", "expand"])
@pytest.mark.parametrize("of", [LLAMA_7B, SMOLLM2], ids=["llama-7b", "smollm2-135m"])
def test_layers_alike_have_heads_that_divide_the_hidden_size_and_meet_the_target(of, gqa, target):
    options = Options(target=target, gqa=gqa, alike=True)
    quotas = ratio_quotas(of, options, [0.5] * of.layers, of.layers * of.block_parameters, biases=True)
    assert len(set(quotas.dropped_units.tolist())) == len(set(quotas.channels.tolist())) == 1
    heads = head_units(of, gqa).left(of, int(quotas.dropped_units[0]))[0]
    assert of.hidden % heads == 0
    removed = removed_parameters(of, options, quotas, biases=True)
    assert removed / (of.layers * of.block_parameters) == pytest.approx(target, abs=0.001)


@pytest.mark.parametrize("other", [{"protect": (0,)}, {"layers": 3}, {"layer_ratio": "cosine"}, {"method": "flap"}])
def test_layers_alike_exclude_shares_of_their_own(other):
    with pytest.raises(UsageError, match="alike"):
        check_options(Options(alike=True, **other))
