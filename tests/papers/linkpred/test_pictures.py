"""The cache of features: keyed by all that a picture depends on, continued after a kill, shared by nobody else."""

import os
import signal
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from scipy import sparse

from icml25cli.core.errors import InputError, UsageError
from icml25cli.core.runs import Run, fingerprint, run_directory
from icml25cli.papers.linkpred import graphviz, pictures
from icml25cli.papers.linkpred.encoders import Encoder, load_encoder
from icml25cli.papers.linkpred.graph import adjacency
from icml25cli.papers.linkpred.pictures import Look, cache_inputs, draw, node_features, pair_features
from icml25cli.papers.linkpred.subgraphs import link_subgraphs


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("ICML25_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(pictures, "SHARD", 8)


class Counting(Encoder):
    """An encoder of three features that can be checked by hand, and that counts what it looks at."""

    def __init__(self, weights: str = "a", size: int = 48) -> None:
        super().__init__("counting", size, 3, weights, "float32", lambda pictures: pictures)
        object.__setattr__(self, "looked", [])

    def __call__(self, pictures: np.ndarray) -> np.ndarray:
        self.looked.append(len(pictures))  # type: ignore[attr-defined]
        brown, ink, drawn = pictures == 255, pictures > 0, pictures.astype(int)
        return np.stack([x.sum((1, 2)) % 997 for x in (brown, ink, drawn)], axis=1).astype(np.float16)

    @property
    def seen(self) -> int:
        return sum(self.looked)  # type: ignore[attr-defined]


def random_graph(seed: int = 0, n: int = 60, m: int = 150) -> sparse.csr_array:
    pairs = np.sort(np.random.default_rng(seed).integers(n, size=(m, 2)), axis=1)
    return adjacency(np.unique(pairs[pairs[:, 0] != pairs[:, 1]], axis=0), n)


PAIRS = np.array([(u, v) for u in range(9) for v in range(9, 18)])


def test_each_kind_of_picture_is_looked_at_once_and_every_pair_gets_its_own():
    counting, matrix = Counting(), random_graph()
    found = pair_features(matrix, PAIRS, counting)
    assert counting.seen == len(found.table) < len(PAIRS)
    for i in (0, 17, 80):
        alone = pair_features(matrix, PAIRS[i : i + 1, ::-1], Counting())
        assert (alone.rows() == found.rows(np.array([i]))).all()
    assert found.rows().shape == (81, 3)
    assert found.rows().dtype == np.float32


def test_the_second_time_nothing_is_drawn():
    matrix = random_graph()
    first = pair_features(matrix, PAIRS, Counting())
    again = Counting()
    second = pair_features(matrix, PAIRS, again)
    assert again.seen == 0
    assert (first.table == second.table).all()


CHANGES = {
    "edges": {"matrix": random_graph(1)},
    "split": {"split": "another"},
    "asked": {"pairs": PAIRS[::-1].copy()},
    "hops": {"look": Look(hops=2)},
    "max_nodes": {"look": Look(max_nodes=20)},
    "seed": {"look": Look(seed=3)},
    "renderer": {"look": Look(renderer="sfdp")},
    "size": {"encoder": Counting(size=64)},
    "weights": {"encoder": Counting(weights="b")},
}


def key(matrix=random_graph(), pairs=PAIRS, encoder=Counting(), look=Look(), split="one"):  # noqa: B008
    return fingerprint(cache_inputs(matrix, pairs, encoder, look, "pairs", split))


@pytest.mark.parametrize("change", CHANGES, ids=str)
def test_whatever_a_picture_depends_on_is_in_the_key(change):
    assert key() == key()
    assert key(**CHANGES[change]) != key()


def test_a_picture_drawn_otherwise_by_a_later_version_has_another_key(monkeypatch):
    before = key()
    monkeypatch.setattr(pictures.layout, "VERSION", 99)
    middle = key()
    monkeypatch.setattr(pictures.raster, "VERSION", 99)
    assert len({before, middle, key()}) == 3


def test_a_second_split_never_sees_the_pictures_of_the_first():
    matrix, counting = random_graph(), Counting()
    pair_features(matrix, PAIRS, counting, split="first")
    other = Counting()
    fewer = matrix.copy().tolil()
    fewer[0, :] = 0
    fewer[:, 0] = 0
    fewer = sparse.csr_array(fewer)
    fewer.eliminate_zeros()
    found = pair_features(fewer, PAIRS, other, split="second")
    assert other.seen == len(found.table)
    folders = {path.name for path in (run_directory("linkpred-pictures", "0" * 64, None).parent).iterdir()}
    assert len(folders) == 2
    isolated = pair_features(fewer, PAIRS[:1], Counting()).rows()
    assert (found.rows(np.array([0])) == isolated).all()


class Killed(Exception):
    pass


def test_finished_shards_survive_a_kill(monkeypatch):
    matrix = random_graph()
    whole = pair_features(matrix, PAIRS, Counting(), split="elsewhere")
    original, written = Run.write, []

    def killed(self, unit, writer):
        if len(written) == 3:
            raise Killed
        written.append(unit)
        original(self, unit, writer)

    with monkeypatch.context() as patch:
        patch.setattr(Run, "write", killed)
        with pytest.raises(Killed):
            pair_features(matrix, PAIRS, Counting())
    again = Counting()
    found = pair_features(matrix, PAIRS, again)
    assert again.seen == len(found.table) - 3 * 8
    assert (found.table == whole.table).all()


KILL_ME = """
import os, signal, sys
import numpy as np
from icml25cli.core.runs import Run
from icml25cli.papers.linkpred import pictures
from icml25cli.papers.linkpred.encoders import load_encoder
from icml25cli.papers.linkpred.graph import adjacency
pictures.SHARD = 2
original = Run.write
def write(self, unit, writer):
    original(self, unit, writer)
    if unit == "000001.npy":
        os.kill(os.getpid(), signal.SIGKILL)
Run.write = write
pairs = np.array([(u, v) for u in range(9) for v in range(9, 18)])
ring = adjacency(np.array([(i, i + 1) for i in range(40)] + [(i, i + 3) for i in range(0, 37, 2)]), 41)
pictures.pair_features(ring, pairs, load_encoder("random"))
"""


def test_sigkill_while_rendering_leaves_whole_shards_and_a_lock_that_is_taken_over(monkeypatch):
    monkeypatch.setattr(pictures, "SHARD", 2)
    done = subprocess.run([sys.executable, "-c", KILL_ME], env=os.environ | {"OMP_NUM_THREADS": "1"})
    assert done.returncode == -signal.SIGKILL
    ring = adjacency(np.array([(i, i + 1) for i in range(40)] + [(i, i + 3) for i in range(0, 37, 2)]), 41)
    (folder,) = (run_directory("linkpred-pictures", "0" * 64, None).parent).iterdir()
    before = {path.name: path.read_bytes() for path in (folder / "units").iterdir()}
    assert set(before) == {"000000.npy", "000001.npy"}
    found = pair_features(ring, PAIRS, load_encoder("random"))
    assert {name: (folder / "units" / name).read_bytes() for name in before} == before
    fresh = pair_features(ring, PAIRS, load_encoder("random"), split="fresh")
    assert (found.rows() == fresh.rows()).all()


def test_another_process_at_the_same_pictures_is_named():
    matrix, encoder = random_graph(), Counting()
    inputs = cache_inputs(matrix, PAIRS, encoder, Look(), "pairs", "")
    with (
        Run.open(run_directory("linkpred-pictures", fingerprint(inputs), None), inputs),
        pytest.raises(InputError, match="is held by running process"),
    ):
        pair_features(matrix, PAIRS, encoder)


def test_a_torn_shard_is_refused_by_name():
    matrix, encoder = random_graph(), Counting()
    pair_features(matrix, PAIRS, encoder)
    (shard,) = (run_directory("linkpred-pictures", "0" * 64, None).parent).glob("*/units/000001.npy")
    shard.write_bytes(shard.read_bytes()[:-5])
    with pytest.raises(InputError, match=r"000001\.npy"):
        pair_features(matrix, PAIRS, encoder)


def test_pictures_of_nodes_are_a_table_by_degree_for_one_hop():
    matrix = random_graph()
    found = node_features(matrix, np.arange(60), Counting(), Look(hops=1))
    degrees = np.diff(matrix.indptr)
    assert len(found.table) == len(set(degrees.tolist()))
    for degree in set(degrees.tolist()):
        assert len(set(found.kind[degrees == degree].tolist())) == 1


def test_nothing_asked_is_nothing_drawn():
    found = pair_features(random_graph(), np.empty((0, 2), np.int64), Counting())
    assert (len(found.kind), found.table.shape) == (0, (0, 3))


def test_pictures_that_are_samples_are_counted():
    star = adjacency(np.array([(0, i) for i in range(1, 200)]), 200)
    found = pair_features(star, np.array([[0, 1], [2, 3]]), Counting(), Look(max_nodes=50))
    assert found.cut == 1


# --- Graphviz ----------------------------------------------------------------------------------------------------


@pytest.fixture
def program(tmp_path, monkeypatch):
    """Put a program called sfdp in the way."""

    def install(script: str) -> None:
        folder = tmp_path / "bin"
        folder.mkdir(exist_ok=True)
        (folder / "sfdp").write_text(f"#!{sys.executable}\n{script}")
        (folder / "sfdp").chmod(0o755)
        monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")

    return install


PLAIN = """
import re, sys
for text in sys.stdin.read().strip().splitlines():
    nodes = sorted(set(map(int, re.findall(r"\\d+", text))))
    print("graph 1 4 4")
    for v in reversed(nodes):
        print(f"node {v} {v * 0.5} {v * v * 0.25} 0.75 0.5 {v} solid box black white")
    print("edge 0 1 2 0 0 1 1 solid black")
    print("stop")
"""


def test_positions_are_read_by_node_from_one_process_for_many_graphs(program):
    program(PLAIN)
    graphs = link_subgraphs(random_graph(), PAIRS[:20])
    found = graphviz.graphviz_layout(graphs)
    for i in range(20):
        places = np.arange(len(graphs.nodes_of(i)), dtype=np.float32)
        mine = found[graphs.node_start[i] : graphs.node_start[i + 1]]
        np.testing.assert_array_equal(mine, np.stack([places * 0.5, -(places**2) * 0.25], axis=1))


@pytest.mark.parametrize(
    "script",
    ["import sys; sys.exit('no memory')", "import time; time.sleep(60)", "print('graph 1 1 1')"],
    ids=["fails", "hangs", "says too little"],
)
def test_where_graphviz_does_not_answer_we_draw_and_say_so(program, script, monkeypatch):
    program(script)
    monkeypatch.setattr(graphviz, "TIMEOUT", 0.5)
    matrix = random_graph()
    with pytest.warns(UserWarning, match=r"sfdp .*laid out by the native renderer"):
        found = pair_features(matrix, PAIRS, Counting(), Look(renderer="sfdp"))
    ours = pair_features(matrix, PAIRS, Counting())
    assert (found.rows() == ours.rows()).all()


def test_without_graphviz_we_draw_and_say_so(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.warns(UserWarning, match="circo is not installed"):
        pair_features(random_graph(), PAIRS, Counting(), Look(renderer="circo"))


@pytest.mark.skipif(not graphviz.available("sfdp"), reason="needs Graphviz")
def test_our_paint_on_graphviz_positions_resembles_graphviz():
    graphs = pictures.distinct([link_subgraphs(random_graph(), PAIRS[:10])]).graphs
    ours = draw(graphs, 96, "sfdp")
    for i in range(len(graphs)):
        theirs = graphviz.graphviz_png(graphs, i, 96)
        for plane in (ours[i] == 255, ours[i] > 0):
            other = theirs == 255 if plane is (ours[i] == 255) else theirs > 40
            assert np.abs(np.argwhere(plane).mean(0) - np.argwhere(other).mean(0)).max() < 12


def test_an_unknown_renderer_is_refused():
    with pytest.raises(UsageError, match="povray"):
        pair_features(random_graph(), PAIRS, Counting(), replace(Look(), renderer="povray"))  # type: ignore[arg-type]
