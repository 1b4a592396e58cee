"""What is trained: encoders in front of the frozen network (Beta), and the controls it is compared with.

    InContext   encoders are trained through the network, whose weights never change
    Head        the same encoders with a linear head and no network (TabM): is the network needed?
    WholeNet    the network's own weights are trained, without encoders

Knows encoders and the network. Does not know how steps are taken, or files.
"""

import copy
from collections.abc import Callable, Mapping
from typing import Protocol

import numpy as np
import torch
from jaxtyping import Float, Int64
from numpy import ndarray
from torch import Generator, Tensor, nn
from torch.func import functional_call

from icml25cli.papers.tabpfn_bag.contexts import Tasks
from icml25cli.papers.tabpfn_bag.encoders import PathEncoder, Rows
from icml25cli.papers.tabpfn_bag.ensemble import Aggregate, Ensemble, Predictor, class_scores
from icml25cli.papers.tabpfn_bag.network import Pfn
from icml25cli.papers.tabpfn_bag.preprocess import Scaling, padded


class Learner(Protocol):
    """Something with parameters that answers tasks."""

    module: nn.Module  # its parameters are trained

    def logits(
        self,
        tasks: Tasks,
        context: Rows,
        labels: Int64[Tensor, "tasks context"],
        queries: Rows,
        generator: Generator,
    ) -> Float[Tensor, "tasks queries symbols"]:
        """Of queries, given rows and their symbols in each task; one context for all."""
        ...

    def predictor(
        self, tasks: Tasks, rows: Rows, labels: Int64[ndarray, "n"], contexts: list[ndarray], aggregate: Aggregate
    ) -> Predictor:
        """As it is now, with a context for each path."""
        ...


