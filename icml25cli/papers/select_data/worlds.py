"""Two small worlds in which what helps is known, made from scratch: a language, a model of it, rows to choose from.

Twenty keys have one of eight colours each. A model of two layers knows how answers sound, not which colour a key has.
Rows of the pool tell the right colour in one style of answer or another, a wrong one, or are about something else; the
metric is whether the first colour of a drawn answer is right. In the world ``unseen-style`` reference answers are in a
style that the model has never met, so that learning to predict them is mostly learning the style; in ``seen-style``
they are in one that it knows. Knows models and rows. Does not know the method.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from icml25cli.core.files import atomic_path
from icml25cli.core.models import quiet_transformers
from icml25cli.core.progress import track
from icml25cli.papers.select_data.adapters import Adapter
from icml25cli.papers.select_data.rewards import Asked, Each
from icml25cli.papers.select_data.sampling import Sampling
from icml25cli.papers.select_data.training import Recipe, seeded
from icml25cli.papers.select_data.workspace import Settings

Name = Literal["unseen-style", "seen-style"]
COLOURS = tuple(f"c{i}" for i in range(8))
KEYS = tuple(f"k{i}" for i in range(20))
KNOWN = tuple(f"o{i}" for i in range(40))  # other keys, whose colours the model knows
_FILLER = tuple(f"f{i}" for i in range(24))
_UNSEEN = tuple(f"u{i}" for i in range(14))
_ASK, _OTHER = "ask", "tell"  # the words of the two tasks
_TEMPLATE = (
    "{% for m in messages %}{{ m['content'] }}{% if m['role'] == 'user' %} => {% else %} </s>{% endif %}{% endfor %}"
)
STEPS, BATCH = 500, 64


@dataclass(frozen=True)
class Sizes:
    """How many rows of each kind a pool has."""

    helpful: int = 140  # right colour, in a style that the model speaks
    same_style: int = 80  # right colour, in the style of the references
    wrong: int = 240  # wrong colour, in the style of the references
    other: int = 740  # another task


@dataclass(frozen=True)
class World:
    """Files of one world, and what is true in it."""

    model: Path
    pool: Path
    validation: Path
    kinds: tuple[str, ...]  # of every row of the pool: helpful, same style, wrong or other


def right_colour(name: str = "first-colour") -> Each:
    """1 where the first colour of an answer is the row's."""

    def judge(one: Asked) -> float:
        return next((word for word in one.answer.split() if word in COLOURS), None) == one.record["colour"]

    return Each(name, judge)


def settings_of(seed: int) -> Settings:
    """The settings in which worlds are measured: models are small, so rates are large, and drawing is unfiltered."""
    return Settings(
        adapter=Adapter(rank=16, alpha=64, targets="all-linear", seed=seed),
        recipe=Recipe(learning_rate=1e-3, batch_size=16, seed=seed),
        warmup_fraction=0.1,
        max_length=64,
        sampling=Sampling(count=20, temperature=1.0, top_k=0, top_p=1.0, max_new_tokens=20, seed=seed),
        seed=seed,
    )


def final_recipe(seed: int) -> Recipe:
    return replace(settings_of(seed).recipe, learning_rate=2e-3, epochs=6)


