"""A hostile or broken package harms nothing: its files come out whole and inside their folder, or an error does."""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import shutil
import stat
import subprocess
import tarfile
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from icml25cli.core.errors import InputError, MissingError
from icml25cli.core.unpack import unpack
from tests.core.packages import FILES, PACK, SIZE, ar, below, deb, tarball, wheel


def unpacked(folder: Path, package: bytes, size: int = SIZE, root: str = "root", keep: str = "*") -> Path:
    """Unpack ``package`` into ``folder/into`` and return that."""
    (folder / "package.bin").write_bytes(package)
    unpack(folder / "package.bin", folder / "into", root=root, keep=[keep], size=size, progress=lambda _: None)
    return folder / "into"


@pytest.mark.parametrize("pack", PACK.values(), ids=PACK)
@pytest.mark.parametrize("name", ["../evil", "root/../../evil", "/tmp/evil", "//tmp/evil", "root/a/../b", ".."])
def test_a_name_that_leads_out_is_refused_wherever_it_stands(tmp_path, pack, name):
    place = tmp_path / "a" / "b"
    place.mkdir(parents=True)
    with pytest.raises(InputError, match=r"package\.bin holds .* leads out of its folder"):
        unpacked(place, pack([("root/good.txt", b""), (name, b"")]), size=0)
    assert not list(tmp_path.rglob("evil*"))


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE])
@pytest.mark.parametrize("pack", [tarball, deb])
def test_links_and_devices_in_a_tarball_are_refused(tmp_path, pack, kind):
    with pytest.raises(InputError, match=r"holds the (link|device) 'root/x'"):
        unpacked(tmp_path, pack([("root/x", b"")], kind=kind), size=0)
    assert not os.path.lexists(tmp_path / "into/x")


@pytest.mark.parametrize(("mode", "word"), [(stat.S_IFLNK | 0o777, "link"), (stat.S_IFCHR, "device")])
def test_links_and_devices_in_a_wheel_are_refused(tmp_path, mode, word):
    with pytest.raises(InputError, match=f"holds the {word} 'root/x'"):
        unpacked(tmp_path, wheel([("root/x", b"/etc/passwd")], mode=mode), size=11)
    assert not os.path.lexists(tmp_path / "into/x")


def test_no_file_is_written_through_a_link(tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as container:
        link = tarfile.TarInfo("root/door")
        link.type, link.linkname = tarfile.SYMTYPE, str(outside)
        container.addfile(link)
        through = tarfile.TarInfo("root/door/evil.txt")
        through.size = 4
        container.addfile(through, io.BytesIO(b"evil"))
    with pytest.raises(InputError, match="link"):
        unpacked(tmp_path, buffer.getvalue(), size=4)
    # Where only text is kept the link itself is passed over, and the file lands in a folder of its own.
    into = unpacked(tmp_path, buffer.getvalue(), size=4, keep="*.txt")
    assert (into / "door/evil.txt").read_bytes() == b"evil"
    assert list(outside.iterdir()) == []


@pytest.mark.parametrize("pack", PACK.values(), ids=PACK)
def test_more_than_the_recorded_size_is_refused_without_being_written(tmp_path, pack):
    with pytest.raises(InputError, match="more than the expected size"):
        unpacked(tmp_path, pack([("root/zeros", bytes(50 * 2**20))]), size=1000)
    assert sum(path.stat().st_size for path in (tmp_path / "into").rglob("*")) <= 1000


@pytest.mark.parametrize("pack", PACK.values(), ids=PACK)
def test_less_than_the_recorded_size_is_refused(tmp_path, pack):
    with pytest.raises(InputError, match="unpacks to 3 bytes where 4 are expected"):
        unpacked(tmp_path, pack([("root/a", b"abc")]), size=4)


@pytest.mark.parametrize("pack", PACK.values(), ids=PACK)
@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_two_members_of_one_name_are_refused(tmp_path, pack):
    with pytest.raises(InputError, match="two members"):
        unpacked(tmp_path, pack([("root/a", b"abc"), ("root/a", b"xyz")]), size=6)
    shutil.rmtree(tmp_path / "into")
    with pytest.raises(InputError, match="two members"):
        unpacked(tmp_path, pack([("root/a", b"abc"), ("root/a/b", b"xyz")]), size=6)


@pytest.mark.parametrize("pack", PACK.values(), ids=PACK)
@pytest.mark.parametrize("share", [0.0, 0.05, 0.5, 0.9])
def test_a_package_cut_short_is_an_input_error(tmp_path, pack, share):
    noise = hashlib.shake_256(b"").digest(100_000)
    package = pack([("root/noise", noise)])
    with pytest.raises(InputError, match=r"package\.bin"):
        unpacked(tmp_path, package[: int(share * len(package))], size=len(noise))


@given(damage=st.integers(0, 400), value=st.integers(0, 255), client=st.sampled_from(list(PACK)))
def test_a_damaged_byte_gives_the_right_files_or_an_input_error(damage, value, client):
    package = bytearray(PACK[client](below("root")))
    package[damage % len(package)] = value
    with tempfile.TemporaryDirectory() as name:
        try:
            into = unpacked(Path(name), bytes(package), keep="*.txt")
        except InputError:
            return
        sizes = sum(path.stat().st_size for path in into.rglob("*") if path.is_file())
        assert sizes == SIZE


@given(
    names=st.lists(
        st.lists(st.sampled_from(["..", ".", "", "a", "b", "root", "\\", "..\\", "C:", "~"]), min_size=1, max_size=5),
        min_size=1,
        max_size=3,
    ),
    client=st.sampled_from(list(PACK)),
    root=st.sampled_from(["", "root", "a/b"]),
)
@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_whatever_the_names_nothing_is_written_outside(names, client, root):
    with tempfile.TemporaryDirectory() as top:
        place = Path(top, "x/y/z")
        place.mkdir(parents=True)
        members = [("/".join(parts), b"1") for parts in names]
        with contextlib.suppress(InputError):
            unpacked(place, PACK[client](members), size=len(members), root=root)
        outside = [path for path in Path(top).rglob("*") if path.is_file() and place / "into" not in path.parents]
        assert outside == [place / "package.bin"]


def test_an_encrypted_wheel_is_an_input_error(tmp_path):
    package = bytearray(wheel([("root/a", b"abc")]))
    package[package.index(b"PK\x01\x02") + 8] |= 1  # the flag, in the directory and in front of the member
    package[6] |= 1
    with pytest.raises(InputError, match="damaged archive"):
        unpacked(tmp_path, bytes(package), size=3)


def test_a_debian_package_packed_with_zstd_goes_through_dpkg_deb(tmp_path, monkeypatch):
    if not (shutil.which("zstd") and shutil.which("dpkg-deb")):
        pytest.skip("zstd and dpkg-deb are needed to make and read one")
    packed = subprocess.run(["zstd", "-c"], input=tarball(below("./root"), ""), capture_output=True, check=True).stdout
    control = ("control.tar.xz", tarball([("./control", b"Package: texts\nVersion: 1\nArchitecture: all\n")], "xz"))
    package = ar(("debian-binary", b"2.0\n"), control, ("data.tar.zst", packed))
    assert (unpacked(tmp_path, package, keep="*.txt") / "1790.txt").read_bytes() == FILES["1790.txt"]
    monkeypatch.setenv("PATH", "")
    with pytest.raises(MissingError, match="dpkg-deb"):
        unpacked(tmp_path, package, keep="*.txt")
