"""All metrics of a pair: those that share work are measured together.

Knows the families of metrics. Does not know files or reports.
"""

from collections.abc import Callable, Sequence

from icml25cli.core.progress import Progress
from icml25cli.papers.align import by_kernels, by_lists, by_subspaces
from icml25cli.papers.align.metrics import LINEAR, METRICS, NEIGHBOURS, SUBSPACES, Measured, Pair


def measure(pair: Pair, asked: Sequence[str]) -> list[Measured]:
    """The metrics asked for, in the order of ``METRICS``.

    Raises:
        InputError: k is not below the number of rows, or below two for CKNNA alone.
    """
    families: tuple[tuple[tuple[str, ...], Callable[[Pair, Sequence[str]], list[Measured]]], ...] = (
        (LINEAR, by_kernels.linear),
        (NEIGHBOURS, by_lists.neighbours),
        (SUBSPACES, by_subspaces.of_subspaces),
        (("cka_rbf",), by_kernels.rbf),
        (("rsa",), by_kernels.rsa),
    )
    found: dict[str, Measured] = {}
    work = [(run, [name for name in names if name in asked]) for names, run in families]
    with Progress("families of metrics", sum(bool(names) for _, names in work)) as progress:
        for run, names in work:
            if names:
                found |= {measured.metric: measured for measured in run(pair, names)}
                progress.advance()
    return [found[name] for name in METRICS if name in found]
