"""The stages of `icml25 select-data` one by one: each continues what the others finished on the same inputs."""

import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from icml25cli.commands import select_data_options
from icml25cli.commands.select_data_options import MethodName, RecordFormat
from icml25cli.commands.select_data_plan import Plan, on_a_job
from icml25cli.core import options as opt
from icml25cli.core.report import render, show


@on_a_job
def warmup(plan: Plan, as_json: opt.Json = False) -> None:
    """Train adapters on a random part of POOL, and keep every epoch's end with Adam's moments."""
    report = plan.report
    with plan.job() as job:
        report.rows = [
            {"checkpoint": i + 1, "weight": checkpoint.weight, "folder": str(checkpoint.folder)}
            for i, checkpoint in enumerate(job.checkpoints)
        ]
        report.metrics = {"rows": len(job.warmup_rows), "checkpoints": len(job.checkpoints)}
        report.answer = {"status": "done"}
    show(report, as_json=as_json)


@on_a_job
def grads(
    plan: Plan,
    shard: Annotated[
        str, typer.Option("--shard", metavar="I/N", help="Every N-th block, from the I-th; the whole takes all over.")
    ] = "1/1",
    less: Annotated[
        Path | None,
        typer.Option("--less", metavar="DIR", help="Write the features as LESS keeps them, a folder a checkpoint."),
    ] = None,
    force: opt.Force = False,
    as_json: opt.Json = False,
) -> None:
    """Take the gradient of every row of POOL at every checkpoint, and keep what it becomes."""
    from icml25cli.core.parallel import shard_of
    from icml25cli.core.runs import check_output, commit_output
    from icml25cli.papers.select_data.store import read_whole, write_less

    report = plan.report
    part = shard_of(shard)
    if less:
        check_output(less, force=force)
    with plan.job() as job:
        files = job.gradients(part)
        there = [[file for file in blocks if file.exists()] for blocks in files]
        report.rows = [
            {
                "checkpoint": i + 1,
                "blocks": len(blocks),
                "of": job.block_count,
                "mib": sum(file.stat().st_size for file in blocks) / 2**20,
                "folder": str(blocks[0].parent) if blocks else None,
            }
            for i, blocks in enumerate(there)
        ]
        if less and part == (1, 1):
            with commit_output(less, force=force) as folder:
                for i, blocks in enumerate(files):
                    write_less(folder / f"checkpoint-{i + 1}", read_whole(blocks))
            report.artefacts.append(str(less))
        report.metrics = {"blocks": sum(map(len, there))}
        report.answer = {"status": "done"}
    show(report, as_json=as_json)


@on_a_job
def sample(
    plan: Plan,
    reward: select_data_options.RewardSpec = None,
    unsafe_local: select_data_options.UnsafeLocal = False,
    form: select_data_options.Records = RecordFormat.jsonl,
    output: opt.Output = None,
    force: opt.Force = False,
    as_json: opt.Json = False,
) -> None:
    """Draw answers to the validation prompts at every checkpoint; records of them, with a --reward judged."""
    from icml25cli.core.files import check_file
    from icml25cli.core.records import show_records

    report = plan.report
    if output:
        check_file(output, force=force)
    judge = select_data_options.reward_of(reward, unsafe_local=unsafe_local)
    with plan.job() as job:
        answers = job.answers
        rewards = job.rewarded(judge).rewards if judge else None
        records = [
            {
                "checkpoint": i + 1,
                "prompt": p + 1,
                "answer": a + 1,
                **({"reward": float(rewards[i][p][a])} if rewards else {}),
                "tokens": len(answer.tokens),
                "finished": answer.finished,
                "text": answer.text,
            }
            for i, by_prompt in enumerate(answers)
            for p, some in enumerate(by_prompt)
            for a, answer in enumerate(some)
        ]
        report.metrics = {"answers": len(records)}
        report.answer = {"status": "done"}
    show_records(report, records, form=form.value, output=output, force=force, as_json=as_json)


@on_a_job
def valgrads(
    plan: Plan,
    reward: select_data_options.RewardSpec = None,
    unsafe_local: select_data_options.UnsafeLocal = False,
    as_json: opt.Json = False,
) -> None:
    """Take the policy gradient of the reward at every validation prompt."""
    report = plan.report
    judge = select_data_options.needed_reward(reward, unsafe_local=unsafe_local)
    with plan.job() as job:
        drawn = job.rewarded(judge)
        gradients = job.validation_gradients(drawn, judge)
        report.rows = [
            {
                "checkpoint": i + 1,
                "prompts": len(job.prompts),
                "prompts_with_gradient": int(parts["all"].any(1).sum()),
                "numbers": parts["all"].shape[1],
            }
            for i, parts in enumerate(gradients)
        ]
        report.answer = {"status": "done"}
    show(report, as_json=as_json)


