"""Text is told from what cannot be text, with the line at fault."""

import io

import pytest

from icml25cli.core.errors import InputError
from icml25cli.core.plain_text import CHUNK, check_text, check_text_stream


def test_text_is_text(tmp_path):
    (tmp_path / "a.csv").write_text("é\n" * 10)
    check_text(tmp_path / "a.csv")
    check_text_stream(io.BytesIO(b""), "nothing")


@pytest.mark.parametrize("before", [0, CHUNK - 1, CHUNK, 3 * CHUNK])
def test_the_line_of_a_nul_is_named(before):
    data = (b"\n" * before) + b"a\0b\n"
    with pytest.raises(InputError, match=f"^a.csv, line {before + 1} holds a NUL character"):
        check_text_stream(io.BytesIO(data), "a.csv")