def make_world(folder: Path, name: Name, seed: int, sizes: Sizes | None = None, model: Path | None = None) -> World:
    """Make the files of a world in ``folder``; the same seed makes the same ones on the same machine.

    Args:
        model: where its model is kept, and taken from if it is there: worlds of several seeds may share one.
    """
    sizes = sizes or Sizes()
    rng = np.random.default_rng([seed, 11])
    colours = {key: COLOURS[i] for key, i in zip(KEYS, rng.integers(0, len(COLOURS), len(KEYS)), strict=True)}
    known = {key: COLOURS[i] for key, i in zip(KNOWN, rng.integers(0, len(COLOURS), len(KNOWN)), strict=True)}
    folder.mkdir(parents=True, exist_ok=True)
    model = model or folder / "model"
    if not model.exists():
        with atomic_path(model) as temporary:
            _pretrain(temporary, known, np.random.default_rng([seed, 12]), seed)
    reference = "unseen" if name == "unseen-style" else "long"
    rows: list[tuple[str, str, str]] = []
    for kind, count in (("helpful", sizes.helpful), ("same style", sizes.same_style), ("wrong", sizes.wrong)):
        for i in range(count):
            key = KEYS[i % len(KEYS)]
            colour = colours[key]
            if kind == "wrong":
                colour = str(rng.choice([c for c in COLOURS if c != colour]))
            style = "short" if kind == "helpful" else reference
            rows.append((kind, f"{_ASK} {key}", _styled(style, colour)))
    for _ in range(sizes.other):
        key = str(rng.choice(KEYS))
        rows.append(("other", f"{_OTHER} {key}", _rambling(rng)))
    order = rng.permutation(len(rows))
    records = [{"prompt": rows[i][1], "completion": rows[i][2]} for i in order]
    asked = [{"prompt": f"{_ASK} {k}", "completion": _styled(reference, c), "colour": c} for k, c in colours.items()]
    pool, validation = folder / "pool.jsonl", folder / "validation.jsonl"
    pool.write_text("".join(json.dumps(record) + "\n" for record in records))
    validation.write_text("".join(json.dumps(record) + "\n" for record in asked))
    return World(model, pool, validation, tuple(rows[i][0] for i in order))


def _styled(style: str, colour: str) -> str:
    """An answer that tells a colour: long (12 words before it, 2 after), short (1 and 1), or in words never met."""
    if style == "short":
        return " ".join((_FILLER[14], colour, _FILLER[15]))
    words = _UNSEEN if style == "unseen" else _FILLER[:14]
    return " ".join((*words[:12], colour, *words[12:14]))


def _rambling(rng: Any) -> str:
    """An answer of the other task: filler of any length, and a colour that means nothing."""
    words = rng.choice(_FILLER, rng.integers(4, 13)).tolist()
    words.insert(int(rng.integers(0, len(words) + 1)), str(rng.choice(COLOURS)))
    return " ".join(words)


# --- a model that speaks the language --------------------------------------------------------------------------------


def _tokenizer() -> Any:
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = ["</s>", "=>", _ASK, _OTHER, *KEYS, *KNOWN, *COLOURS, *_FILLER, *_UNSEEN]
    inner = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="</s>"))
    inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()  # type: ignore[assignment]
    made = PreTrainedTokenizerFast(tokenizer_object=inner, eos_token="</s>", pad_token="</s>")
    made.chat_template = _TEMPLATE
    return made


def _pretrain(folder: Path, known: dict[str, str], rng: Any, seed: int) -> None:
    """Two layers of width 64 that speak both known styles, know the other keys' colours, and guess the keys' own."""
    from transformers import LlamaConfig, LlamaForCausalLM

    tokenizer = _tokenizer()
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=64,
        intermediate_size=172,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=4,
        max_position_embeddings=64,
        bos_token_id=None,
        eos_token_id=0,
        pad_token_id=0,
        tie_word_embeddings=False,
    )
    with quiet_transformers(), seeded(torch.device("cpu"), seed):
        model = LlamaForCausalLM(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.01)
    model.train()
    for step in track(STEPS, "a model for the demo, steps"):
        optimizer.param_groups[0]["lr"] = 3e-3 * min(1.0, (step + 1) / 20) * (1 - step / STEPS)
        texts = [_sentence(known, rng) for _ in range(BATCH)]
        batch = tokenizer(texts, padding=True, return_tensors="pt")
        labels = batch.input_ids.clone()
        ends = batch.attention_mask.sum(1)
        labels[batch.attention_mask == 0] = -100
        labels[torch.arange(BATCH), ends - 1] = 0  # the end of a text, which has the number of padding
        loss = model(input_ids=batch.input_ids, attention_mask=batch.attention_mask, labels=labels).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    with quiet_transformers():
        model.eval().save_pretrained(folder)
        tokenizer.save_pretrained(folder)


def _sentence(known: dict[str, str], rng: Any) -> str:
    if rng.random() < 1 / 3:
        return f"{_OTHER} {rng.choice(KEYS + KNOWN)} => {_rambling(rng)} </s>"
    style = "long" if rng.random() < 0.5 else "short"
    key = str(rng.choice(KEYS if rng.random() < 1 / 3 else KNOWN))
    colour = known.get(key) or str(rng.choice(COLOURS))
    return f"{_ASK} {key} => {_styled(style, colour)} </s>"
