"""The network: what it must not know (order, other queries), its cache, its file, and that it can learn."""

from __future__ import annotations

import json
from math import log

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from icml25cli.core.errors import InputError, OutputError
from icml25cli.papers.tabpfn_bag import network
from icml25cli.papers.tabpfn_bag.network import Context, NanoPfn, PfnConfig, attend
from icml25cli.papers.tabpfn_bag.weights import load_pfn, save_pfn

SMALL = PfnConfig(columns=6, classes=4, width=16, heads=2, layers=3, hidden=32)


def net_of(config: PfnConfig = SMALL, seed: int = 0) -> NanoPfn:
    """Random in every weight: as built, the maps that write to the residual stream are zero and hide the others."""
    torch.manual_seed(seed)
    net = NanoPfn(config).eval()
    for weight in net.parameters():
        if weight.ndim > 1:
            torch.nn.init.normal_(weight, std=weight.shape[-1] ** -0.5)
    return net.requires_grad_(False)


def table(config: PfnConfig = SMALL, rows: int = 12, queries: int = 5, batch: int = 2, seed: int = 0):
    source = torch.Generator().manual_seed(seed)
    x = torch.randn(batch, rows, config.columns, generator=source)
    y = torch.randint(0, config.classes, (batch, rows), generator=source)
    return x, y, torch.randn(batch, queries, config.columns, generator=source)


def by_hand(net: NanoPfn, x, y, q):
    """The same network over context and queries at once, with a mask, from the definition."""
    n, config = x.shape[1], net.config
    h = net.row(torch.cat([x, q], 1))
    h = h + torch.cat([net.label.weight[y], net.label.weight[-1].expand(*q.shape[:2], -1)], 1)
    allowed = torch.arange(h.shape[1]) < n  # nobody attends to a query
    size = config.width // config.heads
    for layer in net.layers:
        normed = layer.norm_attention(h)
        heads = []
        for i in range(config.heads):
            part = slice(i * size, (i + 1) * size)
            query = normed @ layer.query.weight[part].T
            key = normed @ layer.key_value.weight[part].T
            value = normed @ layer.key_value.weight[config.width :][part].T
            factor = (1 + layer.sharpening[i, 0, 0] * log(n / 256)) / size**0.5
            score = (factor * query @ key.transpose(1, 2)).masked_fill(~allowed, -torch.inf)
            heads.append(score.softmax(-1) @ value)
        h = h + torch.cat(heads, -1) @ layer.out.weight.T
        h = h + layer.down(torch.nn.functional.gelu(layer.up(layer.norm_mlp(h))))
    return net.head(torch.nn.functional.gelu(net.head_hidden(net.norm(h[:, n:]))))


def test_it_is_a_masked_transformer_over_all_rows():
    net, (x, y, q) = net_of(), table()
    torch.testing.assert_close(net(x, y, q), by_hand(net, x, y, q), atol=1e-5, rtol=1e-4)


def test_the_ways_to_attend_agree():
    parts = [torch.randn(2, 3, n, 8, generator=torch.Generator().manual_seed(n)) for n in (7, 20, 20)]
    with torch.no_grad():
        fused = attend(*parts)
    halves = [part.bfloat16().requires_grad_() for part in parts]
    torch.testing.assert_close(attend(*halves).float(), fused, atol=0.03, rtol=0.03)


def test_queries_do_not_see_each_other():
    net, (x, y, q) = net_of(), table()
    one_by_one = torch.cat([net(x, y, q[:, i : i + 1]) for i in range(q.shape[1])], 1)
    torch.testing.assert_close(one_by_one, net(x, y, q), atol=1e-5, rtol=1e-5)


@given(seed=st.integers(0, 2**32 - 1), rows=st.integers(2, 40))
@settings(max_examples=20, deadline=None)
def test_the_order_of_the_context_does_not_matter(seed, rows):
    net, (x, y, q) = net_of(), table(rows=rows, seed=seed)
    order = torch.from_numpy(np.random.default_rng(seed).permutation(rows))
    torch.testing.assert_close(net(x[:, order], y[:, order], q), net(x, y, q), atol=1e-4, rtol=1e-4)


def test_tables_of_a_batch_do_not_see_each_other():
    net, (x, y, q) = net_of(), table()
    alone = torch.cat([net(x[i : i + 1], y[i : i + 1], q[i : i + 1]) for i in range(2)])
    torch.testing.assert_close(alone, net(x, y, q), atol=1e-5, rtol=1e-5)


def test_a_label_and_a_row_of_the_context_change_the_answer():
    net, (x, y, q) = net_of(), table()
    other = y.clone()
    other[:, 3] = (other[:, 3] + 1) % SMALL.classes
    moved = x.clone()
    moved[:, 3] += 1
    for changed in (net(x, other, q), net(moved, y, q)):
        assert ((changed - net(x, y, q)).abs().amax(-1) > 1e-3).all()


def test_a_cached_context_answers_as_one_computed_anew_and_serves_more_queries():
    net, (x, y, q) = net_of(), table(queries=9)
    context = net.encode(x, y)
    torch.testing.assert_close(net.predict(context, q), net(x, y, q), atol=0, rtol=0)
    chunks = torch.cat([net.predict(context, part) for part in q.split(2, 1)], 1)
    torch.testing.assert_close(chunks, net(x, y, q), atol=1e-5, rtol=1e-5)


