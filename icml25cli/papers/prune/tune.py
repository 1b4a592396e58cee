"""Recovery of a pruned model by low-rank adapters (LoRA), trained on the user's rows and merged into the weights.

Settings are those of the paper's recovery runs (section 4.1). A row's loss is of its text, or of its response after its
prompt. A run cut short continues at its last kept step, to the same bytes. Knows peft, models and runs. Does not know
the command line.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float64, Int
from safetensors.torch import load_file, save_file
from torch import Tensor

from icml25cli.core.blockwise import whole
from icml25cli.core.checkpoint import model_files
from icml25cli.core.errors import InputError, MissingError, unknown_token
from icml25cli.core.files import output_errors
from icml25cli.core.likelihood import Estimate, perplexity, ratio
from icml25cli.core.models import PRUNED, ModelSource, context_length, load_model, load_tokenizer, quiet_transformers
from icml25cli.core.progress import Progress, track
from icml25cli.core.runs import Run, fingerprint, run_directory
from icml25cli.core.streaming import StreamedModel, write_checkpoint
from icml25cli.core.text import read_json_lines
from icml25cli.papers.prune.anatomy import FAMILIES, GPT2

FORM = 'each line is {"text": "..."} or {"prompt": "...", "response": "..."}'
ROWS_AT_ONCE = 4  # of a batch in one forward: logits of a large vocabulary are what fills memory
KEPT_EVERY = 20  # steps
WARM_UP = 0.05  # of all steps, in which the learning rate rises from 0; it then falls to 0


@dataclass(frozen=True)
class Options:
    """Of the adapters and their training; see the help of ``icml25 prune tune``."""

    rank: int = 8
    alpha: float = 16.0
    dropout: float = 0.05
    learning_rate: float = 1e-4
    epochs: int = 2
    batch_size: int = 16
    cutoff: int = 256  # tokens of a row
    held_out: float = 0.1  # of the rows
    seed: int = 0


@dataclass(frozen=True)
class Row:
    """Tokens of one row; losses of ``tokens[first:]`` count."""

    tokens: tuple[int, ...]
    first: int


@dataclass(frozen=True)
class Loss:
    """Of held-out rows, in nats."""

    nll: Float64[Tensor, " rows"]  # summed over counted tokens
    counts: Int[Tensor, " rows"]

    @property
    def mean(self) -> Estimate:
        """A token."""
        return ratio(self.nll, self.counts)


@dataclass(frozen=True)
class Tuned:
    """A model with its adapters merged, in the precision it will be stored in."""

    source: ModelSource
    before: Loss
    after: Loss
    trained_rows: int
    steps: int
    trained_parameters: int
    training: tuple[float, ...]  # mean loss a token of every step's batch, nats
    _weights: dict[str, Tensor]  # changed ones, by checkpoint name, as stored

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The model tuned and as it was, as report rows."""
        losses = {"tuned": self.after, "before": self.before}
        return [
            {
                "method": name,
                "nll": loss.mean.mean,
                "nll_se": loss.mean.standard_error,
                "perplexity": perplexity(loss.nll, loss.counts).mean,
                "perplexity_se": perplexity(loss.nll, loss.counts).standard_error,
                "tokens": int(loss.counts.sum()),
            }
            for name, loss in losses.items()
        ]

    @property
    def difference(self) -> Estimate:
        """Mean loss a token after, less before, paired over rows."""
        return ratio(self.after.nll - self.before.nll, self.before.counts)

    def write(self, directory: Path) -> None:
        """Write the model in the form it came in; ``directory`` exists and is the caller's to commit or throw away.

        Raises:
            OutputError: the disk is full.
        """
        model = StreamedModel(self.source)
        blocks = (model.block_tensors(i) for i in range(model.block_count))
        with output_errors(directory, directory):
            write_checkpoint(
                directory,
                self.source,
                ({name: self._weights.get(name, tensor) for name, tensor in block.items()} for block in blocks),
                dtype=None,
            )


def read_rows(path: Path, source: ModelSource, cutoff: int) -> list[Row]:
    """Rows of a JSONL file as tokens, cut to ``cutoff``; each once, so that none can be both learnt and held out.

    Raises:
        InputError: the file cannot be read, a line (named) is no such object, too few rows are left, or a row has more
            tokens than the model reads at once.
    """
    tokenizer = load_tokenizer(source)
    end = [] if tokenizer.eos_token_id is None else [tokenizer.eos_token_id]
    rows: dict[Row, None] = {}
    for number, found in read_json_lines(path, hint=FORM):
        row = found if isinstance(found, dict) else {}
        texts = [row.get(field) for field in (("text",) if "text" in row else ("prompt", "response"))]
        if not all(isinstance(text, str) and text for text in texts):
            raise InputError(f"{path}, line {number} holds no text, and no prompt with a response", hint=FORM)
        first, *rest = (tokenizer(text, add_special_tokens=not i, verbose=False) for i, text in enumerate(texts))
        tokens = [*first["input_ids"], *(token for part in rest for token in part["input_ids"]), *end][:cutoff]
        counted = len(first["input_ids"]) if rest else 1
        if len(tokens) > counted:  # else the prompt alone fills it
            rows[Row(tuple(tokens), counted)] = None
    if len(rows) < 4:
        raise InputError(f"{path} has {len(rows)} different rows that fit --cutoff {cutoff}", hint="give at least 4")
    longest, window = max(len(row.tokens) for row in rows), context_length(source.config)
    if window and longest > window:
        raise InputError(
            f"--cutoff {cutoff} leaves a row of {longest} tokens, and {source.name} has a window of {window}",
            hint=f"use --cutoff {window}",
        )
    return list(rows)


