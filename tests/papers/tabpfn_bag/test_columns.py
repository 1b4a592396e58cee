"""What columns of a user's table are taken for, and how rows of another table fit in."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest

from icml25cli.core.errors import InputError
from icml25cli.papers.tabpfn_bag.columns import MOST_LEVELS, Schema


def schema_of(**columns) -> Schema:
    with warnings.catch_warnings(action="ignore"):
        return Schema.of(pd.DataFrame(columns))


def kinds(schema: Schema) -> dict[str, str]:
    return {column.name: column.kind for column in schema.columns}


N = 40


def test_kinds_of_columns():
    schema = schema_of(
        number=np.arange(N) / 3,
        flag=np.arange(N) % 2 == 0,
        text_of_numbers=[str(i) for i in range(N)],
        mostly_numbers=[*map(str, range(N - 2)), "n/a", "unknown"],
        colour=["red", "blue"] * (N // 2),
        category=pd.Categorical([1, 2, 3, 4] * (N // 4)),
        when=pd.date_range("2024-01-01", periods=N).astype(str),
        stamp=pd.date_range("2024-01-01", periods=N),
        name=[f"person {i}" for i in range(N)],
        constant=[7] * N,
        empty=[None] * N,
        infinite=[np.inf] * N,
        complex=np.arange(N) * 1j,
    )
    assert kinds(schema) == {
        "number": "number",
        "flag": "number",
        "text_of_numbers": "number",
        "mostly_numbers": "number",
        "colour": "category",
        "category": "category",
        "when": "date",
        "stamp": "date",
        "name": "dropped",
        "constant": "dropped",
        "empty": "dropped",
        "infinite": "dropped",
        "complex": "dropped",
    }
    assert schema.numbers == 4 + 2 * 4
    assert schema.categories == 2


def test_what_is_missing_is_told_apart_and_infinity_is_missing():
    schema = schema_of(a=[1.0, np.nan, 3.0, np.inf, 5.0], b=[1.0, 2.0, 3.0, 4.0, 5.0])
    rows = schema.rows(pd.DataFrame({"a": [np.nan, 2.0, -np.inf], "b": [1.0, np.nan, 2.0]}))
    assert schema.levels == [1]  # a mark for `a`, where training had gaps
    assert rows.codes[:, 0].tolist() == [0, -1, 0]
    assert np.isfinite(rows.numbers.numpy()).all()
    assert rows.numbers[0, 0] == 0  # the mean


def test_levels_are_the_same_by_whatever_type_a_file_gave_them():
    schema = schema_of(code=pd.Categorical([1, 2, 3, 1, 2, 1]))
    assert schema.columns[0].levels == ("1", "2", "3")
    for values in ([1, 2, 9], ["1", "2", "9"], [1.0, 2.0, 9.0]):
        rows = schema.rows(pd.DataFrame({"code": pd.Series(values, dtype=object)}))
        assert rows.codes[:, 0].tolist() == [0, 1, -1]


def test_columns_in_another_order_are_the_same_rows():
    frame = pd.DataFrame({"a": np.arange(5.0), "c": list("xyxyx"), "b": np.arange(5.0)[::-1]})
    schema = Schema.of(frame)
    one, two = schema.rows(frame), schema.rows(frame[["c", "b", "a"]].assign(extra=0))
    assert (one.numbers == two.numbers).all()
    assert (one.codes == two.codes).all()


def test_very_many_levels_are_cut_to_the_commonest():
    values = np.repeat([f"l{i}" for i in range(150)], 3)
    with pytest.warns(UserWarning, match="150 levels"):
        schema = Schema.of(pd.DataFrame({"c": values}))
    assert len(schema.columns[0].levels) == MOST_LEVELS


def test_what_is_dropped_is_warned_of_by_name():
    with pytest.warns(UserWarning, match="'id' is not used: 40 different values in 40 rows"):
        Schema.of(pd.DataFrame({"id": [f"p{i}" for i in range(N)], "x": np.arange(N)}))


def test_columns_that_cannot_be_are_named():
    frame = pd.DataFrame(np.ones((3, 2)), columns=["a", "a"])
    with pytest.raises(InputError, match="more than one of column 'a'"):
        Schema.of(frame.assign(b=[1, 2, 3]))
    schema = Schema.of(pd.DataFrame({f"c{i}": [1, 2, 3] for i in range(8)}))
    with pytest.raises(InputError, match="'c0', 'c1', 'c2', 'c3', 'c4' and 2 more"):
        schema.rows(pd.DataFrame({"c7": [1]}))


def test_a_schema_comes_back_from_its_document():
    frame = pd.DataFrame({"a": [1.0, None, 3.0], "c": ["x", None, "y"], "d": ["2020-01-01"] * 2 + ["2021-05-05"]})
    schema = Schema.of(frame)
    again = Schema.from_document(schema.document(), schema.tensors())
    assert again.columns == schema.columns
    assert (again.rows(frame).numbers == schema.rows(frame).numbers).all()
