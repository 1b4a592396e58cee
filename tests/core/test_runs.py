"""Finished work survives; a run is continued only with the same inputs; an output directory is whole."""

import json
import os
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from icml25cli.core import runs
from icml25cli.core.errors import InputError, OutputError, UsageError
from icml25cli.core.runs import Run, cache_dir, check_output, commit_output, fingerprint, resume_hint, run_directory


def contents(folder):
    """Every file under ``folder``, hidden ones too, with its text."""
    return {p.relative_to(folder).as_posix(): p.read_text() for p in folder.rglob("*") if p.is_file()}


# --- fingerprint

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


def apart(value):
    """``value`` with its types spelt out, since Python holds 1, True and 1.0 to be equal."""
    if isinstance(value, dict):
        return {key: apart(item) for key, item in value.items()}
    if isinstance(value, list):
        return [apart(item) for item in value]
    return type(value).__name__, repr(value)


@given(a=VALUES, b=VALUES)
def test_fingerprints_are_equal_exactly_when_values_are(a, b):
    assert (fingerprint(a) == fingerprint(b)) == (apart(a) == apart(b))


def test_order_of_keys_does_not_matter_and_order_of_items_does():
    assert fingerprint({"a": 1, "b": 2}) == fingerprint({"b": 2, "a": 1})
    assert fingerprint([1, 2]) != fingerprint([2, 1])


def test_neighbours_are_kept_apart():
    different = [1, True, 1.0, "1", b"1", ["1"], ["ab", "c"], ["a", "bc"], [["ab"], "c"], {"ab": "c"}, None, "None", []]
    assert len({fingerprint(value) for value in different}) == len(different)


def test_another_process_computes_the_same(tmp_path):
    (tmp_path / "f").write_text("text")
    value = "{'seed': 0, 'x': [1.5, None, 'é'], 'f': Path(sys.argv[1]), 'a': np.arange(3.0)}"
    imports = "import sys, numpy as np; from pathlib import Path; from icml25cli.core.runs import fingerprint"
    script = f"{imports}; print(fingerprint({value}))"
    other = subprocess.run(
        [sys.executable, "-c", script, tmp_path / "f"], env=os.environ | {"PYTHONHASHSEED": "7"}, capture_output=True
    )
    here = fingerprint({"seed": 0, "x": [1.5, None, "é"], "f": tmp_path / "f", "a": np.arange(3.0)})
    assert other.stdout.decode().strip() == here


def test_arrays_count_by_type_shape_and_bytes():
    x = torch.arange(6, dtype=torch.float32)
    different = [x, x.double(), x.bfloat16(), x.reshape(2, 3), x + 1, x.numpy(), x.numpy().reshape(2, 3), x.tolist()]
    assert len({fingerprint(value) for value in different}) == len(different)
    assert fingerprint(x.reshape(2, 3).T.contiguous()) == fingerprint(x.reshape(2, 3).T)
    assert fingerprint(torch.tensor(1.0)) != fingerprint(torch.tensor([1.0]))


def test_files_count_by_content_and_directories_by_names_too(tmp_path):
    for folder in ("a", "b"):
        (tmp_path / folder / "sub").mkdir(parents=True)
        (tmp_path / folder / "sub" / "x").write_text("same")
    assert fingerprint(tmp_path / "a") == fingerprint(tmp_path / "b")
    assert fingerprint(tmp_path / "a" / "sub" / "x") == fingerprint(tmp_path / "b" / "sub" / "x")
    before = fingerprint(tmp_path / "a")
    (tmp_path / "a" / "sub" / "x").rename(tmp_path / "a" / "sub" / "y")
    assert fingerprint(tmp_path / "a") != before
    (tmp_path / "b" / "sub" / "x").write_text("other")
    assert fingerprint(tmp_path / "b") != before


