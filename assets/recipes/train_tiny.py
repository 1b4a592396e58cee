"""Train `tiny`, the built-in language model: a small Llama on prose of the standard library and presidential addresses.

    python assets/recipes/train_tiny.py --work DIR [--sotu DIR] [--steps N]

Writes the model to assets/tiny when the last step is done. Interrupted, the same command goes on from the last
checkpoint in --work and ends with the same bytes (same machine and thread count): every random choice of a step is
derived from the seed and the step's number, so weights and optimiser are the whole state.
"""

import argparse
import json
import math
import os
import platform
import time
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Int64
from numpy import ndarray
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerBase, PreTrainedTokenizerFast

from icml25cli.core import store
from icml25cli.core.files import atomic_path
from icml25cli.core.text import Text, builtin_text, token_stream

TARGET = Path(__file__).resolve().parents[1] / "tiny"
VOCABULARY = 4096
END = "<|endoftext|>"
BLOCK = 1024  # tokens
BLOCKS = 2  # a step
LENGTHS = (256, 256, 256, 512, 256, 256, 256, 1024)  # windows into which the blocks of successive steps are read
EVAL_WINDOWS = 32  # of 512 tokens, for each of the two held-out texts
EVAL_EVERY = 200
CHECKPOINT_EVERY = 100
LAST_TRAINING_YEAR, LAST_CALIBRATION_YEAR = 1960, 1990


def addresses(folder: Path, first: int, last: int) -> Text:
    """State of the Union addresses of the years from ``first`` to ``last``, one document each."""
    files = sorted(path for path in folder.glob("*.txt") if first <= int(path.name[:4]) <= last)
    documents = tuple(path.read_text(encoding="utf-8").strip() for path in files)
    return Text(f"sotu-{first}-{last}", documents, f"State of the Union addresses {first} to {last}")


def training_documents(folder: Path) -> tuple[str, ...]:
    """The library's prose twice and the addresses once: they are seven times as long."""
    return builtin_text("training").documents * 2 + addresses(folder, 0, LAST_TRAINING_YEAR).documents


def training_stream(folder: Path, tokenizer: PreTrainedTokenizerBase, seed: int) -> Int64[ndarray, "n"]:
    """Tokens of the training documents in an order drawn by the seed."""
    documents = training_documents(folder)
    order = np.random.default_rng(seed).permutation(len(documents))
    return token_stream(Text("tiny-training", tuple(documents[i] for i in order), ""), tokenizer)


def train_tokenizer(documents: tuple[str, ...]) -> PreTrainedTokenizerFast:
    """Byte-level BPE with one special token, which both opens and closes documents."""
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=VOCABULARY, special_tokens=[END], initial_alphabet=alphabet)
    bpe.train_from_iterator(documents, trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=bpe, bos_token=END, eos_token=END, pad_token=END, model_max_length=BLOCK
    )


def new_model(seed: int) -> LlamaForCausalLM:
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=256,
        intermediate_size=704,
        num_hidden_layers=5,
        num_attention_heads=8,
        num_key_value_heads=4,
        max_position_embeddings=BLOCK,
        tie_word_embeddings=True,
        bos_token_id=0,
        eos_token_id=0,
        pad_token_id=0,
    )
    torch.manual_seed(seed)
    model = LlamaForCausalLM(config)
    for name, weight in model.named_parameters():
        if name.endswith(("o_proj.weight", "down_proj.weight")):  # what adds to the residual stream starts small
            weight.data /= math.sqrt(2 * config.num_hidden_layers)
    return model


def batch(stream: np.ndarray, step: int, seed: int) -> torch.Tensor:
    """The step's blocks: each epoch cuts the stream at a new offset and goes through its blocks in a new order."""
    per_epoch = (len(stream) - BLOCK) // (BLOCK * BLOCKS)
    epoch, place = divmod(step, per_epoch)
    rng = np.random.default_rng((seed, epoch))
    offset = rng.integers(BLOCK)
    order = rng.permutation(per_epoch * BLOCKS)[place * BLOCKS : (place + 1) * BLOCKS]
    blocks = torch.from_numpy(np.stack([stream[offset + i * BLOCK : offset + (i + 1) * BLOCK] for i in order]))
    return blocks.reshape(-1, LENGTHS[step % len(LENGTHS)])


def rate_at(step: int, rounds: list[int], warmup: int) -> float:
    """Share of the peak rate: in every round a linear warm-up, then a cosine down to 2 %.

    A second round costs less than one long one planned from the start: the first ends with a model that can ship.
    """
    for steps in rounds:
        if step < steps:
            break
        step -= steps
    cosine = 0.5 * (1 + math.cos(math.pi * max(0.0, (step - warmup) / (steps - warmup))))
    return min((step + 1) / warmup, 0.02 + 0.98 * cosine)


