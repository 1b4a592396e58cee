"""Formulations compiled and solved in this process, against writing a script of each and running it, in the same run.

    python tests/benchmarks/bench_formulate.py

The script is what searches over generated code do for every candidate: a file that builds the model with PuLP, a new
Python, its output read. Then canonical forms against sympy's `simplify(f - g) == 0`: from the text of the sums, and of
models that are compiled already, as a search has compiled them to see whether they build. Then z3 against linear
programs. Targets on a quiet core: 50 times the script, 100 times sympy where models are compiled.
"""

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from bench_codec import cpu_model  # first: it sets one thread before torch starts its pool

# isort: split
import os

import numpy as np

from icml25cli.papers.formulate import implication, smt
from icml25cli.papers.formulate.canonical import canonical
from icml25cli.papers.formulate.compiler import compile_model
from icml25cli.papers.formulate.formulation import Formulation, read_formulation
from icml25cli.papers.formulate.linear import LinearModel
from icml25cli.papers.formulate.solve import solve
from icml25cli.papers.formulate.writing import portable, script_text

REPEATS = 5


def problem(columns: int, rows: int, seed: int) -> Formulation:
    """A production plan of whole variables, with its data as parameters."""
    rng = np.random.default_rng(seed)
    return read_formulation(
        {
            "parameters": {
                "gain": rng.integers(5, 60, columns).tolist(),
                "use": rng.integers(1, 20, (rows, columns)).tolist(),
                "stock": rng.integers(50, 400, rows).tolist(),
            },
            "decision_variables": {"x": {"type": "INTEGER", "iteration_space": "range(len(gain))"}},
            "objective": {"max": "sum(g * x[i] for i, g in enumerate(gain))"},
            "equality_constraints": {},
            "inequality_constraints": {
                "stock": "sum(use[k][i] * x[i] for i in range(len(gain))) <= stock[k] for k in range(len(stock))"
            },
        },
        "the benchmark",
    )


def best(task: Callable[[], object], repeats: int = REPEATS) -> float:
    """Seconds of the quickest run."""
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        task()
        seconds.append(time.perf_counter() - start)
    return min(seconds)


def line(name: str, ours: float, theirs: float, peer: str) -> None:
    print(f"  {name:24} {ours * 1e3:9.2f} ms   {peer} {theirs * 1e3:9.1f} ms   {theirs / ours:7.0f} times")


def by_script(formulation: Formulation) -> float:
    """The objective, as a new Python prints it."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "candidate.py")
        path.write_text(script_text(portable(compile_model(formulation))))
        done = subprocess.run([sys.executable, path], capture_output=True, text=True, check=True)
    return float(dict(row.split(": ") for row in done.stdout.splitlines() if ": " in row)["objective"])


def solving() -> None:
    print("build and solve")
    for columns, rows in ((2, 3), (5, 5), (20, 10)):
        formulation = problem(columns, rows, 0)
        assert solve(compile_model(formulation)).objective == by_script(formulation)
        ours = best(lambda f=formulation: solve(compile_model(f)))
        line(f"{columns} variables, {rows} rows", ours, best(lambda f=formulation: by_script(f), 3), "script")


def in_other_words(columns: int, rows: int, seed: int) -> tuple[list[str], list[str]]:
    """Sums as text, and the same sums turned around, scaled inside brackets and split."""
    rng = np.random.default_rng(seed)
    one, other = [], []
    for _ in range(rows):
        a = rng.integers(1, 40, columns)
        part = [int(rng.integers(1, value + 1)) for value in a]
        one.append(" + ".join(f"{value}*x{j}" for j, value in enumerate(a)))
        split = " + ".join(
            f"{value - p}*x{j} + {p}*(x{j} + 2)" for j, (value, p) in reversed([*enumerate(zip(a, part, strict=True))])
        )
        other.append(f"{split} - {2 * sum(part)}")
    return one, other


def comparing() -> None:
    import sympy

    print("read two systems of sums and tell whether they are the same")
    for columns, rows in ((3, 5), (20, 10)):
        texts = in_other_words(columns, rows, 1)
        variables = {f"x{j}": {"type": "CONTINUOUS"} for j in range(columns)}

        def form(sums: list[str], declared: dict = variables) -> LinearModel:
            document = {
                "parameters": {},
                "decision_variables": declared,
                "objective": {"min": "0"},
                "equality_constraints": {f"r{i}": f"{text} == 1" for i, text in enumerate(sums)},
                "inequality_constraints": {},
            }
            return compile_model(read_formulation(document, "the benchmark"))

        def by_sympy(pairs: list[tuple[str, str]]) -> bool:
            sympy.core.cache.clear_cache()  # candidates are new to it
            return all(sympy.sympify(f"({one}) - ({other})").simplify() == 0 for one, other in pairs)

        models = [form(each) for each in texts]
        pairs = list(zip(*texts, strict=True))
        assert canonical(models[0]) == canonical(models[1])
        assert by_sympy(pairs)
        theirs = best(lambda p=pairs, f=by_sympy: f(p), 3)
        ours = best(lambda t=texts, f=form: canonical(f(t[0])).key == canonical(f(t[1])).key)
        line(f"{columns} variables, {rows} rows", ours, theirs, "sympy ")
        ours = best(lambda m=models: canonical(m[0]).key == canonical(m[1]).key)
        line("    compiled already", ours, theirs, "sympy ")

    print("z3, and linear programs: is every point of one in the other?")
    for columns, rows in ((3, 5), (20, 20), (50, 40)):
        model = compile_model(problem(columns, rows, 2))
        real = replace(model, columns=tuple(replace(column, integer=False) for column in model.columns))
        looser = replace(real, rows=tuple(replace(row, upper=(row.upper or 0) + 1) for row in real.rows))
        forms = canonical(real), canonical(looser)
        exact = best(lambda f=forms: smt.find_point(*f, timeout=60))
        rounded = best(lambda f=forms: implication.find_point(*f, timeout=60))
        line(f"{columns} variables, {rows} rows", exact, rounded, "HiGHS ")


def main() -> None:
    print(f"{cpu_model()}, 1 thread, load {os.getloadavg()[0]:.1f} before")
    solving()
    comparing()
    print(f"load {os.getloadavg()[0]:.1f} after")


if __name__ == "__main__":
    main()
