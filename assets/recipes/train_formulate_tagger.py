"""Train the span tagger of `icml25 formulate` and write it to `assets/formulate_tagger`.

    python assets/recipes/train_formulate_tagger.py TRAIN DEV [--epochs 10] [--seed 0]

TRAIN and DEV are the files of the NL4OPT competition (github.com/nl4opt/nl4opt-competition, MIT licence) with a token
and its tag a line. Averaged structured perceptron; weights are kept in 8 bits. Prints F1 of spans on DEV.
"""

import argparse
import json
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

from icml25cli.papers.formulate.grammar.tagger import BUCKETS, TAGS, Tagger, allowed, decode, features, spans

OUT = Path(__file__).parents[1] / "formulate_tagger"


def read(path: Path) -> list[tuple[list[str], list[int]]]:
    """Documents: their words and the numbers of their tags."""
    documents = []
    for block in path.read_text(encoding="utf-8").split("\n\n"):
        lines = [line.split("\t") if "\t" in line else line.split() for line in block.splitlines()]
        rows = [(row[0], row[-1].strip()) for row in lines if len(row) > 1 and row[0] != "-DOCSTART-"]
        rows = [(word.strip(), tag) for word, tag in rows if word.strip()]
        if rows:
            documents.append(([word for word, _ in rows], [TAGS.index(tag) for _, tag in rows]))
    return documents


def train(documents: list[tuple[list[str], list[int]]], epochs: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Weights and steps, averaged over all updates."""
    count = len(TAGS)
    weights, steps = np.zeros((BUCKETS, count), np.float32), np.zeros((count + 1, count), np.float32)
    late, late_steps = np.zeros_like(weights), np.zeros_like(steps)  # sum of updates times when they were made
    prepared = [(features(words), tags) for words, tags in documents]
    order = np.random.default_rng(seed)
    grammar = allowed()
    time = 1
    for epoch in range(epochs):
        wrong = 0
        for position in order.permutation(len(prepared)):
            rows, gold = prepared[position]
            guess = decode(weights[rows].sum(1), steps + grammar)
            before_gold, before_guess = count, count
            for row, right, said in zip(rows, gold, guess, strict=True):
                for previous, tag, sign in ((before_gold, right, 1.0), (before_guess, said, -1.0)):
                    if (before_gold, right) != (before_guess, said):
                        steps[previous, tag] += sign
                        late_steps[previous, tag] += sign * time
                    if right != said:
                        np.add.at(weights[:, tag], row, sign)
                        np.add.at(late[:, tag], row, sign * time)
                wrong += right != said
                before_gold, before_guess = right, said
            time += 1
        print(f"epoch {epoch + 1}: {wrong} words wrong", flush=True)
    return weights - late / time, steps - late_steps / time


def scores(tagger: Tagger, documents: list[tuple[list[str], list[int]]]) -> dict[str, float]:
    """F1 of exact spans, a role and in all."""
    hits: dict[str, int] = {}
    sizes: dict[str, int] = {}
    for words, tags in documents:
        gold, said = set(spans(TAGS[tag] for tag in tags)), set(spans(tagger.tags(words)))
        for role in ("all", *{span[2] for span in gold | said}):
            mine = [{span for span in side if role in ("all", span[2])} for side in (gold, said)]
            hits[role] = hits.get(role, 0) + len(mine[0] & mine[1])
            sizes[role] = sizes.get(role, 0) + len(mine[0]) + len(mine[1])
    return {role: round(2 * hits[role] / sizes[role], 4) for role in sorted(sizes)}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("train", type=Path)
    parser.add_argument("dev", type=Path)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args()
    documents = read(chosen.train)
    weights, steps = train(documents, chosen.epochs, chosen.seed)
    scale = np.float32(np.abs(weights).max() / 127)
    whole = np.round(weights / scale).astype(np.int8)
    OUT.mkdir(exist_ok=True)
    save_file({"weights": whole, "scale": np.array([scale]), "steps": steps}, OUT / "tagger.safetensors")
    f1 = scores(Tagger(whole * scale, steps), read(chosen.dev))
    log = {"documents": len(documents), "epochs": chosen.epochs, "seed": chosen.seed, "span_f1_dev": f1}
    (OUT / "training_log.json").write_text(json.dumps(log, indent=2) + "\n", encoding="utf-8")
    print(json.dumps(log, indent=2))


if __name__ == "__main__":
    main()
