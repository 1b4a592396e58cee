"""Edges as people keep them: separators, headers, quotes, comments, dates; and what is wrong is named by its line."""

import gzip
import io
import sys

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from icml25cli.core.errors import InputError, UsageError
from icml25cli.papers.linkpred.edge_list import Columns, read_parquet, read_text


@pytest.fixture
def read(tmp_path):
    def from_text(text, name="edges.csv", **columns):
        (tmp_path / name).write_bytes(text if isinstance(text, bytes) else text.encode())
        return read_text(tmp_path / name, Columns(**columns))

    return from_text


def named(edges):
    return [(edges.ids[u], edges.ids[v]) for u, v in edges.pairs.tolist()]


@pytest.mark.parametrize(
    "text",
    [
        "a,b\nb,c\n",
        "a\tb\nb\tc\n",
        "a;b\nb;c",
        "a b\nb c\n",
        "  a   b\n b  c \n",
        "a, b\r\nb ,c\r\n",
        "\ufeffa,b\nb,c\n",
        "# SNAP\n% KONECT\n\na b\nb c\n",
        "source,target\na,b\nb,c\n",
        "FromNodeId\tToNodeId\na\tb\nb\tc\n",
        '"a","b"\n"b","c"\n',
    ],
)
def test_however_it_is_written_it_is_the_same_two_edges(read, text):
    assert named(read(text)) == [("a", "b"), ("b", "c")]


@pytest.mark.parametrize("ids", [("007", "7"), ("NA", "null"), ("1.0", "1"), ("Smith, J", "Ö"), ("nan", "-1")])
def test_ids_that_readers_like_to_change_stay_as_written(read, ids):
    edges = read(f'"{ids[0]}","{ids[1]}"\n"{ids[1]}","x"\n')
    assert named(edges) == [(ids[0], ids[1]), (ids[1], "x")]


def test_whole_numbers_are_in_their_own_order_and_words_as_they_come(read):
    assert read("10 2\n2 9\n").ids == ["2", "9", "10"]
    assert read("b a\na c\n").ids == ["b", "a", "c"]


def test_a_line_without_numbers_above_numbers_is_a_header_and_said(read):
    edges = read("payer,payee,amount\n1,2,3.5\n2,3,4\n")
    assert named(edges) == [("1", "2"), ("2", "3")]
    assert edges.notes == ["the first line is a header: payer, payee, amount"]


@pytest.mark.parametrize("header", ["User ID,Friend ID", "protein_a,protein_b", "Left,Right"])
def test_usual_words_found_nowhere_else_are_a_header(read, header):
    edges = read(f"{header}\na,b\nb,c\nc,a\n")
    assert named(edges) == [("a", "b"), ("b", "c"), ("c", "a")]
    assert edges.notes == [f"the first line is a header: {header.replace(',', ', ')}"]


def test_a_first_line_of_unknown_words_is_an_edge_and_a_warning(read):
    with pytest.warns(UserWarning, match="found nowhere else, 'Bidder' and 'Auction': if it is a header"):
        edges = read("Bidder,Auction\na,b\nb,c\nc,a\n")
    assert named(edges)[0] == ("Bidder", "Auction")
    assert named(read("Bidder,Auction\na,b\nb,c\nc,a\n", src="Bidder", dst="Auction"))[0] == ("a", "b")


@pytest.mark.parametrize(
    "text",
    [
        "customer,age,town,churned\n1,31,Ulm,0\n2,45,Bonn,1\n",
        "length,width,kind\n5.1,3.5,0\n4.9,3,1\n",
    ],
)
def test_a_table_of_something_else_is_no_list_of_edges_unless_its_columns_are_named(read, text, tmp_path):
    with pytest.raises(InputError, match="no list of edges by its header") as caught:
        read(text)
    first, second = text.split(",")[:2]
    assert f"--src and --dst, also if they are '{first}' and '{second}'" in str(caught.value.hint)
    assert len(read(text, src="1", dst="2").pairs) == 2
    pd.read_csv(io.StringIO(text)).to_parquet(tmp_path / "t.parquet")
    with pytest.raises(InputError, match="no list of edges by its header"):
        read_parquet(tmp_path / "t.parquet")


def test_a_wide_table_of_whole_numbers_is_doubted_and_one_with_times_is_not(read):
    with pytest.warns(UserWarning, match="the first two of 5 columns, 'customer' and 'age', are taken for the ends"):
        read("customer,age,visits,spent,churned\n1,31,3,7.5,0\n2,45,4,,1\n")
    text = "payer,payee,amount,day\n1,2,3.5,2024-05-31\n2,3,,2024-06-01\n"
    assert named(read(text)) == [("1", "2"), ("2", "3")]
    assert named(read("source,target,kind\n1,2,friend\n2,3,foe\n")) == [("1", "2"), ("2", "3")]


def test_words_alone_have_no_header(read):
    assert named(read("alice,bob\nbob,carol\n")) == [("alice", "bob"), ("bob", "carol")]


