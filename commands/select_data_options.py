"""Options that the verbs of `icml25 select-data` share, spelt and explained once, and what is made of them."""

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from icml25cli.core.report import Report
    from icml25cli.papers.select_data.job import Job
    from icml25cli.papers.select_data.methods import Choice, Selection
    from icml25cli.papers.select_data.rewards import Reward


class MethodName(StrEnum):
    nice = "nice"
    less = "less"
    random = "random"
    bm25 = "bm25"
    dsir = "dsir"
    rds = "rds"
    loss = "loss"
    length = "length"
    full = "full"


class PolicyName(StrEnum):
    vanilla = "vanilla"
    rejection = "rejection"
    hard_rejection = "hard-rejection"
    topk_rejection = "topk-rejection"
    topk_hard = "topk-hard"


class RewardBaseline(StrEnum):
    none = "none"
    rloo = "rloo"


class Precondition(StrEnum):
    adam = "adam"
    sgd = "sgd"
    sign = "sign"


class Projector(StrEnum):
    auto = "auto"
    none = "none"
    countsketch = "countsketch"
    rademacher = "rademacher"
    trak = "trak"


class Dtype(StrEnum):
    auto = "auto"
    float32 = "float32"
    bfloat16 = "bfloat16"


class RecordFormat(StrEnum):
    csv = "csv"
    jsonl = "jsonl"


Method = Annotated[MethodName, typer.Option("--method", help="How rows are picked.")]
Baselines = Annotated[
    list[MethodName] | None,
    typer.Option("--baseline", help="Methods beside it at the same budget; repeat for several."),
]
Budget = Annotated[str, typer.Option("--budget", metavar="ROWS", help="Rows to pick: a number, or a share as 5%.")]
RewardSpec = Annotated[
    str | None,
    typer.Option(
        "--reward",
        metavar="SPEC",
        help="The metric: exact, contains, regex:PATTERN, number, f1, rougeL, json-valid, json-schema:FILE, "
        "length:max=WORDS, unit-tests, rm:DIR, judge:URL#MODEL, py:MODULE:FUNCTION or cmd:COMMAND.",
    ),
]
UnsafeLocal = Annotated[
    bool, typer.Option("--unsafe-local", help="Run unit tests without namespaces, where the system gives none.")
]
Dedupe = Annotated[bool, typer.Option("--dedupe", help="Pick the same row once (beyond the paper).")]
Diversity = Annotated[
    bool, typer.Option("--diversity", help="Of five times the budget pick what covers it best (beyond the paper).")
]
PerSourceCap = Annotated[
    float | None,
    typer.Option("--per-source-cap", min=0.0, max=1.0, help="Largest share of one file (beyond the paper)."),
]
KeepOrder = Annotated[bool, typer.Option("--keep-order", help="Write rows in the pool's order, not by score.")]
Records = Annotated[RecordFormat, typer.Option("--format", help="Of the records.")]


# --- what several verbs do ---------------------------------------------------------------------------------------


def reward_of(spec: str | None, *, unsafe_local: bool) -> "Reward | None":
    from icml25cli.papers.select_data.rewards import make_reward

    return make_reward(spec, unsafe_local=unsafe_local) if spec is not None else None


def needed_reward(spec: str | None, *, unsafe_local: bool) -> "Reward":
    """The reward, where there is no going on without one."""
    from icml25cli.core.errors import UsageError

    reward = reward_of(spec, unsafe_local=unsafe_local)
    if reward is None:
        raise UsageError("a --reward is needed", hint="such as exact, json-valid or length:max=50")
    return reward


def methods_of(method: MethodName, baselines: list[MethodName] | None) -> list[str]:
    """The main method and those beside it, each once."""
    return list(dict.fromkeys([method.value, *(baseline.value for baseline in baselines or ())]))


def choice_of(job: "Job", budget: str, *, dedupe: bool, diversity: bool, per_source_cap: float | None) -> "Choice":
    from icml25cli.papers.select_data.methods import Choice
    from icml25cli.papers.select_data.scoring import budget_rows

    return Choice(budget_rows(budget, len(job.pool.rows)), dedupe, diversity, per_source_cap)


def describe(report: "Report", job: "Job", selections: "list[Selection]") -> None:
    """Composition, overlaps and signal of selections, with what has to be said of them."""
    from icml25cli.core.progress import warn, warnings_so_far
    from icml25cli.papers.select_data.tables import composition, overlaps, rows

    report.rows = [*rows(selections)]
    report.tables = {"composition": [*composition(job.pool, selections)]}
    if len(selections) > 1:
        report.tables["overlaps"] = [*overlaps(selections)]
    for selection in selections:
        report.notes += selection.notes
        if selection.signal:
            report.tables["signal"] = [selection.signal.row()]
            if said := selection.signal.warning:
                warn(said)
    signal = selections[0].signal
    report.metrics = {"selected": len(selections[0].places)}
    if signal:
        report.metrics |= {"half_overlap": signal.half_overlap, "mean_reward": signal.mean_reward}
    report.answer = {"status": "done", "signal": signal.verdict if signal else "not measured"}
    report.notes += job.source.notes
    report.warnings = [*warnings_so_far()]
