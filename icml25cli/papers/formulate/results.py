"""A solved problem as files: the model in four forms, the tree of drafts, and a page to read.

    write_results(folder, outcome, explanation)

Every model file is read and solved again before it is kept. Knows outcomes. Does not know where the folder is to be.
"""

import json
from pathlib import Path

from icml25cli.papers.formulate.explain import Explanation
from icml25cli.papers.formulate.export import FORMATS, export
from icml25cli.papers.formulate.job import Outcome
from icml25cli.papers.formulate.page import blocks, markdown, webpage
from icml25cli.papers.formulate.tree import document

SHORTEST = 10.0  # seconds that solving an export again may take, whatever the limit for a leaf


def write_results(folder: Path, outcome: Outcome, explanation: Explanation, time_limit: float = SHORTEST) -> None:
    """model.json, .lp, .mps and .py, tree.json, report.md and report.html into an empty folder."""
    assert outcome.best is not None
    assert outcome.found is not None
    formulation, limit = outcome.best.formulation, max(time_limit, SHORTEST)
    for form in FORMATS:
        done = export(explanation.model, form, formulation=formulation, time_limit=limit)
        (folder / f"model.{form}").write_text(done.text, encoding="utf-8")
    tree = {"best": outcome.best.name, "nodes": document(outcome.found.root)}
    (folder / "tree.json").write_text(json.dumps(tree, indent=1) + "\n", encoding="utf-8")
    parts = blocks(outcome, explanation)
    (folder / "report.md").write_text(markdown(parts), encoding="utf-8")
    (folder / "report.html").write_text(webpage(parts), encoding="utf-8")
