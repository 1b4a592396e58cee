"""Recovery of pruned models by adapters: what is learnt, what is written, and where it stops."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from icml25cli.core.errors import InputError, MissingError
from icml25cli.core.models import load_model, load_tokenizer, resolve
from icml25cli.core.runs import Run
from icml25cli.papers.prune import tune as module
from icml25cli.papers.prune.tune import Options, Row, read_rows, tune
from tests.make_models import make_model
from tests.make_pruned import make_pruned

QUICK = Options(rank=4, learning_rate=3e-3, epochs=6, batch_size=4, cutoff=48)


@pytest.fixture(scope="module")
def pruned(tmp_path_factory) -> Path:
    return make_pruned(tmp_path_factory.mktemp("models"), "llama")[0]


@pytest.fixture(scope="module")
def rows(pruned, tmp_path_factory) -> list[Row]:
    file = tmp_path_factory.mktemp("rows") / "rows.jsonl"
    lines = [{"text": f"the {a} sat on the {b} and ate"} for a in ("cat", "dog", "cow", "fox") for b in ("mat", "hat")]
    lines += [{"prompt": f"Where did the {a} sit?", "response": "on the mat"} for a in ("cat", "dog", "cow", "fox")]
    file.write_text("\n".join(map(json.dumps, lines)))
    return read_rows(file, resolve(pruned), 48)


def stored(directory: Path) -> dict[str, torch.Tensor]:
    return {name: x for file in directory.glob("*.safetensors") for name, x in load_file(file).items()}


def tuned_in(directory: Path, source: Path, rows: list[Row], options: Options = QUICK) -> Any:
    with Run.open(directory, {"source": source}) as run:
        return tune(resolve(source), rows, options, run)


@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_held_out_rows_are_predicted_better_and_the_files_are_the_model_that_was_judged(tmp_path, family, rows):
    source, _ = make_pruned(tmp_path, family)
    done = tuned_in(tmp_path / "run", source, rows)
    assert done.difference.mean < 0
    assert done.difference.mean + 2 * done.difference.standard_error < 0
    assert done.training[-1] < done.training[0]
    (tmp_path / "out").mkdir()
    done.write(tmp_path / "out")
    before, after = stored(source), stored(tmp_path / "out")
    assert {name: x.shape for name, x in before.items()} == {name: x.shape for name, x in after.items()}
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    inside = {name for name, x in before.items() if x.ndim == 2 and ("attn" in name or "mlp" in name)}
    assert changed == inside
    judged = module._judge(load_model(resolve(tmp_path / "out")), _held_out(rows), "again")
    torch.testing.assert_close(judged.nll, done.after.nll, rtol=1e-5, atol=1e-5)


def _held_out(rows: list[Row]) -> list[Row]:
    import numpy as np

    order = np.random.default_rng(QUICK.seed).permutation(len(rows))
    return [rows[i] for i in order[:2]]


def test_only_the_response_counts_and_a_row_is_there_once(pruned, tmp_path):
    lines = [{"prompt": "ab", "response": "cde"}, {"text": "xyz"}, {"text": "xyz"}, {"text": "v"}, {"text": "wwww"}]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, lines)))
    rows = read_rows(tmp_path / "rows.jsonl", resolve(pruned), 5)
    tokenizer = load_tokenizer(resolve(pruned))
    assert [tokenizer.decode(list(row.tokens)) for row in rows] == ["abcde", "xyz<end>", "v<end>", "wwww<end>"]
    assert [row.first for row in rows] == [2, 1, 1, 1]


def test_a_loss_is_that_of_the_row_alone_whatever_it_is_padded_to(pruned):
    model = load_model(resolve(pruned))
    long, short = Row(tuple(range(40)), 1), Row((7, 8, 9, 10), 2)
    (together,) = module._losses(model, [long, short])
    (alone,) = module._losses(model, [short])
    torch.testing.assert_close(together[0][1], alone[0][0])
    logits = model(torch.tensor([short.tokens])).logits[0].log_softmax(-1)
    assert alone[0][0].item() == pytest.approx(-(logits[1, 9] + logits[2, 10]).item(), rel=1e-5)
    assert alone[1].tolist() == [2]


def test_a_run_cut_short_continues_to_the_same_bytes(pruned, rows, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "KEPT_EVERY", 3)
    whole = tuned_in(tmp_path / "whole", pruned, rows)
    real, calls = module._accumulate, []

    def stop(*args):
        calls.append(1)
        if len(calls) == 8:
            raise KeyboardInterrupt
        return real(*args)

    monkeypatch.setattr(module, "_accumulate", stop)
    with pytest.raises(KeyboardInterrupt):
        tuned_in(tmp_path / "cut", pruned, rows)
    assert [file.name for file in (tmp_path / "cut" / "units").iterdir()] == ["step-000006.safetensors"]
    again = tuned_in(tmp_path / "cut", pruned, rows)
    assert len(calls) == 8 + whole.steps - 6
    assert again.training == whole.training
    assert all(torch.equal(again._weights[name], x) for name, x in whole._weights.items())


def test_a_half_precision_model_stays_one(tmp_path, rows):
    source, _ = make_pruned(tmp_path, "llama")
    load_model(resolve(source), dtype=torch.bfloat16).save_pretrained(source)
    done = tuned_in(tmp_path / "run", source, rows)
    (tmp_path / "out").mkdir()
    done.write(tmp_path / "out")
    assert {x.dtype for x in stored(tmp_path / "out").values()} == {torch.bfloat16}
    judged = module._judge(load_model(resolve(tmp_path / "out")), _held_out(rows), "again")
    torch.testing.assert_close(judged.nll, done.after.nll, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        (['{"text": "a b c"}'] * 9, "1 different rows"),
        (['{"text": "abc"}', '{"prompt": "a"}'], "line 2"),
        (['{"text": 3}'], "line 1"),
        (['["text"]'], "line 1"),
        (["not json"], "line 1 is not JSON"),
        ([], "0 different rows"),
    ],
    ids=["all the same", "no response", "a number", "a list", "no JSON", "empty"],
)
def test_rows_that_are_none_are_named(pruned, tmp_path, lines, says):
    (tmp_path / "rows.jsonl").write_text("\n".join(lines))
    with pytest.raises(InputError, match=says) as refused:
        read_rows(tmp_path / "rows.jsonl", resolve(pruned), 48)
    assert refused.value.hint


def test_without_peft_it_says_how_to_get_it(pruned, rows, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "peft", None)
    with pytest.raises(MissingError, match="peft") as refused:
        tuned_in(tmp_path / "run", pruned, rows)
    assert "icml25[tune]" in str(refused.value.hint)


def test_a_model_of_another_family_is_refused(tmp_path, rows):
    with pytest.raises(InputError, match="phi"):
        tuned_in(tmp_path / "run", make_model(tmp_path / "phi", "phi"), rows)


def test_rows_longer_than_the_window_and_tokens_that_the_model_has_not_are_named(tmp_path, rows):
    short = make_model(tmp_path / "short", "gpt2", n_positions=16)
    file = tmp_path / "rows.jsonl"
    file.write_text("\n".join(json.dumps({"text": f"{i} " + "long " * 20}) for i in range(6)))
    with pytest.raises(InputError, match=r"--cutoff 48 leaves a row of 48 tokens.* a window of 16") as caught:
        read_rows(file, resolve(short), 48)
    assert caught.value.hint == "use --cutoff 16"
    assert len(read_rows(file, resolve(short), 16)) == 6
    few = make_model(tmp_path / "few", vocab_size=40, pad_token_id=None, bos_token_id=None, eos_token_id=None)
    with pytest.raises(InputError, match="is not among the 40 of"):
        tuned_in(tmp_path / "run", few, rows)
