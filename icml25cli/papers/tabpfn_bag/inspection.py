"""What is in a model's file or a network. Knows models and networks. Does not know how facts are shown."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

from icml25cli.core.files import expand
from icml25cli.papers.tabpfn_bag.learners import HeadPredictor
from icml25cli.papers.tabpfn_bag.model import Model
from icml25cli.papers.tabpfn_bag.nets import BUILT_IN, is_checkpoint, load_net
from icml25cli.papers.tabpfn_bag.network import Pfn
from icml25cli.papers.tabpfn_bag.saved import load_model

HISTORY = ("epoch", "training_log_loss", "validation_log_loss", "seconds")
SHOWN = 8  # levels of a category

Row = dict[str, Any]


def describe(name: str) -> tuple[Row, list[Row], list[Row]]:
    """Facts, a row a column of the training table, and a row a validation of its training; of a network facts alone.

    Raises:
        InputError: it is neither a whole model nor a network.
    """
    if name == BUILT_IN or is_checkpoint(name) or expand(name).is_dir():
        return _network(load_net(name)), [], []
    return of_model(load_model(Path(expand(name))))


def _network(net: Pfn) -> Row:
    sizes = {name: size for name, size in asdict(net.config).items() if not isinstance(size, dict)}
    return {"kind": "network", "form": net.form, **sizes, "parameters": sum(p.numel() for p in net.parameters())}


def of_model(model: Model) -> tuple[Row, list[Row], list[Row]]:
    """The same of a loaded model."""
    predictor, facts = model.predictor, dict(model.facts)
    history: list[Row] = [dict(zip(HISTORY, row, strict=False)) for row in facts.pop("history", [])]
    found: Row = {
        "kind": "model",
        "method": model.options.method,
        "classes": len(model.classes),
        "paths": int(predictor.tasks.path.max()) + 1,
        "tasks": len(predictor.tasks),
        "aggregate": predictor.aggregate,
    }
    if not isinstance(predictor, HeadPredictor):
        net = getattr(predictor, "net")  # noqa: B009
        found |= {"network": net.form, "network_parameters": sum(p.numel() for p in net.parameters())}
        found["rows_kept"] = len(getattr(predictor, "rows"))  # noqa: B009
    columns = [
        {
            "column": column.name,
            "kind": column.kind,
            "levels": len(column.levels) or None,
            "commonest": " ".join("missing" if level is None else level for level in column.levels[:SHOWN]),
            "missing_values": column.gaps or None in column.levels,
            "not_used_because": column.reason,
        }
        for column in model.schema.columns
    ]
    return found | facts, columns, history
