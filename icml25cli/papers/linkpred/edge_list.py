"""A graph from a list of edges: text with or without a header, a Parquet table, or standard input.

Knows tables. Does not know other formats of graphs, nor features. Ids stay as written: "007" and "NA" are names.
"""

import gzip
import io
import re
import sys
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float64, Int64
from numpy import ndarray

from icml25cli.core.errors import InputError, UsageError
from icml25cli.core.progress import warn
from icml25cli.papers.linkpred.graph import Graph, build_graph

HEADERS = (("source", "target"), ("src", "dst"), ("from", "to"), ("node1", "node2"), ("node_1", "node_2"))
HEADERS += (("id1", "id2"), ("id_1", "id_2"), ("head", "tail"), ("fromnodeid", "tonodeid"), ("user", "item"))
# Cells that name a column wherever neither end of the first line is found again.
_COLUMN = re.compile(
    r"(co)?(node|vertex|user|author|person|people|name|friend|member|actor|player|protein|gene|paper|page|account|item|"
    r"entity|source|target|src|dst|from|to|left|right|head|tail)s?([ _-]?(id|name))?([ _-]?([a-b]|[u-v]|[1-2]|[i-j]))?",
    re.IGNORECASE,
)
TEXT = (".csv", ".tsv", ".txt", ".edges", ".edgelist", ".el")
_DOUBTED = 1000  # rows by which a table is told from a list of edges
_SAMPLE = 2**16  # bytes at the beginning, by which the form of a text is told


@dataclass(frozen=True)
class Columns:
    """Which columns of a table hold what, by name or by number from 1; None for what is usual."""

    src: str | None = None
    dst: str | None = None
    weight: str | None = None
    time: str | None = None


USUAL = Columns()


@dataclass(frozen=True, eq=False)
class EdgeList:
    """Edges as they were given, in their order, nothing merged or dropped but edges of weight zero.

    Attributes:
        name: of the file.
        ids: different names, in natural order where they are whole numbers, else as they come.
        pairs: (k, 2) rows of ``ids``.
        times, weights: of each pair, where asked for.
        notes: what was taken for what.
    """

    name: str
    ids: list[str]
    pairs: Int64[ndarray, "k 2"]
    times: Float64[ndarray, "k"] | None
    weights: Float64[ndarray, "k"] | None
    notes: list[str]

    def graph(self) -> Graph:
        """The undirected simple graph of these edges.

        Raises:
            InputError: no edge between two different nodes is left.
        """
        return build_graph(self.name, self.ids, self.pairs, times=self.times, weights=self.weights, notes=self.notes)


def read_text(source: Path | None, columns: Columns = USUAL) -> EdgeList:
    """Read a text of edges, gzipped or not; None is standard input.

    The separator is the tab, comma, semicolon or white space that gives every line the same number of fields. Lines
    at the top that begin with # or % are comments. The first line is a header where it names the usual columns, or
    where it alone holds no numbers. Columns that are neither named by ``columns`` nor usual are the first two.

    Raises:
        InputError: the text is absent, empty, binary, torn or no table, or plainly one of something else than edges, or
            an id, weight or time is missing or wrong.
        UsageError: there is no such column.
    """
    where = "standard input" if source is None else str(source)
    raw = _read(source, where)
    comments = len(re.match(rb"(?:[ \t]*(?:[#%].*)?(?:\r\n?|\n))*", raw)[0].splitlines())  # type: ignore[index]
    sample = _sample(raw, where, comments)
    if not sample:
        raise InputError(f"{where} is empty", hint="one edge a line is expected: two ids and what else there is")
    separator = _separator(sample, where)
    try:
        table = pd.read_csv(
            io.BytesIO(raw),
            sep=separator,
            header=None,
            skiprows=comments,
            dtype=str,
            na_filter=False,
            skipinitialspace=True,
            encoding="utf-8-sig" if raw.startswith(b"\xef\xbb\xbf") else "utf-8",
        )
    except UnicodeDecodeError as error:
        raise InputError(f"{where} is no text in UTF-8: {error.reason}", hint="save it in UTF-8") from error
    except (pd.errors.ParserError, pd.errors.EmptyDataError) as error:
        said = str(error).removeprefix("Error tokenizing data. C error: ").strip()
        raise InputError(f"{where} is no table of edges: {said}", hint="every line needs the same fields") from error
    header = _header(table, columns)
    if header is not None:
        table = table.iloc[1:].reset_index(drop=True)
    name = "stdin" if source is None else re.sub(rf"({'|'.join(TEXT)}|\.gz)\b", "", source.name)
    return _edges(name, where, table, header, columns)


