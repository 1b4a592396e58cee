"""Assets come whole, with the hash that is recorded, or not at all."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from icml25cli.core import fetch, store
from icml25cli.core.errors import InputError, MissingError, OutputError, UsageError
from tests.core.packages import FILES, PACK, SIZE, below, deb, tarball, wheel


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


# --- a catalogue, a cache and clients of the test's own


@dataclass
class Shop:
    """Registries that a test fills: what a client is asked for it copies from ``shelf``, and says so in ``called``."""

    folder: Path

    @property
    def shelf(self) -> Path:
        return self.folder / "shelf"

    @property
    def cache(self) -> Path:
        return self.folder / "cache"

    def called(self) -> list[str]:
        log = self.folder / "called"
        return log.read_text().splitlines() if log.exists() else []

    def client(self, name: str, script: str | None = None) -> None:
        """Install a client; without ``script`` it brings the whole shelf."""
        body = script or f'echo "{name} $*" >> {self.folder}/called\n/bin/cp {self.shelf}/* .'
        program = self.folder / "bin" / name
        program.write_text(f"#!/bin/sh\n{body}\n")
        program.chmod(0o755)

    def catalogue(self, text: str) -> None:
        store.SOURCES.write_text(text)

    def offer(self, client: str, package: bytes, size: int = SIZE, more: str = "", expected: str | None = None) -> None:
        """Put ``package`` on the shelf and the asset ``texts``, which comes from it, into the catalogue."""
        (self.shelf / "package.bin").write_bytes(package)
        source = {
            "client": client,
            "package": "texts-data",
            "version": "1.0",
            "file": "package.bin",
            "size": len(package),
            "sha256": expected or sha256(package),
            "root": "root",
        }
        self.catalogue(asset("texts", size, [source]) + more)

    def files(self) -> list[str]:
        """Everything under the cache but folders."""
        return sorted(path.relative_to(self.cache).as_posix() for path in self.cache.rglob("*") if path.is_file())


def asset(name: str, size: int, sources: list[dict], keys: str = 'keep = ["*.txt"]', pins: dict | None = None) -> str:
    lines = [f"[{name}]", 'title = "texts"', 'kind = "text"', 'licence = "CC0-1.0"', f"size = {size}", keys]
    lines += [f"[{name}.sha256]", *(f'"{file}" = "{digest}"' for file, digest in (pins or {}).items())]
    for source in sources:
        values = (f"{key} = {value!r}" for key, value in source.items())  # repr of str and int is TOML
        lines += [f"[[{name}.source]]", *values]
    return "\n".join(lines) + "\n"


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shop:
    made = Shop(tmp_path)
    for folder in ("shelf", "bin", "cache"):
        (tmp_path / folder).mkdir()
    monkeypatch.setattr(store, "SOURCES", tmp_path / "sources.toml")
    monkeypatch.setattr(fetch, "find_spec", lambda name: None)  # so that pip, too, is looked for on PATH
    monkeypatch.setenv("ICML25_CACHE_DIR", str(made.cache))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    return made


def installed(shop: Shop) -> dict[str, bytes]:
    folder = shop.cache / "assets" / "texts" / "1.0"
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


# --- fetch


@pytest.mark.parametrize(
    ("client", "program", "command"),
    [
        ("pypi", "pip", r"pip download --no-deps --only-binary :all: .*texts-data==1\.0"),
        ("npm", "npm", r"npm pack --ignore-scripts .*texts-data@1\.0"),
        ("debian", "apt-get", r"apt-get download texts-data=1\.0"),
    ],
)
def test_fetch_unpacks_the_wanted_files_and_nothing_else(shop, client, program, command):
    shop.offer(client, PACK[client](below("root" if client != "debian" else "./root")))
    shop.client(program)
    assert not store.is_fetched("texts")
    assert store.fetch("texts") == store.path("texts") == shop.cache / "assets/texts/1.0"
    assert installed(shop) == FILES
    assert not any("package.bin" in name for name in shop.files()), "a package that no other asset needs is not kept"
    (call,) = shop.called()
    assert re.fullmatch(command, call)
    assert store.fetch("texts") == store.path("texts")
    assert len(shop.called()) == 1, "what is here is not fetched again"


def test_uvx_brings_pip_where_there_is_none(shop):
    shop.offer("pypi", wheel(below("root")))
    shop.client("uvx")
    store.fetch("texts")
    assert shop.called()[0].startswith("uvx pip download")


def test_the_main_path_may_be_a_file(shop):
    shop.offer("npm", tarball(below("root")))
    shop.catalogue(store.SOURCES.read_text().replace("keep =", 'main = "notes/1791.txt"\nkeep ='))
    shop.client("npm")
    assert store.fetch("texts").read_bytes() == FILES["notes/1791.txt"]


def test_a_wrong_hash_is_refused_before_anything_is_unpacked(shop):
    package = tarball(below("root"))
    shop.offer("npm", package, expected="0" * 64)
    shop.client("npm")
    with pytest.raises(InputError) as caught:
        store.fetch("texts")
    for fact in ("package.bin", sha256(package), "0" * 64):
        assert fact in caught.value.message
    assert shop.files() == []


def test_a_key_file_with_a_wrong_hash_is_refused_though_the_package_is_right(shop):
    shop.offer("npm", tarball(below("root")))
    shop.catalogue(store.SOURCES.read_text().replace("[texts.sha256]", f'[texts.sha256]\n"1790.txt" = "{"1" * 64}"'))
    shop.client("npm")
    with pytest.raises(InputError, match=rf"1790\.txt has the SHA-256 {sha256(FILES['1790.txt'])}, expected 1{{64}}"):
        store.fetch("texts")
    assert shop.files() == []


@pytest.mark.parametrize(
    ("client", "program", "by_hand"),
    [
        ("pypi", "pip", "pip download --no-deps --only-binary :all: texts-data==1.0"),
        ("npm", "npm", "npm pack --ignore-scripts texts-data@1.0"),
        ("debian", "apt-get", "apt-get download texts-data=1.0"),
    ],
)
def test_without_the_client_the_hint_is_the_command_to_run_elsewhere(shop, client, program, by_hand):
    shop.offer(client, PACK[client](below("root")))
    with pytest.raises(MissingError, match=f"{program}.*installed") as caught:
        store.fetch("texts")
    assert by_hand in str(caught.value.hint)
    assert "icml25 assets add texts package.bin" in str(caught.value.hint)


@pytest.mark.parametrize(
    ("client", "program", "said", "message"),
    [
        (
            "pypi",
            "pip",
            "WARNING: Retrying after connection broken by 'NewConnectionError'\nERROR: No matching distribution found",
            "the index cannot be reached; No matching distribution found",
        ),
        ("npm", "npm", "npm error code E404\nnpm error 404 Not Found - GET", "npm: 404 Not Found - GET$"),
        ("debian", "apt-get", "Reading lists\nE: Unable to locate package x", "locate package x; apt-get update may"),
        ("debian", "apt-get", "", "apt-get ended with code 9"),
        ("npm", "npm", "npm error GET https://me:secret@host/x", r"GET https://\*\*\*@host/x"),
    ],
)
def test_a_client_that_fails_gives_its_own_reason(shop, client, program, said, message):
    shop.offer(client, PACK[client](below("root")))
    shop.client(program, f"/bin/cat >&2 <<'END'\n{said}\nEND\nexit 9")
    with pytest.raises(MissingError, match=message) as caught:
        store.fetch("texts")
    assert "secret" not in caught.value.message
    assert shop.files() == []


def test_a_client_that_brings_something_else(shop):
    shop.offer("npm", tarball(below("root")))
    shop.client("npm", "echo surprise > other.bin")
    with pytest.raises(InputError, match=r"npm brought other\.bin instead of package\.bin"):
        store.fetch("texts")
    assert shop.files() == []


def test_the_next_source_is_tried_when_the_first_is_out_of_reach(shop):
    packages = {client: PACK[client](below("root")) for client in ("npm", "debian")}
    for client, package in packages.items():
        (shop.shelf / f"{client}.bin").write_bytes(package)
    sources = [
        {"client": client, "package": "p", "version": "1.0", "file": f"{client}.bin", "size": 1, "sha256": sha256(data)}
        | {"root": "root"}
        for client, data in packages.items()
    ]
    shop.catalogue(asset("texts", SIZE, sources))
    shop.client("npm", "exit 1")
    shop.client("apt-get")
    store.fetch("texts")
    assert installed(shop) == FILES


def test_a_licence_that_is_not_free_has_to_be_accepted(shop):
    shop.offer("npm", tarball(below("root")))
    shop.catalogue(store.SOURCES.read_text().replace("keep =", "opt_in = true\nkeep ="))
    shop.client("npm")
    with pytest.raises(UsageError, match=r"CC0-1\.0") as caught:
        store.fetch("texts")
    assert "--accept-licence" in str(caught.value.hint)
    assert shop.called() == []
    store.fetch("texts", accept_licence=True)
    assert installed(shop) == FILES


def test_an_unknown_name_gets_the_nearest_one(shop):
    shop.offer("npm", b"")
    for use in (store.fetch, store.path, store.verify, store.remove, lambda name: store.add(name, Path("x"))):
        with pytest.raises(UsageError, match="no asset is called 'text'") as caught:
            use("text")
        assert caught.value.hint == "did you mean 'texts'?"


def test_a_new_version_in_the_catalogue_replaces_the_old_one(shop):
    shop.offer("npm", tarball(below("root")))
    shop.client("npm")
    store.fetch("texts")
    shop.catalogue(store.SOURCES.read_text().replace("'1.0'", "'2.0'"))
    with pytest.raises(MissingError, match="another version"):
        store.path("texts")
    assert store.fetch("texts").name == "2.0"
    assert not (shop.cache / "assets/texts/1.0").exists()


# --- one package, two assets


@pytest.fixture
def shared(shop: Shop) -> Shop:
    shop.offer("npm", tarball([*below("root"), ("poems/ode.txt", b"O")]))
    texts = store.SOURCES.read_text()
    poems = texts.replace("texts.", "poems.").replace("[texts]", "[poems]").replace(f"size = {SIZE}", "size = 1", 1)
    shop.catalogue(texts + poems.replace("'root'", "'poems'"))
    shop.client("npm")
    return shop


def test_a_package_of_two_assets_is_downloaded_once_and_dropped_after_the_second(shared):
    store.fetch("texts")
    assert "archives/package.bin" in shared.files()
    assert (store.fetch("poems") / "ode.txt").read_bytes() == b"O"
    assert len(shared.called()) == 1
    assert "archives/package.bin" not in shared.files()


def test_a_kept_package_is_trusted_only_after_its_hash(shared):
    store.fetch("texts")
    (shared.cache / "archives/package.bin").write_bytes(b"rotten")
    store.fetch("poems")
    assert len(shared.called()) == 2
    assert store.verify("poems") == []


def test_removing_an_asset_frees_the_package_kept_for_the_other(shared):
    store.fetch("texts")
    assert store.remove("texts") > SIZE + len((shared.shelf / "package.bin").read_bytes())
    assert shared.files() == []
    assert store.remove("texts") == 0


# --- add


def test_add_takes_the_package_from_elsewhere_and_leaves_it_there(shop):
    shop.offer("debian", deb(below("./root")))
    elsewhere = shop.shelf / "renamed by hand"
    (shop.shelf / "package.bin").rename(elsewhere)
    assert store.add("texts", elsewhere) == store.path("texts")
    assert installed(shop) == FILES
    assert elsewhere.exists()
    assert store.add("texts", elsewhere) == store.path("texts"), "adding again replaces"


def test_add_refuses_another_file_and_names_both_hashes(shop):
    package = deb(below("./root"))
    shop.offer("debian", package)
    cut = shop.folder / "package.bin"
    cut.write_bytes(package[:-1])
    with pytest.raises(InputError) as caught:
        store.add("texts", cut)
    for fact in (str(cut), sha256(package), sha256(package[:-1])):
        assert fact in caught.value.message
    assert "apt-get download texts-data=1.0" in str(caught.value.hint)
    assert shop.files() == []


@pytest.mark.parametrize(
    ("what", "message"),
    [("gone", "gone does not exist"), ("/dev/zero", "comes as a package file"), ("/", "comes as a package file")],
)
def test_add_of_what_is_no_file(shop, what, message):
    shop.offer("debian", b"")
    with pytest.raises(InputError, match=message):
        store.add("texts", Path(what))


# --- the hub: loose files, each with its hash


@pytest.fixture
def hub(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> Shop:
    """A hub whose repository is the shop's shelf."""
    import huggingface_hub

    for name, content in FILES.items():
        (shop.shelf / name).parent.mkdir(exist_ok=True)
        (shop.shelf / name).write_bytes(content)
    pins = {name: sha256(content) for name, content in FILES.items()}
    source = {"client": "hub", "package": "org/texts", "version": "1.0"}
    shop.catalogue(asset("texts", SIZE, [source], pins=pins))

    def download(repository, name, revision):
        assert (repository, revision) == ("org/texts", "1.0")
        return str(shop.shelf / name)

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", download)
    return shop


