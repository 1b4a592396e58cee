"""Records, the product of verbs such as predict, score and recommend: CSV or JSON lines, for programs.

They go to standard output, or to a file with the report of how they came about on standard error. Knows no command.
"""

from __future__ import annotations

import csv
import io
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from icml25cli.core.console import stderr
from icml25cli.core.files import atomic_path
from icml25cli.core.report import Report, Row, render, show, standard_output


def show_records(
    report: Report,
    records: Sequence[Row],
    *,
    form: str = "csv",
    output: Path | None = None,
    force: bool = False,
    as_json: bool = False,
) -> None:
    """Write ``records``, all with the same keys, and show their report.

    Args:
        form: ``csv`` or ``jsonl``.
        output: a file; standard output without.
        as_json: the report, with the records as its rows, is one JSON document on standard output instead.

    Raises:
        OutputError: the file exists (without ``force``), or it or standard output cannot be written.
    """
    if output is not None:
        with atomic_path(output, force=force) as temporary:
            temporary.write_text(_text(records, form), encoding="utf-8", errors="backslashreplace")
        report.artefacts.append(str(output))
    if as_json:
        report.rows = list(records)
        show(report, as_json=True)
        return
    if output is None:
        with standard_output():
            sys.stdout.write(_text(records, form))
            sys.stdout.flush()
    report.finish()
    render(report, stderr())


def _text(records: Sequence[Row], form: str) -> str:
    if form == "jsonl":
        return "".join(json.dumps(dict(record), ensure_ascii=False) + "\n" for record in records)
    text = io.StringIO()
    if records:
        writer = csv.DictWriter(text, list(records[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(records)
    return text.getvalue()