@contextlib.contextmanager
def carry_out(
    source: ModelSource,
    rows: Sequence[Row],
    options: Options,
    *,
    device: str = "cpu",
    output: Path | None = None,
    resume: bool = False,
    fresh: bool = False,
) -> Iterator[Tuned]:
    """Tune in a run that continues where an earlier call with the same inputs stopped, see ``tune``.

    What is kept lies in ``output/.run``, or without ``output`` in the user's cache.
    """
    inputs = {
        "model": model_files(source.path),
        "options": asdict(options),
        "rows": [[row.first, *row.tokens] for row in rows],
    }
    with Run.open(run_directory("prune-tune", fingerprint(inputs), output), inputs, resume=resume, fresh=fresh) as run:
        yield tune(source, rows, options, run, device)


def tune(source: ModelSource, rows: Sequence[Row], options: Options, run: Run, device: str = "cpu") -> Tuned:
    """Train adapters of all matrices of the decoder blocks on most of ``rows``, judge on the others, and merge.

    Raises:
        MissingError: peft is not installed.
        InputError: the architecture is not known, or a loss is not finite.
    """
    try:
        import peft
    except ImportError as error:
        raise MissingError("peft is not installed", hint="pip install 'icml25[tune]', or pip install peft") from error
    family = source.config["model_type"].removeprefix(PRUNED)
    if family not in FAMILIES:
        raise InputError(f"{source.name} is a {family} model, whose blocks are not known here", hint="give another")
    names = FAMILIES[family]
    shuffled = [rows[i] for i in np.random.default_rng(options.seed).permutation(len(rows))]
    held_out = shuffled[: max(2, round(options.held_out * len(rows)))]
    training = shuffled[len(held_out) :]

    model: Any = load_model(source, device=device)
    known = model.get_input_embeddings().num_embeddings
    if (highest := max(max(row.tokens) for row in rows)) >= known:
        raise unknown_token(highest, known, source.name)
    before = _judge(model, held_out, "loss before")
    config = peft.LoraConfig(
        task_type="CAUSAL_LM",
        r=options.rank,
        lora_alpha=options.alpha,  # type: ignore[arg-type] -- a float as well
        lora_dropout=options.dropout,
        target_modules=[*names.inward, names.output, names.down],
        fan_in_fan_out=names is GPT2,
    )
    with quiet_transformers(), _seeded(model.device, options.seed), warnings.catch_warnings(action="ignore"):
        adapted: Any = peft.get_peft_model(model, config)
    learnt = {name: x for name, x in adapted.named_parameters() if x.requires_grad}
    losses = _train(adapted, learnt, training, options, run)
    weights = _merge(adapted, source)
    return Tuned(
        source=source,
        before=before,
        after=_judge(model, held_out, "loss after"),
        trained_rows=len(training),
        steps=len(losses),
        trained_parameters=sum(x.numel() for x in learnt.values()),
        training=tuple(losses),
        _weights=weights,
    )


# --- training ----------------------------------------------------------------------------------------------------


