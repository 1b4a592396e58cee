"""A parallel map gives what a loop gives, in order, and ends when the loop would."""

import contextlib
import os
import signal
import subprocess
import sys
import time
import warnings

import numba
import numpy as np
import psutil
import pytest
import torch

from icml25cli.core.errors import InputError, MissingError, UsageError
from icml25cli.core.parallel import parallel_map, usable_cpus
from icml25cli.core.progress import display, warn, warnings_so_far


@pytest.mark.parametrize("jobs", [1, 2])
def test_results_come_in_order(jobs):
    assert parallel_map(lambda x: x * x, iter(range(20)), jobs=jobs) == [x * x for x in range(20)]
    assert parallel_map(lambda x: x, [], jobs=jobs) == []


def test_one_job_stays_in_this_process_and_two_leave_it():
    assert set(parallel_map(lambda _: os.getpid(), range(4), jobs=1)) == {os.getpid()}
    assert os.getpid() not in parallel_map(lambda _: os.getpid(), range(4), jobs=2)


@pytest.mark.parametrize(("jobs", "threads"), [(1, 1), (1, 2), (2, 2)])
def test_a_worker_has_the_threads_it_was_given(jobs, threads):
    def count(_):
        of_numba = numba.get_num_threads()  # asked first, as numba starts its threads for it
        return torch.get_num_threads(), of_numba

    before = count(None)
    expected = (threads, min(threads, before[1])) if jobs == 1 else (threads, threads)
    assert parallel_map(count, range(2), jobs=jobs, threads=threads) == [expected] * 2
    assert count(None) == before


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_toolbox_error_keeps_type_message_and_hint(jobs):
    def fail(x):
        if x == 3:
            raise InputError("row 3 is not finite", hint="drop it")
        return x

    with pytest.raises(InputError, match="row 3 is not finite") as caught:
        parallel_map(fail, range(6), jobs=jobs)
    assert caught.value.hint == "drop it"
    assert parallel_map(lambda x: x, range(3), jobs=jobs) == [0, 1, 2], "the next map works"


@pytest.mark.parametrize("jobs", [1, 2])
def test_warnings_come_home(jobs):
    def careful(x):
        warn(f"item {x % 2}")
        return x

    with display(quiet=True):
        parallel_map(careful, range(4), jobs=jobs)
        assert sorted(warnings_so_far()) == ["item 0", "item 1"]


def test_a_killed_worker_is_one_sentence():
    with pytest.raises(MissingError, match="killed while working on folds") as caught:
        parallel_map(lambda x: os.kill(os.getpid(), signal.SIGKILL), range(4), jobs=2, description="folds")
    assert "--jobs" in str(caught.value.hint)
    assert parallel_map(lambda x: x, range(3), jobs=2) == [0, 1, 2]


def test_large_arrays_reach_the_workers():
    arrays = [np.full(2**18, i, dtype=np.float64) for i in range(3)]
    assert parallel_map(lambda x: float(x.mean()), arrays, jobs=2) == [0.0, 1.0, 2.0]