def loss_of(model: LlamaForCausalLM, tokens: torch.Tensor) -> torch.Tensor:
    """Mean negative log-likelihood of every token but a window's first, in nats."""
    with torch.autocast("cpu", dtype=torch.bfloat16):
        logits = model(input_ids=tokens, use_cache=False).logits
    return torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1).float(), tokens[:, 1:].flatten())


@torch.no_grad()
def held_out_loss(model: LlamaForCausalLM, windows: torch.Tensor) -> float:
    model.eval()
    loss = np.mean([loss_of(model, chunk).item() for chunk in windows.split(8)])
    model.train()
    return float(loss)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True, help="folder for checkpoints and the log")
    parser.add_argument("--sotu", type=Path, help="folder with YEAR_*.txt [default: the asset sotu]")
    parser.add_argument("--steps", type=int, nargs="+", default=[2000, 1200], help="of each round")
    parser.add_argument("--rate", type=float, default=3e-3, help="peak learning rate")
    parser.add_argument("--warmup", type=int, default=100, help="steps")
    parser.add_argument("--decay", type=float, default=0.1, help="weight decay of matrices")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--pause-after", type=int, help="stop after this many steps, as an interruption would")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    torch.use_deterministic_algorithms(True)
    setattr(torch.utils.deterministic, "fill_uninitialized_memory", False)  # noqa: B010 (unknown to type stubs)
    args.work.mkdir(parents=True, exist_ok=True)

    folder = args.sotu or store.path("sotu")
    held_out = {
        "builtin": builtin_text("calibration"),
        "sotu": addresses(folder, LAST_TRAINING_YEAR + 1, LAST_CALIBRATION_YEAR),
    }
    tokenizer = train_tokenizer(training_documents(folder))
    stream = training_stream(folder, tokenizer, args.seed)
    watched = {}
    for name, text in held_out.items():
        tokens = token_stream(text, tokenizer)
        every = np.linspace(0, len(tokens) - BLOCK // 2, EVAL_WINDOWS).astype(int)
        watched[name] = torch.from_numpy(np.stack([tokens[i : i + BLOCK // 2] for i in every]))

    model = new_model(args.seed)
    matrices = [p for p in model.parameters() if p.ndim > 1]
    gains = [p for p in model.parameters() if p.ndim == 1]
    groups = [{"params": matrices, "weight_decay": args.decay}, {"params": gains, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=args.rate, betas=(0.9, 0.95), fused=True)

    settings = {k: v for k, v in vars(args).items() if k not in ("work", "sotu", "pause_after")}
    log = {
        "settings": settings,
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "parameters": sum(p.numel() for p in model.parameters()),
        "tokens": {"stream": len(stream), "per_step": BLOCK * BLOCKS},
        "characters": {
            text.name: sum(map(len, text.documents))
            for text in (builtin_text("training"), addresses(folder, 0, LAST_TRAINING_YEAR), *held_out.values())
        },
        "seconds": 0.0,
        "steps": [],
    }
    checkpoint, best_file = args.work / "checkpoint.pt", args.work / "best.pt"
    first, best = 0, math.inf
    if checkpoint.exists():
        state = torch.load(checkpoint, weights_only=True)
        if state["log"]["settings"] != settings:
            raise SystemExit(f"{checkpoint} was made with other settings: {state['log']['settings']}")
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        log, first, best = state["log"], state["step"], state["best"]

    model.train()
    started = time.monotonic() - log["seconds"]
    running = []
    last = sum(args.steps)
    for step in range(first, last):
        rate = args.rate * rate_at(step, args.steps, args.warmup)
        for group in optimizer.param_groups:
            group["lr"] = rate
        loss = loss_of(model, batch(stream, step, args.seed))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        running.append(loss.item())
        done = step + 1
        if done % EVAL_EVERY == 0 or done == last:
            losses = {name: held_out_loss(model, windows) for name, windows in watched.items()}
            log["seconds"] = time.monotonic() - started
            log["steps"].append({"step": done, "training": float(np.mean(running)), **losses, "rate": rate})
            print(json.dumps(log["steps"][-1] | {"seconds": round(log["seconds"])}), flush=True)
            running = []
            if sum(losses.values()) < best:
                best = sum(losses.values())
                write_state(best_file, model.state_dict())
        if done % CHECKPOINT_EVERY == 0 or done in (last, args.pause_after):
            everything = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
            write_state(checkpoint, everything | {"log": log, "step": done, "best": best})
        if done == args.pause_after:
            return
    model.load_state_dict(torch.load(best_file, weights_only=True))
    model.eval().bfloat16()
    with atomic_path(TARGET, force=True) as new:
        model.save_pretrained(new)
        (new / "model.safetensors").chmod(0o644)  # as the other files; its writer grants it to the owner alone
        tokenizer.save_pretrained(new)
        (new / "training_log.json").write_text(json.dumps(log, indent=1) + "\n")


def write_state(path: Path, state: dict) -> None:
    beside = path.with_suffix(".part")
    torch.save(state, beside)
    os.replace(beside, path)


if __name__ == "__main__":
    main()