def read_parquet(path: Path, columns: Columns = USUAL) -> EdgeList:
    """Read a Parquet table of edges.

    Raises:
        InputError: the file is absent, torn or of another kind, or an id, weight or time is missing or wrong.
        UsageError: there is no such column.
    """
    try:
        table = pd.read_parquet(path)
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}", hint="check the path") from error
    except Exception as error:  # pyarrow's own kinds
        raise InputError(f"{path} is not a whole Parquet file: {error}", hint="write it again") from error
    header = [str(name) for name in table.columns]
    return _edges(path.stem, str(path), table, header, columns)


def _read(source: Path | None, where: str) -> bytes:
    try:
        raw = sys.stdin.buffer.read() if source is None else source.read_bytes()
        return gzip.decompress(raw) if raw.startswith(b"\x1f\x8b") else raw
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise InputError(f"{where} is not a whole gzip file: {error}", hint="compress it again") from error
    except OSError as error:
        raise InputError(f"{where} cannot be read: {error.strerror or error}", hint="check the path") from error


def _sample(raw: bytes, where: str, comments: int) -> list[str]:
    """Lines after the comments that hold something."""
    if b"\0" in raw[:_SAMPLE]:
        raise InputError(f"{where} is no text in UTF-8", hint="give edges as text, or name the file by its format")
    lines = raw[:_SAMPLE].decode("utf-8-sig", errors="replace").splitlines()[comments:]
    if len(raw) > _SAMPLE:
        lines = lines[:-1]  # torn by the sampling
    return [line for line in lines if line.strip()]


def _separator(lines: list[str], where: str) -> str:
    for separator in ("\t", ",", ";", r"\s+"):
        counts = {len(re.split(separator, line.strip())) for line in lines}
        if counts == {1}:
            continue
        if len(counts) == 1 or separator != r"\s+":  # quoted fields may hold separators: pandas counts those rightly
            return separator
    first = next((line for line in lines if len(line.split()) < 2), lines[0])
    several = any(len(line.split()) > 1 for line in lines)
    wrong = "does not hold the same fields as the other lines" if several else "is one field, an edge has two"
    raise InputError(
        f"{where} is no list of edges: '{first.strip()[:60]}' {wrong}",
        hint="one edge a line is expected: two ids, separated by a comma, a tab or a blank",
    )


def _header(table: pd.DataFrame, columns: Columns) -> list[str] | None:
    first = [str(cell).strip() for cell in table.iloc[0]]
    lowered = [cell.lower().replace(" ", "") for cell in first]
    asked = [name for name in (columns.src, columns.dst, columns.weight, columns.time) if name is not None]
    if any({a, b} <= set(lowered) for a, b in HEADERS) or any(name in first for name in asked if not name.isdecimal()):
        return first
    rest = table.iloc[1:1001]
    for column, cell in zip(rest.columns, first, strict=True):
        if len(rest) and all(map(is_number, rest[column])) and not is_number(cell):
            return first
    ends = [_place(columns.src, None, len(first), 0, "--src"), _place(columns.dst, None, len(first), 1, "--dst")]
    if len(rest) < 3 or any(is_number(first[end]) for end in ends):
        return None
    if pd.Series([first[end] for end in ends]).isin(pd.unique(rest[ends].to_numpy().ravel())).any():
        return None
    if all(_COLUMN.fullmatch(first[end]) for end in ends):
        return first
    warn(
        f"the first line names two nodes that are found nowhere else, '{first[ends[0]]}' and '{first[ends[1]]}': "
        "if it is a header, name its columns with --src and --dst"
    )
    return None


