"""What selections look like in figures: rows of reports, records of rows, and files that a selection is written to.

Knows selections. Does not know how they come about, nor how they are shown.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from icml25cli.papers.select_data.compare import Judged
from icml25cli.papers.select_data.methods import Selection
from icml25cli.papers.select_data.rows import Pool
from icml25cli.papers.select_data.scoring import Scores, Subtasks

Record = dict[str, Any]


def composition(pool: Pool, selections: Sequence[Selection]) -> list[Record]:
    """How many rows each method takes of each source, and what share of the source and of the selection that is."""
    there = Counter(row.source for row in pool.rows)
    found = []
    for selection in selections:
        taken = Counter(pool.rows[i].source for i in selection.places.tolist())
        found += [
            {
                "method": selection.method,
                "source": source,
                "pool": there[source],
                "selected": taken[source],
                "share_of_selection": taken[source] / len(selection.places),
                "share_of_pool": there[source] / len(pool.rows),
            }
            for source in there
        ]
    return found


def overlaps(selections: Sequence[Selection]) -> list[Record]:
    """Rows that the main method's selection shares with each other one, beside what chance would share."""
    main, *others = selections
    return [
        {
            "method": other.method,
            "shared_rows": len(np.intersect1d(main.places, other.places)),
            "shared_share": len(np.intersect1d(main.places, other.places)) / len(main.places),
            "expected_by_chance": len(other.places) / len(main.scores.total),
        }
        for other in others
    ]


def rows(selections: Sequence[Selection]) -> list[Record]:
    """The main table of a selection without tuning."""
    return [
        {"method": s.method, "selected": len(s.places), "metric": None, "seconds": round(s.seconds, 3)}
        for s in selections
    ]


def judged_rows(
    selections: Sequence[Selection], judged: Sequence[Sequence[Judged]], base: Judged
) -> tuple[list[Record], list[Record]]:
    """The main table of a comparison, and differences from the main method, paired over test prompts.

    Args:
        judged: of each selection, one a seed.
    """
    found: list[Record] = []
    for selection, runs in zip(selections, judged, strict=True):
        means = [float(run.values.mean()) for run in runs]
        found.append(
            {
                "method": selection.method,
                "selected": len(selection.places),
                "metric": float(np.mean(means)),
                "metric_sd": float(np.std(means, ddof=1)) if len(means) > 1 else None,
                "seeds": len(means),
                "seconds": round(selection.seconds + sum(run.seconds for run in runs), 3),
            }
        )
    untuned: Record = {"method": "base", "selected": 0, "metric": float(base.values.mean()), "seeds": 1}
    found.append({**untuned, "metric_sd": None, "seconds": round(base.seconds, 3)})
    main = np.mean([run.values for run in judged[0]], axis=0)
    differences = []
    named = [(selection.method, runs) for selection, runs in zip(selections[1:], judged[1:], strict=True)]
    for method, runs in [*named, ("base", [base])]:
        more = main - np.mean([run.values for run in runs], axis=0)
        error = float(more.std(ddof=1) / len(more) ** 0.5) if len(more) > 1 else None
        beyond = bool(abs(more.mean()) > 2 * error) if error else None
        differences.append(
            {"method": method, "main_more": float(more.mean()), "main_more_se": error, "beyond_two_se": beyond}
        )
    return found, differences


def score_records(pool: Pool, scores: Scores, subtasks: Subtasks) -> list[Record]:
    """A record a row of the pool, in its order."""
    several = scores.parts.shape[1] > 1 or len(subtasks.names) > 1
    return [
        {
            "row": i + 1,
            "source": row.source,
            "line": row.number,
            "score": float(scores.total[i]),
            **({"subtask": subtasks.names[scores.best[i]]} if several else {}),
            **{f"checkpoint_{c + 1}": float(part) for c, part in enumerate(scores.parts[i]) if several},
        }
        for i, row in enumerate(pool.rows)
    ]


def selected_bytes(pool: Pool, selection: Selection, *, keep_order: bool = False) -> bytes:
    """The selected rows as they stand in their files, a line each, the best first or in the pool's order."""
    places = np.sort(selection.places) if keep_order else selection.places
    return b"".join(pool.rows[i].raw + b"\n" for i in places.tolist())


def write_scores(path: Path, records: Sequence[Record]) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    parquet.write_table(pa.Table.from_pylist(list(records)), path)
