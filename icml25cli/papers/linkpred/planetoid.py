"""The raw files of Planetoid: `ind.NAME.graph`, `.allx`, `.tx`, `.test.index` (Yang, Cohen and Salakhutdinov 2016).

They are pickles, which could run anything. The reader here admits the few names that rebuild arrays, sparse matrices
and lists, the matrices as a stand-in of ours that only keeps its state, and refuses the file at any other name.
"""

import io
import pickle
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
from numpy import ndarray
from scipy import sparse

from icml25cli.core.errors import InputError
from icml25cli.papers.linkpred.graph import CSR, Graph, build_graph


class _Matrix:
    """Takes the place of a sparse matrix: what was pickled of it, and nothing that acts on it."""

    def __setstate__(self, state: Any) -> None:
        self.state = state


def _bytes(text: str, encoding: str) -> bytes:
    """Takes the place of ``_codecs.encode``, by which Python 3 writes bytes for Python 2."""
    if encoding != "latin1":
        raise pickle.UnpicklingError(f"it encodes as {encoding}")
    return text.encode("latin1")


_reconstruct = np.empty(0).__reduce__()[0]
_ADMITTED = {
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): np.dtype,
    ("collections", "defaultdict"): defaultdict,
    ("_codecs", "encode"): _bytes,
    ("__builtin__", "list"): list,  # Python 2's name
    ("builtins", "list"): list,
    **{(module, "_reconstruct"): _reconstruct for module in ("numpy.core.multiarray", "numpy._core.multiarray")},
    **{(module, "csr_matrix"): _Matrix for module in ("scipy.sparse.csr", "scipy.sparse._csr")},
}


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        try:
            return _ADMITTED[module, name]
        except KeyError:
            raise pickle.UnpicklingError(f"it names {module}.{name}, which is not admitted") from None


def is_planetoid(path: Path) -> bool:
    """Whether ``path`` is one of Planetoid's files, or a folder with such files."""
    return bool(_names(path))


def read_planetoid(path: Path) -> Graph:
    """Read the graph and features of a folder of raw files, or of the set that one file belongs to.

    Nodes are named by their number. Rows of test nodes are put where ``test.index`` says; numbers it leaves out
    (Citeseer) become nodes without attributes.

    Raises:
        InputError: a file is absent, torn, names what is not admitted, or holds something else; or a folder holds
            several data sets.
    """
    names = _names(path)
    if len(names) != 1:
        raise InputError(f"{path} holds {len(names)} data sets: {', '.join(names)}", hint="name one of its files")
    folder, name = (path if path.is_dir() else path.parent), names[0]
    links = _unpickle(folder / f"ind.{name}.graph")
    known = _matrix(folder / f"ind.{name}.allx")
    test = _matrix(folder / f"ind.{name}.tx")
    places = _test_index(folder / f"ind.{name}.test.index", len_tx=test.shape[0])
    try:
        ends = [(node, other) for node, others in links.items() for other in others]
        pairs = np.array(ends, dtype=np.int64).reshape(-1, 2)
    except (AttributeError, TypeError, ValueError, OverflowError) as error:
        raise InputError(
            f"{folder / f'ind.{name}.graph'} holds no lists of neighbours", hint="fetch it again"
        ) from error
    num_nodes = max(int(max(places, default=-1)), int(pairs.max(initial=-1)), known.shape[0] - 1) + 1
    if (
        pairs.min(initial=0) < 0
        or known.shape[1] != test.shape[1]
        or num_nodes > known.shape[0] + 10 * len(places) + 1000
    ):
        raise InputError(f"the files ind.{name}.* in {folder} do not belong together", hint="fetch them again")
    rows: Any = sparse.coo_array(sparse.vstack([known, test]))
    place = np.concatenate([np.arange(known.shape[0]), places])
    features: Any = sparse.csr_array((rows.data, (place[rows.coords[0]], rows.coords[1])), (num_nodes, known.shape[1]))
    return build_graph(name, [str(i) for i in range(num_nodes)], pairs, features=features.astype(np.float32))


def _names(path: Path) -> list[str]:
    files = path.iterdir() if path.is_dir() else [path]
    return sorted(
        {file.name.split(".")[1] for file in files if file.name.startswith("ind.") and file.name.count(".") > 1}
    )


def _unpickle(path: Path) -> Any:
    try:
        return _Unpickler(io.BytesIO(path.read_bytes()), encoding="latin1").load()
    except OSError as error:
        raise InputError(
            f"{path} cannot be read: {error.strerror or error}", hint="all files of a set lie together"
        ) from error
    except Exception as error:  # a damaged pickle raises whatever the objects it half builds do
        raise InputError(
            f"{path} is no file of Planetoid: {error}", hint="do not open it with anything else"
        ) from error


def _matrix(path: Path) -> CSR:
    found = _unpickle(path)
    try:
        state = found.state
        data, indices, indptr = (np.asarray(state[part]) for part in ("data", "indices", "indptr"))
        rows, columns = map(int, state.get("_shape", state.get("shape")))
        if data.dtype.kind not in "fiub" or indptr.shape != (rows + 1,):
            raise ValueError("its parts are of another kind")
        matrix = sparse.csr_array((data.astype(np.float32), indices, indptr), shape=(rows, columns))
        matrix.check_format(full_check=True)
    except (AttributeError, KeyError, TypeError, ValueError, IndexError, OverflowError) as error:
        raise InputError(f"{path} holds no sparse matrix of numbers", hint="fetch it again") from error
    return matrix


def _test_index(path: Path, len_tx: int) -> ndarray:
    try:
        places = np.array([int(line) for line in path.read_text(encoding="ascii").split()], dtype=np.int64)
    except OSError as error:
        raise InputError(
            f"{path} cannot be read: {error.strerror or error}", hint="all files of a set lie together"
        ) from error
    except (ValueError, OverflowError) as error:
        raise InputError(f"{path} holds something else than node numbers", hint="fetch it again") from error
    if len(places) != len_tx or len(set(places.tolist())) != len_tx or places.min(initial=0) < 0:
        raise InputError(
            f"{path} does not give each of the {len_tx} test rows a node of its own", hint="fetch it again"
        )
    return places