def test_a_large_file_counts_by_its_ends_size_and_time(tmp_path, monkeypatch):
    monkeypatch.setattr(runs, "WHOLE_FILE", 2**21)
    large = tmp_path / "model.safetensors"

    def write(first=0, last=0, size=2**22, when=10):
        with open(large, "wb") as file:
            file.truncate(size)
            file.write(bytes([first]))
            file.seek(size - 1)
            file.write(bytes([last]))
        os.utime(large, (when, when))
        return fingerprint(large)

    prints = [write(), write(first=1), write(last=1), write(size=2**22 + 1), write(when=11)]
    assert len(set(prints)) == len(prints)
    assert write() == prints[0]


def test_what_has_no_fingerprint_says_so(tmp_path):
    with pytest.raises(InputError, match="gone cannot be read: no such file"):
        fingerprint({"text": tmp_path / "gone"})
    with pytest.raises(TypeError, match="no fingerprint of object"):
        fingerprint([object()])
    with pytest.raises(TypeError, match="no fingerprint of ndarray"):  # bytes of an object array are addresses
        fingerprint(np.array([object()]))


# --- where runs live


def test_the_cache_is_where_the_environment_says(monkeypatch, tmp_path):
    monkeypatch.setenv("ICML25_CACHE_DIR", str(tmp_path))
    assert cache_dir() == tmp_path
    monkeypatch.setenv("ICML25_CACHE_DIR", "")
    assert cache_dir().name == "icml25"


def test_a_run_lives_in_the_output_unless_the_cache_has_it(monkeypatch, tmp_path):
    monkeypatch.setenv("ICML25_CACHE_DIR", str(tmp_path / "cache"))
    key = fingerprint({"seed": 0})
    cached = tmp_path / "cache" / "runs" / f"quantize-{key[:12]}"
    assert run_directory("quantize", key, None) == cached
    assert run_directory("quantize", key, tmp_path / "out") == tmp_path / "out" / ".run"
    with Run.open(cached, {"seed": 0}):
        assert run_directory("quantize", key, tmp_path / "out") == cached


# --- Run


def test_finished_units_are_there_when_the_run_is_opened_again(tmp_path):
    with Run.open(tmp_path / "run", {"seed": 0}) as run:
        assert not run.has("layer-0.npy")
        run.write("layer-0.npy", lambda path: np.save(path, np.arange(3)))
        run.write("layer-1", lambda path: path.mkdir())
    with Run.open(tmp_path / "run", {"seed": 0}, resume=True) as run:
        assert np.load(run.path("layer-0.npy")).tolist() == [0, 1, 2]
        assert run.has("layer-1")
        run.discard("layer-1")
        run.discard("layer-1")
        assert not run.has("layer-1")
    assert not (tmp_path / "run" / "lock").exists()


def test_a_unit_is_replaced_whole(tmp_path):
    with Run.open(tmp_path, {}) as run:
        run.write("a", lambda path: path.write_text("old"))
        with pytest.raises(ZeroDivisionError):
            run.write("a", lambda path: path.write_text("new") / 0)
        assert run.path("a").read_text() == "old"
        run.write("a", lambda path: path.write_text("new"))
        assert run.path("a").read_text() == "new"


def test_other_inputs_are_refused_by_name_and_fresh_begins_anew(tmp_path):
    text = tmp_path / "text"
    text.write_text("one")
    before = {"seed": 0, "method": "nestquant", "text": text}
    with Run.open(tmp_path / "run", before) as run:
        run.write("a", lambda path: path.touch())
    text.write_text("two")
    after = {"seed": 1, "method": "nestquant", "text": text, "bits": 4}
    with pytest.raises(InputError, match=r"differs in bits, seed, text$") as caught:
        Run.open(tmp_path / "run", after)
    assert "--fresh" in str(caught.value.hint)
    with Run.open(tmp_path / "run", after, fresh=True) as run:
        assert not run.has("a")
    with Run.open(tmp_path / "run", after, resume=True):
        pass


def test_the_manifest_says_what_the_run_is_of(tmp_path):
    with Run.open(tmp_path, {"seed": 0, "text": Path("moby.txt").absolute().parent, "x": torch.zeros(2, 3)}):
        manifest = json.loads((tmp_path / "manifest.json").read_text())
    assert manifest["inputs"] == {"seed": 0, "text": os.getcwd(), "x": "torch.float32 (2, 3)"}
    assert manifest["format"] == runs.FORMAT
    assert manifest["toolbox"]


