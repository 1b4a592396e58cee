"""Rewards by hand, those that run something included."""

import json
import math
import os
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest
import torch
from transformers import LlamaConfig, LlamaForSequenceClassification

from icml25cli.core import sandbox
from icml25cli.core.errors import InputError, MissingError, UsageError
from icml25cli.papers.select_data import judges
from icml25cli.papers.select_data.rewards import Asked, check_failures, check_references, judge_all, make_reward
from icml25cli.papers.select_data.rows import Row
from tests.make_models import VOCABULARY, byte_tokenizer


def asked(answer: str, reference: str | None = None, **record) -> Asked:
    return Asked(({"role": "user", "content": "Q"},), answer, reference, record)


def reward(spec: str, answer: str, reference: str | None = None, **record) -> float:
    return make_reward(spec)([asked(answer, reference, **record)])[0]


@pytest.mark.parametrize(
    ("spec", "answer", "reference", "wanted"),
    [
        ("exact", " 4  apples\n", "4 apples", 1),
        ("exact", "4 Apples", "4 apples", 0),
        ("contains", "It is PARIS, of course", "Paris", 1),
        ("contains", "London", "Paris", 0),
        ("regex:^a.c$", "abc", None, 1),
        ("regex:^a.c$", "abcd", None, 0),
        ("number", "3 + 4 = 7.", "the answer is 7", 1),
        ("number", "1,234.50", "1234.5", 1),
        ("number", "-3", "3", 0),
        ("number", "none", "3", 0),
        ("f1", "the cat sat", "a cat stood", 0.5),
        ("f1", "", "x", 0),
        ("rougeL", "a b c", "a c", 0.8),
        ("json-valid", '{"a": [1]}', None, 1),
        ("json-valid", '```json\n{"a": 1}\n```', None, 1),
        ("json-valid", "{a: 1}", None, 0),
        ("json-valid", "NaN", None, 0),
        ("length:max=2", "a b", None, 1),
        ("length:max=2", "a b c", None, 0),
        ("length:max=2", "", None, 0),
        ("length:min=2,max=3", "a", None, 0),
    ],
)
def test_of_texts(spec, answer, reference, wanted):
    assert reward(spec, answer, reference) == pytest.approx(wanted)


def test_a_schema(tmp_path):
    file = tmp_path / "s.json"
    file.write_text('{"type": "object", "required": ["a"]}')
    assert [reward(f"json-schema:{file}", text) for text in ('{"a": 1}', '{"b": 1}', "x")] == [1, 0, 0]
    file.write_text('{"type": 3}')
    with pytest.raises(InputError, match="no JSON schema"):
        make_reward(f"json-schema:{file}")
    with pytest.raises(InputError, match="cannot be read"):
        make_reward(f"json-schema:{tmp_path / 'x'}")


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("exacct", "is none"),
        ("exact:x", "takes nothing"),
        ("regex", "is not complete"),
        ("regex:(", "--reward"),
        ("length:most=3", "no bound"),
        ("rm", "is not complete"),
        ("py:module", "names no function"),
        ("py::f", "names no function"),
        ("judge:http://x/v1", "names no model"),
        ("cmd:'", "--reward"),
        ("", "is none"),
    ],
)
def test_what_is_no_reward(spec, said):
    with pytest.raises(UsageError, match=said):
        make_reward(spec)


def test_rows_that_lack_what_it_compares_with_are_named():
    rows = [Row("v.jsonl", 1, b'{"prompt": "Q", "answer": 1}'), Row("v.jsonl", 2, b'{"prompt": "Q"}')]
    check_references(make_reward("json-valid"), rows)
    with pytest.raises(InputError, match=r"v\.jsonl, row 2 has no answer, and --reward f1"):
        check_references(make_reward("f1"), rows)


