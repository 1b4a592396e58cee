"""Which variables a text speaks of, and where: clusters of the spans that the tagger found.

Knows words and spans. Does not know numbers.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from icml25cli.papers.formulate.grammar.lexicon import SAYS_NOTHING
from icml25cli.papers.formulate.grammar.tagger import stem

MOST = 5  # variables
_GENERIC = {"one", "type", "unit", "kind", "the", "a", "an", "of", "each", "every"}
_GENERIC |= {"bring", "earn", "fetch", "give", "sell"}  # verbs behind a name, as the tagger takes them along
_JOINTS = {"and", "or", ",", "and/or", "either", "versus", "/"}
_ARTICLES = {"the", "a", "an", "some", "by", "in", "on", "using", "either", "their", "his", "her", "its", "of"}


@dataclass(frozen=True)
class Mention:
    """Words from ``first`` to before ``last`` that name the variable ``which``."""

    first: int
    last: int
    which: int


@dataclass(frozen=True)
class Choice:
    """A choice of variables: the words of each, in the order of the text, and how much speaks for it (a logarithm)."""

    phrases: tuple[tuple[str, ...], ...]
    score: float


def content(words: Sequence[str]) -> tuple[str, ...]:
    """Words of a name that tell it from others: in small letters, without plural, marks and generic words."""
    kept = [stem(word) for word in words if word[0].isalnum()]
    special = [word for word in kept if word not in _GENERIC or len(kept) == 1]
    if len(words) > 1 and words[-1] in ("A", "a") and "a" not in special:
        special.append("a")  # of "mixture A"
    return tuple(special or kept)


def choices(words: Sequence[str], tags: Sequence[str], spans: Sequence[tuple[int, int, str]]) -> list[Choice]:
    """Choices of variables from best to worst: lists in one sentence, and the names mentioned most often."""
    named = [(first, last, content(words[first:last])) for first, last, role in spans if role == "VAR"]
    named = [each for each in named if each[2]]
    often = Counter(name for _, _, name in named)
    measured = Counter(name for first, _, name in named if _is_measured(words, tags, first))
    scores: dict[tuple[tuple[str, ...], ...], float] = {}

    stems = [stem(word) for word in words if word[0].isalnum()]

    def consider(names: Sequence[tuple[str, ...]], bonus: float) -> None:
        names = tuple(dict.fromkeys(_completed(names, stems)))
        if not 2 <= len(names) <= MOST or len({frozenset(name) for name in names}) < len(names):
            return
        covered = sum(count for name, count in often.items() if _best(name, names) is not None)
        even = [sum(count for name, count in often.items() if _best(name, names) == k) for k in range(len(names))]
        score = bonus + 4.0 * covered / max(sum(often.values()), 1) + 1.5 * min(even) / max(max(even), 1)
        score -= sum(2.0 * measured.get(name, 0) / often[name] for name in names if name in often)
        score -= 1.5 * sum(other != name and set(other) < set(name) for name in names for other in names)
        scores[names] = max(scores.get(names, -1e9), score)

    for run in [_completed(run, stems) for run in _lists(words, named)]:
        consider(run, 2.3 + 0.3 * (len(run) - 2))
        for size in range(2, len(run)):
            consider(run[:size], 0.5)
            consider(run[-size:], 0.5)
    for pair in _partners(words, named, stems):
        consider(pair, 1.0)
    for run in _asked(words):
        consider(run, 0.5)
    for name in _repeated(words, spans):
        if name not in often and len(often) < 4:
            best = [other for other, _ in often.most_common(2) if not set(other) & set(name)]
            for other in best[:1]:
                consider([other, name], -1.5)
    common = [name for name, _ in often.most_common(8)]
    heads = [name for name in common if sum(set(name) < set(other) for other in common) >= 2]  # "can" of two kinds
    specific = [name for name in common if name not in heads]
    merged: list[tuple[str, ...]] = []
    for name in specific:
        if not any(_alike(name, other) for other in merged):
            merged.append(name)
    order = {name: position for position, (_, _, name) in reversed([*enumerate(named)])}
    for size in (2, 3, 4, 5):
        if len(merged) >= size:
            chosen = sorted(merged[:size], key=lambda name: order[name])
            rest = sum(often[name] for name in merged[size:])
            consider(chosen, 0.4 - 0.15 * rest - 1.0 * (size - 2))
    found = [Choice(names, score) for names, score in scores.items()]
    return sorted(found, key=lambda choice: -choice.score)


def _is_measured(words: Sequence[str], tags: Sequence[str], first: int) -> bool:
    """Whether a coefficient stands before a name, ``12 units of potassium``: then it is no variable."""
    before = range(max(0, first - 3), first)
    return words[first - 1 : first] == ["of"] and any(tags[i].endswith("PARAM") for i in before)


def _completed(run: Sequence[tuple[str, ...]], stems: Sequence[str]) -> list[tuple[str, ...]]:
    """The names of a list with the word that they share said for each: ``2-piece and 3-piece suits``."""
    text = " ".join(["", *stems, ""])
    longest = max(run, key=len)
    done = []
    for name in run:
        for size in range(len(longest) - 1, 0, -1):
            whole = (*name, *longest[-size:])
            if (
                len(whole) <= len(longest) + 1
                and not set(name) & set(longest[-size:])
                and f" {' '.join(whole)} " in text
            ):
                name = whole
                break
        done.append(name)
    return done


def _partners(
    words: Sequence[str], named: Sequence[tuple[int, int, tuple[str, ...]]], stems: Sequence[str]
) -> list[tuple[tuple[str, ...], tuple[str, ...]]]:
    """Names joined by "and" or "or" with words that the tagger did not see but that come again."""
    found = []
    text = " ".join(["", *stems, ""])
    lower = [word.lower() for word in words]
    for first, last, name in named:
        place = first  # a steak or vegetarian meal
        while place and (lower[place - 1] in _JOINTS or lower[place - 1] in _ARTICLES):
            place -= 1
        joint = {*lower[place:first]} & {"and", "or"}
        for size in (2, 1) if joint else ():
            other = content(words[place - size : place]) if place >= size else ()
            usable = other and all(word.isalpha() and word not in SAYS_NOTHING for word in other)
            if usable and not set(other) & set(name) and text.count(f" {' '.join(other)} ") > 1:
                found.append((other, name))
                break
        place = last
        if lower[place : place + 1] not in (["and"], ["or"], [","]):
            continue
        while place < len(words) and (lower[place] in _JOINTS or lower[place] in _ARTICLES):
            place += 1
        for size in (2, 1):
            other = content(words[place : place + size]) if place + size <= len(words) else ()
            usable = other and all(word.isalpha() and word not in SAYS_NOTHING for word in other)
            if usable and not set(other) & set(name) and text.count(f" {' '.join(other)} ") > 1:
                found.append((name, other))
                break
    return found


_QUESTION = ("many", "mix", "number", "amount", "amounts", "numbers", "much")


def _asked(words: Sequence[str]) -> list[list[tuple[str, ...]]]:
    """Names in a list that is asked about, which the tagger need not have seen: ``how many sm boxes and lg boxes``."""
    lower = [word.lower() for word in words]
    found = []
    for i, word in enumerate(lower):
        if word not in _QUESTION:
            continue
        run: list[tuple[str, ...]] = []
        place = i + 1
        part: list[str] = []
        while place < len(words):
            here = lower[place]
            if here in _JOINTS:
                if part:
                    run.append(content(part))
                part = []
            elif here in _ARTICLES:
                pass
            elif here[0].isalnum() and here not in SAYS_NOTHING and len(part) < 3:
                part.append(words[place])
            else:
                break
            place += 1
        if part:
            run.append(content(part))
        text = " ".join(map(stem, lower))
        if len(run) > 1 and all(text.count(" ".join(name)) > 1 for name in run):
            found.append(run)
    return found


def _repeated(words: Sequence[str], spans: Sequence[tuple[int, int, str]]) -> list[tuple[str, ...]]:
    """Pairs of words, and words behind an article, that come again: names that the tagger did not see."""
    stems = [stem(word) for word in words]
    taken = {i for first, last, _ in spans for i in range(first, last)}
    counts: Counter[tuple[str, ...]] = Counter()
    for i in range(len(stems) - 1):
        pair = (stems[i], stems[i + 1])
        telling = all(word.isalpha() and word not in SAYS_NOTHING and word not in _GENERIC for word in pair)
        if telling and not taken & {i, i + 1}:
            counts[pair] += 1
        one = stems[i + 1]
        if stems[i] in ("a", "an", "each", "per") and i + 1 not in taken and one.isalpha() and one not in SAYS_NOTHING:
            counts[one,] += 1
    return [name for name, count in counts.most_common(6) if count > 1]


def _lists(words: Sequence[str], named: Sequence[tuple[int, int, tuple[str, ...]]]) -> list[list[tuple[str, ...]]]:
    """Names that stand in a list: ``A, B and C``."""
    runs: list[list[tuple[str, ...]]] = []
    last = -1
    for first, end, name in named:
        between = [word.lower() for word in words[last:first]] if last >= 0 else ["."]
        joined = any(word in _JOINTS for word in between) and all(
            word in _JOINTS or word in _ARTICLES for word in between
        )
        if joined and runs and name not in runs[-1]:
            runs[-1].append(name)
        else:
            runs.append([name])
        last = end
    return [run for run in runs if len(run) > 1]


def _alike(one: tuple[str, ...], other: tuple[str, ...]) -> bool:
    """Whether two names are one in other words: a part of it, or a slip of the pen."""
    if set(one) <= set(other) or set(other) <= set(one):
        return True
    shared = set(one) & set(other)
    left, right = set(one) - shared, set(other) - shared
    return len(left) == len(right) == 1 and _typo(left.pop(), right.pop())


def _typo(one: str, other: str) -> bool:
    return len(one) > 4 and len(other) > 4 and one[:5] == other[:5] and not one.isdigit()


def _best(name: Sequence[str], names: Sequence[tuple[str, ...]]) -> int | None:
    """Which of the names another one means: most words in common that tell them apart; None for both or none."""
    own = _distinctive(names)
    best, top, tied = None, 0.0, False
    for which, full in enumerate(names):
        if tuple(name) == full:
            return which
        hits = sum(any(word == mine or _typo(word, mine) for mine in own[which]) for word in name)
        score = 3.0 * hits + 0.1 * sum(word in full for word in name) - 0.05 * len(full)
        if not hits and own[which]:
            score = 0.0
        if score > top + 1e-9:
            best, top, tied = which, score, False
        elif best is not None and abs(score - top) <= 1e-9:
            tied = True
    return None if tied else best


def _distinctive(names: Sequence[tuple[str, ...]]) -> list[set[str]]:
    counts = Counter(word for name in names for word in set(name))
    return [{word for word in name if counts[word] == 1} for name in names]


def mentions(
    words: Sequence[str], spans: Sequence[tuple[int, int, str]], names: Sequence[tuple[str, ...]]
) -> list[Mention]:
    """Where the variables are named: tagged spans, and words that tell one from the others wherever they stand."""
    found: dict[int, Mention] = {}
    taken: set[int] = set()
    for first, last, role in spans:
        if role == "VAR":
            which = _best(content(words[first:last]), names)
            if which is not None:
                found[first] = Mention(first, last, which)
                taken.update(range(first, last))
    own = _distinctive(names)
    stems = [stem(word) for word in words]
    for i, word in enumerate(stems):
        if i in taken or not word[0].isalnum():
            continue
        for which, special in enumerate(own):
            if word not in special:
                continue
            full = set(names[which])
            short = len(word) <= 2 or word.isdigit() or word in SAYS_NOTHING
            clause = next((j for j in range(i, max(0, i - 6), -1) if not stems[j - 1][:1].isalnum()), i - 5)
            near = {stems[j] for j in range(min(max(0, i - 2), max(0, clause)), min(len(stems), i + 3)) if j != i}
            if word.isdigit() and words[i + 1 : i + 2] != ["-"]:
                continue
            if len(full) > 1 and not near & (full - {word}) and (short or stems[i + 1 : i + 2] != ["one"]):
                continue
            if word == "a" and words[i] != "A":
                continue
            last = i + 1
            while last < len(stems) and last not in taken and (stems[last] in full or words[last] == "-"):
                last += 1
            first = i
            while first and first - 1 not in taken and stems[first - 1] in full:
                first -= 1
            found[first] = Mention(first, last, which)
            taken.update(range(first, last))
            break
    merged: list[Mention] = []
    for mention in sorted(found.values(), key=lambda mention: mention.first):
        if merged and merged[-1].which == mention.which and mention.first <= merged[-1].last:
            merged[-1] = Mention(merged[-1].first, max(mention.last, merged[-1].last), mention.which)
        else:
            merged.append(mention)
    return merged