def test_the_hub_gives_the_pinned_files(hub):
    store.fetch("texts")
    assert installed(hub) == FILES
    assert store.verify("texts") == []


def test_a_folder_of_the_hubs_files_can_be_added(hub):
    store.add("texts", hub.shelf)
    assert installed(hub) == FILES


@pytest.mark.parametrize("bring", [lambda hub: store.fetch("texts"), lambda hub: store.add("texts", hub.shelf)])
def test_a_changed_file_of_the_hub_is_refused_by_name(hub, bring):
    (hub.shelf / "notes/1791.txt").write_bytes(b"tampered")
    with pytest.raises(InputError, match=r"notes/1791\.txt has the SHA-256"):
        bring(hub)
    assert hub.files() == []


def test_a_file_where_the_hubs_folder_is_wanted(hub):
    with pytest.raises(InputError, match="comes as a folder of files"):
        store.add("texts", hub.shelf / "1790.txt")


def test_a_folder_that_lacks_a_file(hub):
    (hub.shelf / "1790.txt").unlink()
    with pytest.raises(InputError, match=r"lacks the file 1790\.txt"):
        store.add("texts", hub.shelf)


def hub_errors() -> list[tuple[str, Exception, str]]:
    import httpx2
    from huggingface_hub import errors

    answer = httpx2.Response(403, request=httpx2.Request("GET", "https://hub/x"))
    return [
        ("gated", errors.GatedRepoError("no", response=answer), "gated.*accept its licence.*hf auth login"),
        ("private", errors.RepositoryNotFoundError("no", response=answer), "unknown or private"),
        ("unreachable", errors.LocalEntryNotFoundError("check your connection"), "check your connection"),
        ("no answer", httpx2.ConnectError("name or service not known"), "name or service not known"),
    ]


