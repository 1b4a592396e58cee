"""Layout and paint: what is on a picture can be counted, and nothing beside the graph itself changes it."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import ndimage

from icml25cli.papers.linkpred import layout, raster
from icml25cli.papers.linkpred.canonical import canonical_graphs
from icml25cli.papers.linkpred.graph import adjacency
from icml25cli.papers.linkpred.layout import spring_layout
from icml25cli.papers.linkpred.raster import BROWN, paint, to_rgb
from icml25cli.papers.linkpred.subgraphs import link_subgraphs, node_subgraphs


def star(leaves: int):
    return adjacency(np.array([(0, i + 1) for i in range(leaves)], np.int64).reshape(-1, 2), leaves + 2)


def drawn(graphs, size=224):
    graphs, _ = canonical_graphs(graphs)
    return paint(graphs, spring_layout(graphs), size)


def labelled(mask: np.ndarray) -> tuple[np.ndarray, int]:
    """Regions by number, and how many there are."""
    found: Any = ndimage.label(mask)
    return found


def regions(mask: np.ndarray) -> int:
    return labelled(mask)[1]


def brown(rgb: np.ndarray) -> np.ndarray:
    return (rgb == BROWN).all(axis=-1)


def white_boxes(picture: np.ndarray, nodes: int) -> int:
    """White regions that are the inside of a box of the size that so many nodes have."""
    half = np.clip(0.175 * 224 / np.sqrt(nodes), 2, 0.06 * 224)
    inside = (2 * max(1, round(half * 2 / 3)) - 1, 2 * round(half) - 1)
    labels, _ = labelled(picture == 0)
    return sum(
        (labels[box] == i + 1).all() and labels[box].shape == inside
        for i, box in enumerate(ndimage.find_objects(labels))
    )


@pytest.mark.parametrize("leaves", [1, 2, 5, 9, 16])
def test_a_star_shows_a_box_a_node_and_one_of_them_brown(leaves):
    (picture,) = drawn(node_subgraphs(star(leaves), np.array([0]), hops=1))
    rgb = to_rgb(picture)
    assert rgb.shape == (224, 224, 3)
    assert rgb.dtype == np.uint8
    assert regions(brown(rgb)) == 1
    assert white_boxes(picture, leaves + 1) == leaves


def test_a_pair_is_two_brown_boxes_linked_or_not():
    matrix = star(4)
    pictures = drawn(link_subgraphs(matrix, np.array([[0, 1], [0, 5], [1, 2]])))
    assert [regions(brown(to_rgb(p))) for p in pictures] == [2, 2, 2]
    assert [white_boxes(p, n) for p, n in zip(pictures, (5, 6, 3), strict=True)] == [3, 4, 1]


def test_a_node_alone_is_one_brown_box():
    (picture,) = drawn(node_subgraphs(star(3), np.array([4])))
    assert regions(brown(to_rgb(picture))) == 1
    assert set(np.unique(picture)) == {0, 255}


def test_a_line_joins_linked_boxes_and_no_others():
    # targets 0 and 1, each with a leaf of its own: two inked regions, of which the lines make whole
    matrix = adjacency(np.array([(0, 2), (1, 3)]), 4)
    (picture,) = drawn(link_subgraphs(matrix, np.array([[0, 1]])))
    assert regions(ndimage.binary_dilation(picture > 0)) == 2


def test_two_nodes_fill_the_canvas_from_corner_to_corner():
    (picture,) = drawn(link_subgraphs(star(1), np.array([[0, 2]])))
    rows, columns = np.nonzero(picture)
    assert rows.min() <= 2
    assert rows.max() >= 221
    assert columns.min() <= 2
    assert columns.max() >= 221


def test_many_nodes_are_smaller_boxes_and_all_inside():
    few, many = (drawn(node_subgraphs(star(k), np.array([0]), hops=1))[0] for k in (3, 90))
    assert (few == 255).sum() > 3 * (many == 255).sum() > 0


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_a_picture_depends_on_its_graph_alone(seed):
    rng = np.random.default_rng(seed)
    edges = np.unique(np.sort(rng.integers(40, size=(90, 2)), axis=1), axis=0)
    matrix = adjacency(edges[edges[:, 0] != edges[:, 1]], 40)
    pairs = np.array([(i, j) for i in range(8) for j in range(i)])
    together = drawn(link_subgraphs(matrix, pairs), size=64)
    again = drawn(link_subgraphs(matrix, pairs), size=64)
    assert (together == again).all()
    i = int(rng.integers(len(pairs)))
    alone = drawn(link_subgraphs(matrix, pairs[i][None, ::-1]), size=64)
    assert (alone[0] == together[i]).all()


def test_positions_are_finite_and_nodes_apart():
    graphs, _ = canonical_graphs(link_subgraphs(star(80), np.array([[0, 1], [0, 81]])))
    positions = spring_layout(graphs)
    assert np.isfinite(positions).all()
    for i in range(2):
        mine = positions[graphs.node_start[i] : graphs.node_start[i + 1]]
        distances = np.linalg.norm(mine[:, None] - mine[None], axis=-1) + np.eye(len(mine))
        assert distances.min() > 0.2 / np.sqrt(len(mine))  # of K, the length that springs aim at


def test_linked_nodes_are_nearer_than_others():
    path = adjacency(np.array([(i, i + 1) for i in range(9)]), 10)
    graphs, _ = canonical_graphs(link_subgraphs(path, np.array([[4, 5]]), hops=4))
    positions = spring_layout(graphs)
    linked = np.zeros((10, 10), bool)
    linked[graphs.edges[:, 0], graphs.edges[:, 1]] = True
    distances = np.linalg.norm(positions[:, None] - positions[None], axis=-1)
    above = np.triu(np.ones((10, 10), bool), 1)
    assert distances[linked].max() < np.median(distances[above & ~linked])


def test_pictures_are_those_that_the_weights_of_the_built_in_encoder_were_fitted_to():
    # Whoever changes them raises a VERSION and trains assets/recipes/train_vsf_tiny.py anew.
    matrix = adjacency(np.array([(0, 2), (1, 2), (0, 3), (1, 3), (2, 3), (0, 4), (1, 5), (1, 6)]), 7)
    graphs, _ = canonical_graphs(link_subgraphs(matrix, np.array([[0, 1]])))
    assert (layout.VERSION, raster.VERSION) == (1, 1)
    assert graphs.nodes.tolist() == [1, 0, 2, 3, 4, 5, 6]
    expected = [
        (0.237, 0.21),
        (-0.273, -0.288),
        (0.091, -0.18),
        (-0.141, 0.065),
        (-0.607, -0.443),
        (0.639, 0.1),
        (0.13, 0.621),
    ]
    np.testing.assert_allclose(spring_layout(graphs), expected, atol=2e-3)
    (picture,) = paint(graphs, spring_layout(graphs), 96)
    targets = ndimage.center_of_mass(picture == 255, labelled(picture == 255)[0], [1, 2])
    np.testing.assert_allclose(targets, [(17, 29), (57, 62)], atol=1)
    assert (picture == 255).sum() == 2 * 9 * 13
    assert (picture > 0).sum() == pytest.approx(674, abs=8)