def _train(model: Any, learnt: dict[str, Tensor], rows: Sequence[Row], options: Options, run: Run) -> list[float]:
    """Let ``learnt`` follow AdamW; returns every step's loss. Continues after the last step that ``run`` holds."""
    size = min(options.batch_size, len(rows))
    each = -(-len(rows) // size)
    steps = options.epochs * each
    optimizer = torch.optim.AdamW(learnt.values(), lr=options.learning_rate, weight_decay=0.0)
    done, losses = _restore(learnt, optimizer, run, steps)
    model.train()
    with Progress("tuning", steps) as progress:
        progress.advance(done)
        for step in range(done, steps):
            order = np.random.default_rng([options.seed, step // each]).permutation(len(rows))
            batch = [rows[i] for i in order[step % each * size :][:size]]
            for group in optimizer.param_groups:
                group["lr"] = options.learning_rate * _schedule(step, steps)
            # Dropout of a step depends on its number alone, so that a run which continues here drops the same.
            with _seeded(model.device, options.seed + 1_000_003 * (step + 1)):
                losses.append(_accumulate(model, batch))
            if not np.isfinite(losses[-1]):
                raise InputError(f"the loss of step {step + 1} is not finite", hint="lower --lr")
            optimizer.step()
            optimizer.zero_grad()
            if (step + 1) % KEPT_EVERY == 0 or step + 1 == steps:
                _keep(learnt, optimizer, run, step + 1, losses)
            progress.advance()
    return losses


def _schedule(step: int, steps: int) -> float:
    rising = max(1, round(WARM_UP * steps))
    return min((step + 1) / rising, (steps - step) / max(1, steps - rising))


def _accumulate(model: Any, batch: Sequence[Row]) -> float:
    """Gradients of the mean loss over the batch's counted tokens; returns that loss."""
    counted = sum(len(row.tokens) - row.first for row in batch)
    total = 0.0
    for nll, _ in _losses(model, batch):
        loss = nll.sum() / counted
        loss.backward()
        total += loss.item()
    return total


def _losses(model: Any, rows: Sequence[Row]) -> Iterator[tuple[Tensor, Tensor]]:
    """Of a few rows at a time: summed losses, and how many tokens count. Rows are padded where nothing looks."""
    for start in range(0, len(rows), ROWS_AT_ONCE):
        some = rows[start : start + ROWS_AT_ONCE]
        length = max(len(row.tokens) for row in some)
        tokens = torch.tensor([[*row.tokens, *[0] * (length - len(row.tokens))] for row in some], device=model.device)
        place = torch.arange(length, device=model.device)[None]
        ends = torch.tensor([[len(row.tokens)] for row in some], device=model.device)
        firsts = torch.tensor([[row.first] for row in some], device=model.device)
        logits = model(input_ids=tokens, attention_mask=(place < ends).long(), use_cache=False).logits
        counts = ((place >= firsts) & (place < ends))[:, 1:]
        nll = torch.nn.functional.cross_entropy(
            logits[:, :-1].float().flatten(0, 1), tokens[:, 1:].flatten(), reduction="none"
        )
        yield (nll.view(counts.shape) * counts).sum(1), counts.sum(1)


@torch.no_grad()
def _judge(model: Any, rows: Sequence[Row], description: str) -> Loss:
    model.eval()
    seen = [losses for row in track(rows, description) for losses in _losses(model, [row])]
    nll, counts = (torch.cat(kind) for kind in zip(*seen, strict=True))
    if not nll.isfinite().all():
        raise InputError("a loss of a held-out row is not finite", hint="the weights are damaged, or the rate too high")
    return Loss(nll.double().cpu(), counts.cpu())


@contextlib.contextmanager
def _seeded(device: torch.device, seed: int) -> Iterator[None]:
    """torch's own generator begins at ``seed`` inside, and is outside as it was."""
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(seed)
        yield


# --- what is kept of training, and what it comes to -----------------------------------------------------------------


def _unit(step: int) -> str:
    return f"step-{step:06d}.safetensors"


def _keep(
    learnt: dict[str, Tensor], optimizer: torch.optim.Optimizer, run: Run, step: int, losses: list[float]
) -> None:
    """Make everything that a later step depends on a unit of the run, in place of the one before."""
    kept = {"losses": torch.tensor(losses, dtype=torch.float64)}
    for name, x in learnt.items():
        kept |= {f"{name}|value": x.detach()} | {f"{name}|{key}": part for key, part in optimizer.state[x].items()}
    run.write(_unit(step), lambda path: save_file({key: x.cpu().contiguous() for key, x in kept.items()}, path))
    for left in range(KEPT_EVERY, step, KEPT_EVERY):
        run.discard(_unit(left))


def _restore(
    learnt: dict[str, Tensor], optimizer: torch.optim.Optimizer, run: Run, steps: int
) -> tuple[int, list[float]]:
    """Bring back the last kept step, if any: its number, and the losses up to it."""
    kept = [step for step in (*range(KEPT_EVERY, steps, KEPT_EVERY), steps) if run.has(_unit(step))]
    if not kept:
        return 0, []
    with whole(run):
        held = load_file(run.path(_unit(kept[-1])))
        for name, x in learnt.items():
            x.data.copy_(held[f"{name}|value"])
            parts = ("step", "exp_avg", "exp_avg_sq")
            optimizer.state[x] = {part: held[f"{name}|{part}"].clone() for part in parts}
            for part in parts[1:]:
                optimizer.state[x][part] = optimizer.state[x][part].to(x.device)
        return kept[-1], held["losses"].tolist()


@torch.no_grad()
def _merge(adapted: Any, source: ModelSource) -> dict[str, Tensor]:
    """Add the adapters to the weights, which then are as they will be stored; returns these by checkpoint name."""
    touched = {name for name, module in adapted.base_model.model.named_modules() if hasattr(module, "lora_A")}
    merged: Any = adapted.merge_and_unload()
    state = merged.state_dict()
    model = StreamedModel(source)
    weights = {}
    for i in range(model.block_count):
        for name, before in model.block_tensors(i).items():
            path = name if name in state else f"{merged.base_model_prefix}.{name}"
            if path.removesuffix(".weight") in touched:
                weights[name] = state[path].to(before.dtype).cpu()
                state[path].copy_(weights[name])
    return weights
