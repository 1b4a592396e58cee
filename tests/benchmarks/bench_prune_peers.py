"""SlimLLM, FLAP and Wanda-sp against optipfair and Torch-Pruning: same model, same windows, equal parameters.

    python tests/benchmarks/bench_prune_peers.py [MODEL] [--target 0.2] [--calib TEXT] [--eval TEXT]

The peers come with the extra `peers`; one that is not installed costs its rows. Both cut channels of the feed-forward
networks alone, the same number in every layer: optipfair by weights (MAW), and by weights and the activations of our
calibration windows; Torch-Pruning by the norms of its groups. (Torch-Pruning can cut heads, too, but with the attention
of this transformers its search for what hangs together does not end.) All are judged by the same code on the model in
memory, ours as `prune -o` writes it. Seconds are CPU seconds of one thread, which load distorts less than the clock,
of pruning alone: reading files a block at a time with us, with the model in memory already with the peers.
"""

import argparse
import logging
import os
import tempfile
import time
import warnings
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from itertools import chain, product
from pathlib import Path
from typing import Any

from bench_codec import cpu_model  # first: it sets one thread before torch starts its pool

# isort: split
import torch
from torch import Tensor
from transformers import PreTrainedModel

from icml25cli.core.likelihood import paired_difference, perplexity, window_nll
from icml25cli.core.models import ModelSource, load_model, resolve
from icml25cli.core.runs import Run
from icml25cli.core.streaming import StreamedModel
from icml25cli.papers.prune.anatomy import Anatomy, examine
from icml25cli.papers.prune.export import write_export
from icml25cli.papers.prune.job import Texts, windows_of
from icml25cli.papers.prune.methods import Options
from icml25cli.papers.prune.pipeline import prune_model

OURS = ("slimllm", "flap", "wanda-sp")
MODES = ("query", "expand")  # as many query heads of every group; or any, each with its keys and values
MOST = 2.0  # times a peer's seconds


def main(arguments: argparse.Namespace) -> None:
    logging.disable(logging.INFO)  # optipfair reports its progress there
    warnings.filterwarnings("ignore", message="Unwrapped parameters")  # norms are cut nowhere, which is right
    source = resolve(arguments.model)
    streamed = StreamedModel(source)
    anatomy = examine(streamed)
    calibration, evaluation, params = windows_of(source, Texts(arguments.calib, 4096, arguments.eval, 8192))
    print(f"{cpu_model()}, 1 thread, load {os.getloadavg()[0]:.1f} before")
    print(f"{source.name}: calibration {params['calibration']}; evaluation {params['evaluation']}")
    dense = load_model(source)
    base, whole = losses(dense, evaluation), blocks_of(dense)
    print(f"\n{'':30}{'decoder':>9}{'perplexity':>18}{'nats over dense':>20}{'CPU s':>9}")
    row("dense", 1.0, base, base, 0.0)
    spent = {}
    for name, model, seconds in chain(
        ours(streamed, anatomy, calibration, arguments), peers(source, anatomy, calibration, arguments)
    ):
        spent[name] = seconds
        row(name, blocks_of(model) / whole, losses(model, evaluation), base, seconds)
    others = [seconds for name, seconds in spent.items() if not name.startswith(OURS)]
    if others:
        times = spent[f"slimllm, {MODES[0]}"] / max(others)
        print(f"\nslimllm takes {times:.1f} times the slowest peer's seconds, of {MOST} allowed")
    print(f"load {os.getloadavg()[0]:.1f} after")


def row(name: str, share: float, nll: Tensor, base: Tensor, seconds: float) -> None:
    fit = perplexity(nll.double().sum(1), torch.full((len(nll),), nll.shape[1]))
    more = paired_difference(nll.mean(1), base.mean(1))
    print(
        f"{name:30}{share:9.2%}{fit.mean:11.2f} ± {fit.standard_error:<5.2f}"
        f"{more.mean:11.4f} ± {more.standard_error:<6.4f}{seconds:9.1f}",
        flush=True,
    )


def losses(model: PreTrainedModel, windows: Tensor) -> Tensor:
    return window_nll(model, windows, batch_size=8)


def blocks_of(model: Any) -> int:
    return sum(x.numel() for x in model.base_model.layers.parameters())


def ours(
    model: StreamedModel, anatomy: Anatomy, calibration: Tensor, arguments: argparse.Namespace
) -> Iterator[tuple[str, PreTrainedModel, float]]:
    nothing = torch.empty(0, calibration.shape[1], dtype=torch.int64)
    for name, gqa in product(OURS, MODES):
        options = Options(method=name, target=arguments.target, gqa=gqa)
        with tempfile.TemporaryDirectory() as folder:
            began = time.process_time()
            with Run.open(Path(folder) / "run", {}) as run:
                pruned = prune_model(model, options, calibration, nothing, run)
                seconds = time.process_time() - began
                (Path(folder) / "out").mkdir()
                write_export(Path(folder) / "out", model, anatomy, pruned.plan, pruned.layer_tensors)
            yield f"{name}, {gqa}", load_model(resolve(Path(folder) / "out")), seconds


def peers(
    source: ModelSource, anatomy: Anatomy, calibration: Tensor, arguments: argparse.Namespace
) -> Iterator[tuple[str, PreTrainedModel, float]]:
    gone = round(arguments.target * anatomy.block_parameters / anatomy.channel_parameters())
    for name, package, prune in (
        ("optipfair", "optipfair", by_optipfair),
        ("optipfair, activations", "optipfair", by_optipfair_with_data),
        ("Torch-Pruning", "torch-pruning", by_torch_pruning),
    ):
        try:
            release = version(package)
        except PackageNotFoundError:
            print(f"{name:30} is not installed: pip install 'icml25[peers]'")
            continue
        model = load_model(source)
        began = time.process_time()
        model = prune(model, gone / anatomy.inner, calibration)
        yield f"{name} {release}", model, time.process_time() - began


def by_optipfair(model: PreTrainedModel, share: float, _: Tensor, **more: Any) -> PreTrainedModel:
    import optipfair

    pruned: Any = optipfair.prune_model(
        model, pruning_type="MLP_GLU", pruning_percentage=100 * share, show_progress=False, **more
    )
    return pruned


def by_optipfair_with_data(model: PreTrainedModel, share: float, calibration: Tensor) -> PreTrainedModel:
    batches = [{"input_ids": rows, "attention_mask": torch.ones_like(rows)} for rows in calibration.split(8)]
    return by_optipfair(model, share, calibration, neuron_selection_method="MAW", dataloader=batches)


def by_torch_pruning(model: PreTrainedModel, share: float, calibration: Tensor) -> PreTrainedModel:
    import torch_pruning

    cut = {id(module) for name, module in model.named_modules() if name.endswith(("gate_proj", "up_proj"))}
    kinds = (torch.nn.Linear, torch.nn.Embedding)
    pruner = torch_pruning.pruner.BasePruner(
        model,
        example_inputs=calibration[:1, :16],
        importance=torch_pruning.importance.GroupMagnitudeImportance(p=2, group_reduction="mean"),
        pruning_ratio=share,
        ignored_layers=[x for x in model.modules() if isinstance(x, kinds) and id(x) not in cut],
        output_transform=lambda out: out.logits.sum(),
    )
    pruner.step()
    return model


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", default="tiny")
    parser.add_argument("--target", type=float, default=0.2)
    parser.add_argument("--calib", default="builtin")
    parser.add_argument("--eval", default="builtin")
    main(parser.parse_args())
