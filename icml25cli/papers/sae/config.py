"""What a sparse autoencoder is: its shape, method, levels and how it is trained. Knows numbers alone."""

from dataclasses import asdict, dataclass
from typing import Any, Literal

from icml25cli.core.errors import InputError
from icml25cli.core.progress import warn

Method = Literal["msae", "topk", "batchtopk", "relu", "jumprelu", "prefix-matryoshka"]
Weights = Literal["uw", "rw"]
Loss = Literal["mse", "nmse"]
METHODS: tuple[Method, ...] = ("msae", "topk", "batchtopk", "relu", "jumprelu", "prefix-matryoshka")
BASE_RATE = {"msae": 1e-4, "relu": 5e-5, "jumprelu": 5e-5}  # the reference's; 5e-4 for all with a fixed k
DEFAULT_K = {"topk": 64, "batchtopk": 32, "prefix-matryoshka": 64}
LEAST_STEPS = 300  # below, codes have hardly left their start
FEW_STEPS = 2000  # below, the reference's rates undertrain
REFERENCE_STEPS = 30 * 700  # of its 30 epochs of CC3M


@dataclass(frozen=True)
class Config:
    """A method with all its choices, and the shape of its dictionary.

    Attributes:
        n: latents; d: width of the embeddings.
        levels: entries a row keeps at each level, ascending; of msae alone.
        k: entries a row keeps; of topk, batchtopk and prefix-matryoshka.
        l1: weight of the penalty Σ|z|/‖x‖; of relu and jumprelu.
        soft_cap: c of z ← c·tanh(z/c); 0 for none.
        loss: mse over batch and dimensions, or nmse: a row's error over its own energy.
        center: whether the mean of the training rows is taken off.
        geometric_median: whether b_pre begins there instead of at 0.
    """

    method: Method
    d: int
    n: int
    weights: Weights = "uw"
    levels: tuple[int, ...] = ()
    k: int = 0
    l1: float = 0.003
    soft_cap: float = 0.0
    loss: Loss = "mse"
    center: bool = True
    geometric_median: bool = False

    @property
    def label(self) -> str:
        """The method as it stands in a table."""
        return f"msae-{self.weights}" if self.method == "msae" else self.method

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"levels": list(self.levels)}


@dataclass(frozen=True)
class Budget:
    """How long and how fast training goes, the same for every method that is compared.

    Attributes:
        rate: of learning; None for the reference's, raised where there are few steps.
    """

    epochs: int = 30
    batch: int = 4096
    rate: float | None = None
    seed: int = 0


def auto_levels(n: int, start: int = 64) -> tuple[int, ...]:
    """64, doubled while it is at most n, and n itself; a dictionary of 64 or fewer starts at 2.

    >>> auto_levels(1000)
    (64, 128, 256, 512, 1000)
    """
    k = start if n > start else 2
    levels = []
    while k <= n:
        levels.append(k)
        k *= 2
    return tuple(dict.fromkeys((*levels, n)))


def checked_levels(levels: tuple[int, ...], n: int) -> tuple[int, ...]:
    """Levels ascending, each once.

    Raises:
        InputError: one is below 1 or above n.
    """
    ordered = tuple(sorted(set(levels)))
    if ordered != levels:
        warn(f"levels were put in order: {', '.join(map(str, ordered))}")
    if not ordered or not 1 <= ordered[0] <= ordered[-1] <= n:
        raise InputError(f"levels {', '.join(map(str, levels))} do not lie in 1 to {n}", hint="n is expansion times d")
    return ordered


def level_weights(config: Config) -> tuple[float, ...]:
    """a_i of the loss over their sum: all alike (uw), or the smallest k the most, L, L - 1 ... 1 (rw)."""
    count = len(config.levels)
    raw = [1.0] * count if config.weights == "uw" else [float(count - i) for i in range(count)]
    return tuple(a / sum(raw) for a in raw)


def learning_rate(config: Config, budget: Budget, steps: int) -> float:
    """The rate asked for, else the reference's; with fewer than 2000 steps in all raised by √(30·700/steps)."""
    if budget.rate is not None:
        return budget.rate
    base = BASE_RATE.get(config.method, 5e-4)
    return base if steps >= FEW_STEPS else min(1e-3, base * (REFERENCE_STEPS / steps) ** 0.5)
