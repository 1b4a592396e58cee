"""Fan-out over independent items on the CPUs of this machine, by joblib's loky processes.

Does not know what the items are. Results come in order, as if the items had been worked on one after another.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, TypeVar

from icml25cli.core.errors import MissingError, UsageError
from icml25cli.core.progress import display, track, warn, warnings_so_far

T = TypeVar("T")
R = TypeVar("R")


def usable_cpus() -> int:
    """CPUs this process may use: affinity mask and control-group quota, not what the machine has."""
    from joblib import cpu_count

    return cpu_count()


def set_threads(threads: int | None) -> None:
    """Let this process compute with ``threads`` threads, by default ``OMP_NUM_THREADS`` or as many as it has CPUs."""
    if threads is None and os.environ.get("OMP_NUM_THREADS"):
        return
    import numba
    import torch

    torch.set_num_threads(threads or usable_cpus())
    _limit_numba(numba, threads or usable_cpus())


def parallel_map(
    function: Callable[[T], R],
    items: Iterable[T],
    jobs: int | None = None,
    threads: int = 1,
    description: str = "items",
) -> list[R]:
    """``[function(item) for item in items]`` by ``jobs`` processes (default: the usable CPUs) of ``threads`` threads.

    One job runs in this process, with the same limit on torch's and numba's threads. Large arrays reach workers as
    read-only memory maps. What a worker warns of is warned of here. Whatever ends the loop early, Ctrl-C included,
    ends the workers.

    Raises:
        UsageError: ``jobs`` or ``threads`` is below one.
        MissingError: a worker was killed, mostly for want of memory.
        Exception: what ``function`` raised, with its type and message.
    """
    for name, value in (("--jobs", jobs), ("--threads", threads)):
        if value is not None and value < 1:
            raise UsageError(f"{name} {value} is below 1", hint="leave it out to use what there is")
    items = list(items)
    jobs = min(jobs or usable_cpus(), len(items))
    if jobs <= 1:
        with _thread_limit(threads):
            return [function(item) for item in track(items, description)]

    from joblib import Parallel, delayed, parallel_config
    from joblib.externals.loky.process_executor import BrokenProcessPool

    results = []
    with parallel_config("loky", inner_max_num_threads=threads):
        calls = (delayed(partial(_in_worker, function))(item) for item in items)
        done: Any = Parallel(n_jobs=jobs, return_as="generator")(calls)
    try:
        for result, texts in track(done, description, total=len(items)):
            results.append(result)
            for text in texts:
                warn(text)
    except BrokenProcessPool as error:
        raise MissingError(
            f"a worker process was killed while working on {description}", hint="memory may be short: use fewer --jobs"
        ) from error
    finally:
        with warnings.catch_warnings(action="ignore"):  # it laments work cut short, which is what we want of it
            done.close()
    return results


def _in_worker(function: Callable[[T], R], item: T) -> tuple[R, tuple[str, ...]]:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group: the parent answers it for all
    with display(quiet=True):
        return function(item), warnings_so_far()


@contextlib.contextmanager
def _thread_limit(threads: int) -> Iterator[None]:
    """Hold torch and numba, where loaded, to ``threads`` threads: sums then do not depend on the number of jobs."""
    with contextlib.ExitStack() as stack:
        if torch := sys.modules.get("torch"):
            stack.callback(torch.set_num_threads, torch.get_num_threads())
            torch.set_num_threads(threads)
        if numba := sys.modules.get("numba"):
            stack.callback(numba.set_num_threads, numba.get_num_threads())
            _limit_numba(numba, threads)
        yield


def _limit_numba(numba: Any, threads: int) -> None:
    numba.set_num_threads(min(threads, numba.config.NUMBA_NUM_THREADS))  # which it cannot exceed once started