def test_a_run_of_another_version_is_refused(tmp_path):
    with Run.open(tmp_path, {}):
        manifest = json.loads((tmp_path / "manifest.json").read_text())
    (tmp_path / "manifest.json").write_text(json.dumps(manifest | {"toolbox": "0.0.1"}))
    with pytest.raises(InputError, match=r"made by icml25 0\.0\.1"):
        Run.open(tmp_path, {})


@pytest.mark.parametrize("torn", ["", "{", "[]", '{"format": 1, "toolbox": "1", "fingerprints": 3}'])
def test_a_manifest_that_is_none_is_refused(tmp_path, torn):
    (tmp_path / "manifest.json").write_text(torn)
    with pytest.raises(InputError, match="manifest"):
        Run.open(tmp_path, {})
    with Run.open(tmp_path, {}, fresh=True):
        pass


def test_resume_insists_on_something_to_resume(tmp_path):
    with pytest.raises(InputError, match="no run to resume"):
        Run.open(tmp_path / "run", {}, resume=True)
    assert not (tmp_path / "run").exists()
    with pytest.raises(UsageError, match="exclude each other"):
        Run.open(tmp_path / "run", {}, resume=True, fresh=True)


@pytest.mark.parametrize("name", ["", ".", "..", "../x", "a/b", ".hidden", "a\n"])
def test_a_unit_stays_in_its_place(tmp_path, name):
    with Run.open(tmp_path, {}) as run, pytest.raises(ValueError, match="no name"):
        run.path(name)


def test_a_worker_writes_units_and_leaves_the_lock(tmp_path, start):
    script = """
import pickle, sys
run = pickle.loads(bytes.fromhex(sys.argv[1]))
run.write("a", lambda path: path.touch())
run.close()
"""
    with Run.open(tmp_path, {}) as run:
        assert start(script, pickle.dumps(run).hex()).wait() == 0
        assert run.has("a")
        assert (tmp_path / "lock").exists()


def test_an_interrupted_user_hears_where_the_work_is(tmp_path, monkeypatch):
    monkeypatch.setattr(runs, "_opened", {})  # by other tests
    with Run.open(tmp_path / "first", {}) as run:
        assert resume_hint() is None, "nothing is finished"
        run.write("a", lambda path: path.touch())
    assert str(tmp_path / "first") in str(resume_hint())
    assert "--resume" in str(resume_hint())
    with Run.open(tmp_path / "second", {}) as later:
        assert str(tmp_path / "first") in str(resume_hint()), "a stage that has not finished anything hides nothing"
        later.write("b", lambda path: path.touch())
        assert str(tmp_path / "second") in str(resume_hint())


WORK = """
import sys
from pathlib import Path
from icml25cli.core.runs import Run
run = Run.open(Path(sys.argv[1]), {"seed": 0})
run.write("first", lambda path: path.write_text("first"))
def second(path):
    path.mkdir()
    (path / "half").write_text("half")
    print("writing", flush=True)
    sys.stdin.read()
run.write("second", second)
"""


def test_a_run_in_use_is_refused_and_one_that_was_killed_goes_on(tmp_path, start):
    worker = start(WORK, tmp_path)
    assert worker.stdout.readline() == "writing\n"
    for fresh in (False, True):
        with pytest.raises(InputError, match=f"running process {worker.pid}"):
            Run.open(tmp_path, {"seed": 0}, fresh=fresh)
    worker.kill()
    worker.wait()
    assert len(list((tmp_path / "units").iterdir())) == 2, "the kill came in the middle of a unit"
    with Run.open(tmp_path, {"seed": 0}, resume=True) as run:
        assert run.has("first")
        assert not run.has("second")
    assert set(contents(tmp_path)) == {"manifest.json", "units/first"}