def test_a_process_has_the_threads_it_was_given_though_numba_starts_more():
    code = (
        "from icml25cli.core.parallel import set_threads; set_threads(1); import torch; print(torch.get_num_threads())"
    )
    environment = os.environ | {"NUMBA_NUM_THREADS": "2", "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == "1\n"


@pytest.mark.parametrize("arguments", [{"jobs": 0}, {"jobs": -1}, {"threads": 0}])
def test_counts_below_one_are_refused(arguments):
    with pytest.raises(UsageError, match="is below 1"):
        parallel_map(lambda x: x, [1], **arguments)


def test_usable_cpus_follow_the_affinity_mask(start):
    one = min(os.sched_getaffinity(0))
    script = "import os; from icml25cli.core.parallel import usable_cpus"
    assert start(f"{script}; os.sched_setaffinity(0, [{one}]); print(usable_cpus())").stdout.read() == "1\n"
    assert 1 <= usable_cpus() <= len(os.sched_getaffinity(0))


def test_ctrl_c_is_the_parents_business():
    assert parallel_map(lambda _: os.kill(os.getpid(), signal.SIGINT), range(4), jobs=2) == [None] * 4


def test_an_exception_between_two_results_ends_the_workers(tmp_path):
    pipe = str(tmp_path / "pipe")
    os.mkfifo(pipe)

    def work(x):
        if x == 1:
            with open(pipe, "w") as file:
                file.write(str(os.getpid()))
            signal.pause()
        with open(pipe) as file:
            warn(file.read())

    with pytest.raises(UserWarning) as caught, warnings.catch_warnings(action="error"):
        parallel_map(work, range(2), jobs=2)
    with contextlib.suppress(psutil.NoSuchProcess):
        psutil.Process(int(str(caught.value))).wait(timeout=60)


INTERRUPTED = """
import os, signal, sys
PIDS = sys.argv[1]
signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
os.setsid()
from icml25cli.core.parallel import parallel_map
def wait(_):
    open(os.path.join(PIDS, str(os.getpid())), "w").close()
    signal.pause()
try:
    parallel_map(wait, range(4), jobs=2)
except BaseException as error:
    print(type(error).__name__, flush=True)
    raise SystemExit(9)
"""


@pytest.mark.parametrize(("signum", "error"), [(signal.SIGINT, "KeyboardInterrupt"), (signal.SIGTERM, "SystemExit")])
def test_an_interrupt_ends_the_workers_without_a_word(start, tmp_path, signum, error):
    pids = tmp_path / "pids"
    pids.mkdir()
    parent = start(INTERRUPTED, pids)
    while len(found := list(pids.iterdir())) < 2:  # a file each: one pipe can lose what is written between readers
        time.sleep(0.01)
    workers = [psutil.Process(int(file.name)) for file in found]
    if signum == signal.SIGINT:
        os.killpg(parent.pid, signum)  # as a terminal sends it, to the workers too
    else:
        parent.send_signal(signum)
    out, err = parent.communicate()
    assert (out, err, parent.returncode) == (f"{error}\n", "", 9)
    assert psutil.wait_procs(workers, timeout=60)[1] == []


def is_worker(process: psutil.Process) -> bool:
    """Not one of joblib's trackers of resources."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return "--process-name" in process.cmdline()
    return False


@pytest.mark.parametrize("ready", [True, False])
def test_workers_end_with_a_parent_that_was_killed(start, tmp_path, ready):
    """Else they would hold its pipes for minutes: ``communicate`` ends when nobody can write any more."""
    pids = tmp_path / "pids"
    pids.mkdir()
    parent = start(INTERRUPTED, pids)
    if ready:
        while len(list(pids.iterdir())) < 2:
            time.sleep(0.01)
    while len(workers := [child for child in psutil.Process(parent.pid).children() if is_worker(child)]) < 2:
        time.sleep(0.01)
    parent.kill()
    parent.communicate(timeout=60)
    assert psutil.wait_procs(workers, timeout=60)[1] == []


# --- clusters, each a real one on this machine -------------------------------------------------------------------


@pytest.fixture(params=["ray", "dask"])
def engine(request):
    pytest.importorskip({"ray": "ray", "dask": "distributed"}[request.param])
    return request.param


def test_a_cluster_gives_what_a_loop_gives(engine):
    """One start of a cluster for all that can be asked of it: it takes seconds."""

    def work(x):
        if x == 7:
            raise InputError("row 7 is not finite", hint="drop it")
        warn(f"item {x % 2}")
        return x * x, os.getpid(), torch.get_num_threads()

    with display(quiet=True):
        done = parallel_map(work, range(6), jobs=2, engine=engine)
        assert sorted(warnings_so_far()) == ["item 0", "item 1"]
    assert [square for square, _, _ in done] == [x * x for x in range(6)]
    assert os.getpid() not in {pid for _, pid, _ in done}
    assert {threads for _, _, threads in done} == {1}
    with pytest.raises(InputError, match="row 7 is not finite") as caught:
        parallel_map(work, [7], jobs=2, engine=engine)
    assert caught.value.hint == "drop it"


def test_an_engine_that_is_not_installed_is_named(monkeypatch):
    monkeypatch.setattr("icml25cli.core.parallel.find_spec", lambda name: None)
    with pytest.raises(MissingError, match="--engine ray is not installed") as caught:
        parallel_map(abs, [1], engine="ray")
    assert "icml25[cluster]" in str(caught.value.hint)


def test_a_cluster_out_of_reach_is_one_sentence(monkeypatch):
    pytest.importorskip("distributed")
    monkeypatch.setenv("DASK_SCHEDULER_ADDRESS", "no-such-scheme://here")
    with pytest.raises(MissingError, match="no dask cluster can be reached"):
        parallel_map(abs, [1], engine="dask")
