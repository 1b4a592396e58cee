"""A fitted model as one file: a zip of tensors (safetensors) and JSON. Nothing in it is code.

The network's weights are in it, so that a model predicts the same wherever it is taken.

Knows models and files. Does not know how models are fitted.
"""

import json
import zipfile
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from icml25cli.core.errors import InputError, UsageError
from icml25cli.core.files import atomic_path
from icml25cli.papers.tabpfn_bag.columns import Schema
from icml25cli.papers.tabpfn_bag.contexts import Tasks
from icml25cli.papers.tabpfn_bag.encoders import EncoderConfig, PathEncoder, Rows
from icml25cli.papers.tabpfn_bag.ensemble import Ensemble, Predictor
from icml25cli.papers.tabpfn_bag.finetune import Recipe
from icml25cli.papers.tabpfn_bag.learners import HeadModule, HeadPredictor, RawPaths
from icml25cli.papers.tabpfn_bag.local import LocalEnsemble
from icml25cli.papers.tabpfn_bag.model import Model, Options
from icml25cli.papers.tabpfn_bag.network import NanoPfn
from icml25cli.papers.tabpfn_bag.tabpfn_package import PackagePfn
from icml25cli.papers.tabpfn_bag.tabpfn_v1 import TabPfnV1

FORMAT = "icml25/tabpfn-bag/1"
NETWORKS: dict[str, Any] = {net.form: net for net in (NanoPfn, TabPfnV1, PackagePfn)}
TENSORS, DOCUMENT = "model.safetensors", "model.json"
LARGEST_DOCUMENT = 2**26  # bytes
STAMP = (1980, 1, 1, 0, 0, 0)  # the same model is the same file whenever it is written


def save_model(model: Model, path: Path, *, force: bool = False) -> None:
    """Write a model, whole or not at all.

    Raises:
        OutputError: the file exists (without ``force``) or cannot be written.
    """
    tensors = model.schema.tensors()
    predictor, tasks = model.predictor, model.predictor.tasks
    document: dict[str, Any] = {
        "format": FORMAT,
        "classes": model.classes,
        "schema": model.schema.document(),
        "options": asdict(model.options),
        "facts": model.facts,
        "aggregate": predictor.aggregate,
        "alphabet": tasks.alphabet,
    }
    for name in ("path", "symbols", "group"):
        tensors[f"tasks.{name}"] = torch.from_numpy(getattr(tasks, name).copy())
    if predictor.weights is not None:
        tensors["weights"] = torch.from_numpy(predictor.weights)
    if isinstance(predictor, HeadPredictor):
        document |= {"kind": "head", "encoder": asdict(predictor.head.encoder.config)}
        tensors |= {f"head.{name}": value for name, value in predictor.head.state_dict().items()}
    elif isinstance(predictor, Ensemble | LocalEnsemble):
        document |= {"kind": "local" if isinstance(predictor, LocalEnsemble) else "ensemble"}
        document |= {"form": predictor.net.form, "net": asdict(predictor.net.config)}
        tensors |= {f"net.{name}": _narrow(value) for name, value in predictor.net.state_dict().items()}
        rows, labels = predictor.rows, predictor.labels
        if isinstance(predictor, Ensemble):
            used, contexts = np.unique(np.stack(predictor.contexts), return_inverse=True)
            rows, labels = rows.take(torch.from_numpy(used)), labels[used]
            tensors["contexts"] = torch.from_numpy(contexts.reshape(len(predictor.contexts), -1))
        tensors |= {"rows.numbers": rows.numbers, "rows.codes": rows.codes.int(), "labels": torch.from_numpy(labels)}
        if isinstance(predictor.paths, PathEncoder):
            document["encoder"] = asdict(predictor.paths.config)
            tensors |= {f"encoder.{name}": value for name, value in predictor.paths.state_dict().items()}
        elif isinstance(predictor.paths, RawPaths):
            document["raw"] = {name: getattr(predictor.paths, name) for name in ("paths", "columns", "spread")}
            tensors |= {f"raw.{name}": value for name, value in predictor.paths.state.items()}
    parts = {
        TENSORS: save({name: value.detach().contiguous() for name, value in tensors.items()}),
        DOCUMENT: json.dumps(document, ensure_ascii=False, allow_nan=True).encode("utf-8", "backslashreplace"),
    }
    with atomic_path(path, force=force) as temporary, zipfile.ZipFile(temporary, "w") as archive:
        for name, content in parts.items():
            archive.writestr(zipfile.ZipInfo(name, STAMP), content)


