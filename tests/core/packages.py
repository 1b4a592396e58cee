"""Packages as small as they come: what PyPI, npm and Debian serve, made from (name, content) pairs."""

from __future__ import annotations

import io
import tarfile
import zipfile


def wheel(members: list[tuple[str, bytes]], mode: int = 0) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as container:
        for name, content in members:
            info = zipfile.ZipInfo(name)
            info.external_attr = mode << 16
            info.compress_type = zipfile.ZIP_DEFLATED
            container.writestr(info, content)
    return buffer.getvalue()


def tarball(members: list[tuple[str, bytes]], compression: str = "gz", kind: bytes = tarfile.REGTYPE) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode=f"w:{compression}") as container:  # type: ignore[call-overload]
        for name, content in members:
            info = tarfile.TarInfo(name)
            info.type, info.size, info.linkname = kind, len(content), "/etc/passwd"
            container.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def ar(*members: tuple[str, bytes]) -> bytes:
    packed = b"!<arch>\n"
    for name, content in members:
        packed += f"{name:<16}{0:<12}{0:<6}{0:<6}{100644:<8}{len(content):<10}`\n".encode() + content
        packed += b"\n" * (len(content) % 2)
    return packed


def deb(members: list[tuple[str, bytes]], kind: bytes = tarfile.REGTYPE) -> bytes:
    control = ("control.tar.xz", tarball([("./postinst", b"#!/bin/sh\ntouch /ran\n")], "xz"))
    return ar(("debian-binary", b"2.0\n"), control, ("data.tar.xz", tarball(members, "xz", kind)))


# The packer of each client's format.
PACK = {"pypi": wheel, "npm": tarball, "debian": deb}


FILES = {"1790.txt": b"Fellow-citizens\n", "notes/1791.txt": b"of the Senate\n"}
SIZE = sum(map(len, FILES.values()))


def below(root: str) -> list[tuple[str, bytes]]:
    """``FILES`` under ``root``, beside files that nobody asked for."""
    beside = [(f"{root}/run.py", b"raise SystemExit"), ("elsewhere/1790.txt", b"not this one")]
    return beside + [(f"{root}/{name}", content) for name, content in FILES.items()]
