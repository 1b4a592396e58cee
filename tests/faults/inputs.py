"""Sound inputs of every job, made once: by hand, or by the program itself where only it writes them."""

import json
from collections.abc import Callable
from pathlib import Path

import networkx as nx
import numpy as np
from safetensors.numpy import save_file

from tests.make_models import make_model

PROBLEM = (
    "A school hires buses and vans for a trip. A bus seats fifty pupils and costs $400, a van seats ten pupils "
    "and costs $100. At least two hundred pupils travel. At most three buses can be hired. How many buses and "
    "vans should be hired to minimize the cost?"
)
PROSE = "".join(f"Line {i} of a text says that {i} and {i + 1} make {2 * i + 1}, which is odd.\n" for i in range(400))


def make_inputs(folder: Path, program: Callable[..., None]) -> None:
    """Fill ``folder``; ``program`` runs the toolbox and fails if it does."""
    by_hand(folder)
    at = {path.name: path for path in folder.iterdir()}
    one = ("--threads", 1)
    program("quantize", "encode", at["rows.npy"], "-o", folder / "rows.nq")
    short = ("--calib-tokens", 256, "--eval-tokens", 256, "--window", 64, "--baseline", "none")
    program("quantize", "run", at["model"], *short, *one, "--q", 14, "--k", 1, "-o", folder / "run")
    (folder / "run" / "packed").rename(folder / "packed")
    program(
        *("prune", "plan", at["model"], "--method", "magnitude-sp", "-o", folder / "plan.json"),
        *("--calib-tokens", 256, "--window", 64, *one),
    )
    program("formulate", "run", at["problem.txt"], "-o", folder / "solved")
    for form in ("json", "lp", "mps"):
        (folder / "solved" / f"model.{form}").rename(folder / f"model.{form}")
    fit = ("--runs", 1, "--epochs", 5, "--method", "base", "--baseline", "none", "--no-placebo", *one)
    program("linkpred", "run", at["edges.csv"], *fit, "-o", folder / "club")
    program("linkpred", "split", at["edges.csv"], "-o", folder / "parts")
    sizes = ("--expansion", 2, "--levels", "2,4,8,16,32", "--epochs", 1, "--batch", 32, "--ks", "2,4")
    program("sae", "train", at["rows.npy"], *sizes, "--baseline", "none", *one, "-o", folder / "sae")
    program("sae", "encode", folder / "sae", at["rows.npy"], "-o", folder / "codes.npz", *one)
    quick = ("--k", 2, "--epochs", 2, "--patience", 1, "--context-size", 32)
    program("tabpfn-bag", "fit", at["people.csv"], "--target", "kind", *quick, *one, "-o", folder / "beta.icml25tab")


def by_hand(folder: Path) -> None:
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((120, 16)).astype(np.float32)
    np.save(folder / "rows.npy", rows)
    save_file({"rows": rows}, folder / "rows.safetensors")
    np.save(folder / "atoms.npy", rng.standard_normal((8, 16)).astype(np.float32))
    (folder / "words.txt").write_text("".join(f"word {i}\n" for i in range(8)))
    (folder / "labels.csv").write_text("label\n" + "".join(f"{'yes' if row[0] > 0 else 'no'}\n" for row in rows))
    (folder / "lines.txt").write_text("one text\nanother text\n")
    (folder / "text.txt").write_text(PROSE)
    (folder / "rows.jsonl").write_text("".join(json.dumps({"text": line}) + "\n" for line in PROSE.splitlines()[:20]))
    (folder / "pool.jsonl").write_text(
        "".join(json.dumps({"prompt": f"Say {i}.", "completion": f"It is {i}."}) + "\n" for i in range(12))
    )
    (folder / "ask.jsonl").write_text("".join(json.dumps({"prompt": f"Ask {i}?"}) + "\n" for i in range(3)))
    questions = [{"question": "Two and two?\n", "choices": ["five", "four"], "answer": "B"}] * 2
    (folder / "choices.jsonl").write_text("".join(json.dumps(row) + "\n" for row in questions))
    (folder / "problem.txt").write_text(PROBLEM)
    (folder / "problems.jsonl").write_text(json.dumps({"en_question": PROBLEM, "en_answer": 1700}) + "\n")

    people = [f"{a:.3f},{'north' if b > 0 else 'south'},{'x' if a + b > 0 else 'y'}\n" for a, b in rows[:, :2]]
    (folder / "people.csv").write_text("size,place,kind\n" + "".join(people))
    for i in range(3):
        np.save(folder / f"encoder-{i}.npy", rows + i * rng.standard_normal(rows.shape).astype(np.float32))
    home = folder.with_suffix("")  # where the folder will be when it is finished
    listed = [f"{home / f'encoder-{i}.npy'},{0.9 - i / 10}\n" for i in range(3)]
    (folder / "models.csv").write_text("path,performance\n" + "".join(listed))

    club = nx.karate_club_graph()
    edges = np.array(club.edges)
    (folder / "edges.csv").write_text("source,target\n" + "".join(f"{u},{v}\n" for u, v in edges))
    np.savez(folder / "edges.npz", edge_index=edges.T)
    np.save(folder / "features.npy", rng.standard_normal((len(club), 3)).astype(np.float32))
    (folder / "pairs.csv").write_text("a,b\n0,33\n5,20\n")
    many = rng.standard_normal((20_000, 16)).astype(np.float32)  # from so many rows on, align keeps what it did
    np.save(folder / "many.npy", many)
    np.save(folder / "more.npy", many + rng.standard_normal(many.shape).astype(np.float32))
    make_model(folder / "model")