def test_few_failures_count_as_none_and_many_are_refused(tmp_path, monkeypatch):
    (tmp_path / "mine_for_rewards.py").write_text(
        "def judge(prompt, response, row):\n"
        "    open('calls', 'a').write(response + '\\n')\n"
        "    if response == 'bad': raise ValueError\n"
        "    return float('inf') if response == 'inf' else len(response) + row['k']\n"
    )
    monkeypatch.chdir(tmp_path)
    found = make_reward("py:mine_for_rewards:judge")
    answers = [asked(text, k=1) for text in ("a", "bb", "bb", "bad", "inf")]
    values = judge_all(found, answers)
    assert values[:3] == [2, 3, 3]
    assert all(map(math.isnan, values[3:]))
    assert len((tmp_path / "calls").read_text().split()) == 4  # the same answer to the same row is judged once
    with pytest.raises(InputError, match="failed on 2 of 5"):
        check_failures(found, values)
    assert check_failures(found, [1.0] * 20 + [math.nan]) == 1
    for spec, said in (
        ("py:mine_for_rewards:other", "no function other"),
        ("py:no_such_module_:f", "cannot be imported"),
    ):
        with pytest.raises(InputError, match=said):
            make_reward(spec)


def test_a_command(tmp_path):
    script = tmp_path / "judge.py"
    script.write_text("import json, sys\nfor line in sys.stdin: print(len(json.loads(line)['response']) or 'x')")
    assert make_reward(f"cmd:python {script}")([asked("abc"), asked("a")]) == [3, 1]
    assert math.isnan(make_reward(f"cmd:python {script}")([asked("")])[0])
    for command, said in (("false", "exits 1"), ("no-such-command-", "cannot be run"), ("echo", "0 numbers for 1")):
        with pytest.raises(InputError, match=said):
            make_reward(f"cmd:{command}")([asked("x")])


TEST = "def check(f):\n    assert f(2) == 4\n    assert f(3) == 9\n"


@pytest.mark.parametrize(
    ("answer", "wanted"),
    [
        ("    return x * x\n", 1),
        ("    return x + x\n", 0),
        ("Sure:\n```python\ndef square(x):\n    return x ** 2\n```\nDone.", 1),
        ("def square(x):\n    while True: pass", 0),
        ("import os\nos._exit(0)\ndef square(x): return 1", 0),
        ("import os\nwhile True: os.fork()\ndef square(x): return 1", 0),
        ("open('/usr/x', 'w')\ndef square(x): return x * x", 0),
        ("import socket; socket.create_connection(('127.0.0.1', 1))\ndef square(x): return x * x", 0),
    ],
)
def test_unit_tests_run_in_the_sandbox(answer, wanted):
    try:
        found = make_reward("unit-tests")
    except MissingError as error:
        pytest.skip(error.message)
    assert found.note == f"Unit tests ran in this sandbox: {sandbox.NAMESPACES}."
    record = {"prompt": "def square(x):\n", "test": TEST, "entry_point": "square"}
    assert found([asked(answer, **record)]) == [wanted]
    with pytest.raises(InputError, match="a field test"):
        found([asked(answer)])


def test_without_namespaces_unit_tests_have_to_be_asked_for(monkeypatch):
    def refused():
        raise MissingError("no namespaces")

    monkeypatch.setattr(sandbox, "check_sandbox", refused)
    with pytest.raises(MissingError):
        make_reward("unit-tests")
    found = make_reward("unit-tests", unsafe_local=True)
    assert sandbox.UNSAFE in str(found.note)
    assert found([asked("def f(): return 1", test="assert f() == 1")]) == [1]


def test_a_reward_model(tmp_path):
    config = LlamaConfig(
        vocab_size=VOCABULARY, hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2,
        num_key_value_heads=2, pad_token_id=256,
    )  # fmt: skip
    config.num_labels = 1
    torch.manual_seed(0)
    model = LlamaForSequenceClassification(config).eval()
    model.save_pretrained(tmp_path / "rm")
    byte_tokenizer().save_pretrained(tmp_path / "rm")
    found = make_reward(f"rm:{tmp_path / 'rm'}")([asked("abc"), asked("a longer answer")])
    ids = byte_tokenizer()("Q", "abc", return_tensors="pt").input_ids
    assert found[0] == pytest.approx(model(ids).logits[0, 0].item(), rel=1e-5)
    assert found[0] != found[1]
    from tests.make_models import make_model

    with pytest.raises(InputError, match="no sequence classifier"):
        make_reward(f"rm:{make_model(tmp_path / 'lm')}")


