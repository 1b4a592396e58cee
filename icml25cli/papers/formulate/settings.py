"""What a search may be set to; defaults are the paper's. Knows names and numbers. Does not know what they do."""

from dataclasses import dataclass
from typing import Literal

from icml25cli.papers.formulate.equivalence import SECONDS
from icml25cli.papers.formulate.formulation import VariableType
from icml25cli.papers.formulate.solve import SolverName

SearchName = Literal["mcts", "dfs", "sequential", "greedy", "random"]
PruneName = Literal["smt", "canon", "none"]
PriorName = Literal["rank", "score", "uniform"]
RewardName = Literal["compare", "score", "solver"]
OrderName = Literal["path", "strength"]
Domain = Literal["auto", "integer", "continuous"]
TYPES_OF: dict[Domain, VariableType | None] = {"auto": None, "integer": "INTEGER", "continuous": "CONTINUOUS"}


@dataclass(frozen=True)
class Settings:
    """Of the search; defaults are the paper's."""

    candidates: int = 10  # H, drawn for an expansion
    keep: int = 3  # I, children of a node
    rollouts: int = 16  # T, new leaves
    weight: float = 0.5  # lambda, of the prior against the mean reward
    exploration: float = 1.0  # omega
    prior_votes: int = 5
    compare_votes: int = 5  # with either of the two shown first
    baselines: int = 3  # K
    update_baselines: bool = False
    search: SearchName = "mcts"
    prune: PruneName = "smt"
    prior: PriorName = "rank"
    reward: RewardName = "compare"
    order: OrderName = "path"  # of the final ranking: mean value of the path, or Bradley-Terry strength
    domain: Domain = "auto"  # of all variables but yes-or-no ones, where the user says it
    pre_expand: bool = False  # the whole tree before the first rollout
    smt_timeout: float = SECONDS
    solver: SolverName = "highs"
    time_limit: float = 10.0  # seconds a solver may take for a leaf
    seed: int = 0
