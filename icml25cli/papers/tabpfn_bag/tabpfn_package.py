"""TabPFN 2 and later: a model of the installed package ``tabpfn``, filled from a checkpoint of the user's own.

Its tokens are groups of cells, so that its work grows with the columns, and its answers are those of its own code:
gradients flow through that, and what it keeps of a context is its own cache.

Knows tensors, one file and the package. Does not know tables or training.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor, nn

from icml25cli.core.errors import InputError, MissingError
from icml25cli.papers.tabpfn_bag.network import Context, Pfn, Sizes

COLUMNS = 32  # that encoders make, and tables are reduced to: the models take more, at a cost


@dataclass(frozen=True)
class PackageConfig(Sizes):
    """What the package builds a model from: the name of its architecture, and that architecture's settings."""

    architecture: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)
    temperature: float = 1.0  # by which the package's classifier divides logits


@dataclass(frozen=True)
class PackageContext(Context):
    """Labelled rows in the package's cache.

    Attributes:
        used: columns that are not zero throughout, the others being those that a narrower table does not have.
    """

    cache: Any = None
    labels: Tensor | None = None
    used: Bool[Tensor, "columns"] | None = None


class PackagePfn(Pfn):
    """A model of the package, in its axes: rows first."""

    form = "tabpfn"
    spread = 0.0  # it standardises its input itself
    sizes = PackageConfig
    config: PackageConfig

    def __init__(self, config: PackageConfig) -> None:
        super().__init__(config)
        module = _package()[0].get(config.architecture)
        if module is None:
            raise MissingError(f"the package tabpfn has no '{config.architecture}'", hint="pip install -U tabpfn")
        self.model: nn.Module = module.get_architecture(module.parse_config(dict(config.settings))[0])

    def _logits(self, found: Tensor) -> Float[Tensor, "batch queries classes"]:
        return found.transpose(0, 1).float() / self.config.temperature

    def encode(
        self,
        rows: Float[Tensor, "batch context columns"],
        labels: Int64[Tensor, "batch context"],
        counts: Int64[Tensor, "batch context"] | None = None,
    ) -> Context:
        if counts is not None:  # it cannot count a row: one that stands there twice is given twice
            index = torch.stack([torch.arange(rows.shape[1]).repeat_interleave(n) for n in counts])
            rows, labels = rows.gather(1, index[..., None].expand(-1, -1, rows.shape[2])), labels.gather(1, index)
        used = (rows != 0).any(1).any(0)
        x, y = rows[..., used].transpose(0, 1), labels.T.to(rows.dtype)
        cache = self.model(x, y, task_type="multiclass", return_kv_cache=True)[1]
        return PackageContext((), (), rows.shape[1], None, cache, y, used)

    def predict(
        self, context: Context, rows: Float[Tensor, "batch queries columns"]
    ) -> Float[Tensor, "batch queries classes"]:
        assert isinstance(context, PackageContext)
        x = rows[..., context.used].transpose(0, 1)
        given = {"task_type": "multiclass", "kv_cache": context.cache, "x_is_test_only": True}
        return self._logits(self.model(x, context.labels, **given))

    def forward(
        self,
        rows: Float[Tensor, "batch context columns"],
        labels: Int64[Tensor, "batch context"],
        queries: Float[Tensor, "batch queries columns"],
    ) -> Float[Tensor, "batch queries classes"]:
        """In one pass, because no gradient flows through statistics of a context that are kept in the cache."""
        used = (rows != 0).any(1).any(0)
        x = torch.cat([rows, queries], 1)[..., used].transpose(0, 1)
        return self._logits(self.model(x, labels.T.to(rows.dtype), task_type="multiclass"))


def _package() -> tuple[Mapping[str, Any], Any]:
    """The package's architectures by name, and what loads a checkpoint.

    Raises:
        MissingError: it is not installed, or of before it kept contexts.
    """
    try:
        from tabpfn.architectures import ARCHITECTURES  # type: ignore[reportMissingImports]
        from tabpfn.architectures.kv_cache import KVCache  # type: ignore[reportMissingImports]  # noqa: F401
        from tabpfn.model_loading import load_model  # type: ignore[reportMissingImports]
    except ImportError as error:
        raise MissingError(
            "models of TabPFN 2 and later need the package tabpfn, 9.2 or later", hint="pip install 'icml25[tabpfn]'"
        ) from error
    return ARCHITECTURES, load_model


def load_tabpfn(path: Path) -> PackagePfn:
    """The classifier of a checkpoint, in float32 and evaluation mode, its weights frozen.

    Raises:
        MissingError: the package is not installed.
        InputError: the file is absent or torn, or the package makes no classifier of it.
    """
    if not path.is_file():
        raise InputError(f"{path} is no file", hint="--pfn tabpfn:FILE names a checkpoint of TabPFN 2 or later")
    load_model = _package()[1]
    try:
        model, _, settings, inference = load_model(path=path, estimator_type="classifier")
        architecture = type(model).__module__.rpartition(".")[2]
        plain = json.loads(json.dumps(asdict(settings)))  # as the file of a model holds it
        config = PackageConfig(
            COLUMNS, settings.max_num_classes, architecture, plain, float(inference.SOFTMAX_TEMPERATURE)
        )
        net = PackagePfn(config)
        net.model.load_state_dict(model.state_dict())
    except MissingError:
        raise
    except Exception as error:  # the package checks a file by using it
        raise InputError(
            f"{path} is no classifier of the package tabpfn: {str(error).splitlines()[0] if str(error) else error!r}",
            hint="name a whole checkpoint of TabPFN 2 or later",
        ) from error
    return net.float().eval().requires_grad_(False)