def _narrow(weight: Tensor) -> Tensor:
    """In float16 where that loses nothing, as for weights that were shipped so."""
    half = weight.detach().half()
    return half if torch.equal(half.float(), weight) else weight.detach()


def load_model(path: Path) -> Model:
    """Bring back what ``save_model`` wrote.

    Raises:
        InputError: the file is absent, torn, damaged, or something else.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            if set(archive.namelist()) != {TENSORS, DOCUMENT} or archive.getinfo(DOCUMENT).file_size > LARGEST_DOCUMENT:
                raise InputError(f"{path} is no model of icml25 tabpfn-bag", hint="icml25 tabpfn-bag fit makes one")
            document = json.loads(archive.read(DOCUMENT))
            if not isinstance(document, dict) or document.get("format") != FORMAT:
                raise InputError(f"{path} is no model of this version", hint="icml25 tabpfn-bag fit makes one")
            tensors = load(archive.read(TENSORS))
        return _assembled(document, tensors)
    except FileNotFoundError as error:
        raise InputError(f"{path} does not exist", hint="icml25 tabpfn-bag fit TABLE -o MODEL makes one") from error
    except (OSError, zipfile.BadZipFile, SafetensorError) as error:
        raise InputError(f"{path} is no whole model: {error}", hint="fit it again") from error
    except (KeyError, TypeError, ValueError, AttributeError, RuntimeError, IndexError, UsageError) as error:
        raise InputError(f"{path} is a damaged model: {error}", hint="fit it again") from error


def _assembled(document: dict[str, Any], tensors: dict[str, Tensor]) -> Model:
    tasks = Tasks(
        *(tensors[f"tasks.{name}"].numpy() for name in ("path", "symbols", "group")), alphabet=document["alphabet"]
    )
    aggregate = document["aggregate"]
    predictor: Predictor
    if document["kind"] == "head":
        head = HeadModule(PathEncoder(_encoder_config(document)), tasks.symbols.shape[1])
        head.load_state_dict(_part(tensors, "head."))
        predictor = HeadPredictor(head.eval(), tasks, aggregate)
    else:
        form = NETWORKS[document.get("form", NanoPfn.form)]
        net = form(form.sizes(**document["net"]))
        net.load_state_dict({name: value.float() for name, value in _part(tensors, "net.").items()})
        net.eval().requires_grad_(False)
        rows = Rows(tensors["rows.numbers"], tensors["rows.codes"].long())
        labels = tensors["labels"].numpy()
        if "encoder" in document:
            paths: Any = PathEncoder(_encoder_config(document))
            paths.load_state_dict(_part(tensors, "encoder."))
        else:
            paths = RawPaths(rows, **document["raw"], state=_part(tensors, "raw."))
        if document["kind"] == "local":
            predictor = LocalEnsemble(net, paths, tasks, rows, labels, aggregate)
        else:
            contexts = list(tensors["contexts"].numpy())
            predictor = Ensemble(net, paths, tasks, rows, labels, contexts, aggregate)
    predictor.weights = tensors["weights"].numpy() if "weights" in tensors else None
    known = {f.name for f in fields(Options)}
    options = Options(**{k: v for k, v in document["options"].items() if k in known and k != "recipe"})
    options = replace(options, recipe=Recipe(**document["options"]["recipe"]))
    schema = Schema.from_document(document["schema"], tensors)
    return Model(document["classes"], schema, predictor, options, document["facts"])


def _encoder_config(document: dict[str, Any]) -> EncoderConfig:
    sizes = document["encoder"]
    return EncoderConfig(**{**sizes, "levels": tuple(sizes["levels"])})


def _part(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}
