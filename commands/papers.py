"""`icml25 papers`: the eighteen papers and what runs today."""

from icml25cli.catalog import PAPERS
from icml25cli.core import options as opt
from icml25cli.core.report import Report, show
from icml25cli.core.verbs import service

app = service("papers")


@app.command()
def papers(as_json: opt.Json = False) -> None:
    """List every paper of the toolbox: its command, its method, and whether this version runs it."""
    report = Report("papers")
    report.rows = [
        {
            "command": paper.name,
            "runs": paper.module is not None,
            "method": paper.method,
            "title": paper.title,
        }
        for paper in PAPERS
    ]
    report.tables["sources"] = [
        {"command": paper.name, "authors": paper.authors, "link": paper.link} for paper in PAPERS
    ]
    report.metrics = {"papers": len(PAPERS), "running": sum(paper.module is not None for paper in PAPERS)}
    show(report, as_json=as_json)
