"""Rows in every form, their bytes, and what is refused or counted."""

import gzip
import json
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from icml25cli.core.errors import InputError
from icml25cli.papers.select_data.prepare import read_answers, read_data
from icml25cli.papers.select_data.rows import Row, make_pool, read_rows

FORMS = [
    {"messages": [{"role": "user", "content": "Q"}, {"role": "assistant", "content": "A"}]},
    {"messages": [{"role": "user", "content": [{"type": "text", "text": "Q"}]}, {"role": "assistant", "content": "A"}]},
    {"prompt": "Q", "completion": "A"},
    {"question": "Q", "answer": "A"},
    {"instruction": "Q", "input": "", "output": "A"},
    {"conversations": [{"from": "human", "value": "Q"}, {"from": "gpt", "value": "A"}]},
    {"prompt": [{"role": "user", "content": "Q"}], "completion": [{"role": "assistant", "content": "A"}]},
]


def row(record: dict) -> Row:
    return Row("x.jsonl", 1, json.dumps(record).encode())


@pytest.mark.parametrize("record", FORMS)
def test_forms(record):
    talk = row(record).conversation
    assert talk.prompt == ({"role": "user", "content": "Q"},)
    assert talk.answer == "A"


def test_inputs_systems_numbers_and_rows_without_answer():
    assert row({"instruction": "Add", "input": "1 2", "output": 3}).conversation.prompt[0]["content"] == "Add\n\n1 2"
    assert row({"instruction": "Add", "output": 3}).conversation.answer == "3"
    assert row({"system": "S", "prompt": "Q"}).conversation.prompt[0] == {"role": "system", "content": "S"}
    assert row({"prompt": "Q"}).conversation.answer is None
    assert row({"messages": [{"role": "user", "content": "Q"}], "answer": "A"}).conversation.answer == "A"


@pytest.mark.parametrize(
    ("record", "said"),
    [
        ({"text": "x"}, "no known form, its fields are text"),
        ({"prompt": 3}, "prompt is no text"),
        ({"prompt": "Q", "completion": ["x"]}, "completion is no text"),
        ({"messages": []}, "no message"),
        ({"messages": [{"role": "wizard", "content": "x"}]}, "message 1 is of no known role"),
        ({"messages": ["x"]}, "message 1 is of no known role"),
        ({"messages": [{"role": "user"}]}, "message 1 is no text"),
    ],
)
def test_forms_that_are_none(record, said):
    with pytest.raises(InputError, match=said) as error:
        _ = row(record).conversation
    assert "x.jsonl, row 1" in error.value.message


def test_bytes_are_kept_whatever_the_file(tmp_path):
    lines = [b'{"prompt":"\xc3\xa9",  "completion":"\\u00e9"}', b'{ "completion": "b", "prompt": "a" }']
    (tmp_path / "a.jsonl").write_bytes(b"\xef\xbb\xbf" + lines[0] + b"\r\n\n" + lines[1])
    (tmp_path / "b.jsonl.gz").write_bytes(gzip.compress(b"\n".join(lines)))
    table = pa.Table.from_pylist([json.loads(line) for line in lines])
    parquet.write_table(table, tmp_path / "c.parquet")
    (tmp_path / "d").mkdir()
    shard = str(tmp_path / "d" / "data-00000-of-00001.arrow")
    with pa.OSFile(shard, "wb") as file, pa.ipc.new_stream(file, table.schema) as stream:
        stream.write_table(table)
    for name in ("a.jsonl", "b.jsonl.gz"):
        assert [r.raw for r in read_rows([tmp_path / name])] == lines
    for name in ("c.parquet", "d"):
        assert [r.conversation.answer for r in read_rows([tmp_path / name])] == ["é", "b"]
    assert {r.source for r in read_rows([tmp_path / "a.jsonl", tmp_path / "d"])} == {"a.jsonl", "d"}


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.jsonl", b"", "has no row"),
        ("a.jsonl", b'{"prompt": "x"}\n{', "line 2 is not JSON"),
        ("a.jsonl", b"[1]", "line 1 is no JSON object"),
        ("a.jsonl", b'{"prompt": "\xff"}', "line 1 is not UTF-8"),
        ("a.jsonl.gz", gzip.compress(b'{"prompt": "x"}' * 99, mtime=0)[:-9], "cut short"),
        ("a.jsonl.gz", b"plain", "no gzip"),
        ("a.parquet", b"plain", "as Parquet"),
    ],
)
def test_files_that_cannot_be_read(tmp_path, name, content, said):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=said):
        read_rows([tmp_path / name])


def test_a_folder_and_a_file_that_are_not_there(tmp_path):
    with pytest.raises(InputError, match=r"data-\*\.arrow"):
        read_rows([tmp_path])
    with pytest.raises(InputError, match="cannot be read"):
        read_rows([tmp_path / "x.jsonl"])


def test_oddities_are_counted():
    rows = [row({"prompt": f"q{i}", "completion": "a"}) for i in (0, 0, 1)]
    rows += [row({"prompt": "q", "completion": " "}), row({"prompt": "q"})]
    validation = [row({"prompt": " Q1  "})]
    pool = make_pool(rows, validation)
    assert (len(pool.rows), pool.unanswered, pool.repeated, pool.leaked, pool.total) == (3, 2, 1, 1, 5)
    assert len(make_pool(rows, validation, drop_leak=True).rows) == 2
    with pytest.raises(InputError, match="no row of the pool"):
        make_pool(rows[3:], validation)


def lines(path: Path, records: list) -> Path:
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_data_of_a_job(tmp_path):
    pool = lines(tmp_path / "p.jsonl", [{"prompt": f"p{i}", "completion": "a"} for i in range(3)])
    val = lines(tmp_path / "v.jsonl", [{"prompt": f"v{i}", "kind": "ab"[i % 2]} for i in range(4)])
    data = read_data([pool], val, hold_out=True)
    assert [r.number for r in data.validation] == [1, 3]
    assert [r.number for r in data.test] == [2, 4]
    assert read_data([pool], val, subtask_field="kind").subtasks.of_row.tolist() == [0, 1, 0, 1]
    with pytest.raises(InputError, match="no field colour"):
        read_data([pool], val, subtask_field="colour")
    with pytest.warns(UserWarning, match="4 test rows ask what a validation row asks"):
        read_data([pool], val, test=val)
    with pytest.raises(InputError, match="asks nothing"):
        read_data([pool], lines(tmp_path / "e.jsonl", [{"prompt": " "}]))


def test_answers_of_another_model(tmp_path):
    rows = [row({"prompt": "q"})] * 2
    given = lines(tmp_path / "s.jsonl", [{"row": 2, "responses": ["x", "y"]}, {"row": 1, "response": "z"}])
    assert read_answers(given, rows) == [["z"], ["x", "y"]]
    for wrong, said in (
        ({"row": 3, "response": "z"}, "no validation row from 1 to 2"),
        ({"row": True, "response": "z"}, "no validation row"),
        ({"row": 1}, "holds no answers"),
        ({"row": 1, "responses": [1]}, "holds no answers"),
        ({"row": 1, "response": "z"}, "no answer to validation row 2"),
    ):
        with pytest.raises(InputError, match=said):
            read_answers(lines(tmp_path / "w.jsonl", [wrong]), rows)