@on_a_job
def score(
    plan: Plan,
    method: select_data_options.Method = MethodName.nice,
    reward: select_data_options.RewardSpec = None,
    unsafe_local: select_data_options.UnsafeLocal = False,
    form: select_data_options.Records = RecordFormat.csv,
    output: opt.Output = None,
    force: opt.Force = False,
    as_json: opt.Json = False,
) -> None:
    """Score every row of POOL; records in the pool's order."""
    from icml25cli.core.files import check_file
    from icml25cli.core.records import show_records
    from icml25cli.papers.select_data.methods import Choice, select
    from icml25cli.papers.select_data.tables import score_records

    report = plan.report
    if output:
        check_file(output, force=force)
    judge = select_data_options.reward_of(reward, unsafe_local=unsafe_local)
    with plan.job() as job:
        found = select(job, method.value, Choice(1), judge)
        report.params |= {"method": method.value}
        report.metrics = {"best": float(found.scores.total.max())}
        report.answer = {"status": "done"}
        records = score_records(job.pool, found.scores, job.subtasks)
    show_records(report, records, form=form.value, output=output, force=force, as_json=as_json)


@on_a_job
def select(
    plan: Plan,
    method: select_data_options.Method = MethodName.nice,
    reward: select_data_options.RewardSpec = None,
    budget: select_data_options.Budget = "5%",
    dedupe: select_data_options.Dedupe = False,
    diversity: select_data_options.Diversity = False,
    per_source_cap: select_data_options.PerSourceCap = None,
    keep_order: select_data_options.KeepOrder = False,
    unsafe_local: select_data_options.UnsafeLocal = False,
    output: opt.Output = None,
    force: opt.Force = False,
    as_json: opt.Json = False,
) -> None:
    """Print the picked rows of POOL, byte for byte as they stand in it, the best first, for another program.

    The report goes to standard error; with --json it alone goes to standard output, and rows only to -o.
    """
    from icml25cli.core.console import stderr
    from icml25cli.core.files import atomic_path, check_file
    from icml25cli.core.report import standard_output
    from icml25cli.papers.select_data import methods, tables

    report = plan.report
    if output:
        check_file(output, force=force)
    judge = select_data_options.reward_of(reward, unsafe_local=unsafe_local)
    report.params |= {"method": method.value, "budget": budget, "reward": reward}
    with plan.job() as job:
        choice = select_data_options.choice_of(
            job, budget, dedupe=dedupe, diversity=diversity, per_source_cap=per_source_cap
        )
        found = methods.select(job, method.value, choice, judge)
        select_data_options.describe(report, job, [found])
        product = tables.selected_bytes(job.pool, found, keep_order=keep_order)
    if output:
        with atomic_path(output, force=force) as temporary:
            temporary.write_bytes(product)
        report.artefacts.append(str(output))
    if as_json:
        show(report, as_json=True)
        return
    if not output:
        with standard_output():
            sys.stdout.buffer.write(product)
            sys.stdout.flush()
    report.finish()
    render(report, stderr())


@on_a_job
def inspect(
    plan: Plan,
    row: Annotated[int, typer.Option("--row", min=1, help="Of the pool, counted over all its files.")],
    reward: select_data_options.RewardSpec = None,
    unsafe_local: select_data_options.UnsafeLocal = False,
    as_json: opt.Json = False,
) -> None:
    """Show which validation prompts ask for one row of POOL, and which would rather not have it."""
    import numpy as np

    from icml25cli.core.errors import UsageError

    report = plan.report
    judge = select_data_options.needed_reward(reward, unsafe_local=unsafe_local)
    with plan.job() as job:
        if row > len(job.pool.rows):
            raise UsageError(f"--row {row} is beyond the pool of {len(job.pool.rows)}", hint="rows count from 1")
        drawn = job.rewarded(judge)
        pulls = job.pulls(row - 1, job.validation_gradients(drawn, judge))
        rewards = np.array([[np.nanmean(values) for values in by_prompt] for by_prompt in drawn.rewards]).mean(0)
        report.rows = [
            {
                "prompt": int(p) + 1,
                "influence": float(pulls[p]),
                "mean_reward": float(rewards[p]),
                "subtask": job.subtasks.names[job.subtasks.of_row[p]],
                "asks": job.validation[p].conversation.asked[:60],
            }
            for p in np.argsort(-pulls, kind="stable").tolist()
        ]
        chosen = job.pool.rows[row - 1]
        report.metrics = {"influence": float(pulls.mean())}
        report.answer = {"row": chosen.place, "text": chosen.conversation.text[:400]}
    show(report, as_json=as_json)


@on_a_job
def estimate(plan: Plan, as_json: opt.Json = False) -> None:
    """Say what time, operations and disk NICE would take on POOL; a few rows are rehearsed. So does run --dry-run."""
    show_estimate(plan, as_json=as_json)


def show_estimate(plan: Plan, *, as_json: bool) -> None:
    from icml25cli.papers.select_data.estimate import estimate as estimated

    report = plan.report
    with plan.job() as job:
        stages = estimated(job)
    report.rows = [asdict(stage) for stage in stages]
    report.metrics = {
        name: sum(getattr(stage, name) for stage in stages) for name in ("seconds", "teraflop", "disk_mib")
    }
    report.tables = {"total": [dict(report.metrics)]}
    report.answer = {"status": "estimated, nothing was kept"}
    report.notes = ["Seconds are of one process of this machine as busy as it is now; rewards are not in them."]
    show(report, as_json=as_json)


VERBS = (warmup, grads, sample, valgrads, score, select, inspect, estimate)
