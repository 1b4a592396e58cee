"""Files appear whole or not at all; a lock has one living owner."""

import errno
import fcntl
import json
import os
import signal
import socket
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from icml25cli.core import files
from icml25cli.core.errors import InputError, OutputError
from icml25cli.core.files import Lock, atomic_path, check_file, write_json


def names(folder):
    return sorted(path.name for path in folder.iterdir())


# --- atomic_path


def test_a_file_appears_only_when_it_is_complete(tmp_path):
    with atomic_path(tmp_path / "codes.npz") as temporary:
        temporary.write_text("half")
        assert not (tmp_path / "codes.npz").exists()
        assert temporary.parent == tmp_path, "a rename is atomic only within a file system"
        assert temporary.suffix == ".npz", "numpy and others add a suffix that is not there"
    assert names(tmp_path) == ["codes.npz"]
    assert (tmp_path / "codes.npz").read_text() == "half"


def test_a_failed_writer_leaves_the_old_file_and_nothing_else(tmp_path):
    (tmp_path / "a.txt").write_text("old")
    with pytest.raises(ZeroDivisionError), atomic_path(tmp_path / "a.txt", force=True) as temporary:
        _ = temporary.write_text("new") / 0
    assert names(tmp_path) == ["a.txt"]
    assert (tmp_path / "a.txt").read_text() == "old"


def test_a_scratch_file_beside_the_output_that_cannot_be_made_is_the_outputs_fault(tmp_path):
    final = tmp_path / "codes.npz"
    with pytest.raises(OutputError, match=r"codes\.npz cannot be written: permission denied"), atomic_path(final):
        raise PermissionError(errno.EACCES, "denied", str(tmp_path / "tmp123"))
    with pytest.raises(FileNotFoundError), atomic_path(final):
        raise FileNotFoundError(errno.ENOENT, "absent", str(tmp_path / "input.npy"))


def test_who_reads_the_old_file_reads_it_to_the_end(tmp_path):
    (tmp_path / "a.json").write_text("[1]\n")
    with open(tmp_path / "a.json") as reader:
        write_json(tmp_path / "a.json", [2], force=True)
        assert reader.read() == "[1]\n"
    assert (tmp_path / "a.json").read_text() == "[\n  2\n]\n"


def test_a_directory_is_written_and_replaced_the_same_way(tmp_path):
    for content in ("one", "two"):
        with atomic_path(tmp_path / "unit", force=True) as temporary:
            temporary.mkdir()
            (temporary / content).write_text(content)
    assert names(tmp_path) == ["unit"]
    assert names(tmp_path / "unit") == ["two"]


def test_an_existing_file_is_kept_without_force(tmp_path):
    (tmp_path / "a.txt").write_text("old")
    for refuse in (lambda: atomic_path(tmp_path / "a.txt").__enter__(), lambda: check_file(tmp_path / "a.txt")):
        with pytest.raises(OutputError, match=r"a\.txt exists") as caught:
            refuse()
        assert caught.value.hint == "--force overwrites it"


def test_a_file_that_appears_meanwhile_is_kept(tmp_path):
    writer = atomic_path(tmp_path / "a.txt")
    writer.__enter__().write_text("mine")
    (tmp_path / "a.txt").write_text("theirs")
    with pytest.raises(OutputError, match="exists"):
        writer.__exit__(None, None, None)
    assert (tmp_path / "a.txt").read_text() == "theirs"