def test_a_full_disk_keeps_what_is_finished(small_disk):
    with Run.open(small_disk / "run", {}) as run:
        run.write("small", lambda path: path.write_text("x" * 1000))
        with pytest.raises(OutputError, match="no space left") as caught:
            run.write("big", lambda path: path.write_text("x" * 2**20))
        assert "finished work is kept" in str(caught.value.hint)
    with Run.open(small_disk / "run", {}, resume=True) as run:
        assert run.has("small")
        assert [path.name for path in run.path("small").parent.iterdir()] == ["small"]


def test_a_run_where_the_user_may_not_write(open_folder, as_user):
    os.chmod(open_folder, 0o555)
    met = as_user(lambda: Run.open(open_folder / "run", {}))
    assert met["error"] == "OutputError"
    assert f"{open_folder}/run cannot be written: permission denied" in met["message"]


# --- whole output directories


def test_an_output_appears_whole(tmp_path):
    with commit_output(tmp_path / "new" / "out") as building:
        (building / "sub").mkdir()
        (building / "sub" / "x").write_text("x")
        assert not (tmp_path / "new" / "out").exists()
    assert os.listdir(tmp_path / "new") == ["out"]
    assert (tmp_path / "new" / "out" / "sub" / "x").read_text() == "x"


def test_our_own_run_is_no_existing_output_and_goes_once_the_output_is_whole(tmp_path):
    out = tmp_path / "out"
    with Run.open(out / ".run", {}) as run:
        run.write("a", lambda path: path.write_text("a"))
        check_output(out)
        with pytest.raises(ValueError, match="invalid"), commit_output(out):
            int("x")
        assert contents(out).keys() >= {".run/units/a", ".run/lock"}
        with commit_output(out) as building:
            (building / "x").write_text("x")
        assert contents(out).keys() == {"x", runs.MARK}  # whatever becomes of the command from here on
    assert os.listdir(tmp_path) == ["out"]


def test_an_existing_output_needs_force_and_is_replaced_whole(tmp_path):
    out = tmp_path / "out"
    for name in ("old", "new"):
        with commit_output(out, force=name == "new") as building:
            (building / name).write_text(name)
        with pytest.raises(OutputError, match="out exists") as caught:
            check_output(out)
        assert caught.value.hint == "--force overwrites it"
    assert set(contents(out)) == {"new", runs.MARK}


def test_a_failure_changes_nothing(tmp_path):
    out = tmp_path / "out"
    with commit_output(out) as building:
        (building / "old").write_text("old")
    before = contents(tmp_path)
    with pytest.raises(ZeroDivisionError), commit_output(out, force=True) as building:
        _ = (building / "new").write_text("new") / 0
    assert contents(tmp_path) == before
    with pytest.raises(ZeroDivisionError), commit_output(tmp_path / "other"):
        raise ZeroDivisionError
    assert contents(tmp_path) == before


def test_what_appears_meanwhile_is_kept(tmp_path):
    out = tmp_path / "out"
    writer = commit_output(out)
    writer.__enter__()
    out.mkdir()
    (out / "theirs").write_text("theirs")
    with pytest.raises(OutputError, match="exists"):
        writer.__exit__(None, None, None)
    assert contents(tmp_path) == {"out/theirs": "theirs"}


def test_force_does_not_touch_what_we_did_not_write(tmp_path):
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "thesis.tex").write_text("years")
    with pytest.raises(OutputError, match="files that icml25 did not write"):
        check_output(tmp_path / "home", force=True)
    with pytest.raises(OutputError, match="did not write"), commit_output(tmp_path / "home", force=True):
        pass
    assert contents(tmp_path) == {"home/thesis.tex": "years"}


def test_the_current_folder_is_not_replaced_under_the_users_feet(tmp_path, monkeypatch):
    (tmp_path / "sub").mkdir()
    monkeypatch.chdir(tmp_path / "sub")
    for out in (".", ".."):
        with pytest.raises(OutputError, match="current folder"):
            check_output(Path(out))


def test_a_file_is_no_output_directory(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="not a folder"):
        check_output(tmp_path / "file", force=True)
    with pytest.raises(OutputError, match="cannot be written"):
        check_output(tmp_path / "file" / "out")


