"""Words that are a graph though no file has that name. Light enough to be asked while a command line is typed."""

from icml25cli.core.store import catalogue

BUILTIN = {  # what networkx ships
    "karate": "karate_club_graph",
    "davis": "davis_southern_women_graph",
    "florentine": "florentine_families_graph",
    "lesmis": "les_miserables_graph",
}


def graph_names() -> list[str]:
    """Graphs of networkx and of the asset store."""
    return [*BUILTIN, *(name for name, asset in catalogue().items() if asset.kind == "graph")]
