"""Text: the standard library's prose and its split, files and their faults, windows, and the search for leaks."""

from __future__ import annotations

import hashlib
import io
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from icml25cli.core import store, text
from icml25cli.core.errors import InputError, MissingError
from icml25cli.core.text import (
    Text,
    builtin_text,
    find_text,
    overlap,
    part_of,
    read_text,
    shares_text,
    token_stream,
    windows,
)

PARTS = ("training", "calibration", "test")


# --- the built-in text -------------------------------------------------------------------------------------------


def test_a_module_goes_by_the_hash_of_its_name():
    # The first 16 hexadecimal digits by sha256sum, modulo 10: to 7 training, 8 calibration, 9 test.
    assert (0x02BD175F32972037 % 10, part_of("json")) == (7, "training")
    assert (0x72634192A9B688E5 % 10, part_of("pydoc_data")) == (5, "training")
    assert (0x82244417F956AC7C % 10, part_of("email")) == (8, "calibration")
    assert (0x0A149844A7C9F4CF % 10, part_of("logging")) == (9, "test")


def test_about_eight_tenths_of_names_are_for_training():
    parts = [part_of(f"module_{i}") for i in range(5000)]
    shares = [parts.count(part) / 5000 for part in PARTS]
    assert shares == pytest.approx([0.8, 0.1, 0.1], abs=0.02)


def test_the_prose_of_known_modules_is_in_their_part_and_in_no_other():
    known = {
        "training": "Serialize ``obj`` to a JSON formatted ``str``",  # json.dumps
        "calibration": "Create and return a new event loop object according to this",  # asyncio.events
        "test": "Log 'msg % args' with severity 'DEBUG'",  # logging.Logger.debug
    }
    together = {part: "\n".join(builtin_text(part).documents) for part in PARTS}
    for part, phrase in known.items():
        assert [p for p in PARTS if phrase in together[p]] == [part]


def test_long_strings_that_are_no_docstrings_are_taken_and_code_is_not():
    together = "\n".join(builtin_text("training").documents)
    assert "Assignment statements are used to (re)bind names to values" in together  # a value in pydoc_data.topics
    assert "import sys\nimport os" not in together


def test_every_part_is_large_enough_and_says_which_python():
    for part, least in zip(PARTS, (800_000, 150_000, 100_000), strict=True):
        found = builtin_text(part)
        assert sum(map(len, found.documents)) > least
        assert all(document.strip() for document in found.documents)
        assert f"Python {sys.version.split()[0]}" in found.origin
        assert part in found.origin


def test_parts_share_next_to_no_text():
    def runs(part):
        words = "\n".join(builtin_text(part).documents).split()
        return {tuple(words[i : i + 20]) for i in range(len(words) - 20)}

    training, calibration, test = map(runs, PARTS)
    assert len(test & calibration) < 0.005 * len(test)
    assert len(test & training) < 0.02 * len(test)  # pydoc's topics quote the debugger's page


def test_the_text_is_the_same_in_another_process_and_nothing_is_imported_for_it():
    script = """
import hashlib, sys
from icml25cli.core.text import builtin_text
before = set(sys.modules)
found = builtin_text("test")
print(hashlib.sha256("\\0".join(found.documents).encode()).hexdigest())
print(*sorted(name for name in set(sys.modules) - before if not name.startswith(("encodings", "_"))))
print(*sorted({"numpy", "torch", "transformers", "jaxtyping"} & set(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    digest, imported, heavy = done.stdout.split("\n")[:3]
    assert digest == hashlib.sha256("\0".join(builtin_text("test").documents).encode()).hexdigest()
    assert imported == ""
    assert heavy == ""


@pytest.fixture
def library(tmp_path, monkeypatch):
    """A standard library of the test's own, all of whose modules are for training."""
    monkeypatch.setattr(text.sysconfig, "get_path", lambda name: str(tmp_path))
    monkeypatch.setattr(text, "part_of", lambda name: "training")
    builtin_text.cache_clear()
    yield tmp_path
    builtin_text.cache_clear()


def test_only_documented_strings_in_source_order(library: Path):
    prose = "Words that a person wrote for a person to read, one after the other, as prose goes. " * 3
    table = "0x41 0x42 0x43 -> 17; " * 20
    (library / "m.py").write_text(
        f'"""Module."""\nSHORT = "a message"\nX = {prose!r}\nY = {table!r}\n'
        'def f():\n    """Function.\n\n        Indented.\n    """\n    return "inner"\nclass C:\n    "Class."\n'
    )
    assert builtin_text("training").documents == (f"Module.\n\n{prose.strip()}\n\nFunction.\n\nIndented.\n\nClass.",)


