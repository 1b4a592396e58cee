"""Whether a file can be text: parsers of tables take NUL characters, as torn and binary files hold, for letters.

Knows bytes. Does not know what a text says.
"""

from pathlib import Path
from typing import BinaryIO

from icml25cli.core.errors import InputError

CHUNK = 2**20


def check_text(path: Path) -> None:
    """Refuse a file that holds a NUL character.

    Raises:
        InputError: it does.
        OSError: it cannot be read.
    """
    with open(path, "rb") as file:
        check_text_stream(file, str(path))


def check_text_stream(file: BinaryIO, name: str) -> None:
    """The same of an open file, from where it stands to its end."""
    line = 1
    while chunk := file.read(CHUNK):
        if (at := chunk.find(b"\0")) >= 0:
            line += chunk.count(b"\n", 0, at)
            raise InputError(f"{name}, line {line} holds a NUL character", hint="the file is torn, or is no text")
        line += chunk.count(b"\n")
