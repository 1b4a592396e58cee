"""A solved problem as a page: the text, the model as mathematics, the solution, its prices, and the rival readings.

Knows outcomes and explanations. Does not know where the page is written.
"""

import html
from collections.abc import Sequence
from typing import Any

from icml25cli.core.console import clean
from icml25cli.papers.formulate.explain import Explanation
from icml25cli.papers.formulate.job import Outcome, mathematics
from icml25cli.papers.formulate.tree import counters

Block = tuple[str, Any]  # "heading", "text", "code" or "table", and what it holds


def blocks(outcome: Outcome, explanation: Explanation) -> list[Block]:
    """The parts of the page in order."""
    assert outcome.found is not None
    solution = explanation.solution
    worth = "" if solution.objective is None else f", objective {solution.objective:.10g}"
    said = [
        ("heading", "Problem"),
        ("text", clean(outcome.text.strip())),
        ("heading", "Model"),
        ("code", "\n".join(mathematics(explanation.model))),
        ("heading", "Answer"),
        ("text", f"Status: {solution.status}{worth}. Confidence: {outcome.confidence:.2f}."),
        ("table", explanation.variables()),
        *[("text", sentence) for sentence in explanation.sentences()],
        *[("text", f"{doubt[0].upper()}{doubt[1:]}.") for doubt in outcome.doubts],
        ("heading", "Constraints"),
        ("table", explanation.constraints()),
        ("heading", "Rival readings"),
        ("text", "Best first, by the mean value of their path in the search; differences from the best."),
        ("table", outcome.ranked()),
        ("heading", "Search"),
        ("text", f"{len(outcome.found.leaves)} readings from {outcome.found.attempts} descents."),
        ("table", counters(outcome.found.root)),
    ]
    return [block for block in said if block[1]]


def markdown(parts: Sequence[Block]) -> str:
    """The page in Markdown; what came from outside is fenced or has its marks escaped."""
    lines = ["# Formulated problem", ""]
    for kind, value in parts:
        if kind == "heading":
            lines += [f"## {value}", ""]
        elif kind == "text":
            lines += [_escaped(value), ""]
        elif kind == "code":
            lines += ["```", value.replace("```", "'''"), "```", ""]
        else:
            columns = _columns(value)
            lines += [f"| {' | '.join(columns)} |", f"|{'---|' * len(columns)}"]
            lines += [f"| {' | '.join(_escaped(_cell(row.get(name))) for name in columns)} |" for row in value]
            lines.append("")
    return "\n".join(lines)


def webpage(parts: Sequence[Block]) -> str:
    """The page in HTML, with everything from outside escaped and nothing fetched."""
    body = ["<h1>Formulated problem</h1>"]
    for kind, value in parts:
        if kind == "heading":
            body.append(f"<h2>{html.escape(value)}</h2>")
        elif kind == "text":
            body.append(f"<p>{html.escape(value)}</p>")
        elif kind == "code":
            body.append(f"<pre>{html.escape(value)}</pre>")
        else:
            columns = _columns(value)
            rows = ["".join(f"<td>{html.escape(_cell(row.get(name)))}</td>" for name in columns) for row in value]
            head = "".join(f"<th>{html.escape(name)}</th>" for name in columns)
            body.append(f"<table><tr>{head}</tr>{''.join(f'<tr>{row}</tr>' for row in rows)}</table>")
    style = "body{font:16px sans-serif;max-width:60em;margin:2em auto}td,th{padding:.2em .6em;text-align:left}"
    head = f'<meta charset="utf-8"><title>Formulated problem</title><style>{style}</style>'
    return f'<!doctype html>\n<html lang="en"><head>{head}</head>\n<body>\n' + "\n".join(body) + "\n</body></html>\n"


def _columns(rows: Sequence[dict[str, Any]]) -> list[str]:
    return [*dict.fromkeys(name for row in rows for name in row)]


def _cell(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:.10g}" if isinstance(value, float) else clean(str(value))


def _escaped(text: str) -> str:
    for mark in "\\`*_<>|#[]":
        text = text.replace(mark, f"\\{mark}")
    return text