def is_number(cell: str) -> bool:
    """Whether a cell of a table reads as a number."""
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _place(asked: str | None, header: Sequence[str] | None, width: int, usual: int, option: str) -> int:
    """The column that an option means."""
    if asked is None:
        return usual
    if header is not None and asked in header:
        return list(header).index(asked)
    if asked.isdecimal() and 1 <= int(asked) <= width:
        return int(asked) - 1
    there = (
        f"the columns are {', '.join(header)}" if header is not None else f"there is no header; 1 to {width} will do"
    )
    raise UsageError(f"{option} {asked} is no column of the edges", hint=there)


def _usual_ends(header: Sequence[str] | None) -> tuple[int, int]:
    lowered = [name.lower().replace(" ", "") for name in header or ()]
    for source, target in HEADERS:
        if source in lowered and target in lowered:
            return lowered.index(source), lowered.index(target)
    return 0, 1


def _edges(name: str, where: str, table: pd.DataFrame, header: list[str] | None, columns: Columns) -> EdgeList:
    width = table.shape[1]
    if width < 2 or not len(table):
        raise InputError(f"{where} holds no edge", hint="one edge a line is expected: two ids and what else there is")
    usual = _usual_ends(header)
    ends = [
        _place(columns.src, header, width, usual[0], "--src"),
        _place(columns.dst, header, width, usual[1], "--dst"),
    ]
    if ends[0] == ends[1]:
        raise UsageError("both ends of an edge are read from one column", hint="name two with --src and --dst")
    if header is not None and columns.src is None and columns.dst is None:
        _doubt(where, table, header, ends)
    notes = []
    if header is not None and not isinstance(table.columns[0], str):
        notes.append(f"the first line is a header: {', '.join(header)}")
    ids, pairs = _numbered(table.iloc[:, ends[0]], table.iloc[:, ends[1]], where)
    times = weights = None
    if columns.time is not None:
        times = _times(table.iloc[:, _place(columns.time, header, width, 0, "--time")], where)
    if columns.weight is not None:
        weights = _weights(table.iloc[:, _place(columns.weight, header, width, 0, "--weight")], where)
        if zero := int((weights == 0).sum()):
            notes.append(f"{zero:,} edges of weight zero dropped")
            pairs, weights, times = (
                pairs[weights > 0],
                weights[weights > 0],
                None if times is None else times[weights > 0],
            )
    return EdgeList(name, ids, pairs, times, weights, notes)


def _doubt(where: str, table: pd.DataFrame, header: list[str], ends: list[int]) -> None:
    """Refuse a table of something else, whose first two columns would be taken for nodes because they are the first.

    A header of unusual names that has further columns is doubted: where those hold more than numbers and times, or the
    first two hold fractions, it is no list of edges, and where there are more than two of them it is warned of.
    """
    names = [header[end] for end in ends]
    lowered = {name.lower().replace(" ", "") for name in names}
    usual = any({a, b} == lowered for a, b in HEADERS) or all(_COLUMN.fullmatch(name) for name in names)
    if usual or len(header) < 3:
        return
    some = table.head(_DOUBTED)
    fractions = any(
        is_number(cell) and 0 < float(cell) % 1 < 1 for end in ends for cell in some.iloc[:, end].astype(str)
    )
    others = [some.iloc[:, place] for place in range(len(header)) if place not in ends]
    taken = f"'{names[0]}' and '{names[1]}'"
    if fractions or not all(map(_measures, others)):
        raise InputError(
            f"{where} is no list of edges by its header ({', '.join(header)}): no column is called as a node is",
            hint=f"name the two columns of nodes with --src and --dst, also if they are {taken}",
        )
    if len(header) > 4:
        warn(
            f"the first two of {len(header)} columns, {taken}, are taken for the ends of edges: "
            "others are named with --src and --dst"
        )


