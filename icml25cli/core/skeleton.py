"""A causal language model without storage, whose decoder blocks others can stand in for.

Built on torch's meta device from its config alone. With every block replaced by one that hands on its input, the
model's own forward shows what comes before the blocks, what arguments they get and what comes after, so that no
architecture is spelt out here. Knows transformers models. Does not know where weights come from.
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.utils._pytree import tree_map
from transformers import AutoConfig

from icml25cli.core.architecture import build
from icml25cli.core.checkpoint import StoredTensor
from icml25cli.core.errors import InputError
from icml25cli.core.models import ModelSource, runnable

Call = tuple[tuple, dict[str, Any]]  # what a block gets beside its hidden state


class Skeleton:
    """The modules of a model, and its forward around the blocks.

    Args:
        source: from ``models.resolve``.
        index: of its files, for their size.
        dtype: of parameters and hidden states.

    Raises:
        InputError: the model cannot be built, has no list of decoder blocks, or packs several matrices into one tensor.
    """

    def __init__(self, source: ModelSource, index: Mapping[str, StoredTensor], dtype: torch.dtype) -> None:
        self.name = source.name
        trust = source.trust_remote_code
        config = AutoConfig.from_pretrained(str(source.path), local_files_only=True, trust_remote_code=trust)
        self.model: Any = build(config, index, self.name, dtype, trust_remote_code=trust)
        self.embedding: nn.Embedding = self.model.get_input_embeddings()
        self.embedding.padding_idx = None  # matters for gradients only, and may point beyond the rows that are loaded
        self.blocks_name, self.blocks = self._find_blocks()
        self._refuse_fused_experts()
        self._packing: Callable[[Tensor], Any] | None = None  # a hidden state as blocks return it: alone or in a tuple

    def block_modules(self, i: int) -> list[tuple[str, nn.Module]]:
        """Block ``i`` and all modules in it, with their paths in the model."""
        return list(self.blocks[i].named_modules(prefix=f"{self.blocks_name}.{i}"))

    def outside_modules(self) -> list[tuple[str, nn.Module]]:
        """All modules that are in no block, with their paths in the model."""
        inside = {id(module) for block in self.blocks for module in block.modules()}
        return [(path, module) for path, module in self.model.named_modules() if id(module) not in inside]

    def trace(self, **inputs: Tensor) -> tuple[Tensor, list[Call]]:
        """What the first block gets for these inputs, and the other arguments of every block.

        Raises:
            InputError: the blocks are no chain in which each gets what the one before returned, or they get something
                that an earlier block may write to; or the model cannot be run.
        """
        calls: list[Call] = []
        first: list[Tensor] = []

        def record(i: int, hidden: Tensor, call: Call) -> Tensor:
            if i != len(calls) or (first and hidden is not first[0]) or not _plain((call[0], *call[1].values())):
                raise InputError(f"the blocks of {self.name} are no plain chain", hint="use another architecture")
            first[:] = [hidden]
            calls.append(call)
            if len(calls) == len(self.blocks):
                raise _SeenAllError
            return hidden

        with self.replaced(record), runnable(self.name), contextlib.suppress(_SeenAllError):
            self.model(**inputs, use_cache=False)
        return first[0], calls

    def placeholder(self, shape: tuple[int, ...], device: torch.device) -> Tensor:
        """Zeros in the shape of embedded tokens (B, T, d) that take no memory, where only shapes matter."""
        weight = self.embedding.weight
        return torch.zeros((), dtype=weight.dtype, device=device).expand(*shape, weight.shape[1])

    @contextlib.contextmanager
    def replaced(self, on_block: Callable[[int, Tensor, Call], Tensor]) -> Iterator[None]:
        """Let ``on_block(i, hidden, call)`` stand in for the forward of every block."""

        def forward(i: int, block: nn.Module) -> Callable[..., Any]:
            def replacement(*args: Any, **kwargs: Any) -> Any:
                hidden, *others = args or (kwargs.pop("hidden_states"),)
                call = (tuple(others), kwargs)
                if self._packing is None:
                    self._packing = self._find_packing(block, hidden, call)
                return self._packing(on_block(i, hidden, call))

            return replacement

        for i, block in enumerate(self.blocks):
            block.forward = forward(i, block)
        try:
            yield
        finally:
            for block in self.blocks:
                del block.forward

    def _find_packing(self, block: nn.Module, hidden: Tensor, call: Call) -> Callable[[Tensor], Any]:
        """How blocks of this class return their hidden state, found by running one without storage."""
        state = {**dict(block.named_parameters()), **dict(block.named_buffers())}
        hidden, (args, kwargs), state = tree_map(
            lambda x: x.to("meta") if isinstance(x, Tensor) else x, (hidden, call, state)
        )
        replacement = block.__dict__.pop("forward")
        try:
            with runnable(f"a block of {self.name}"):
                output = functional_call(block, state, (hidden, *args), kwargs)
        finally:
            block.forward = replacement
        if isinstance(output, tuple | list):
            return lambda x: (x, *output[1:])
        return lambda x: x

    def _find_blocks(self) -> tuple[str, nn.ModuleList]:
        """The list of decoder blocks and its path: the outermost list as long as config says, else the largest."""
        lists: dict[str, nn.ModuleList] = {}
        for path, module in self.model.named_modules():
            inner = any(path.startswith(f"{outer}.") for outer in lists)
            if isinstance(module, nn.ModuleList) and len({type(block) for block in module}) == 1 and not inner:
                lists[path] = module
        depth = getattr(self.model.config.get_text_config(), "num_hidden_layers", None)
        lists = {path: blocks for path, blocks in lists.items() if len(blocks) == depth} or lists
        if not lists:
            raise InputError(
                f"{self.name} ({type(self.model).__name__}) has no list of decoder blocks",
                hint="use another architecture",
            )
        return max(lists.items(), key=lambda entry: sum(weight.numel() for weight in entry[1].parameters()))

    def _refuse_fused_experts(self) -> None:
        for i in range(len(self.blocks)):
            for path, module in self.block_modules(i):
                for name, weight in module.named_parameters(recurse=False):
                    if sum(size > 1 for size in weight.shape) > 2 and not isinstance(module, nn.Conv1d):
                        raise InputError(
                            f"{self.name} packs several matrices, as of experts, into one tensor, {path}.{name}",
                            hint="use a dense model",
                        )


class _SeenAllError(Exception):
    """Ends a forward whose rest is not needed."""


def _plain(value: Any) -> bool:
    """Whether a block's argument can carry nothing from block to block, as a cache or a dict could."""
    if isinstance(value, tuple | list):
        return all(map(_plain, value))
    return value is None or isinstance(value, Tensor | bool | int | float | str)


def same_calls(one: Any, other: Any) -> bool:
    """Whether two lists of calls hold equal values throughout."""
    if isinstance(one, Tensor):
        return one is other or (isinstance(other, Tensor) and torch.equal(one, other))
    if isinstance(one, tuple | list):
        return len(one) == len(other) and all(map(same_calls, one, other))
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same_calls(one[key], other[key]) for key in one)
    return one == other