def test_a_link_is_written_through(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere.txt")
    (tmp_path / "elsewhere.txt").write_text("old")
    write_json(tmp_path / "link", [1], force=True)
    assert (tmp_path / "link").is_symlink()
    assert json.loads((tmp_path / "elsewhere.txt").read_text()) == [1]


def test_a_device_is_never_replaced(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OutputError, match="neither a file nor a folder"):
        write_json(tmp_path / "pipe", 1, force=True)


def test_missing_folders_are_made(tmp_path):
    write_json(tmp_path / "a" / "b" / "c.json", {"x": 1})
    assert json.loads((tmp_path / "a" / "b" / "c.json").read_text()) == {"x": 1}


def test_json_has_no_nan(tmp_path):
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_json(tmp_path / "a.json", float("nan"))
    assert names(tmp_path) == []


@pytest.mark.parametrize("target", ["file/new.txt", "file/deeper/new.txt"])
def test_a_file_where_a_folder_is_needed(tmp_path, target):
    (tmp_path / "file").write_text("")
    for refuse in (write_json, lambda path, _: check_file(path)):
        with pytest.raises(OutputError, match=r"new\.txt cannot be written") as caught:
            refuse(tmp_path / target, 1)
        assert caught.value.hint == "a file stands where a folder is needed"


def test_a_folder_where_a_file_is_wanted(tmp_path):
    (tmp_path / "taken").mkdir()
    for refuse in (lambda path: write_json(path, 1, force=True), lambda path: check_file(path, force=True)):
        with pytest.raises(OutputError, match="taken cannot be written: is a directory"):
            refuse(tmp_path / "taken")
    assert names(tmp_path) == ["taken"]


def test_a_name_that_is_too_long(tmp_path):
    with pytest.raises(OutputError, match="file name too long"):
        write_json(tmp_path / ("n" * 300), 1)


def test_the_longest_name_the_file_system_takes(tmp_path):
    write_json(tmp_path / ("é" * 127), 1)
    assert names(tmp_path) == ["é" * 127]


def test_a_source_that_cannot_be_read_is_no_fault_of_the_output(tmp_path):
    with pytest.raises(PermissionError), atomic_path(tmp_path / "out"):
        raise PermissionError(errno.EACCES, "Permission denied", str(tmp_path / "source"))


WRITERS = {
    "text": lambda path: path.write_text("x" * 2**20),
    "numpy": lambda path: np.save(path, np.zeros(2**20)),
    "npz": lambda path: np.savez(path, x=np.zeros(2**20)),
    "safetensors": lambda path: save_file({"x": torch.zeros(2**20)}, path),
}


@pytest.mark.parametrize("writer", WRITERS)
def test_a_full_disk_is_one_sentence_and_leaves_nothing(small_disk, writer):
    with (
        pytest.raises(OutputError, match=r"big\.np[yz] cannot be written: no space left") as caught,
        atomic_path(small_disk / ("big.npz" if writer == "npz" else "big.npy")) as temporary,
    ):
        WRITERS[writer](temporary)
    assert "free some space" in str(caught.value.hint)
    assert names(small_disk) == []


@pytest.mark.parametrize("writer", ["text", "npz", "safetensors"])
def test_the_file_size_limit_is_one_sentence_and_leaves_nothing(tmp_path, with_small_files, writer):
    def write():
        with atomic_path(tmp_path / "big.npz") as temporary:
            WRITERS[writer](temporary)

    met = with_small_files(write)
    assert met["error"] == "OutputError"
    assert "file too large" in met["message"]
    assert "ulimit -f" in met["hint"]
    assert names(tmp_path) == []


def test_a_folder_the_user_may_not_write(open_folder, as_user):
    os.chmod(open_folder, 0o555)
    for attempt in (lambda: write_json(open_folder / "a.json", 1), lambda: check_file(open_folder / "a.json")):
        met = as_user(attempt)
        assert met["error"] == "OutputError"
        assert "a.json cannot be written: permission denied" in met["message"]
        assert met["hint"] == "choose a place you may write to"


def test_what_a_killed_writer_left_goes_with_the_next_one_but_a_living_ones_stays(tmp_path, start):
    script = """
import sys
from pathlib import Path
from icml25cli.core.files import atomic_path
with atomic_path(Path(sys.argv[1])) as temporary:
    temporary.write_text("half")
    print("writing", flush=True)
    sys.stdin.read()
"""
    killed, living = (start(script, tmp_path / "a.txt") for _ in range(2))
    for process in (killed, living):
        assert process.stdout.readline() == "writing\n"
    assert len(names(tmp_path)) == 2
    killed.kill()
    killed.wait()
    write_json(tmp_path / "a.txt", 1)
    assert [str(living.pid) in name for name in names(tmp_path)] == [True, False]


# --- Lock

HOLD = """
import sys
from pathlib import Path
from icml25cli.core.errors import InputError
from icml25cli.core.files import Lock
print("ready", flush=True)
sys.stdin.readline()
try:
    Lock(Path(sys.argv[1])).acquire()
    print("won", flush=True)
except InputError as error:
    print(error.message, flush=True)
sys.stdin.read()
"""


def release(process):
    """Let a started HOLD go on, and say what became of it."""
    process.stdin.write("go\n")
    process.stdin.flush()
    return process.stdout.readline().strip()


def test_a_living_owner_keeps_the_lock_and_a_dead_one_loses_it(tmp_path, start):
    owner = start(HOLD, tmp_path / "lock")
    owner.stdout.readline()
    assert release(owner) == "won"
    assert json.loads((tmp_path / "lock").read_text())["pid"] == owner.pid
    with pytest.raises(InputError, match=f"held by running process {owner.pid}"):
        Lock(tmp_path / "lock").acquire()
    owner.kill()
    os.waitid(os.P_PID, owner.pid, os.WEXITED | os.WNOWAIT)  # dead, and nobody has collected it yet
    with Lock(tmp_path / "lock"):
        assert json.loads((tmp_path / "lock").read_text())["pid"] == os.getpid()
    assert names(tmp_path) == []


@pytest.mark.parametrize("pid", ["1e999", "-1", '"me"', "0", "9" * 300, "true", "null", "NaN"])
def test_a_lock_that_no_process_wrote_is_taken_over(tmp_path, pid):
    host = json.dumps(socket.gethostname())
    (tmp_path / "lock").write_text(f'{{"pid": {pid}, "host": {host}, "started": "1"}}')
    with Lock(tmp_path / "lock"):
        assert json.loads((tmp_path / "lock").read_text())["pid"] == os.getpid()


@pytest.mark.parametrize(
    "damage", [b"\xff\xfe\x00", b"[" * 100_000, b"[]", b'"text"'], ids=["bytes", "deep", "list", "text"]
)
def test_a_lock_of_any_bytes_is_taken_over_and_given_back(tmp_path, damage):
    lock = Lock(tmp_path / "lock")
    (tmp_path / "lock").write_bytes(damage)
    lock.acquire()
    (tmp_path / "lock").write_bytes(damage)
    lock.release()
    with lock:
        pass


def test_what_only_looks_like_a_writers_left_over_is_left_alone(tmp_path):
    with atomic_path(tmp_path / "a.txt") as temporary:
        mine = temporary.name
        temporary.write_text("a")
    like = tmp_path / mine.replace(str(os.getpid()), "notes")
    like.write_text("b")
    write_json(tmp_path / "a.txt", 1, force=True)
    assert like.exists()


@pytest.mark.parametrize("depth", ["new", "new/deep"])
def test_a_failed_output_takes_the_folders_made_for_it_along(tmp_path, depth):
    (tmp_path / "mine").mkdir()
    with pytest.raises(ZeroDivisionError), atomic_path(tmp_path / depth / "a.txt") as temporary:
        temporary.write_text(str(1 / 0))
    check_file(tmp_path / depth / "a.txt")
    check_file(tmp_path / "mine" / "a.txt")
    assert names(tmp_path) == ["mine"]
    write_json(tmp_path / depth / "a.txt", 1)
    assert (tmp_path / depth / "a.txt").exists()


def test_between_reading_and_writing_the_lock_nobody_else_reads_it(tmp_path, monkeypatch):
    def read(text):
        with open(tmp_path / "lock") as other, pytest.raises(BlockingIOError):
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        looked.append(text)

    looked = []
    monkeypatch.setattr(files, "_owner", read)
    Lock(tmp_path / "lock").acquire()
    assert looked == [""]


def test_a_lock_given_back_while_we_wait_for_it_is_taken_anew(tmp_path, monkeypatch):
    def flock(file, operation):
        if not waited:
            (tmp_path / "lock").unlink()
        waited.append(file)

    waited = []
    monkeypatch.setattr(files.fcntl, "flock", flock)
    Lock(tmp_path / "lock").acquire()
    assert json.loads((tmp_path / "lock").read_text())["pid"] == os.getpid()


def test_of_many_who_find_a_dead_owner_one_takes_over(tmp_path, start):
    gone = subprocess.Popen(["true"])
    gone.wait()
    dead = {"pid": gone.pid, "host": socket.gethostname(), "started": "1"}
    (tmp_path / "lock").write_text(json.dumps(dead))
    processes = [start(HOLD, tmp_path / "lock") for _ in range(6)]
    for process in processes:
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        process.stdin.write("go\n")
    for process in processes:
        process.stdin.flush()
    answers = [process.stdout.readline().strip() for process in processes]
    assert answers.count("won") == 1
    winner = processes[answers.index("won")]
    assert all(f"held by running process {winner.pid}" in answer for answer in answers if answer != "won")


def test_a_pid_that_now_belongs_to_another_process_is_no_owner(tmp_path):
    (tmp_path / "lock").write_text(json.dumps({"pid": os.getppid(), "host": socket.gethostname(), "started": "1"}))
    with Lock(tmp_path / "lock"):
        assert json.loads((tmp_path / "lock").read_text())["pid"] == os.getpid()


def test_an_owner_on_another_host_cannot_be_asked(tmp_path):
    (tmp_path / "lock").write_text(json.dumps({"pid": 1, "host": "elsewhere", "started": "1"}))
    with pytest.raises(InputError, match="process 1 on elsewhere") as caught:
        Lock(tmp_path / "lock").acquire()
    assert "remove that file" in str(caught.value.hint)
    Lock(tmp_path / "lock").release()
    assert names(tmp_path) == ["lock"], "only the owner gives it back"


@pytest.mark.parametrize("torn", ["", '{"pid": 1', "[]", '{"pid": "x", "host": "h", "started": "1"}'])
def test_a_torn_lock_has_no_owner(tmp_path, torn):
    (tmp_path / "lock").write_text(torn)
    with Lock(tmp_path / "lock"):
        pass


def test_the_same_process_does_not_take_it_twice(tmp_path):
    with Lock(tmp_path / "lock"), pytest.raises(InputError, match=f"process {os.getpid()}"):
        Lock(tmp_path / "lock").acquire()


def test_a_forked_child_does_not_give_back_its_parents_lock(tmp_path):
    with Lock(tmp_path / "lock") as lock:
        if (child := os.fork()) == 0:
            lock.release()
            os.kill(os.getpid(), signal.SIGKILL)
        os.waitpid(child, 0)
        assert names(tmp_path) == ["lock"]


@pytest.mark.parametrize(("mask", "mode"), [(0o022, 0o644), (0o077, 0o600)])
def test_files_are_as_readable_as_the_user_wants_them_whoever_wrote_them(tmp_path, mask, mode):
    def write_privately(path: Path) -> None:
        path.touch(mode=0o600)

    before = os.umask(mask)
    try:
        with atomic_path(tmp_path / "one.bin") as temporary:
            write_privately(temporary)
        with atomic_path(tmp_path / "many") as temporary:
            temporary.mkdir()
            write_privately(temporary / "inner.bin")
    finally:
        os.umask(before)
    for file in (tmp_path / "one.bin", tmp_path / "many/inner.bin"):
        assert file.stat().st_mode & 0o777 == mode
