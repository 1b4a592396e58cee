"""`icml25 assets` as a user runs it: what it prints, where, and with which exit code."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import Done
from tests.core.packages import FILES, SIZE, below, tarball

# The installed program over a catalogue of the test's own.
PROGRAM = """
import sys
from pathlib import Path
from icml25cli.core import store
from icml25cli.main import main
store.SOURCES = Path(sys.argv[1])
sys.exit(main(sys.argv[2:]))
"""


@pytest.fixture
def assets(tmp_path: Path, environment: dict[str, str]) -> Callable[..., Done]:
    """``icml25 assets ...`` where the asset ``texts`` comes by npm, from a client that copies what lies beside it."""
    package = tarball(below("root"))
    (tmp_path / "package.tgz").write_bytes(package)
    (tmp_path / "bin").mkdir()
    npm = tmp_path / "bin" / "npm"
    npm.write_text(f"#!/bin/sh\n/bin/cp {tmp_path}/package.tgz .\n")
    npm.chmod(0o755)
    (tmp_path / "sources.toml").write_text(f"""
[texts]
title = "[bold]texts[/] of old"
kind = "text"
licence = "CC0-1.0"
size = {SIZE}
keep = ["*.txt"]
[[texts.source]]
client = "npm"
package = "texts-data"
version = "1.0"
file = "package.tgz"
size = {len(package)}
sha256 = "{hashlib.sha256(package).hexdigest()}"
root = "root"
""")
    inherited = environment | {"ICML25_CACHE_DIR": str(tmp_path / "cache"), "PATH": str(tmp_path / "bin")}

    def run(*args: object, **more: str) -> Done:
        command = [sys.executable, "-c", PROGRAM, tmp_path / "sources.toml", "assets", *args]
        done = subprocess.run(
            list(map(str, command)), env=inherited | more, cwd=tmp_path, capture_output=True, text=True, timeout=60
        )
        return Done(done.returncode, done.stdout, done.stderr)

    return run


def test_from_list_to_remove(assets, tmp_path):
    (row,) = assets("list", "--json").json["rows"]
    assert (row["asset"], row["fetched"], row["licence"], row["version"], row["client"]) == (
        "texts", False, "CC0-1.0", "1.0", "npm",
    )  # fmt: skip
    fetched = assets("fetch", "texts", "--json")
    assert fetched.code == 0, fetched.err
    (row,) = fetched.json["rows"]
    assert Path(row["path"]) == tmp_path / "cache/assets/texts/1.0"
    assert assets("list", "--json").json["rows"][0]["fetched"] is True

    path = assets("path", "texts")
    assert (path.code, path.out) == (0, f"{row['path']}\n")
    assert assets("path", "texts", "--json").json["rows"] == [row]
    assert (Path(path.out.strip()) / "1790.txt").read_bytes() == FILES["1790.txt"]
    sound = assets("verify", "--json")
    assert (sound.code, sound.json["answer"], sound.json["rows"]) == (
        0, {"status": "sound"}, [{"asset": "texts", "sound": True, "damaged_files": 0}],
    )  # fmt: skip

    (Path(row["path"]) / "1790.txt").write_bytes(FILES["1790.txt"].upper())
    damaged = assets("verify", "texts", "--json")
    assert damaged.code == 1
    assert damaged.json["answer"] == {"status": "damaged"}
    assert "1790.txt" in damaged.json["tables"]["damage"][0]["found"]
    assert "icml25 assets remove texts && icml25 assets fetch texts" in damaged.err

    removed = assets("remove", "texts")
    assert removed.code == 0
    assert "freed" in removed.out
    gone = assets("path", "texts")
    assert (gone.code, gone.out) == (4, "")
    assert "icml25 assets fetch texts" in gone.err
    assert assets("remove", "texts", "--json").json["metrics"]["freed_mb"] == 0


def test_a_truncated_asset_is_found_by_a_verify_of_everything(assets, tmp_path):
    assert assets("fetch", "texts").code == 0
    (tmp_path / "cache/assets/texts/1.0/1790.txt").write_bytes(b"")
    assert assets("verify").code == 1


def test_add_takes_what_was_fetched_elsewhere(assets, tmp_path):
    added = assets("add", "texts", tmp_path / "package.tgz", PATH="")
    assert added.code == 0, added.err
    assert assets("verify").code == 0
    wrong = tmp_path / "wrong.tgz"
    wrong.write_bytes(b"something else")
    refused = assets("add", "texts", wrong, "--json")
    assert (refused.code, refused.out) == (3, "")
    assert str(wrong) in refused.err
    assert hashlib.sha256(b"something else").hexdigest() in refused.err


def test_what_is_out_of_reach_exits_4_with_the_way_out(assets):
    missing = assets("fetch", "texts", "--json", PATH="")
    assert (missing.code, missing.out) == (4, "")
    assert "npm is not installed" in missing.err
    assert "npm pack --ignore-scripts texts-data@1.0" in missing.err
    assert "icml25 assets add texts package.tgz" in missing.err
    assert "Traceback" not in missing.err


def test_a_package_that_changed_exits_3(assets, tmp_path):
    (tmp_path / "package.tgz").write_bytes(b"tampered")
    changed = assets("fetch", "texts")
    assert (changed.code, changed.out) == (3, "")
    assert hashlib.sha256(b"tampered").hexdigest() in changed.err


def test_a_cache_that_is_a_file_exits_74(assets, tmp_path):
    (tmp_path / "taken").touch()
    refused = assets("fetch", "texts", ICML25_CACHE_DIR=str(tmp_path / "taken"))
    assert (refused.code, refused.out) == (74, "")


def test_a_mistyped_name_exits_2_before_anything_is_fetched(assets, tmp_path):
    for verb in ("fetch", "remove", "path", "verify"):
        names = ["texts", "text"] if verb in ("fetch", "remove") else ["text"]
        refused = assets(verb, *names)
        assert (refused.code, refused.out) == (2, "")
        assert "did you mean 'texts'?" in refused.err
    assert not (tmp_path / "cache").exists()


def test_nothing_to_verify_exits_4(assets):
    assert assets("verify").code == 4


def test_titles_are_printed_as_they_are(assets):
    assert "[bold]texts[/] of old" in assets("list").out


def test_the_shipped_catalogue_is_listed(icml25):
    listed = icml25("assets", "list", "--json").json
    names = [row["asset"] for row in listed["rows"]]
    assert {"smollm2-135m", "all-minilm-l6-v2", "efficientnet-lite0", "sotu", "moby-dick", "keel"} <= set(names)
    assert all(row["licence"] and row["size_mb"] > 0 for row in listed["rows"])


def test_help_imports_nothing_heavy(environment):
    script = (
        "import sys; from icml25cli.main import main; main(['assets', 'fetch', '--help']);"
        "print([m for m in ('torch', 'transformers', 'huggingface_hub', 'numpy', 'icml25cli.core.store')"
        " if m in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True)
    assert done.stderr.strip().endswith("[]")


def test_names_complete(program, environment):
    asked = {"_ICML25_COMPLETE": "complete_bash", "COMP_WORDS": "icml25 assets fetch moby", "COMP_CWORD": "3"}
    done = subprocess.run([program], env=environment | asked, capture_output=True, text=True)
    assert done.stdout.split() == ["moby-dick"]
