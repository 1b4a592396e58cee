"""`icml25 select-data`: NICE on a user's pool; its stages one by one, and comparisons, are in modules of their own."""

from typing import Annotated

import typer

from icml25cli.commands import select_data_compare, select_data_options, select_data_stages
from icml25cli.commands.select_data_options import MethodName
from icml25cli.commands.select_data_plan import Plan, on_a_job
from icml25cli.core import options as opt
from icml25cli.core.report import show
from icml25cli.core.verbs import paper_group

app = paper_group("select-data")


@app.command()
@on_a_job
def run(
    plan: Plan,
    method: select_data_options.Method = MethodName.nice,
    baseline: select_data_options.Baselines = None,
    reward: select_data_options.RewardSpec = None,
    budget: select_data_options.Budget = "5%",
    dedupe: select_data_options.Dedupe = False,
    diversity: select_data_options.Diversity = False,
    per_source_cap: select_data_options.PerSourceCap = None,
    keep_order: select_data_options.KeepOrder = False,
    unsafe_local: select_data_options.UnsafeLocal = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what time, operations and disk it would take; rehearses a few rows.")
    ] = False,
    output: opt.Output = None,
    force: opt.Force = False,
    plot: opt.Plot = None,
    as_json: opt.Json = False,
) -> None:
    """Pick the rows of POOL that raise the metric of the model's own answers to --val most, and write them with -o.

    A short warm-up on a random part of the pool; gradients of every row; answers that the model draws to the
    validation prompts; the policy gradient of their rewards; the rows whose gradients agree with it best. -o writes
    selected.jsonl, scores.parquet, the report and a figure.
    """
    from icml25cli.core.files import write_json
    from icml25cli.core.plots import check_figure, save_figure
    from icml25cli.core.runs import check_output, commit_output
    from icml25cli.papers.select_data import figures, tables
    from icml25cli.papers.select_data.methods import check_methods, select

    if dry_run:
        select_data_stages.show_estimate(plan, as_json=as_json)
        return
    if output:
        check_output(output, force=force)
    if plot:
        check_figure(plot, force=force)
    report = plan.report
    named = select_data_options.methods_of(method, baseline)
    judge = select_data_options.reward_of(reward, unsafe_local=unsafe_local)
    report.params |= {"method": method.value, "budget": budget, "reward": reward}
    with plan.job() as job:
        choice = select_data_options.choice_of(
            job, budget, dedupe=dedupe, diversity=diversity, per_source_cap=per_source_cap
        )
        check_methods(job, named, judge)
        found = [select(job, name, choice, judge) for name in named]
        select_data_options.describe(report, job, found)
        figure = figures.scores(found[0], tables.composition(job.pool, found))
        if plot:
            save_figure(figure, plot, force=force)
            report.artefacts.append(str(plot))
        if output:
            with commit_output(output, force=force) as folder:
                (folder / "selected.jsonl").write_bytes(
                    tables.selected_bytes(job.pool, found[0], keep_order=keep_order)
                )
                records = tables.score_records(job.pool, found[0].scores, job.subtasks)
                tables.write_scores(folder / "scores.parquet", records)
                save_figure(figure, folder / "scores.png")
                names = ("selected.jsonl", "scores.parquet", "scores.png", "report.json")
                report.artefacts += [str(output / name) for name in names]
                report.finish()
                write_json(folder / "report.json", report.document())
    show(report, as_json=as_json)


for verb in (*select_data_stages.VERBS, *select_data_compare.VERBS):
    app.command()(verb)
