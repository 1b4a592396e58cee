"""Build the pool on which `icml25 select-data` is measured: 2,400 rows of six tasks, made of fetched assets.

    icml25 assets fetch sotu spam-assassin chatterbot wordnet smollm2-135m
    pip install reasoning-gym==0.1.25
    python assets/recipes/select_data_pool.py DIR

writes sums.jsonl and words.jsonl (reasoning-gym: tasks with exact answers), talk.jsonl (ChatterBot), define.jsonl
(WordNet), mail.jsonl (SpamAssassin), speeches.jsonl (State of the Union), 400 rows each, and validation.jsonl and
test.jsonl, 40 sums each that are in neither the pool nor each other. The metric is the exact answer of a sum. The same
versions write the same bytes. Then, in DIR, with as much kept as is finished:

    icml25 select-data compare sums.jsonl words.jsonl talk.jsonl define.jsonl mail.jsonl speeches.jsonl \\
        --model smollm2-135m --val validation.jsonl --test test.jsonl --reward number --budget 5% \\
        --baseline less --baseline random --once bm25 --once rds --seeds 3 --checkpoints last --mc 8 \\
        --max-new-tokens 32 --max-length 96 --epochs 2 --lr 1e-4 --batch 8 --batch-tokens 1024 \\
        --dtype bfloat16 --work work

A model of this size solves few sums after the warm-up, so that little tells rows apart. An easier task on the same pool
is to tell wanted mail: --val mail-validation.jsonl --test mail-test.jsonl --reward exact, 40 mails each, as many spam.
"""

import argparse
import json
import random
import re
from collections.abc import Callable, Iterable
from itertools import pairwise
from pathlib import Path

import yaml

from icml25cli.core import store

EACH = 400
Pairs = Iterable[tuple[str, str]]


def sums(count: int, seed: int) -> list[tuple[str, str]]:
    """Sums of two numbers of one or two digits."""
    import reasoning_gym  # pyright: ignore[reportMissingImports] -- installed for this script alone

    how = {"min_terms": 2, "max_terms": 2, "min_digits": 1, "max_digits": 2}
    tasks = reasoning_gym.create_dataset("chain_sum", size=count, seed=seed, **how)
    return [(task["question"], task["answer"]) for task in tasks]


def words(rng: random.Random) -> Pairs:
    """Words to be spelt backwards, with exact answers as well, of another kind."""
    import reasoning_gym  # pyright: ignore[reportMissingImports]

    for task in reasoning_gym.create_dataset("spell_backward", size=EACH, seed=rng.randrange(2**31)):
        yield task["question"], task["answer"]


def talk(rng: random.Random) -> Pairs:
    """Questions and answers out of conversations."""
    for file in sorted(store.path("chatterbot").glob("*.yml")):
        for turns in yaml.safe_load(file.read_text(encoding="utf-8")).get("conversations", ()):
            for asked, answered in pairwise(turns):
                yield str(asked), str(answered)


def define(rng: random.Random) -> Pairs:
    """Words and their glosses."""
    for kind in ("noun", "verb", "adj", "adv"):
        for line in (store.path("wordnet") / f"data.{kind}").read_text(encoding="utf-8").splitlines():
            if not line.startswith("  ") and " | " in line:
                fields, gloss = line.split(" | ", 1)
                yield f"Define the word '{fields.split()[4].replace('_', ' ')}'.", gloss.split(";")[0].strip()


def mail(rng: random.Random) -> Pairs:
    """Beginnings of mails, to be told wanted from not."""
    for folder, answer in (("easy-ham-1", "ham"), ("spam-1", "spam")):
        for file in sorted((store.path("spam-assassin") / folder).glob("*.txt")):
            head, _, body = file.read_text(encoding="utf-8", errors="replace").partition("\n\n")
            subject = re.search(r"^Subject: (.*)$", head, re.MULTILINE)
            begins = " ".join(re.sub(r"<[^>]*>", " ", body).split())[:120]
            yield f"Is this mail spam or ham?\n{subject[1] if subject else ''}\n{begins}", answer


def speeches(rng: random.Random) -> Pairs:
    """Passages of addresses, to be dated."""
    for file in sorted(store.path("sotu").glob("*.txt")):
        text = " ".join(file.read_text(encoding="utf-8", errors="replace").split())
        for start in range(2000, min(len(text) - 200, 8000), 2000):
            yield f"In which decade was this said?\n{text[start : start + 180]}", f"the {file.name[:3]}0s"


def write(path: Path, pairs: Pairs) -> None:
    lines = [json.dumps({"prompt": asked, "completion": answered}, ensure_ascii=False) for asked, answered in pairs]
    path.write_text("\n".join([*lines, ""]), encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path)
    into = parser.parse_args().directory
    into.mkdir(parents=True, exist_ok=True)
    unique = list(dict.fromkeys(sums(3 * (EACH + 80), 0)))[: EACH + 80]
    write(into / "validation.jsonl", unique[:40])
    write(into / "test.jsonl", unique[40:80])
    write(into / "sums.jsonl", unique[80:])
    makers: tuple[Callable[[random.Random], Pairs], ...] = (words, talk, define, mail, speeches)
    for maker in makers:
        rng = random.Random(maker.__name__)
        found = list(dict.fromkeys(maker(rng)))
        chosen = rng.sample(found, EACH)
        write(into / f"{maker.__name__}.jsonl", chosen)
        if maker is mail:
            rest = rng.sample(others := sorted({*found} - {*chosen}), len(others))
            ham, spam = ([pair for pair in rest if pair[1] == answer][:40] for answer in ("ham", "spam"))
            apart = [pair for both in zip(ham, spam, strict=True) for pair in both]
            write(into / "mail-validation.jsonl", apart[:40])
            write(into / "mail-test.jsonl", apart[40:])


if __name__ == "__main__":
    main()