@pytest.mark.parametrize(("error", "message"), [pytest.param(e, m, id=i) for i, e, m in hub_errors()])
def test_a_hub_that_does_not_give_it_is_one_sentence_with_the_way_out(hub, monkeypatch, error, message):
    import huggingface_hub

    def refuse(*_, **__):
        raise error

    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    monkeypatch.setattr(huggingface_hub, "hf_hub_download", refuse)
    with pytest.raises(MissingError, match=message) as caught:
        store.fetch("texts")
    assert "hf download org/texts 1790.txt notes/1791.txt --revision 1.0 --local-dir FOLDER" in str(caught.value.hint)
    assert "icml25 assets add texts FOLDER" in str(caught.value.hint)
    assert "\n" not in caught.value.message
    assert hub.files() == []


# --- verify


def test_verify_names_every_file_that_is_not_as_it_was(shop):
    shop.offer("npm", tarball([*below("root"), ("root/third.txt", b"3")]), size=SIZE + 1)
    shop.client("npm")
    folder = store.fetch("texts")
    assert store.verify("texts") == []
    (folder / "1790.txt").write_bytes(FILES["1790.txt"].swapcase())
    (folder / "third.txt").unlink()
    (folder / "extra.txt").touch()
    changed, extra, gone = store.verify("texts")
    assert str(folder / "1790.txt") in changed
    assert sha256(FILES["1790.txt"]) in changed
    assert extra == f"{folder / 'extra.txt'} does not belong there"
    assert gone == f"{folder / 'third.txt'} is gone"


