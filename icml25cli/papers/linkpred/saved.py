"""A fitted model as a directory, and scores of new pairs by it.

    config.json         options, encoder, method, sizes
    model.safetensors   parameters by module
    graph.npz           the graph, with the user's names of nodes
    split.npz           what was training, validation and test
    vision.npz          features of pictures of the fitted split, float16
    metrics.json        the figures

New pairs are scored in the graph of all its edges: what was held out to judge the model is known by then. The edge
between the two nodes of a pair is never drawn, nor a common neighbour of itself.

Knows files and models. Does not know how models are fitted.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float64, Int64
from numpy import ndarray
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch import nn

from icml25cli.core.errors import InputError
from icml25cli.core.files import write_json
from icml25cli.core.runs import fingerprint
from icml25cli.core.tensors import sort_metadata
from icml25cli.papers.linkpred.array_files import read_npz, write_graph
from icml25cli.papers.linkpred.counts import count_features, degree_features
from icml25cli.papers.linkpred.encoders import Encoder, load_encoder
from icml25cli.papers.linkpred.fusion import (
    Concatenation,
    LateFusion,
    LinkFusion,
    MixtureOfScores,
    Standardised,
    VisionHead,
)
from icml25cli.papers.linkpred.graph import Graph, canonical
from icml25cli.papers.linkpred.job import Result
from icml25cli.papers.linkpred.pictures import Look, PictureFeatures, node_features, pair_features
from icml25cli.papers.linkpred.propagation import Observed
from icml25cli.papers.linkpred.splits import write_split
from icml25cli.papers.linkpred.study import Options, base_model
from icml25cli.papers.linkpred.training import Pairs, Recipe, predict

FORMAT = "icml25/linkpred/1"
FILES = ("config.json", "model.safetensors", "graph.npz", "split.npz", "vision.npz", "metrics.json")


def save_model(directory: Path, result: Result, encoder_source: Mapping[str, Any]) -> list[str]:
    """Write the main method's model of the first split into an empty directory; return the names of its files.

    Args:
        encoder_source: arguments of ``load_encoder``, with the path of weights as text.

    Raises:
        OutputError: a file cannot be written.
    """
    study, scored = result.study, result.main
    config = {
        "format": FORMAT,
        "toolbox": version("icml25"),
        "method": result.plan.method,
        "options": asdict(study.options),
        "encoder": {**encoder_source, "identity": study.encoder.identity},
        "late": None if scored.late is None else asdict(scored.late),
        "modules": {name: type(module).__name__ for name, module in scored.modules.items()},
        "seed": study.split.seed,
        "graph": study.graph.fingerprint,
    }
    write_json(directory / "config.json", config)
    tensors = {
        f"{name}/{key}": value.contiguous()
        for name, module in scored.modules.items()
        for key, value in module.state_dict().items()
    }
    save_file(tensors, directory / "model.safetensors", metadata={"format": FORMAT, "config": _seal(config)})
    sort_metadata(directory / "model.safetensors")
    write_graph(directory / "graph.npz", study.graph)
    write_split(directory / "split.npz", study.split)
    drawn = {"pairs": study.drawn_pairs, "nodes": study.drawn_nodes}
    arrays = {f"{kind}_{part}": getattr(d, part) for kind, d in drawn.items() if d for part in ("table", "kind")}
    with open(directory / "vision.npz", "wb") as file:
        np.savez(file, allow_pickle=False, **arrays)
    write_json(directory / "metrics.json", {"rows": result.rows, "gains": result.gains, "models": result.models})
    return list(FILES)


@dataclass(frozen=True, eq=False)
class Scorer:
    """A model ready to score pairs of its graph: ``scorer(pairs)`` gives a logit each."""

    graph: Graph
    method: str
    _score: Callable[[Int64[ndarray, "b 2"]], Float64[ndarray, "b"]]

    def __call__(self, pairs: Int64[ndarray, "b 2"]) -> Float64[ndarray, "b"]:
        if not len(pairs):
            return np.empty(0)
        # Each pair once: in another place of a batch the same one is rounded otherwise.
        different, place = np.unique(canonical(pairs), axis=0, return_inverse=True)
        return self._score(different)[place.ravel()]


def load_model(directory: Path, *, weights: Path | None = None) -> Scorer:
    """Bring back what ``save_model`` wrote.

    Args:
        weights: where the vision encoder's weights are, if no longer where they were.

    Raises:
        InputError: the directory is no such model, is damaged, or its encoder's weights are others.
        MissingError: its encoder's weights are not here.
    """
    config = _config(directory)
    graph = read_npz(directory / "graph.npz")
    observed = Observed(graph.adjacency)
    state = _tensors(directory, config)
    if config["graph"] != graph.fingerprint:
        raise InputError(
            f"{directory / 'graph.npz'} is not the graph that the model was fitted on", hint="fit it again"
        )
    try:
        options = _options(config["options"])
        late = None if config["late"] is None else LateFusion(**config["late"])
        described = config["encoder"]
        source = weights or (Path(described["weights"]) if described["weights"] else None)
        encoder = load_encoder(described["name"], weights=source, size=described["size"])
        modules = {}
        for name, kind in config["modules"].items():
            own = {k.removeprefix(f"{name}/"): v for k, v in state.items() if k.startswith(f"{name}/")}
            modules[name] = _module(kind, name, own, graph, observed, options, encoder)
    except (KeyError, TypeError, AttributeError, RuntimeError, ValueError) as error:
        raise InputError(f"{directory} is a damaged model: {error}", hint="fit it again") from error
    _same_encoder(directory, described["identity"], encoder)
    return Scorer(graph, config["method"], _scoring(modules, late, observed, options, encoder))


def _config(directory: Path) -> dict[str, Any]:
    file = directory / "config.json"
    try:
        config = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(
            f"{directory} is no model: config.json {(error.strerror or 'cannot be read').lower()}",
            hint="icml25 linkpred GRAPH -o DIRECTORY makes one",
        ) from error
    except ValueError as error:
        raise InputError(f"{file} is no JSON: {error}", hint="fit the model again") from error
    if not isinstance(config, dict) or config.get("format") != FORMAT:
        raise InputError(
            f"{directory} is no model of this version", hint="icml25 linkpred GRAPH -o DIRECTORY makes one"
        )
    return config


def _options(given: dict[str, Any]) -> Options:
    parts = {"recipe": Recipe, "pair_look": Look, "node_look": Look}
    return Options(**{k: parts[k](**v) if k in parts else v for k, v in given.items()})


def _seal(config: dict[str, Any]) -> str:
    """What tells a config.json from any other."""
    return fingerprint(json.dumps(config, sort_keys=True))


def _tensors(directory: Path, config: dict[str, Any]) -> dict[str, torch.Tensor]:
    """Parameters; those of another config.json, or of one that was edited, would give wrong scores or none."""
    file = directory / "model.safetensors"
    try:
        with safe_open(file, "pt") as opened:
            sealed = (opened.metadata() or {}).get("config")
        state = load_file(file)
    except (OSError, SafetensorError) as error:
        raise InputError(f"{file} cannot be read: {error}", hint="fit the model again") from error
    if sealed != _seal(config):
        raise InputError(
            f"{directory / 'config.json'} and model.safetensors are not of one model, or one was edited",
            hint="fit the model again",
        )
    return state


def _same_encoder(directory: Path, saved: dict[str, Any], encoder: Encoder) -> None:
    if saved["weights"] != encoder.weights:
        raise InputError(
            f"{directory} was fitted with other weights of {encoder.name}", hint="name them with --ve-weights"
        )


def _module(
    kind: str,
    name: str,
    state: dict[str, torch.Tensor],
    graph: Graph,
    observed: Observed,
    options: Options,
    encoder: Encoder,
) -> nn.Module:
    """An empty module of that kind, filled."""
    width = {"degree": 2, "counts": 7}.get(name, encoder.width)
    standardised = Standardised(np.zeros((1, width), np.float32))
    seen = None
    if name == "e-gvn":
        nodes = np.arange(graph.num_nodes)
        seen = node_features(observed.pattern, nodes, encoder, options.node_look).rows()
    base = base_model(graph, observed, options, seen) if kind != "VisionHead" else None
    module: Any
    if base is None:
        module = VisionHead(standardised)
    elif kind == "LinkFusion":
        module = LinkFusion(base, standardised, options.attention)
    elif kind == "MixtureOfScores":
        module = MixtureOfScores(base, standardised)
    elif kind == "Concatenation":
        module = Concatenation(base, standardised)
    else:
        module = base
    module.load_state_dict(state)
    return module


def _scoring(
    modules: dict[str, nn.Module], late: LateFusion | None, observed: Observed, options: Options, encoder: Encoder
) -> Callable[[Int64[ndarray, "b 2"]], Float64[ndarray, "b"]]:
    def score(pairs: Int64[ndarray, "b 2"]) -> Float64[ndarray, "b"]:
        pictures = None
        scores = []
        for name, module in modules.items():
            seen = None
            if name == "degree":
                table, kind = degree_features(observed, pairs)
                seen = PictureFeatures(table, kind, 0).rows
            elif name == "counts":
                seen = partial(np.take, count_features(observed, pairs, options.pair_look), axis=0)
            elif isinstance(module, VisionHead | LinkFusion | MixtureOfScores | Concatenation):
                pictures = pictures or pair_features(observed.pattern, pairs, encoder, options.pair_look)
                seen = pictures.rows
            scores.append(predict(module, observed.everything, Pairs(pairs, seen)))
        return scores[0] if late is None else late(*scores)

    return score
