"""Positions by Graphviz, and pictures wholly by Graphviz as the reference makes them.

``graphviz_layout`` sends many graphs through one process and takes its coordinates; they are painted like our own.
``graphviz_png`` starts a process a picture and takes its pixels: the slow path that ours is compared with.

Knows the programs' input and output. Does not know the paper beyond its style of boxes (section 3.1).
"""

import io
import shutil
import subprocess

import numpy as np
from jaxtyping import Float32, UInt8
from numpy import ndarray

from icml25cli.core.errors import MissingError
from icml25cli.papers.linkpred.raster import BROWN, INK, TARGET
from icml25cli.papers.linkpred.subgraphs import Subgraphs

ENGINES = ("sfdp", "neato", "dot", "fdp", "circo", "twopi")
AT_ONCE = 128  # graphs a process
TIMEOUT = 10.0  # seconds for these


def available(engine: str) -> bool:
    return shutil.which(engine) is not None


def graphviz_layout(graphs: Subgraphs, engine: str = "sfdp") -> Float32[ndarray, "n 2"]:
    """Positions in inches, y downwards, by one process for every ``AT_ONCE`` graphs.

    Raises:
        MissingError: the program is not installed, fails, or takes longer than ``TIMEOUT`` seconds.
    """
    positions = np.zeros((len(graphs.nodes), 2), np.float32)
    for begin in range(0, len(graphs), AT_ONCE):
        end = min(begin + AT_ONCE, len(graphs))
        text = "".join(_dot(graphs, i) for i in range(begin, end))
        _read_plain(_run(engine, "plain", text), positions, graphs.node_start[begin : end + 1], engine)
    return positions


def graphviz_png(graphs: Subgraphs, i: int, size: int, engine: str = "sfdp") -> UInt8[ndarray, "size size"]:
    """Picture i by a process of its own, in natural size, stretched to ``size`` pixels, as the bytes of ``raster``.

    Raises:
        MissingError: as ``graphviz_layout``.
    """
    from PIL import Image

    png = _run(engine, "png", _dot(graphs, i))
    rgb = np.asarray(Image.open(io.BytesIO(png)).convert("RGB").resize((size, size)), np.float32)
    reddish = rgb[..., 0] - rgb[..., 2] > (BROWN[0] - BROWN[2]) / 2  # grey has no red
    ink = np.round(INK * (1 - rgb.mean(axis=-1) / 255)).astype(np.uint8)
    return np.where(reddish, np.uint8(TARGET), ink)


def _dot(graphs: Subgraphs, i: int) -> str:
    """The graph in Graphviz's language: targets brown, boxes for all, no labels."""
    n = int(graphs.node_start[i + 1] - graphs.node_start[i])
    nodes = ";".join(f"{v} [style=filled color=brown]" if v < graphs.targets else str(v) for v in range(n))
    edges = "".join(f"{u}--{v};" for u, v in graphs.edges_of(i).tolist())
    return f'graph{{node [shape=box label=""];{nodes};{edges}}}\n'


def _run(engine: str, form: str, text: str) -> bytes:
    program = shutil.which(engine)
    if program is None:
        raise MissingError(f"Graphviz's program {engine} is not installed", hint="apt install graphviz")
    try:
        done = subprocess.run([program, f"-T{form}"], input=text.encode(), capture_output=True, timeout=TIMEOUT)
    except subprocess.TimeoutExpired as error:
        raise MissingError(
            f"{engine} took longer than {TIMEOUT:g} s for its graphs", hint="--renderer native"
        ) from error
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip().splitlines()
        raise MissingError(f"{engine} failed: {said[-1] if said else done.returncode}", hint="--renderer native")
    return done.stdout


def _read_plain(plain: bytes, positions: ndarray, starts: ndarray, engine: str) -> None:
    """Fill in the positions of the nodes of graphs that lie one after another."""
    graph, found = -1, 0
    for line in plain.splitlines():
        words = line.split()
        if words[0] == b"graph":
            graph += 1
        elif words[0] == b"node":
            row = positions[starts[graph] + int(words[1])]
            row[0], row[1] = float(words[2]), -float(words[3])
            found += 1
    if graph + 2 != len(starts) or found != starts[-1] - starts[0]:
        raise MissingError(
            f"{engine} gave {found} positions for {starts[-1] - starts[0]} nodes", hint="--renderer native"
        )