def test_rows_that_stand_several_times_in_a_context_are_computed_once_and_count_as_often():
    net, (x, y, q) = net_of(), table(rows=6)
    counts = torch.tensor([[1, 3, 1, 2, 1, 2], [4, 1, 5, 0, 0, 0]])  # of the second table three rows only
    repeated = [
        index.repeat_interleave(count) for index, count in zip(torch.arange(6).expand(2, 6), counts, strict=True)
    ]
    whole = torch.stack([x[i, index] for i, index in enumerate(repeated)])
    labels = torch.stack([y[i, index] for i, index in enumerate(repeated)])
    context = net.encode(x, y, counts)
    assert context.keys[0].shape[2] == 6
    torch.testing.assert_close(net.predict(context, q), net(whole, labels, q), atol=1e-5, rtol=1e-5)


def test_the_cache_holds_keys_and_values_of_the_context_alone():
    context = net_of().encode(*table(rows=12)[:2])
    assert len(context.keys) == len(context.values) == SMALL.layers
    assert {part.shape for part in context.keys + context.values} == {(2, SMALL.heads, 12, 8)}


def test_queries_need_nothing_of_the_context_but_the_cache(monkeypatch):
    net, (x, y, q) = net_of(), table()
    context = net.encode(x, y)
    expected = net.predict(context, q)
    seen = []
    monkeypatch.setattr(
        network, "attend", lambda queries, *rest: seen.append(queries.shape[2]) or attend(queries, *rest)
    )
    keys, values = (tuple(part.clone() for part in parts) for parts in (context.keys, context.values))
    copied = Context(keys, values, context.rows)
    assert torch.equal(net.predict(copied, q), expected)
    assert seen == [q.shape[1]] * SMALL.layers


def test_gradients_reach_the_input_without_any_for_the_weights():
    net, (x, y, q) = net_of(), table()
    x.requires_grad_()
    q.requires_grad_()
    net(x, y, q).square().sum().backward()
    assert x.grad is not None
    assert q.grad is not None
    assert (x.grad.abs().amax(-1) > 0).all()
    assert (q.grad.abs().amax(-1) > 0).all()
    assert all(weight.grad is None for weight in net.parameters())


def test_attention_stays_sharp_over_more_rows():
    """One row among n that matches while n - 1 do not: with queries growing as log n its share does not fade."""
    config = PfnConfig(columns=1, classes=2, width=2, heads=1, layers=1, hidden=2)
    net = net_of(config)
    layer = net.layers[0]
    layer.query.weight.copy_(torch.eye(2))
    layer.sharpening.fill_(1 / log(256))
    shares = []
    for n in (64, 1024):
        keys = torch.zeros(1, 1, n, 2)
        keys[..., 0, 0] = 12.0
        values = torch.zeros(1, 1, n, 2)
        values[..., 0, 0] = 1.0
        layer.out.weight.copy_(torch.eye(2))
        layer.down.weight.zero_()
        layer.down.bias.zero_()
        shares.append(
            layer(torch.zeros(1, 1, 2), torch.tensor([[[1.0, 0.0]]]), keys, values, keys.shape[2])[0, 0, 0].item()
        )
    assert shares[1] > shares[0] > 0.9


def test_the_shipped_sizes_fit_their_file():
    assert sum(weight.numel() for weight in NanoPfn(PfnConfig()).parameters()) == 1_302_754


def test_it_learns_to_look_labels_up():
    """Queries that repeat rows of the context: a few hundred steps must find the copy, which no fixed map can."""
    torch.manual_seed(0)
    net = NanoPfn(PfnConfig(columns=4, classes=3, width=32, heads=2, layers=2, hidden=64))
    optimizer = torch.optim.AdamW(net.parameters(), lr=3e-3)
    source = torch.Generator().manual_seed(1)
    for _ in range(250):
        x, y = torch.randn(16, 8, 4, generator=source), torch.randint(0, 3, (16, 8), generator=source)
        loss = torch.nn.functional.cross_entropy(net(x, y, x).flatten(0, 1), y.flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    assert loss.item() < 0.5 * log(3)


def test_a_network_survives_its_file(tmp_path):
    net = net_of()
    save_pfn(net, tmp_path / "net")
    again = load_pfn(tmp_path / "net")
    assert again.config == SMALL
    assert not any(weight.requires_grad for weight in again.parameters())
    for name, weight in again.state_dict().items():
        assert torch.equal(weight, net.state_dict()[name].half().float()), name
    x, y, q = table()
    torch.testing.assert_close(again(x, y, q), net(x, y, q), atol=0.02, rtol=0.02)
    with pytest.raises(OutputError, match="net exists"):
        save_pfn(net, tmp_path / "net")


def damage(folder, how):
    config = folder / "config.json"
    sizes = json.loads(config.read_text())
    if how == "size unknown":
        config.write_text(json.dumps(sizes | {"depth": 3}))
    elif how == "size of another network":
        config.write_text(json.dumps(sizes | {"columns": 7}))
    elif how == "size no number":
        config.write_text(json.dumps(sizes | {"width": "16"}))
    elif how == "size impossible":
        config.write_text(json.dumps(sizes | {"width": -16}))
    elif how == "no object":
        config.write_text("[]")
    elif how == "no JSON":
        config.write_text("{")
    elif how == "tensors cut":
        data = (folder / "model.safetensors").read_bytes()
        (folder / "model.safetensors").write_bytes(data[:-5])
    elif how == "tensors gone":
        (folder / "model.safetensors").unlink()


@pytest.mark.parametrize(
    "how",
    [
        "size unknown",
        "size of another network",
        "size no number",
        "size impossible",
        "no object",
        "no JSON",
        "tensors cut",
        "tensors gone",
    ],
)
def test_a_damaged_file_is_named(tmp_path, how):
    save_pfn(net_of(), tmp_path / "net")
    damage(tmp_path / "net", how)
    with pytest.raises(InputError, match="net"):
        load_pfn(tmp_path / "net")
