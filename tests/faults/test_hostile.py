"""Input made to hurt: archives, headers, pickles and expressions that want more than to be read."""

import io
import json
import struct
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.faults.damage import Hostile


def zip_of(entries: dict[str, bytes]) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in entries.items():
            archive.writestr(name, data)
    return made.getvalue()


def npy_of(array: np.ndarray) -> bytes:
    made = io.BytesIO()
    np.save(made, array, allow_pickle=True)
    return made.getvalue()


def lying_gguf() -> bytes:
    """Promises 2^40 tensors and as many keys."""
    return b"GGUF" + struct.pack("<IQQ", 3, 2**40, 2**40)


def endless_gguf_string() -> bytes:
    """A key whose name is 2^62 bytes long."""
    return b"GGUF" + struct.pack("<IQQQ", 3, 1, 1, 2**62) + b"general.architecture"


def bomb_npz() -> bytes:
    """A gigabyte of zeros in a megabyte, as an array."""
    header = npy_of(np.zeros((4, 4), np.float32))[:128].replace(b"(4, 4)", b"(16384, 16384)"[:14])
    return zip_of(
        {"indptr.npy": header + bytes(2**26), "data.npy": header, "indices.npy": header, "format.npy": header}
    )


def pickled_pt(folder: Path) -> bytes:
    torch.save({"rows": Hostile()}, folder / "hostile.pt")
    return (folder / "hostile.pt").read_bytes()


def formulation(right: object) -> bytes:
    return json.dumps(
        {
            "variables": [{"name": "x", "low": 0, "high": None, "kind": "continuous"}],
            "objective": {"sense": "max", "expression": {"x": right}},
            "constraints": [{"name": "c", "expression": {"x": 1}, "sense": "<=", "rhs": right}],
        }
    ).encode()


def laughing_xml() -> bytes:
    """Entities of entities: 10^9 letters, if they were put in."""
    entities = ['<!ENTITY a0 "' + "a" * 10 + '">']
    entities += [f'<!ENTITY a{i} "' + f"&a{i - 1};" * 10 + '">' for i in range(1, 9)]
    return f'<?xml version="1.0"?><!DOCTYPE g [{"".join(entities)}]><graphml><graph>&a8;</graph></graphml>'.encode()


CODE = "__import__('os').system('touch executed')"
HOSTILE = (
    ("evaluate {x} --tokens 64 --threads 1", "x.gguf", lying_gguf()),
    ("evaluate {x} --tokens 64 --threads 1", "long.gguf", endless_gguf_string()),
    ("quantize run {x} --threads 1", "x.gguf", lying_gguf()),
    ("prune plan {x} --threads 1", "x.gguf", lying_gguf()),
    ("prune apply {model} {x} -o out", "deep.json", b'{"a":' * 50_000),
    ("sae decode {sae} {x} -o out.npy", "bomb.npz", bomb_npz()),
    ("sae encode {sae} {x} -o out.npz", "hostile.pt", None),
    ("sae train {x}", "hostile.npz", zip_of({"rows.npy": npy_of(np.array([Hostile()], dtype=object))})),
    ("linkpred {x}", "hostile.pt", None),
    ("linkpred {x}", "hostile.npz", zip_of({"edge_index.npy": npy_of(np.array([Hostile()], dtype=object))})),
    ("linkpred heuristics {x}", "entity.graphml", laughing_xml()),
    ("linkpred heuristics {x}", "code.gml", b'graph [ node [ id __import__("os").system("touch executed") ] ]'),
    ("formulate explain {x}", "power.json", formulation("9**9**9**9")),
    ("formulate explain {x}", "code.json", formulation(CODE)),
    ("formulate explain {x}", "power.lp", b"maximize\n obj: 2^9^9^9^9 x\nsubject to\n c: x <= 1\nend\n"),
    ("formulate explain {x}", "many.lp", b"maximize\n obj: x\nsubject to\n" + b" c: x + (" * 100_000),
    ("formulate check {x} {model.json}", "code.json", formulation("exec('x')")),
    ("quantize encode {rows.npy} -o out.nq --betas @{x}", "code.json", json.dumps([CODE]).encode()),
    ("assets add smollm2-135m {x}", "slip.whl", zip_of({"../../executed": b"x", "/tmp/executed": b"x"})),
)  # fmt: skip


@pytest.mark.parametrize(
    ("words", "name", "data"),
    [
        pytest.param(
            *case, id=f"{case[0].split(' {')[0]} {case[1]}", marks=pytest.mark.cell(case[0].split()[0], "hostile")
        )
        for case in HOSTILE
    ],
)
def test_hostile_input_is_refused_and_nothing_runs(words, name, data, sound, trial, tmp_path):
    place = tmp_path / "input"
    place.mkdir()
    (place / name).write_bytes(pickled_pt(tmp_path) if data is None else data)
    line = [word.format_map({"x": place / name}) if word in ("{x}", "@{x}") else word for word in words.split()]
    line = [str(sound / word[1:-1]) if word.startswith("{") else word for word in line]
    trial(line).check_graceful({3}, names=name)


BOMBS = {
    "powers": "maximize 9**9**9**9 * x subject to x <= 10^10^10^10",
    "code": f"A farmer has {CODE} acres and $(touch executed) `touch executed` dollars to spend on wheat.",
    "braces": "{" * 20_000 + "}" * 20_000,
    "digits": "A shop has " + "9" * 20_000 + " apples. How many should be sold to maximize profit?",
    "markup": "[bold]A shop[/bold] [link=file:///etc/passwd]has[/link] \x1b]0;title\x07 \x1b[2J ten apples.",
}


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(text, id=name, marks=pytest.mark.cell("formulate", "expression bomb"))
        for name, text in BOMBS.items()
    ],
)
def test_a_problem_that_is_no_problem_is_abstained_from(text, trial, tmp_path):
    (tmp_path / "problem.txt").write_text(text)
    done = trial(["formulate", "run", str(tmp_path / "problem.txt")])
    done.check_graceful({1, 3})
    assert "\x1b" not in done.done.out + done.done.err
