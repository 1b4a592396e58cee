"""Fan-out over independent items: joblib's loky processes on this machine, or a Ray or Dask cluster.

A cluster (extra ``cluster``) is the one that ``RAY_ADDRESS`` or ``DASK_SCHEDULER_ADDRESS`` names; without, one is
started here. Does not know what the items are. Results come in order, as if the items had been worked on one after
another.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from importlib.util import find_spec
from typing import Any, Literal, TypeVar

from icml25cli.core.errors import MissingError, UsageError
from icml25cli.core.progress import Progress, display, track, warn, warnings_so_far

T = TypeVar("T")
R = TypeVar("R")
Engine = Literal["local", "ray", "dask"]


def usable_cpus() -> int:
    """CPUs this process may use: affinity mask and control-group quota, not what the machine has."""
    from joblib import cpu_count

    return cpu_count()


def shard_of(written: str) -> tuple[int, int]:
    """``2/8``, the second part of eight, as numbers.

    Raises:
        UsageError: it is no part of a whole.
    """
    part = re.fullmatch(r"(\d{1,6})/(\d{1,6})", written)
    if part is None or not 1 <= int(part[1]) <= int(part[2]):
        raise UsageError(f"--shard {written} is no part of a whole", hint="--shard 2/8 is the second of eight")
    return int(part[1]), int(part[2])


def set_threads(threads: int | None) -> None:
    """Let this process compute with ``threads`` threads, by default ``OMP_NUM_THREADS`` or as many as it has CPUs."""
    if threads is None and os.environ.get("OMP_NUM_THREADS"):
        return
    import numba
    import torch

    # numba first: as it starts its threads it lets OpenMP, which torch computes with, have as many as it has itself.
    _limit_numba(numba, threads or usable_cpus())
    torch.set_num_threads(threads or usable_cpus())


def parallel_map(
    function: Callable[[T], R],
    items: Iterable[T],
    jobs: int | None = None,
    threads: int = 1,
    description: str = "items",
    engine: Engine = "local",
) -> list[R]:
    """``[function(item) for item in items]`` by ``jobs`` processes (default: the usable CPUs) of ``threads`` threads.

    One local job runs in this process, with the same limit on torch's and numba's threads. Large arrays reach local
    workers as read-only memory maps. What a worker warns of is warned of here. Whatever ends the loop early, Ctrl-C
    included, ends the workers; so does the end of this process, SIGKILL included.

    Raises:
        UsageError: ``jobs`` or ``threads`` is below one.
        MissingError: a worker was killed, mostly for want of memory, or the engine is not installed or out of reach.
        Exception: what ``function`` raised, with its type and message.
    """
    for name, value in (("--jobs", jobs), ("--threads", threads)):
        if value is not None and value < 1:
            raise UsageError(f"{name} {value} is below 1", hint="leave it out to use what there is")
    items = list(items)
    if engine != "local":
        return _on_cluster(function, items, jobs, threads, description, engine)
    jobs = min(jobs or usable_cpus(), len(items))
    if jobs <= 1:
        with _thread_limit(threads):
            return [function(item) for item in track(items, description)]

    from joblib import Parallel, delayed, parallel_config
    from joblib.externals.loky.process_executor import BrokenProcessPool

    results = []
    with parallel_config("loky", inner_max_num_threads=threads, initializer=partial(_end_with, os.getpid())):
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


def _end_with(parent: int) -> None:
    """End this worker when the process that started it is gone, however it went, be it before this worker was ready.

    Left alone a worker would wait for minutes, and keep the pipes open that a killed program's reader waits on.
    """

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _in_worker(function: Callable[[T], R], item: T) -> tuple[R, tuple[str, ...]]:
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group: the parent answers it for all
    with display(quiet=True):
        return function(item), warnings_so_far()


# --- clusters ----------------------------------------------------------------------------------------------------


def _on_cluster(
    function: Callable[[T], R], items: list[T], jobs: int | None, threads: int, description: str, engine: Engine
) -> list[R]:
    from joblib import Parallel, delayed, parallel_config

    class Counting(Parallel):
        """Moves the bar: these back ends hand out results when all are there, and say before how many are done."""

        def print_progress(self) -> None:
            progress.advance(self.n_completed_tasks - progress.done)

    with _cluster(engine, jobs), parallel_config(engine), Progress(description, len(items)) as progress:
        call = delayed(partial(_in_cluster, function, threads))
        try:
            pool = Counting(n_jobs=jobs or -1, batch_size=1)  # pyright: ignore[reportArgumentType] -- its stub is wrong
            done: Any = pool(call(item) for item in items) if items else []
        except Exception as error:
            raise _cause(error, description) from error
    for _, texts in done:
        for text in texts:
            warn(text)
    return [result for result, _ in done]


def _in_cluster(function: Callable[[T], R], threads: int, item: T) -> tuple[R, tuple[str, ...]]:
    from threadpoolctl import threadpool_limits

    with threadpool_limits(threads), _thread_limit(threads):
        return _in_worker(function, item)


@contextlib.contextmanager
def _cluster(engine: Engine, jobs: int | None) -> Iterator[None]:
    """A connection to the cluster that the environment names, else one of ``jobs`` processes on this machine."""
    parts = {"ray": ("ray",), "dask": ("dask", "distributed")}[engine]
    if not all(find_spec(part) for part in parts):
        raise MissingError(f"--engine {engine} is not installed", hint="pip install 'icml25[cluster]'")
    with contextlib.ExitStack() as stack:
        try:
            if engine == "ray":
                stack.enter_context(_ray(jobs))
            else:
                stack.enter_context(_dask(jobs))
        except (OSError, ConnectionError, TimeoutError, RuntimeError, ValueError) as error:
            raise MissingError(
                f"no {engine} cluster can be reached: {str(error).splitlines()[0] if str(error) else error!r}",
                hint=f"check {_ADDRESS[engine]}, or leave it out to start one here",
            ) from error
        yield


_ADDRESS = {"ray": "RAY_ADDRESS", "dask": "DASK_SCHEDULER_ADDRESS"}


@contextlib.contextmanager
def _ray(jobs: int | None) -> Iterator[None]:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing is sent to anybody
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    import ray  # pyright: ignore[reportMissingImports] -- extra cluster
    from ray.util.joblib import register_ray  # pyright: ignore[reportMissingImports]

    ours = not ray.is_initialized()
    if ours:
        own = {} if os.environ.get(_ADDRESS["ray"]) else {"num_cpus": jobs or usable_cpus(), "include_dashboard": False}
        ray.init(log_to_driver=False, logging_level="ERROR", **own)
    try:
        register_ray()
        yield
    finally:
        if ours:
            ray.shutdown()


@contextlib.contextmanager
def _dask(jobs: int | None) -> Iterator[None]:
    from distributed import Client, LocalCluster  # pyright: ignore[reportMissingImports] -- extra cluster

    with contextlib.ExitStack() as stack:
        if address := os.environ.get(_ADDRESS["dask"]):
            stack.enter_context(Client(address, timeout=30))
        else:
            local = LocalCluster(n_workers=jobs or usable_cpus(), threads_per_worker=1, dashboard_address=None)
            stack.enter_context(local)
            stack.enter_context(Client(local))
        yield


def _cause(error: Exception, description: str) -> Exception:
    """What a worker raised, out of what a cluster wraps it in."""
    name = type(error).__name__
    if name.startswith("RayTaskError") and isinstance(inner := getattr(error, "cause", None), Exception):
        return inner
    if name in ("WorkerCrashedError", "ActorDiedError", "RayActorError", "KilledWorker", "OutOfMemoryError"):
        return MissingError(
            f"a worker process was killed while working on {description}", hint="memory may be short: use fewer --jobs"
        )
    return error


@contextlib.contextmanager
def _thread_limit(threads: int) -> Iterator[None]:
    """Hold torch and numba, where loaded, to ``threads`` threads: sums then do not depend on the number of jobs."""
    with contextlib.ExitStack() as stack:
        if torch := sys.modules.get("torch"):
            stack.callback(torch.set_num_threads, torch.get_num_threads())
        if numba := sys.modules.get("numba"):
            stack.callback(numba.set_num_threads, numba.get_num_threads())
            _limit_numba(numba, threads)
        if torch:
            torch.set_num_threads(threads)
        yield


def _limit_numba(numba: Any, threads: int) -> None:
    numba.set_num_threads(min(threads, numba.config.NUMBA_NUM_THREADS))  # which it cannot exceed once started
