"""A service that calls the toolbox from Python does not grow."""

import gc
from pathlib import Path

import numpy as np
import psutil
import pytest

from icml25cli.main import main


def anonymous() -> float:
    """Memory of this process that is no file's, in MiB."""
    gc.collect()
    fields = dict(line.split(":") for line in Path(f"/proc/{psutil.Process().pid}/status").read_text().splitlines())
    return int(fields["RssAnon"].split()[0]) / 1024


JOBS = {
    "quantize": "quantize encode {rows.npy} -o {out}.nq --force",
    "formulate": "formulate explain {model.json} --json",
    "linkpred": "linkpred heuristics {edges.csv} --runs 1 --json",
    "sae": "sae encode {sae} {rows.npy} -o {out}.npz --force --threads 1",
    "prune": "prune plan {model} --method magnitude-sp -o {out}.json --force --fresh --threads 1 --calib-tokens 256",
    "evaluate": "evaluate {model} --text {text.txt} --tokens 64 --window 32 --threads 1",
    "tabpfn-bag": "tabpfn-bag predict {beta.icml25tab} {people.csv} -o {out}.csv --force --threads 1",
    "align": "align run {rows.npy} {encoder-1.npy} --null 20 --no-ci --threads 1 --json",
    "select-data": "select-data score {pool.jsonl} --val {ask.jsonl} --method loss --model {model} -o {out}.csv "
    "--force --fresh --max-length 64 --threads 1",
}


@pytest.mark.parametrize(
    "words",
    [pytest.param(words, id=name, marks=pytest.mark.cell(name, "fifty times")) for name, words in JOBS.items()],
)
def test_fifty_repetitions_do_not_grow(words, sound, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ICML25_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("ICML25_THREADS", "1")
    line = [
        str(sound / w[1:-1]) if w.startswith("{") and w[1:-1] in {p.name for p in sound.iterdir()} else w
        for w in words.split()
    ]
    line = [word.replace("{out}", str(tmp_path / "out")) for word in line]
    used = []
    for _ in range(50):
        assert main(line) == 0
        capsys.readouterr()
        used.append(anonymous())
    # Caches fill in the first runs; a leak of 1 MiB a run would make 40 of the last forty.
    assert np.mean(used[-5:]) - np.mean(used[10:15]) < 8, used
