"""Saving figures: the format by suffix, whole or not at all, and the same bytes for the same figure.

Knows matplotlib figures and files. Does not know what is drawn. Draw on ``matplotlib.figure.Figure()``, not with
pyplot, which looks for a screen and keeps every figure.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from icml25cli.core.errors import UsageError
from icml25cli.core.files import atomic_path, check_file

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# No date, and no library version either, so that a figure changes only when what it shows does.
_METADATA = {
    ".svg": {"Date": None, "Creator": None},
    ".png": {"Software": None},
    ".pdf": {"CreationDate": None, "Creator": None, "Producer": None},
}


def check_figure(path: Path, *, force: bool = False) -> None:
    """Refuse, before the work whose result is to be drawn, what ``save_figure`` would refuse after it."""
    if path.suffix.lower() not in _METADATA:
        raise UsageError(f"{path} is no figure file", hint=f"end its name in {', '.join(_METADATA)}")
    check_file(path, force=force)


def save_figure(figure: Figure, path: Path, *, force: bool = False) -> None:
    """Write ``figure`` to ``path`` as SVG, PNG or PDF.

    Raises:
        UsageError: another suffix.
        OutputError: the file exists (without ``force``) or cannot be written.
    """
    check_figure(path, force=force)
    from matplotlib import rc_context

    kind = path.suffix.lower()
    # Element ids in SVG are salted with a random number unless told; its text stays text, to be searched and edited.
    with atomic_path(path, force=force) as temporary, rc_context({"svg.hashsalt": "icml25", "svg.fonttype": "none"}):
        figure.savefig(temporary, format=kind[1:], dpi=150, metadata=_METADATA[kind])
