"""Labels are taken by number or by id, and what does not fit is named."""

from pathlib import Path

import numpy as np
import pytest

from icml25cli.core.embeddings import Embeddings
from icml25cli.core.errors import InputError
from icml25cli.core.labels import read_labels

X = Embeddings("x.npy", np.zeros((4, 2), np.float32))
IDS = np.array([7, 3, 9, 5])


def labels(folder: Path, text: str) -> Path:
    (folder / "labels.csv").write_text(text)
    return folder / "labels.csv"


def test_rows_are_found_by_id_where_the_table_has_one(tmp_path):
    path = labels(tmp_path, "id,label\n3,b\n5,a\n7,a\n9,c\n11,z\n")
    classes, names = read_labels(path, X, ids=("id", IDS))
    assert [names[i] for i in classes] == ["a", "b", "c", "a"]
    by_number = labels(tmp_path, "id,label\n3,b\n5,a\n7,a\n9,c\n")
    for ids in (None, ("key", IDS)):
        classes, names = read_labels(by_number, X, ids=ids)
        assert [names[i] for i in classes] == ["b", "a", "a", "c"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("id,label\n3,b\n5,a\n7,a\n7,c\n", "has the id 7 more than once"),
        ("id,label\n3,b\n5,a\n7,a\n", "has no label of 1 items: id 9"),
    ],
)
def test_ids_that_do_not_fit_are_named(tmp_path, text, said):
    with pytest.raises(InputError, match=said):
        read_labels(labels(tmp_path, text), X, ids=("id", IDS))


def test_a_rare_label_is_named(tmp_path):
    with pytest.raises(InputError, match="rows with the label b are 1, every label needs 2"):
        read_labels(labels(tmp_path, "label\na\na\nb\na\n"), X, least=2)