def test_unreadable_tests_and_vendored_files_are_left_out(library: Path):
    (library / "good.py").write_text('"""Good."""')
    (library / "latin.py").write_bytes("# coding: latin-1\n'''Caf\u00e9.'''".encode("latin-1"))
    (library / "bad.py").write_text("def (")
    (library / "binary.py").write_bytes(b'"""\xff\x00"""')
    (library / "escape.py").write_text('"""Escape \\d."""')  # a warning in some versions, never shown
    (library / "dangling.py").symlink_to(library / "nowhere.py")
    for folder in ("test", "site-packages", "idlelib", "pkg/tests", "config-3.11-x86_64-linux-gnu"):
        (library / folder).mkdir(parents=True)
        (library / folder / "no.py").write_text('"""No."""')
    (library / "_sysconfigdata__linux_.py").write_text('"""No."""')
    (library / "pkg" / "sub.py").write_text('"""Sub."""')
    assert builtin_text("training").documents == ("Escape \\d.", "Good.", "Caf\u00e9.", "Sub.")


# --- files -------------------------------------------------------------------------------------------------------


def test_a_text_file_is_one_document(tmp_path: Path):
    (tmp_path / "a.txt").write_bytes("\ufeffone\r\ntwo\u2028three\n\nfour \u00e9\n".encode())
    assert read_text(tmp_path / "a.txt") == Text(
        str(tmp_path / "a.txt"), ("one\ntwo\u2028three\n\nfour \u00e9\n",), str(tmp_path / "a.txt")
    )


@given(st.lists(st.text().filter(str.strip), min_size=1))
def test_json_lines_round_trip(tmp_path_factory, documents):
    file = tmp_path_factory.mktemp("jsonl") / "a.jsonl"
    file.write_text("\n\n".join(json.dumps({"id": 1, "text": d}) for d in documents) + "\n", encoding="utf-8")
    assert read_text(file).documents == tuple(documents)


def test_a_directory_is_its_text_files_in_order_of_name(tmp_path: Path):
    for name, content in {"b.txt": "second", "a.txt": "first", "blank.txt": " \n", "c.md": "other"}.items():
        (tmp_path / name).write_text(content)
    assert read_text(str(tmp_path)).documents == ("first", "second")


def test_standard_input(monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO("caf\u00e9".encode())))
    found = read_text("-")
    assert (found.documents, found.name) == (("caf\u00e9",), "standard input")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.txt", None, r"a\.txt cannot be read: No such file"),
        ("a.txt", b"", r"a\.txt is empty"),
        ("a.txt", b" \n\t", r"a\.txt is empty"),
        ("a.txt", b"caf\xe9 au lait", r"a\.txt is not UTF-8: byte 0xe9 at offset 3$"),
        ("a.jsonl", b'{"text": "a"}\n{"text": "b"', r"a\.jsonl, line 2 is not JSON"),
        ("a.jsonl", b'\n{"txt": "a"}', r"a\.jsonl, line 2 has no field 'text'"),
        ("a.jsonl", b'{"text": 3}', r"a\.jsonl, line 1 has no field 'text'"),
        ("a.jsonl", b'["text"]', r"a\.jsonl, line 1 has no field 'text'"),
        ("a.jsonl", b'{"text": "\\ud83d"}', r"a\.jsonl, line 1 holds half a surrogate pair"),
        ("a.jsonl", b"[" * 100_000, r"a\.jsonl, line 1 is not JSON"),
        ("a.jsonl", b'{"text": ""}', r"a\.jsonl is empty"),
        ("a.jsonl", b'{"text": "\xff"}', r"a\.jsonl is not UTF-8: byte 0xff at offset 10"),
    ],
)
def test_bad_files_are_named_with_the_place(tmp_path: Path, name, content, message):
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=message):
        read_text(tmp_path / name)


def test_a_directory_without_text_and_bad_standard_input_are_named(tmp_path: Path, monkeypatch):
    with pytest.raises(InputError, match=r"holds no \.txt file"):
        read_text(tmp_path)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"\x80")))
    with pytest.raises(InputError, match="standard input is not UTF-8: byte 0x80 at offset 0"):
        read_text("-")


# --- tokens and windows ------------------------------------------------------------------------------------------


class Letters:
    """A tokenizer of lower-case letters: a is 1, b is 2."""

    def __init__(self, eos: int | None) -> None:
        self.eos_token_id = eos

    def __call__(self, documents, add_special_tokens, **_):
        assert not add_special_tokens
        return {"input_ids": [[ord(c) - 96 for c in d] for d in documents]}


@pytest.mark.parametrize(("eos", "stream"), [(0, [1, 2, 0, 3, 0, 4]), (None, [1, 2, 3, 4])])
def test_documents_become_one_stream_with_ends_between(eos, stream):
    found = token_stream(Text("t", ("ab", "c", "d"), ""), Letters(eos))  # pyright: ignore[reportArgumentType]
    assert found.dtype == np.int64
    assert found.tolist() == stream


