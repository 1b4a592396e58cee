"""Tables from every format, the target by name, and what is refused by name."""

from __future__ import annotations

import io
import json

import numpy as np
import pandas as pd
import pytest

from icml25cli.core.errors import InputError, UsageError
from icml25cli.papers.tabpfn_bag.readers import read_table, separated, target_of

FRAME = pd.DataFrame({"x": [1.5, None, 3.0], "town": ["Ulm", "Köln", None], "y": ["a", "b", "a"]})
ARFF = """% a comment
@relation towns
@attribute x numeric
@attribute 'home town' {Ulm, 'Köln'}
@attribute y {a,b}
@data
1.5, Ulm, a
?, 'Köln', b
3.0, ?, a
"""
KEEL = "@relation towns\n@attribute x real [0, 5]\n@attribute town {Ulm}\n@data\n1.5, Ulm, a\n<null>, Ulm, b\n"


def written(tmp_path, suffix: str):
    path = tmp_path / f"t{suffix}"
    if suffix in (".csv", ".csv.gz"):
        FRAME.to_csv(path, index=False)
    elif suffix == ".tsv":
        FRAME.to_csv(path, index=False, sep="\t")
    elif suffix == ".txt":
        FRAME.to_csv(path, index=False, sep=";")
    elif suffix == ".parquet":
        FRAME.to_parquet(path)
    elif suffix == ".feather":
        FRAME.to_feather(path)
    elif suffix == ".jsonl":
        FRAME.to_json(path, orient="records", lines=True)
    else:
        path.write_text(ARFF.replace("'home town'", "town"), encoding="utf-8")
    return path


@pytest.mark.parametrize("suffix", [".csv", ".csv.gz", ".tsv", ".txt", ".parquet", ".feather", ".jsonl", ".arff"])
def test_a_table_is_the_same_from_every_format(tmp_path, suffix):
    found = read_table(str(written(tmp_path, suffix)))
    assert list(found.columns) == ["x", "town", "y"]
    np.testing.assert_array_equal(found["x"].to_numpy(float), [1.5, np.nan, 3.0])
    assert found["y"].tolist() == ["a", "b", "a"]
    assert found["town"].isna().tolist() == [False, False, True]
    assert found["town"].tolist()[1] == "Köln"


@pytest.mark.parametrize("form", ["csv", "semicolons", "jsonl"])
def test_standard_input_says_by_its_first_line_what_it_is(monkeypatch, form):
    text = {
        "csv": FRAME.to_csv(index=False),
        "semicolons": FRAME.to_csv(index=False, sep=";"),
        "jsonl": FRAME.to_json(orient="records", lines=True),
    }[form]
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    found = read_table("-")
    assert list(found.columns) == ["x", "town", "y"]
    assert len(found) == 3


def test_quoted_names_of_arff(tmp_path):
    (tmp_path / "t.arff").write_text(ARFF, encoding="utf-8")
    assert list(read_table(str(tmp_path / "t.arff")).columns) == ["x", "home town", "y"]


def test_keel_has_its_class_last(tmp_path):
    (tmp_path / "t.dat").write_text(KEEL)
    found = read_table(str(tmp_path / "t.dat"))
    assert found.columns[-1] == "target"
    assert found.iloc[:, -1].tolist() == ["a", "b"]
    assert np.isnan(found.iloc[1, 0])


def test_arrays_of_a_npz(tmp_path):
    np.savez(tmp_path / "t.npz", x=np.arange(6.0).reshape(3, 2), y=np.array(["a", "b", "a"]))
    found = read_table(str(tmp_path / "t.npz"))
    assert list(found.columns) == ["x0", "x1", "y"]
    np.savez(tmp_path / "uneven.npz", x=np.arange(6.0).reshape(3, 2), y=np.arange(2))
    with pytest.raises(InputError, match=r"\[2, 3\] rows"):
        read_table(str(tmp_path / "uneven.npz"))
    np.savez(tmp_path / "deep.npz", x=np.zeros((2, 2, 2)))
    with pytest.raises(InputError, match=r"'x' has shape \(2, 2, 2\)"):
        read_table(str(tmp_path / "deep.npz"))


def test_a_folder_of_talent_and_its_parts(tmp_path):
    for part, rows in (("train", 3), ("val", 2), ("test", 1)):
        np.save(tmp_path / f"N_{part}.npy", np.arange(rows * 2.0).reshape(rows, 2))
        np.save(tmp_path / f"C_{part}.npy", np.array([["u"], ["v"], ["u"]])[:rows])
        np.save(tmp_path / f"y_{part}.npy", np.arange(rows) % 2)
    (tmp_path / "info.json").write_text(json.dumps({"task_type": "binclass"}))
    whole = read_table(str(tmp_path))
    assert list(whole.columns) == ["n0", "n1", "c0", "target"]
    assert len(whole) == 6
    assert len(read_table(f"{tmp_path}:val")) == 2
    (tmp_path / "info.json").write_text(json.dumps({"task_type": "regression"}))
    with pytest.raises(InputError, match="regression"):
        read_table(str(tmp_path))


