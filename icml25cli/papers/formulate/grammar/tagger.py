"""Spans of a problem's text by role: a linear chain over words, as an averaged perceptron learns it.

    tags = load_tagger().tags(words)          # one of TAGS a word
    spans(tags)                               # [(first, behind the last, role), ...]

Collins (2002), "Discriminative training methods for hidden Markov models", with features hashed into a table of fixed
size. Knows words and their neighbours. Does not know what a number or a variable is worth.
"""

import importlib.resources
import re
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

ROLES = ("VAR", "PARAM", "LIMIT", "CONST_DIR", "OBJ_DIR", "OBJ_NAME")
TAGS = ("O", *(f"{side}-{role}" for role in ROLES for side in "BI"))
BUCKETS = 2**15  # hashed features
WORD = re.compile(r"['’]s\b|\d+(?:,\d{3})+(?:\.\d+)?|\d*\.?\d+|[^\W\d_]+(?:['’](?!s\b)[^\W\d_]+)?|\w+|[^\w\s]")


_PLURALS = """
child children; man men; woman women; salesman salesmen; workman workmen; craftsman craftsmen; fireman firemen;
foreman foremen; goose geese; ox oxen; mouse mice; foot feet; tooth teeth; potato potatoes; tomato tomatoes;
calf calves; half halves; knife knives; leaf leaves; loaf loaves; scarf scarves; shelf shelves; wolf wolves
"""
IRREGULAR = {many: one for one, many in (pair.split() for pair in _PLURALS.split(";"))}


@dataclass(frozen=True)
class Word:
    """A word of a text, with where it stands in it."""

    text: str
    start: int
    end: int


def words_of(text: str) -> list[Word]:
    """The words and marks of a text; numbers with their separators are one word."""
    return [Word(match.group(), match.start(), match.end()) for match in WORD.finditer(text)]


def stem(word: str) -> str:
    """A word without the ending of its plural, in small letters."""
    word = word.lower()
    if word in IRREGULAR:
        return IRREGULAR[word]
    if len(word) > 4 and word.endswith("ie"):  # hoodie, hoodies
        return word[:-2] + "y"
    for ending, instead in (
        ("buses", "bus"),
        ("gases", "gas"),
        ("ies", "y"),
        ("sses", "ss"),
        ("ches", "ch"),
        ("shes", "sh"),
        ("xes", "x"),
    ):
        if word.endswith(ending) and len(word) > min(len(ending) + 1, 4):
            return word[: -len(ending)] + instead
    plural = len(word) > 2 and word.endswith("s") and not word.endswith(("ss", "us", "is"))
    plural = plural and word not in ("gas", "has", "was", "its", "yes", "lens")
    return word[:-1] if plural else word


def features(words: Sequence[str]) -> np.ndarray:
    """Buckets of the features of every word: int32 of shape (words, features)."""
    lower = ["<s>", "<s>", *(re.sub(r"\d+", "0", word.lower()) for word in words), "</s>", "</s>"]
    stems = [stem(word) for word in words]
    often: dict[str, int] = {}
    for each in stems:
        often[each] = often.get(each, 0) + 1
    sentence = 0
    rows = []
    for i, word in enumerate(words):
        before2, before, here, after, after2 = lower[i : i + 5]
        shape = "".join("X" if c.isupper() else "x" if c.isalpha() else "0" if c.isdigit() else c for c in word[:4])
        count = min(often[stems[i]], 4)
        names = (
            f"w{here}",
            f"s{here[-3:]}",
            f"p{here[:3]}",
            f"h{shape}",
            f"b{before}",
            f"c{before2}",
            f"a{after}",
            f"d{after2}",
            f"bw{before} {here}",
            f"wa{here} {after}",
            f"ba{before} {after}",
            f"cb{before2} {before}",
            f"ad{after} {after2}",
            f"n{count}{shape[:1]}",
            f"nb{count}{before}",
            f"e{min(sentence, 3)}{here}",
            f"l{len(words) - i < 25}{here}",
            "bias",
        )
        rows.append([zlib.crc32(name.encode()) % BUCKETS for name in names])
        if here in ".?!":
            sentence += 1
    return np.array(rows, dtype=np.int32).reshape(len(words), -1)


def decode(emissions: np.ndarray, steps: np.ndarray) -> list[int]:
    """The best chain of tags: scores of shape (words, tags), and (tags + 1, tags) from a tag, or the start, to one."""
    count = emissions.shape[1]
    best = emissions[0] + steps[count]
    back = []
    for emission in emissions[1:]:
        paths = best[:, None] + steps[:count]
        back.append(paths.argmax(0))
        best = paths.max(0) + emission
    chain = [int(best.argmax())]
    for pointers in reversed(back):
        chain.append(int(pointers[chain[-1]]))
    return chain[::-1]


def allowed() -> np.ndarray:
    """Zero where a tag may follow another and a very small number where not: inside follows its own role."""
    steps = np.zeros((len(TAGS) + 1, len(TAGS)), dtype=np.float32)
    for to, tag in enumerate(TAGS):
        if tag[0] == "I":
            steps[[i for i in range(len(TAGS) + 1) if i == len(TAGS) or TAGS[i][2:] != tag[2:]], to] = -1e6
    return steps


@dataclass(frozen=True)
class Tagger:
    """Weights of features (BUCKETS, tags) and of steps between tags (tags + 1, tags), float32."""

    weights: np.ndarray
    steps: np.ndarray

    def tags(self, words: Sequence[str]) -> list[str]:
        """A tag for every word."""
        if not words:
            return []
        return [TAGS[i] for i in decode(self.weights[features(words)].sum(1), self.steps + allowed())]


def spans(tags: Iterable[str]) -> list[tuple[int, int, str]]:
    """Runs of one role: first word, the word behind the last, role."""
    found: list[tuple[int, int, str]] = []
    for i, tag in enumerate(tags):
        if tag == "O":
            continue
        if tag[0] == "I" and found and found[-1][1] == i and found[-1][2] == tag[2:]:
            found[-1] = (found[-1][0], i + 1, tag[2:])
        else:
            found.append((i, i + 1, tag[2:]))
    return found


@cache
def load_tagger() -> Tagger:
    """The tagger that is installed with the program."""
    from safetensors.numpy import load_file

    path = Path(str(importlib.resources.files("icml25cli.assets") / "formulate_tagger" / "tagger.safetensors"))
    tensors = load_file(path)
    return Tagger(tensors["weights"] * tensors["scale"], tensors["steps"].astype(np.float32))
