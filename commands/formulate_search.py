"""How `icml25 formulate` searches: the options of the tree, the model and the solver."""

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from icml25cli.core import options as opt

if TYPE_CHECKING:
    from icml25cli.papers.formulate.settings import Settings


class SearchOption(StrEnum):
    mcts = "mcts"
    dfs = "dfs"
    sequential = "sequential"
    greedy = "greedy"
    random = "random"


class PruneOption(StrEnum):
    smt = "smt"
    canon = "canon"
    none = "none"


class PriorOption(StrEnum):
    rank = "rank"
    score = "score"
    uniform = "uniform"


class RewardOption(StrEnum):
    compare = "compare"
    score = "score"
    solver = "solver"


class OrderOption(StrEnum):
    path = "path"
    strength = "strength"


class DomainOption(StrEnum):
    auto = "auto"
    integer = "integer"
    continuous = "continuous"


class SolverOption(StrEnum):
    highs = "highs"
    cbc = "cbc"


Candidates = Annotated[int, typer.Option("--candidates", "-H", min=1, max=200, help="Drafts of a component.")]
Keep = Annotated[int, typer.Option("--keep", "-I", min=1, max=20, help="Drafts kept, the best ranked.")]
Rollouts = Annotated[int, typer.Option("--rollouts", "-T", min=1, max=500, help="Whole models to judge.")]
Weight = Annotated[float, typer.Option("--lambda", min=0, max=1, help="Of the prior against the reward.")]
Omega = Annotated[float, typer.Option("--omega", min=0, max=10, help="How much the search explores.")]
PriorVotes = Annotated[int, typer.Option("--prior-votes", min=1, max=50, help="Rankings that a prior is made of.")]
CompareVotes = Annotated[
    int, typer.Option("--compare-votes", min=1, max=50, help="Votes on two models, with either of them shown first.")
]
Baselines = Annotated[
    int, typer.Option("--baselines", min=1, max=20, help="Models that every later one is compared with.")
]
SearchBy = Annotated[SearchOption, typer.Option("--search", help="How the tree is walked.")]
Prune = Annotated[
    PruneOption, typer.Option("--prune", help="Drafts that say the same: proved by z3, by form alone, or kept.")
]
Prior = Annotated[PriorOption, typer.Option("--prior", help="What a draft's prior comes from.")]
Reward = Annotated[RewardOption, typer.Option("--reward", help="Of a model: against others, alone, or if it solves.")]
Order = Annotated[
    OrderOption,
    typer.Option("--order", help="Which reading is the answer: best value of its path, or strongest in comparisons."),
]
UpdateBaselines = Annotated[
    bool, typer.Option("--update-baselines", help="Compare with the three best so far, not the three first.")
]
PreExpand = Annotated[bool, typer.Option("--pre-expand", help="Build the whole tree before it is walked.")]
Domain = Annotated[
    DomainOption, typer.Option("--domain", help="What is decided is whole, or any number; auto reads it in the text.")
]
SmtTimeout = Annotated[float, typer.Option("--smt-timeout", min=0.01, help="Seconds a question to z3 may take.")]
Solver = Annotated[SolverOption, typer.Option("--solver", help="HiGHS, or the CBC that comes with PuLP.")]
TimeLimit = Annotated[float, typer.Option("--time-limit", min=0.1, help="Seconds a solver may take.")]
MinConfidence = Annotated[float, typer.Option("--min-confidence", min=0, max=1, help="Abstain (exit 1) below it.")]


def settings(
    candidates: Candidates = 10,
    keep: Keep = 3,
    rollouts: Rollouts = 16,
    weight: Weight = 0.5,
    omega: Omega = 1.0,
    prior_votes: PriorVotes = 5,
    compare_votes: CompareVotes = 5,
    baselines: Baselines = 3,
    search: SearchBy = SearchOption.mcts,
    prune: Prune = PruneOption.smt,
    prior: Prior = PriorOption.rank,
    reward: Reward = RewardOption.compare,
    order: Order = OrderOption.path,
    update_baselines: UpdateBaselines = False,
    pre_expand: PreExpand = False,
    domain: Domain = DomainOption.auto,
    smt_timeout: SmtTimeout = 2.0,
    solver: Solver = SolverOption.highs,
    time_limit: TimeLimit = 10.0,
    seed: opt.Seed = 0,
) -> "Settings":
    """How a search goes, by its options."""
    from icml25cli.papers.formulate.settings import Settings

    return Settings(
        candidates=candidates,
        keep=keep,
        rollouts=rollouts,
        weight=weight,
        exploration=omega,
        prior_votes=prior_votes,
        compare_votes=compare_votes,
        baselines=baselines,
        update_baselines=update_baselines,
        search=search.value,
        prune=prune.value,
        prior=prior.value,
        reward=reward.value,
        order=order.value,
        pre_expand=pre_expand,
        domain=domain.value,
        smt_timeout=smt_timeout,
        solver=solver.value,
        time_limit=time_limit,
        seed=seed,
    )