def test_a_file_cut_short_counts_as_not_fetched_and_the_next_fetch_mends_it(shop):
    shop.offer("npm", tarball(below("root")))
    shop.client("npm")
    (store.fetch("texts") / "1790.txt").write_bytes(b"Fellow")
    with pytest.raises(MissingError, match="in part") as caught:
        store.path("texts")
    assert "icml25 assets fetch texts" in str(caught.value.hint)
    store.fetch("texts")
    assert installed(shop) == FILES


def test_a_torn_record_counts_as_not_fetched(shop):
    shop.offer("npm", tarball(below("root")))
    shop.client("npm")
    store.fetch("texts")
    record = shop.cache / "assets/texts/record.json"
    record.write_text(record.read_text()[:-20])
    assert not store.is_fetched("texts")
    store.fetch("texts")
    assert store.verify("texts") == []


def test_what_is_not_fetched_cannot_be_verified(shop):
    shop.offer("npm", b"")
    with pytest.raises(MissingError, match="not fetched"):
        store.verify("texts")


# --- fetches that are cut short, or meet

FETCH = """
import sys
from pathlib import Path
from icml25cli.core import fetch, store
store.SOURCES = Path(sys.argv[1])
look = fetch._bytes_under
fetch._bytes_under = lambda folder: (print("waiting", flush=True), look(folder))[1]
store.fetch("texts")
"""