def test_a_mount_point_is_refused_before_the_work(small_disk):
    with pytest.raises(OutputError, match="mount point") as caught:
        check_output(small_disk)
    assert "folder inside it" in str(caught.value.hint)
    check_output(small_disk / "out")


def test_an_output_where_the_user_may_not_write(open_folder, as_user):
    (open_folder / "out").mkdir()
    os.chmod(open_folder, 0o555)
    for out in (open_folder / "out", open_folder / "new"):
        met = as_user(lambda out=out: check_output(out))
        assert met["error"] == "OutputError"
        assert "cannot be written: permission denied" in met["message"]
    os.chmod(open_folder, 0o777)
    assert as_user(lambda: check_output(open_folder / "new")) == {"done": None}


def test_a_full_disk_leaves_the_old_output(small_disk):
    out = small_disk / "out"
    with commit_output(out) as building:
        (building / "x").write_text("old")
    before = contents(small_disk)
    with (
        pytest.raises(OutputError, match="out cannot be written: no space left"),
        commit_output(out, force=True) as new,
    ):
        (new / "x").write_text("x" * 2**20)
    assert contents(small_disk) == before


COMMIT = """
import os, shutil, sys
from pathlib import Path
from icml25cli.core import runs
out, point, kill_at = Path(sys.argv[1]), 0, int(sys.argv[2])
def step(name, function):
    def stepped(*args, **kwargs):
        global point
        if point == kill_at:
            print(name, flush=True)
            os.kill(os.getpid(), 9)
        point += 1
        return function(*args, **kwargs)
    return stepped
for module, name in ((os, "rename"), (shutil, "rmtree"), (os, "mkdir"), (os, "fsync"), (os, "unlink"), (os, "rmdir")):
    setattr(module, name, step(name, getattr(module, name)))
with runs.commit_output(out, force=True) as building:
    step("body", lambda: None)()
    for name in ("x", "y"):
        (building / name).write_text("new")
        step("body", lambda: None)()
print("done", flush=True)
"""


def test_killed_at_any_step_the_output_is_whole_and_the_next_writer_clears_up(tmp_path, start):
    old = {"x": "old", "z": "old"}
    steps, absent = [], 0
    while steps[-1:] != ["done"]:
        place = tmp_path / str(len(steps))
        out = place / "out"
        with commit_output(out) as building:
            for name, text in old.items():
                (building / name).write_text(text)
        with Run.open(out / ".run", {}) as run:
            run.write("unit", lambda path: path.write_text("unit"))
        writer = start(COMMIT, out, len(steps))
        steps.append(writer.stdout.readline().strip())
        writer.wait()
        if out.exists():
            there = {name: text for name, text in contents(out).items() if not name.startswith(".")}
            assert there in (old, {"x": "new", "y": "new"}), steps
        else:
            absent += 1
        check_output(out, force=True)
        assert os.listdir(place) == ["out"], steps
        there = {name: text for name, text in contents(out).items() if name != runs.MARK}
        unfinished = {".run/units/unit": "unit", ".run/manifest.json": there.get(".run/manifest.json")}
        assert there in (old | unfinished, {"x": "new", "y": "new"}), steps
    assert steps.count("body") == 3
    assert steps.count("rename") == 2
    assert absent == 1, "only between two renames is there no output"


def test_two_writers_of_one_output_do_not_mix(tmp_path, start):
    script = """
import sys
from pathlib import Path
from icml25cli.core.runs import commit_output
with commit_output(Path(sys.argv[1])) as building:
    print("writing", flush=True)
    sys.stdin.read()
"""
    writer = start(script, tmp_path / "out")
    assert writer.stdout.readline() == "writing\n"
    for attempt in (check_output, lambda out: commit_output(out).__enter__()):
        with pytest.raises(InputError, match=f"running process {writer.pid}"):
            attempt(tmp_path / "out")
    writer.communicate()
    assert os.listdir(tmp_path) == ["out"]