def test_windows_in_order():
    assert windows(np.arange(11), 3).tolist() == [[0, 1, 2], [3, 4, 5], [6, 7, 8]]
    assert windows(np.arange(11), 3, count=2).tolist() == [[0, 1, 2], [3, 4, 5]]
    assert windows(np.arange(3), 3, count=9).tolist() == [[0, 1, 2]]


@given(st.integers(1, 9), st.integers(9, 60), st.integers(1, 9), st.integers(0, 9))
def test_a_sample_of_windows_is_seeded_and_without_replacement(length, n, count, seed):
    tokens = np.arange(n)
    sample = windows(tokens, length, count, seed)
    assert np.array_equal(sample, windows(tokens, length, count, seed))
    assert len(np.unique(sample[:, 0])) == len(sample) == min(count, n // length)
    assert {tuple(w) for w in sample} <= {tuple(w) for w in windows(tokens, length)}


def test_seeds_draw_different_windows():
    assert len({tuple(windows(np.arange(100), 1, 5, seed).ravel()) for seed in range(10)}) == 10


def test_text_shorter_than_a_window_is_named_with_its_length():
    with pytest.raises(InputError, match=r"notes\.txt has 7 tokens, fewer than one window of 8"):
        windows(np.arange(7), 8, name="notes.txt")


# --- text by name ------------------------------------------------------------------------------------------------


def test_a_path_goes_before_an_asset_and_builtin_before_a_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sotu").write_text("mine")
    (tmp_path / "builtin").write_text("mine")
    assert find_text("sotu", "test") == Text("sotu", ("mine",), "sotu")
    assert find_text("builtin", "calibration") is builtin_text("calibration")


def test_an_asset_that_is_text_is_read_where_the_store_has_it(tmp_path, monkeypatch):
    (tmp_path / "1790.txt").write_text("Fellow citizens")
    (tmp_path / "1791.txt").write_text("of the Senate")
    monkeypatch.setattr(store, "path", lambda name: tmp_path if name == "sotu" else None)
    found = find_text("sotu", "test")
    assert found == Text("sotu", ("Fellow citizens", "of the Senate"), f"asset sotu {store.lookup('sotu').version}")


@pytest.mark.parametrize(
    ("name", "error", "says", "hint"),
    [
        ("sotu", MissingError, "the asset 'sotu' is not fetched", "icml25 assets fetch sotu"),
        ("smollm2-135m", InputError, "smollm2-135m is no text but model", "sotu, moby-dick"),
        ("", InputError, "the name of a text is empty", "builtin"),
        ("stou", InputError, "no text is called stou", "sotu, moby-dick"),
    ],
)
def test_a_name_that_leads_to_no_text_says_what_would(tmp_path, monkeypatch, name, error, says, hint):
    monkeypatch.setenv("ICML25_CACHE_DIR", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(error, match=says) as caught:
        find_text(name, "test")
    assert hint in caught.value.hint


# --- leaks -------------------------------------------------------------------------------------------------------


def shares_a_run(a, b, run):
    runs = {tuple(row[i : i + run]) for row in b for i in range(len(row) - run + 1)}
    return np.mean([any(tuple(row[i : i + run]) in runs for i in range(len(row) - run + 1)) for row in a])


def test_one_copied_run_of_32_tokens_is_found_and_31_are_not():
    rng = np.random.default_rng(0)
    evaluation, calibration = rng.integers(0, 50_000, (4, 100)), rng.integers(0, 50_000, (3, 80))
    assert overlap(evaluation, calibration) == 0
    evaluation[2, 17:48] = calibration[1, 40:71]
    assert overlap(evaluation, calibration) == 0
    evaluation[2, 48] = calibration[1, 71]
    assert overlap(evaluation, calibration) == 0.25


def test_windows_shorter_than_the_run_are_compared_whole():
    assert overlap(np.array([[1, 2, 3], [4, 5, 6]]), np.array([[9, 1, 2, 3, 9]])) == 0.5


@given(st.integers(0, 10**6), st.integers(1, 13), st.integers(2, 5))
def test_the_share_is_that_of_comparing_every_run(seed, run, letters):
    rng = np.random.default_rng(seed)
    a, b = rng.integers(0, letters, (6, 14)), rng.integers(0, letters, (2, 17))
    assert overlap(a, b, run) == shares_a_run(a, b, run)


def test_windows_that_share_text_are_named_one_by_one():
    calibration = np.arange(200).reshape(2, 100)
    evaluation = np.arange(1000, 1300).reshape(3, 100)
    evaluation[1, 40:72] = calibration[0, 5:37]
    assert shares_text(evaluation, calibration).tolist() == [False, True, False]
    evaluation[1, 71] = 5000  # 31 tokens are no run of 32
    assert not shares_text(evaluation, calibration).any()