@pytest.fixture
def waiting(shop: Shop, start) -> Iterator[tuple[Shop, subprocess.Popen[str], int]]:
    """A fetch in another process whose client has written a part, and waits; with the client's process id."""
    shop.offer("npm", tarball(below("root")))
    for pipe in ("begun", "go"):
        os.mkfifo(shop.folder / pipe)
    tell = f"echo half > package.bin\necho $$ > {shop.folder}/begun\nread line < {shop.folder}/go\n"
    shop.client("npm", f"{tell}/bin/cp {shop.shelf}/* .")
    process = start(FETCH, store.SOURCES)
    with open(shop.folder / "begun") as pipe:
        client = int(pipe.read())
    assert process.stdout
    process.stdout.readline()  # now it waits for its client, and is no longer starting it
    yield shop, process, client
    with contextlib.suppress(ProcessLookupError):  # it has a session of its own, and would wait for ever
        os.killpg(client, signal.SIGKILL)


def is_gone(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return True
    return False


def test_a_killed_fetch_leaves_nothing_that_hinders_the_next(waiting):
    shop, process, client = waiting
    process.kill()
    process.wait()
    os.kill(client, signal.SIGKILL)  # it was not told
    assert not store.is_fetched("texts")
    shop.client("npm")
    store.fetch("texts")
    assert installed(shop) == FILES
    assert not [name for name in shop.files() if name.startswith(("assets/.", "archives"))]


def test_an_interrupted_fetch_ends_its_client_and_cleans_up(waiting):
    shop, process, client = waiting
    process.send_signal(signal.SIGINT)
    _, said = process.communicate()
    assert "KeyboardInterrupt" in said
    assert is_gone(client)
    assert shop.files() == []


def test_a_second_fetch_is_told_who_is_at_it(waiting):
    shop, process, _ = waiting
    with pytest.raises(InputError, match=f"process {process.pid}"):
        store.fetch("texts")
    with pytest.raises(InputError, match=f"process {process.pid}"):
        store.remove("texts")
    (shop.folder / "go").write_text("\n")
    assert process.wait() == 0
    assert installed(shop) == FILES
    assert store.fetch("texts") == store.path("texts")


# --- a cache that cannot be written


def test_a_cache_of_somebody_else_can_be_used_but_not_changed(shop, open_folder, as_user, monkeypatch):
    shop.offer("npm", tarball(below("root")))
    texts = store.SOURCES.read_text()
    shop.catalogue(texts + texts.replace("texts.", "other.").replace("[texts]", "[other]"))
    for name in ("sources.toml", "shelf", "bin", "called"):
        source = shop.folder / name
        if source.is_dir():
            shutil.copytree(source, open_folder / name)
        elif source.exists():
            shutil.copyfile(source, open_folder / name)
    monkeypatch.setattr(store, "SOURCES", open_folder / "sources.toml")
    monkeypatch.setenv("ICML25_CACHE_DIR", str(open_folder / "cache"))
    store.add("texts", shop.shelf / "package.bin")
    before = sorted(open_folder.rglob("*"))

    assert as_user(lambda: store.path("texts").exists()) == {"done": True}
    assert as_user(lambda: store.verify("texts")) == {"done": []}
    for change in (lambda: store.fetch("other"), lambda: store.remove("texts")):
        met = as_user(change)
        assert met["error"] == "OutputError", met
        assert "permission denied" in met["message"]
    assert sorted(open_folder.rglob("*")) == before


def test_a_full_disk_is_noticed_before_the_download(small_disk, shop, monkeypatch):
    shop.offer("npm", tarball(below("root")), size=2**20)
    shop.client("npm")
    monkeypatch.setenv("ICML25_CACHE_DIR", str(small_disk))
    with pytest.raises(OutputError, match=r"texts needs 1 MB and .* has 0 MB free") as caught:
        store.fetch("texts")
    assert "ICML25_CACHE_DIR" in str(caught.value.hint)
    assert shop.called() == []
    assert not any(path.is_file() for path in small_disk.rglob("*"))


def test_a_disk_that_fills_while_unpacking_leaves_nothing(small_disk, shop, monkeypatch):
    package = tarball([("root/zeros.txt", bytes(2**20))])
    shop.offer("npm", package, size=2**20)
    monkeypatch.setenv("ICML25_CACHE_DIR", str(small_disk))
    with pytest.raises(OutputError, match="no space left"):
        store.add("texts", shop.shelf / "package.bin")
    assert not any(path.is_file() for path in small_disk.rglob("*"))


def test_a_client_that_finds_the_disk_full(shop):
    shop.offer("npm", tarball(below("root")))
    shop.client("npm", "echo 'npm error code ENOSPC' >&2; exit 1")
    with pytest.raises(OutputError, match="no room"):
        store.fetch("texts")
    assert shop.files() == []


def test_a_limit_on_file_sizes_is_an_output_error(shop, with_small_files):
    shop.offer("npm", tarball([("root/zeros.txt", bytes(2**20))]), size=2**20)
    met = with_small_files(lambda: store.add("texts", shop.shelf / "package.bin"))
    assert (met["error"], "file too large" in met["message"]) == ("OutputError", True)
    assert shop.files() == []


# --- the catalogue that ships


def test_every_shipped_asset_is_pinned():
    for name, known in store.catalogue().items():
        assert known.name == name
        assert known.title
        assert known.licence
        assert known.size > 0
        assert known.sources
        for digest in known.sha256.values():
            assert re.fullmatch("[0-9a-f]{64}", digest)
        for source in known.sources:
            if source.client == "hub":
                assert re.fullmatch("[0-9a-f]{40}", source.version), "a branch would move"
                assert known.main == "." or known.main in known.sha256
            else:
                assert source.client in ("pypi", "npm", "debian")
                assert re.fullmatch("[0-9a-f]{64}", source.sha256)
                assert source.size > 0
                assert source.file
    assert {
        "smollm2-135m",
        "all-minilm-l6-v2",
        "efficientnet-lite0",
        "sotu",
        "moby-dick",
        "keel",
        "tuxpaint-stamps",
    } <= (store.catalogue().keys())


@pytest.mark.assets
@pytest.mark.parametrize("name", store.catalogue())
def test_the_real_asset_is_what_the_catalogue_says(name):
    known = store.lookup(name)
    try:
        main = store.fetch(name)
    except MissingError as error:
        pytest.skip(error.message)
    assert main.exists()
    assert store.verify(name) == []
    folder = known.folder / known.version
    assert sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) == known.size
    if any(source.client == "hub" for source in known.sources):
        found = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
        assert found == set(known.sha256), "the hub's files are exactly the pinned ones"
