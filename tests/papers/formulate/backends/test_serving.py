"""The command against a real server: transformers' own, with `tiny` behind it, which answers but knows no modelling."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from icml25cli.core.models import resolve

pytest.importorskip("openai")
pytest.importorskip("fastapi", reason="the extra serving is not installed")
pytest.importorskip("uvicorn", reason="the extra serving is not installed")


@pytest.fixture
def real_server(tmp_path, environment) -> Iterator[tuple[str, Path]]:
    """Its address and the model in it; the model is given the template for conversations that `tiny` lacks."""
    model = tmp_path / "tiny-chat"
    shutil.copytree(resolve("tiny").path, model)
    (model / "chat_template.jinja").write_text("{% for message in messages %}{{ message.content }}\n{% endfor %}")
    (model / "generation_config.json").write_text(json.dumps({"do_sample": True, "eos_token_id": 0, "pad_token_id": 0}))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    program = Path(sys.executable).with_name("transformers")
    server = subprocess.Popen(
        [program, "serve", model, "--host", "127.0.0.1", "--port", str(port), "--device", "cpu"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=environment,
    )
    watchdog = threading.Timer(240, server.kill)
    watchdog.start()
    assert server.stdout is not None
    try:
        said = []
        for line in server.stdout:
            said.append(line)
            if "running on" in line:
                break
        else:
            pytest.fail(f"the server did not start: {''.join(said)[-2000:]}")
        reader = threading.Thread(target=server.stdout.read, daemon=True)  # a full pipe would stop it
        reader.start()
        yield f"http://127.0.0.1:{port}/v1", model
    finally:
        watchdog.cancel()
        server.kill()
        server.wait()


# Takes what two starts of torch take: a server's and the command's.
def test_a_real_server_is_asked_recorded_and_replayed(icml25, real_server, tmp_path):
    url, model = real_server
    options = ("--candidates", 2, "--max-tokens", 24, "--json")
    asked = icml25(
        *("formulate", "--backend", "openai", "--base-url", url, "--model", model, "--record", "tiny.jsonl", *options)
    )
    assert asked.code == 1, asked.err
    assert asked.json["answer"]["status"] == "abstained"
    assert "of 4 answers 4 could not be read" in asked.json["answer"]["reason"]
    assert asked.json["metrics"]["requests"] == 4  # it answers one by one, whatever n says
    assert 0 < asked.json["metrics"]["answer_tokens"] <= 4 * 24
    assert any("without n" in note for note in asked.json["notes"])
    lines = [json.loads(line) for line in (tmp_path / "tiny.jsonl").read_text().splitlines()]
    texts = [text for line in lines[1:] for text in line["answers"]]
    assert len(set(texts)) == 4  # drawn, each with a seed of its own
    again = icml25("formulate", "--backend", "replay", "--cassette", "tiny.jsonl", *options)
    assert again.code == 1
    assert again.json["answer"] == asked.json["answer"]
    assert again.json["metrics"]["requests"] == 0