def _measures(column: pd.Series) -> bool:
    """Whether all cells of a column that are not empty are numbers or times."""
    if pd.api.types.is_numeric_dtype(column) or pd.api.types.is_datetime64_any_dtype(column):
        return True
    cells = [cell for cell in column.astype(str).str.strip() if cell]
    if all(map(is_number, cells)):
        return True
    return bool(pd.to_datetime(pd.Series(cells), errors="coerce", utc=True, format="ISO8601").notna().all())


def _numbered(u: pd.Series, v: pd.Series, where: str) -> tuple[list[str], Int64[ndarray, "k 2"]]:
    """The different ids of two columns, and the edges as rows of them."""
    both = pd.concat([_as_text(u, where), _as_text(v, where)], ignore_index=True)
    rows, found = pd.factorize(both)
    names = [name.strip() for name in found.tolist()]  # blanks around an id are not part of it
    if "" in names:
        bad = int(np.flatnonzero(rows == names.index(""))[0]) % len(u)
        raise InputError(f"{where}: edge {bad + 1} lacks an id", hint="every line needs both ends")
    same, different = pd.factorize(np.array(names, dtype=object))
    pairs, appearance = pd.factorize(same[rows].reshape(2, -1).T.ravel())  # numbered as they come, line by line
    return in_natural_order(different[np.asarray(appearance)].tolist(), pairs.reshape(-1, 2))


def in_natural_order(names: list[str], pairs: Int64[ndarray, "k 2"]) -> tuple[list[str], Int64[ndarray, "k 2"]]:
    """Nodes that are all named by whole numbers in the order of these; others as they come."""
    if not are_numbers(names):
        return names, pairs
    values = np.array(names, dtype=np.int64)
    order = np.argsort(values)
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    return [names[i] for i in order], place[pairs]


def are_numbers(names: Sequence[str]) -> bool:
    """Whether every name is a whole number from 0 as it is usually written."""
    return all(
        name.isascii() and name.isdecimal() and len(name) < 19 and (name[0] != "0" or name == "0") for name in names
    )


def _as_text(column: pd.Series, where: str) -> pd.Series:
    if pd.api.types.is_float_dtype(column) and (column.dropna() % 1 == 0).all():
        column = column.astype("Int64")  # whole numbers that a missing one had turned into fractions
    if column.isna().any():
        bad = int(np.flatnonzero(column.isna())[0])
        raise InputError(f"{where}: edge {bad + 1} lacks an id", hint="every row needs both ends")
    return column.astype(str)


def _times(column: pd.Series, where: str) -> Float64[ndarray, "k"]:
    """Numbers as they are, dates as seconds since 1970 in UTC."""
    dated = pd.api.types.is_datetime64_any_dtype(column)
    times: Any = pd.Series(np.nan, column.index) if dated else pd.to_numeric(column, errors="coerce")
    if times.isna().any():
        dates: Any = pd.to_datetime(column, errors="coerce", utc=True, format="ISO8601")
        if dates.isna().sum() < times.isna().sum():
            times = (dates - pd.Timestamp(0, tz="UTC")) / pd.Timedelta(1, "s")
    return _finite(times, column, where, "time", "write times as numbers or as dates like 2024-05-31")


def _weights(column: pd.Series, where: str) -> Float64[ndarray, "k"]:
    weights = _finite(pd.to_numeric(column, errors="coerce"), column, where, "weight", "write weights as numbers")
    if (weights < 0).any():
        bad = int(np.flatnonzero(weights < 0)[0])
        raise InputError(f"{where}: edge {bad + 1} has the weight {column.iloc[bad]}", hint="weights start at 0")
    return weights


def _finite(values: Any, column: pd.Series, where: str, what: str, hint: str) -> Float64[ndarray, "k"]:
    numbers = values.to_numpy(np.float64, na_value=np.nan)
    if not np.isfinite(numbers).all():
        bad = int(np.flatnonzero(~np.isfinite(numbers))[0])
        raise InputError(f"{where}: edge {bad + 1} has no {what}: '{column.iloc[bad]}'", hint=hint)
    return numbers
