"""Saving figures: the format by suffix, whole or not at all, and the same bytes for the same figure.

Knows matplotlib figures and files. Does not know what is drawn.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from icml25cli.core.errors import UsageError
from icml25cli.core.files import atomic_path

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# No date, and no library version either, so that a figure changes only when what it shows does.
_METADATA = {
    ".svg": {"Date": None, "Creator": None},
    ".png": {"Software": None},
    ".pdf": {"CreationDate": None, "Creator": None, "Producer": None},
}


def new_figure(width: float = 6.4, height: float = 4.0) -> Figure:
    """An empty figure in inches that no window system knows of, closed when nobody holds it."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def check_figure_path(path: Path) -> None:
    """Refuse a suffix we cannot draw, before the work whose result is to be drawn."""
    if path.suffix.lower() not in _METADATA:
        raise UsageError(f"{path} is no figure file", hint=f"end its name in {', '.join(_METADATA)}")


def save_figure(figure: Figure, path: Path, *, force: bool = False) -> None:
    """Write ``figure`` to ``path`` as SVG, PNG or PDF.

    Raises:
        UsageError: another suffix.
        OutputError: the file exists (without ``force``) or cannot be written.
    """
    check_figure_path(path)
    from matplotlib import rc_context

    kind = path.suffix.lower()
    # Element ids in SVG are salted with a random number unless told; its text stays text, to be searched and edited.
    with atomic_path(path, force=force) as temporary, rc_context({"svg.hashsalt": "icml25", "svg.fonttype": "none"}):
        figure.savefig(temporary, format=kind[1:], dpi=150, metadata=_METADATA[kind])