class RawPaths:
    """Rows without an encoder: standardised columns, turned by one more step from path to path.

    Wider tables than the network takes go in by their principal components.
    """

    def __init__(
        self, rows: Rows, paths: int, columns: int, state: Mapping[str, Tensor] | None = None, *, spread: float = 0.5
    ) -> None:
        self.paths, self.columns, self.spread = paths, columns, spread
        if state is None:
            joined = torch.cat([rows.numbers, rows.codes.float()], 1)
            state = {"components": torch.empty(0, 0)}
            if joined.shape[1] > columns:
                state["components"] = principal_components(Scaling.of(joined)(joined), columns)
                state |= {f"wide.{name}": part for name, part in vars(Scaling.of(joined)).items()}
            state |= {f"scaling.{name}": part for name, part in vars(Scaling.of(self._reduced(joined, state))).items()}
        self.state = dict(state)
        self.scaling = _scaling(state, "scaling.")

    @staticmethod
    def _reduced(joined: Tensor, state: Mapping[str, Tensor]) -> Tensor:
        components = state["components"]
        return _scaling(state, "wide.")(joined) @ components if components.numel() else joined

    def __call__(self, rows: Rows, path: slice = slice(None)) -> Float[Tensor, "paths rows columns"]:
        z = self.scaling(self._reduced(torch.cat([rows.numbers, rows.codes.float()], 1), self.state))
        steps = [k * z.shape[1] // self.paths for k in range(*path.indices(self.paths))]
        varies = self.scaling.varies
        return torch.stack([padded(z.roll(s, 1), varies.roll(s, -1), self.columns, self.spread) for s in steps])


def _scaling(state: Mapping[str, Tensor], prefix: str) -> Scaling:
    names = ("mean", "deviation", "varies", "low", "high")
    return Scaling(**{name: state[prefix + name] for name in names})


def principal_components(x: Float[Tensor, "n wide"], number: int) -> Float[Tensor, "wide number"]:
    """Directions of largest variance of centred rows, fewer where there are fewer."""
    most = 3000  # rows: more change the directions little
    x = x[torch.linspace(0, len(x) - 1, min(most, len(x))).long()]
    if x.shape[1] <= len(x):
        return torch.linalg.eigh((x.T @ x).double()).eigenvectors.flip(1)[:, :number].float()
    vectors = torch.linalg.eigh((x @ x.T).double()).eigenvectors
    kept = vectors.flip(1)[:, : min(number, len(x) - 1)].float()
    directions = x.T @ kept
    return directions / directions.norm(dim=0, keepdim=True).clamp(min=1e-12)


class InContext:
    """Encoders in front of a frozen network. Gradients flow through it to them; it has none of its own.

    The training passes run in bfloat16 where the processor multiplies it; predictions are in float32.
    """

    def __init__(self, net: Pfn, encoder: PathEncoder) -> None:
        self.net = net
        self.module: nn.Module = encoder
        self.encoder = encoder
        self._half = copy.deepcopy(net).bfloat16() if fast_half() else net
        self._half.requires_grad_(False)

    def logits(self, tasks: Tasks, context: Rows, labels: Tensor, queries: Rows, generator: Generator) -> Tensor:
        path = torch.from_numpy(tasks.path)
        dtype = next(self._half.parameters()).dtype
        n = len(context)
        both = Rows(torch.cat([context.numbers, queries.numbers]), torch.cat([context.codes, queries.codes]))
        z = self.encoder(both, generator=generator)[path].to(dtype)
        return self._half(z[:, :n], labels, z[:, n:])

    def predictor(
        self, tasks: Tasks, rows: Rows, labels: ndarray, contexts: list[ndarray], aggregate: Aggregate
    ) -> Ensemble:
        return Ensemble(self.net, self.encoder, tasks, rows, labels, contexts, aggregate)


class WholeNet:
    """The network itself, its weights trained from where they are; rows as ``RawPaths`` gives them."""

    def __init__(self, net: Pfn, paths: RawPaths) -> None:
        self.net = copy.deepcopy(net).requires_grad_(True)
        self.module: nn.Module = self.net
        self.paths = paths

    def logits(self, tasks: Tasks, context: Rows, labels: Tensor, queries: Rows, generator: Generator) -> Tensor:
        path = torch.from_numpy(tasks.path)
        x, q = self.paths(context)[path], self.paths(queries)[path]
        if not fast_half():
            return self.net(x, labels, q)
        half = {name: weight.bfloat16() for name, weight in self.net.named_parameters()}
        return functional_call(self.net, half, (x.bfloat16(), labels, q.bfloat16()))

    def predictor(
        self, tasks: Tasks, rows: Rows, labels: ndarray, contexts: list[ndarray], aggregate: Aggregate
    ) -> Ensemble:
        return Ensemble(self.net, self.paths, tasks, rows, labels, contexts, aggregate)


class HeadModule(nn.Module):
    """Encoders and, for each path, a linear map to classes."""

    def __init__(self, encoder: PathEncoder, classes: int, seed: int = 0) -> None:
        super().__init__()
        self.encoder = encoder
        generator = torch.Generator().manual_seed(seed)
        bound = encoder.config.width**-0.5
        shape = (encoder.config.paths, encoder.config.width, classes)
        self.weight = nn.Parameter((torch.rand(shape, generator=generator) * 2 - 1) * bound)
        self.bias = nn.Parameter(torch.zeros(encoder.config.paths, 1, classes))

    def forward(self, rows: Rows, generator: Generator | None = None) -> Float[Tensor, "paths rows classes"]:
        return self.encoder(rows, generator=generator) @ self.weight + self.bias


class Head:
    """The same encoders without the network; contexts are not looked at."""

    def __init__(self, module: HeadModule) -> None:
        self.module: nn.Module = module
        self._head = module

    def logits(self, tasks: Tasks, context: Rows, labels: Tensor, queries: Rows, generator: Generator) -> Tensor:
        return self._head(queries, generator)

    def predictor(
        self, tasks: Tasks, rows: Rows, labels: ndarray, contexts: list[ndarray], aggregate: Aggregate
    ) -> "HeadPredictor":
        return HeadPredictor(self._head, tasks, aggregate)


class HeadPredictor(Predictor):
    """Predictions of encoders with a head."""

    def __init__(self, head: HeadModule, tasks: Tasks, aggregate: Aggregate) -> None:
        super().__init__(tasks, aggregate)
        self.head = head

    @torch.inference_mode()
    def task_scores(self, rows: Rows, progress: Callable[[int], None] = lambda _: None) -> Tensor:
        parts = [torch.empty(len(self.tasks), 0, self.tasks.symbols.shape[1])]
        for start in range(0, len(rows), 4096):
            part = rows.take(slice(start, start + 4096))
            parts.append(class_scores(self.head(part), self.tasks))
            progress(len(part))
        return torch.cat(parts, 1)


def fast_half() -> bool:
    """Whether this processor multiplies bfloat16 (AMX or AVX-512), not just takes it."""
    multiplies = torch.cpu._is_amx_tile_supported() or torch.cpu._is_avx512_bf16_supported()
    return multiplies and bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


def random_net(net: Pfn, seed: int = 0) -> Pfn:
    """A network of the same sizes that has learnt nothing, as a control.

    All matrices are drawn, also those that start at zero in training, without which queries would not see the context.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        other = type(net)(net.config).eval()
        for weight in other.parameters():
            if weight.ndim == 2:
                nn.init.normal_(weight, std=weight.shape[-1] ** -0.5)
    return other.requires_grad_(False)


def trainable(learner: Learner) -> int:
    """The number of parameters that are trained."""
    return sum(p.numel() for p in learner.module.parameters() if p.requires_grad)


def as_numbers(labels: ndarray, tasks: Tasks) -> Int64[Tensor, "tasks n"]:
    """Symbols of rows in each task."""
    return torch.from_numpy(tasks.symbols[:, labels].astype(np.int64))
