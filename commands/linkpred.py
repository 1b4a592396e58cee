"""`icml25 linkpred`: missing links of a graph, by models that see pictures of it; verbs without a model are apart."""

from icml25cli.commands import linkpred_data
from icml25cli.core.verbs import paper_group


def _graph_names() -> list[str]:
    from icml25cli.papers.linkpred.names import graph_names

    return graph_names()


app = paper_group("linkpred", known_inputs=_graph_names)

for verb in linkpred_data.VERBS:
    app.command()(verb)
