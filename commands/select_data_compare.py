"""Verbs of `icml25 select-data` that judge selections by the model tuned on them: on a user's data, and in the demo."""

from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from icml25cli.commands import select_data_options
from icml25cli.commands.select_data_options import MethodName
from icml25cli.commands.select_data_plan import Plan, on_a_job
from icml25cli.core import options as opt
from icml25cli.core.report import Report, show


class WorldName(StrEnum):
    unseen_style = "unseen-style"
    seen_style = "seen-style"


Seeds = Annotated[int, typer.Option("--seeds", min=1, max=100, help="Tunings of each method, from --seed on.")]


@on_a_job
def compare(
    plan: Plan,
    method: select_data_options.Method = MethodName.nice,
    baseline: Annotated[
        list[MethodName] | None,
        typer.Option(
            "--baseline", help="Methods beside it, repeat for several. [default: less, if it can, and random]"
        ),
    ] = None,
    reward: select_data_options.RewardSpec = None,
    budget: select_data_options.Budget = "5%",
    test: Annotated[
        Path | None,
        typer.Option("--test", metavar="FILE", help="Rows to judge by. [default: every second validation row]"),
    ] = None,
    seeds: Seeds = 3,
    once: Annotated[
        list[MethodName] | None,
        typer.Option("--once", help="Tune on this baseline's rows with one seed only; repeat for several."),
    ] = None,
    tune_epochs: Annotated[int | None, typer.Option("--tune-epochs", min=1, help="[default: --epochs]")] = None,
    tune_lr: Annotated[float | None, typer.Option("--tune-lr", min=0.0, help="[default: --lr]")] = None,
    test_mc: Annotated[
        int | None, typer.Option("--test-mc", min=1, help="Answers a test prompt. [default: --mc]")
    ] = None,
    dedupe: select_data_options.Dedupe = False,
    diversity: select_data_options.Diversity = False,
    per_source_cap: select_data_options.PerSourceCap = None,
    unsafe_local: select_data_options.UnsafeLocal = False,
    plot: opt.Plot = None,
    force: opt.Force = False,
    as_json: opt.Json = False,
) -> None:
    """Tune the model on every method's selection of the same size, and judge its answers to held-out prompts.

    Tunings start at the untuned model and differ by seed alone; random picks anew with each seed. Differences are the
    main method's metric less the other's, paired over test prompts.
    """
    from icml25cli.core.plots import check_figure, save_figure
    from icml25cli.papers.select_data import figures, tables
    from icml25cli.papers.select_data.compare import Trial, judge_selection
    from icml25cli.papers.select_data.methods import check_methods, select

    if plot:
        check_figure(plot, force=force)
    report = plan.report
    judge = select_data_options.needed_reward(reward, unsafe_local=unsafe_local)
    report.params |= {"method": method.value, "budget": budget, "reward": reward, "seeds": seeds}
    with plan.job(test=test, hold_out=True) as job:
        answered = all((row.conversation.answer or "").strip() for row in job.validation)
        usual = [MethodName.less] * answered + [MethodName.random]
        named = select_data_options.methods_of(method, [*(baseline or usual), *(once or ())])
        choice = select_data_options.choice_of(
            job, budget, dedupe=dedupe, diversity=diversity, per_source_cap=per_source_cap
        )
        settings = job.settings
        recipe = replace(
            settings.recipe,
            epochs=tune_epochs or settings.recipe.epochs,
            learning_rate=settings.recipe.learning_rate if tune_lr is None else tune_lr,
        )
        trial = Trial(job.test, replace(settings.sampling, count=test_mc or settings.sampling.count), recipe)
        first = settings.seed
        check_methods(job, named, judge)
        found = [select(job, name, choice, judge) for name in named]
        single = {other.value for other in once or ()}
        judged = []
        for selection in found:
            runs = []
            for seed in range(first, first + (1 if selection.method in single else seeds)):
                drawn_anew = selection.method in ("random", "dsir") and seed > first
                chosen = select(job, selection.method, choice, judge, seed=seed) if drawn_anew else selection
                runs.append(judge_selection(job, chosen.places.tolist(), trial, judge, seed))
            judged.append(runs)
        base = judge_selection(job, [], trial, judge, first)
        select_data_options.describe(report, job, found)
        rows, differences = tables.judged_rows(found, judged, base)
        report.rows = [*rows]
        report.tables = {"differences": [*differences], **report.tables}
        report.params |= {"test": len(job.test), "test_answers": trial.sampling.count, "tune_epochs": recipe.epochs}
        report.metrics |= {"metric": rows[0]["metric"], "metric_of_base": rows[-1]["metric"]}
    if plot:
        save_figure(figures.metrics(rows), plot, force=force)
        report.artefacts.append(str(plot))
    show(report, as_json=as_json)


def demo(
    world: Annotated[
        WorldName, typer.Option("--world", help="In which style the reference answers are.")
    ] = WorldName.unseen_style,
    seeds: Annotated[int, typer.Option("--seeds", min=1, max=100, help="Worlds to make, from --seed on.")] = 1,
    method: Annotated[
        list[MethodName] | None,
        typer.Option("--method", help="Repeat for several. [default: nice, less, random and full]"),
    ] = None,
    work: Annotated[
        Path | None,
        typer.Option("--work", metavar="DIR", help="Where worlds and finished work are kept. [default: the cache]"),
    ] = None,
    seed: opt.Seed = 0,
    jobs: Annotated[
        int | None, typer.Option("--jobs", "-j", min=1, help="Processes side by side. [default: 1]")
    ] = None,
    threads: opt.Threads = None,
    fresh: opt.Fresh = False,
    as_json: opt.Json = False,
) -> None:
    """Show on a small world made here, in which the right rows are known, what methods pick and what comes of it."""
    from icml25cli.core.parallel import set_threads
    from icml25cli.core.progress import warn, warnings_so_far
    from icml25cli.core.runs import cache_dir
    from icml25cli.papers.select_data import demo as demonstration
    from icml25cli.papers.select_data.workspace import Means, Workspace

    set_threads(threads)
    report = Report("select-data", params={"verb": "demo", "world": world.value, "seeds": seeds}, seed=seed)
    report.device = "cpu"
    root = work or cache_dir() / "runs" / "select-data-demo"
    names = [name.value for name in method] if method else list(demonstration.METHODS)
    results = []
    for number in range(seed, seed + seeds):
        with Workspace(root / f"{world.value}-{number}", fresh=fresh) as space:
            folder = root / f"{world.value}-{number}" / "world"
            means = Means(jobs=jobs or 1, threads=threads or 1)
            results += demonstration.run_world(folder, world.value, number, space, means, methods=names)
    report.rows = [*demonstration.summary(results)]
    report.tables = {"runs": [*demonstration.rows(results)]}
    report.metrics = {key: value for key, value in report.rows[0].items() if isinstance(value, float)}
    for result in results:
        if result.selection and result.selection.signal and (said := result.selection.signal.warning):
            warn(f"seed {result.seed}: {said}")
    report.warnings = [*warnings_so_far()]
    report.answer = {"status": "done"}
    report.notes = [
        "helping counts picked rows with a right colour, of 120; metric is the share of right drawn answers."
    ]
    show(report, as_json=as_json)


VERBS = (compare, demo)