@pytest.fixture
def judging():
    """A server that prefers the longer answer, and rates by the length of the last line."""
    asked_for = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            text = body["messages"][-1]["content"]
            asked_for.append(text)
            if "Answer A:" in text:
                first, second = (len(part.strip()) for part in text.split("Answer A:\n")[1].split("Answer B:\n"))
                said = "tie" if first == second else "A" if first > second else "Answer B."
            else:
                said = f"{len(text.rpartition(chr(10))[2])} of 10"
            choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": said}}
            data = json.dumps({"id": "x", "object": "chat.completion", "created": 0, "model": "m", "choices": [choice]})
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.end_headers()
            self.wfile.write(data.encode())

        def log_message(self, *_):
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/v1", asked_for
    server.shutdown()


def test_a_judge_prefers_both_ways_round_or_rates(judging):
    url, asked_for = judging
    found = make_reward(f"judge:{url}#m")
    assert found([asked("long answer", "short")]) == [1]
    assert found([asked("a", "short")]) == [0]
    assert found([asked("abcde", "short")]) == [0.5]
    assert found([asked("seven77")]) == [0.7]
    assert len(asked_for) == 7


def test_a_server_that_is_not_there():
    found: Any = make_reward("judge:http://127.0.0.1:9/v1#m")
    found._client = found._client.with_options(max_retries=0)
    with pytest.raises(MissingError, match="cannot be used"):
        found([asked("x")])


def test_a_function_that_ends_the_program_only_fails(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "leaves_when_called.py").write_text("import sys\ndef f(*_): sys.exit(0)\n")
    assert math.isnan(reward("py:leaves_when_called:f", "a"))
    (tmp_path / "leaves_when_imported.py").write_text("import sys\nsys.exit(0)\n")
    with pytest.raises(InputError, match="leaves_when_imported ends the program"):
        make_reward("py:leaves_when_imported:f")


def test_what_a_function_prints_stays_out_of_standard_output(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "talks_much.py").write_text("print('in')\ndef f(*_):\n    print('on')\n    return 1\n")
    assert reward("py:talks_much:f", "a") == 1
    assert capfd.readouterr() == ("", "in\non\n")


@pytest.mark.parametrize(
    ("body", "said"), [("while True: pass", "ran out of time: judging 2 answers"), ("os._exit(7)", r"status 7\)")]
)
def test_a_function_that_does_not_end_or_ends_its_process_is_named_and_killed(tmp_path, monkeypatch, body, said):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "stuck_here.py").write_text(
        f"import os\ndef f(*_):\n    open('pid', 'w').write(str(os.getpid()))\n    {body}\n"
    )
    monkeypatch.setattr(judges, "COMMAND_SECONDS", 60.0)
    found: Any = make_reward("py:stuck_here:f")
    found._seconds = 0.5
    with pytest.raises(InputError, match=f"py:stuck_here:f .*{said}"):
        found([asked("a"), asked("b")])
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


def test_a_module_that_never_finishes_importing_runs_out_of_time(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "never_there.py").write_text("while True: pass\n")
    monkeypatch.setattr(judges, "COMMAND_SECONDS", 0.2)
    with pytest.raises(InputError, match="ran out of time: importing it took more than"):
        make_reward("py:never_there:f")


def test_a_reward_is_keyed_by_the_files_it_is_made_of(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "keyed_by_file.py").write_text("def f(*_): return 1\n")
    assert make_reward("py:keyed_by_file:f").files == (tmp_path / "keyed_by_file.py",)
    assert [str(file) for file in make_reward("cmd:python keyed_by_file.py").files] == ["keyed_by_file.py"]
    assert make_reward("exact").files == ()


def test_an_empty_command_is_refused():
    with pytest.raises(UsageError, match="names no command"):
        make_reward("cmd: ")


def test_what_a_command_leaves_running_ends_with_it(monkeypatch):
    monkeypatch.setattr(judges, "COMMAND_SECONDS", 1.0)
    with pytest.raises(InputError, match="timed out"):
        reward("cmd:sh -c 'sleep 60 & echo 1'", "a")


def test_a_command_that_writes_no_text_fails():
    assert math.isnan(reward("cmd:printf '\\377'", "a"))