def test_the_target_is_named_or_known_by_its_name():
    assert target_of(FRAME, None) == "y"
    assert target_of(FRAME, "town") == "town"
    x, y = separated(FRAME, "y")
    assert list(x.columns) == ["x", "town"]
    assert y.tolist() == ["a", "b", "a"]
    with pytest.raises(UsageError, match="no column 'z'"):
        target_of(FRAME, "z")
    with pytest.raises(UsageError, match="which column"):
        target_of(FRAME.rename(columns={"y": "w"}), None)
    with pytest.raises(UsageError, match="which column"):
        target_of(FRAME.assign(label=1), None)


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("t.csv", "", "cannot be read as csv"),
        ("t.csv", "a,b\n", "holds no row"),
        ("t.csv", "a,y,a\n1,2,3\n", "more than one column 'a'"),
        ("t.tsv", "y\ta\ty\n1\t2\t3\n", "more than one column 'y'"),
        ("t.arff", "@relation t\n1,2\n", "no @data"),
        ("t.arff", "@attribute a numeric\n@data\n1,2\n", "row 1 has 2 values for 1 columns"),
        ("t.arff", "@attribute a numeric\n@data\n{0 1}\n", "sparse ARFF"),
        ("t.parquet", "no parquet", "cannot be read as parquet"),
        ("t.feather", "no feather", "cannot be read as feather"),
        ("t.jsonl", "{", "cannot be read as jsonl"),
        ("t.npz", "no zip", "t.npz"),
        ("t.joblib", "x", "a pickle, which is never loaded"),
        ("t.docx", "x", "of a kind that is not known here"),
    ],
)
def test_what_cannot_be_read_is_named(tmp_path, name, content, says):
    (tmp_path / name).write_text(content)
    with pytest.raises(InputError, match=says):
        read_table(str(tmp_path / name))


def test_a_text_of_another_encoding_is_told_apart_from_a_torn_one(tmp_path):
    (tmp_path / "t.csv").write_bytes("größe,y\n1,2\n".encode("latin-1"))
    with pytest.raises(InputError, match="cannot be read as csv") as raised:
        read_table(str(tmp_path / "t.csv"))
    assert raised.value.hint == "save it as UTF-8"


def test_lists_and_objects_are_text(tmp_path):
    (tmp_path / "t.jsonl").write_text('{"l": [1, 2], "o": {"q": 1}, "y": "a"}\n{"l": null, "o": {"q": 1}, "y": "b"}\n')
    with pytest.warns(UserWarning, match="holds lists or objects"):
        frame = read_table(str(tmp_path / "t.jsonl"))
    assert frame["l"].tolist() == ["[1, 2]", None]
    assert frame["o"].tolist() == ["{'q': 1}"] * 2
    frame["l"] = [np.array([1, 2]), np.array([1, 2])]
    frame.to_parquet(tmp_path / "t.parquet")
    with pytest.warns(UserWarning, match="'l' holds lists or objects"):
        assert read_table(str(tmp_path / "t.parquet"))["l"].tolist() == ["[1 2]", "[1 2]"]


@pytest.mark.parametrize("name", ["nothing.csv", "builtin:moon", "nowhere:else"])
def test_what_is_not_there_is_named(name):
    with pytest.raises(InputError, match=name):
        read_table(name)


def test_an_object_array_is_never_loaded(tmp_path):
    np.savez(tmp_path / "t.npz", x=np.array([{"a": 1}], dtype=object))
    with pytest.raises(InputError, match="never loaded"):
        read_table(str(tmp_path / "t.npz"))


@pytest.mark.parametrize("separator", [";", "\t", "|"])
def test_a_csv_that_others_separate_is_read_by_its_header(tmp_path, separator):
    FRAME.to_csv(tmp_path / "t.csv", index=False, sep=separator)
    pd.testing.assert_frame_equal(read_table(str(tmp_path / "t.csv")), FRAME)
    FRAME.to_csv(tmp_path / "t.csv.gz", index=False, sep=separator)
    pd.testing.assert_frame_equal(read_table(str(tmp_path / "t.csv.gz")), FRAME)


def test_commas_stay_separators_wherever_the_header_has_one(tmp_path):
    (tmp_path / "t.csv").write_text('a;b|c,"d;e;f"\n1,2\n')
    assert list(read_table(str(tmp_path / "t.csv")).columns) == ["a;b|c", "d;e;f"]
    (tmp_path / "t.csv").write_text('"a;b"\n1\n')
    assert list(read_table(str(tmp_path / "t.csv")).columns) == ["a;b"]


def test_decimal_commas_are_numbers_where_no_number_has_a_point(tmp_path):
    (tmp_path / "t.csv").write_text("\ufeffa;b\n1,5;-2,25\n3;4,0\n")
    assert read_table(str(tmp_path / "t.csv")).to_numpy().tolist() == [[1.5, -2.25], [3, 4]]
    (tmp_path / "t.csv").write_text("a;b\n1.5;x\n3;4,0\n")
    assert read_table(str(tmp_path / "t.csv")).to_numpy().tolist() == [[1.5, "x"], [3, "4,0"]]