def test_columns_are_named_or_counted(read):
    text = "when,w,to,from\n5,1,b,a\n7,2,c,b\n"
    edges = read(text, src="from", dst="to", weight="w", time="when")
    assert named(edges) == [("a", "b"), ("b", "c")]
    assert (edges.times.tolist(), edges.weights.tolist()) == ([5, 7], [1, 2])
    edges = read("5,1,b,a\n7,2,c,b\n", src="4", dst="3", time="1")
    assert (named(edges), edges.times.tolist()) == ([("a", "b"), ("b", "c")], [5, 7])


def test_usual_names_are_found_wherever_they_stand(read):
    assert named(read("id,target,source\n1,b,a\n2,c,b\n")) == [("a", "b"), ("b", "c")]


def test_dates_become_seconds(read):
    edges = read("a,b,1970-01-02\nb,c,1970-01-01T00:00:10\n", time="3")
    assert edges.times.tolist() == [86400, 10]


def test_edges_of_weight_zero_are_none(read):
    edges = read("a,b,0\nb,c,2\n", weight="3")
    assert (named(edges), edges.notes) == ([("b", "c")], ["1 edges of weight zero dropped"])


@given(st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 10**6)), min_size=1, max_size=50))
def test_numbers_come_back(tmp_path_factory, pairs):
    path = tmp_path_factory.mktemp("edges") / "edges.txt"
    path.write_text("".join(f"{u} {v}\n" for u, v in pairs))
    assert named(read_text(path)) == [(str(u), str(v)) for u, v in pairs]


def test_gzip_and_standard_input_are_the_same(read, monkeypatch):
    packed = gzip.compress(b"a,b\nb,c\n")
    assert named(read(packed, "edges.csv.gz")) == [("a", "b"), ("b", "c")]
    assert read(packed, "edges.csv.gz").name == "edges"
    for raw in (packed, b"a,b\nb,c\n"):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(raw)))
        assert named(read_text(None)) == [("a", "b"), ("b", "c")]


def test_parquet_keeps_whole_numbers_whole(tmp_path):
    table = pd.DataFrame({"day": [3, 4], "source": [1, 10**12], "target": ["x", "y"]})
    table.to_parquet(tmp_path / "edges.parquet")
    edges = read_parquet(tmp_path / "edges.parquet", Columns(time="day"))
    assert named(edges) == [("1", "x"), ("1000000000000", "y")]
    assert edges.times is not None
    assert edges.times.tolist() == [3, 4]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is empty"),
        ("# only a comment\n", "is empty"),
        ("a\nb\n", "no list of edges"),
        ("source,target\n", "holds no edge"),
        ("a,b\nc,d,e\n", "line 2"),
        ("a,b\n,c\n", "edge 2 lacks an id"),
        ("a,b\nc\n", "edge 2 lacks an id"),
        ('"a,b\nb,c\n', "no table of edges"),
        (b"\x00\x01\x02" * 30, "no text"),
        (b"a,b\nb,\xff\xfe\n", "no text in UTF-8"),
        ("a\n", "'a' is one field, an edge has two"),
        ("a|b\nb|c\n", "is one field, an edge has two"),
        (gzip.compress(b"a,b\n" * 1000, mtime=0)[:-20], "not a whole gzip"),
    ],
)
def test_what_is_no_table_of_edges_is_refused(read, text, said):
    with pytest.raises(InputError, match=said):
        read(text)


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"weight": "3"}, "edge 2 has the weight -1"),
        ({"weight": "4"}, "edge 1 has no weight: 'x'"),
        ({"time": "4"}, "edge 1 has no time: 'x'"),
        ({"time": "5"}, "edge 2 has no time: ''"),
    ],
)
def test_a_wrong_weight_or_time_is_named(read, columns, said):
    with pytest.raises(InputError, match=said):
        read("a,b,1,x,1\nb,c,-1,y,\n", **columns)


@pytest.mark.parametrize("columns", [{"src": "nope"}, {"time": "9"}, {"src": "0"}, {"src": "2"}])
def test_a_column_that_is_not_there_or_is_both_ends_is_refused(read, columns):
    with pytest.raises(UsageError):
        read("a,b\nb,c\n", **columns)


def test_an_absent_file_and_a_torn_table_are_named(tmp_path):
    with pytest.raises(InputError, match=r"gone\.csv cannot be read"):
        read_text(tmp_path / "gone.csv")
    (tmp_path / "torn.parquet").write_bytes(b"PAR1 and no more")
    with pytest.raises(InputError, match=r"torn\.parquet is not a whole Parquet file"):
        read_parquet(tmp_path / "torn.parquet")
    pd.DataFrame({"source": ["a", None], "target": ["b", "c"]}).to_parquet(tmp_path / "hole.parquet")
    with pytest.raises(InputError, match="edge 2 lacks an id"):
        read_parquet(tmp_path / "hole.parquet")
