"""A causal language model with one decoder block in memory at a time.

Blocks, embedding and head are read from safetensors when they are used, and freed after. Knows checkpoints and how to
fill a skeleton with their tensors. Does not know what is done to a block.
"""

import contextlib
import ctypes
import inspect
import json
import shutil
import weakref
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from math import prod
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Int64
from safetensors.torch import save_file
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.pytorch_utils import Conv1D

from icml25cli.core.architecture import match_names
from icml25cli.core.checkpoint import INDEX, check_finite, read_tensors, tensor_index
from icml25cli.core.errors import InputError, unknown_token
from icml25cli.core.models import ModelSource, runnable
from icml25cli.core.skeleton import Call, Skeleton, same_calls

# What else belongs to a model: all but weights, config.json and the description of the original.
_COPIED = "generation_config.json tokenizer* special_tokens_map.json added_tokens.json vocab.* merges.txt *.model"
_COPIED += " chat_template* *.py LICENSE* NOTICE* USE_POLICY*"


@dataclass(frozen=True)
class BlockLinear:
    """A matrix of a block, whichever way round its class stores it."""

    name: str  # within the block, as self_attn.q_proj; the checkpoint calls it block_prefix + name + ".weight"
    module: nn.Linear | Conv1D

    def oriented(self, matrix: Tensor) -> Tensor:
        """(out, in) to the stored orientation, or back: transformers' Conv1D (GPT-2) stores (in, out)."""
        return matrix.T if isinstance(self.module, Conv1D) else matrix

    @property
    def weight(self) -> Float[Tensor, "out in"]:
        """A view of the weight as (out, in)."""
        return self.oriented(self.module.weight.detach())

    def set_weight(self, weight: Float[Tensor, "out in"]) -> None:
        """Copy ``weight`` into the module."""
        self.weight.copy_(weight)


class StreamedModel:
    """One model, read block by block.

    Args:
        source: from ``models.resolve``.
        device: where blocks and hidden states live.
        dtype: in which blocks are used, whatever they are stored in.

    Raises:
        InputError: the model is quantised already or ``Skeleton`` refuses it, or the checkpoint lacks a tensor or holds
            one in another shape than config.json says.
    """

    def __init__(
        self, source: ModelSource, device: str | torch.device = "cpu", dtype: torch.dtype = torch.float32
    ) -> None:
        if "quantization_config" in source.config:
            raise InputError(f"{source.name} is quantised already", hint="give the model it was made from")
        self.source = source
        self.device = torch.device(device)
        self.dtype = dtype
        self._index = tensor_index(source.path)
        self._skeleton = Skeleton(source, self._index, dtype)
        self._model = self._skeleton.model
        self._model_name, self._tensor_of = match_names(self._model, self._index, source.path)
        self._refuse_renamed_blocks()
        self._finite: set[str] = set()  # tensors that were looked through
        self._calls: dict[tuple[int, ...], list[Call]] = {}  # by (B, T): what every block gets beside its hidden state
        self._in_section = False
        self._outside = self._skeleton.outside_modules()
        for path, module in self._outside:
            self._make_buffers(path, module)

    # --- what there is -----------------------------------------------------------------------------------------------

    @property
    def block_count(self) -> int:
        return len(self._skeleton.blocks)

    def block_prefix(self, i: int) -> str:
        """What the names of block ``i``'s tensors begin with in the checkpoint, as ``model.layers.3.``"""
        path = f"{self._skeleton.blocks_name}.{i}."
        name, stored = next((name, stored) for name, stored in self._tensor_of.items() if name.startswith(path))
        return stored.removesuffix(name.removeprefix(path))

    def matrix_shapes(self, i: int) -> dict[str, tuple[int, int]]:
        """(out, in) of every matrix of block ``i``, by its name within the block; nothing is read."""
        linears = self.linears(self._skeleton.blocks[i])
        return {name: (linear.weight.shape[0], linear.weight.shape[1]) for name, linear in linears.items()}

    @property
    def embedding_shape(self) -> tuple[int, int]:
        """Size of the vocabulary, and width of a hidden state."""
        vocabulary, width = self._skeleton.embedding.weight.shape
        return vocabulary, width

    @property
    def parameter_count(self) -> int:
        """Of all tensors in the checkpoint."""
        return sum(prod(entry.shape) for entry in self._index.values())

    def block_tensors(self, i: int) -> dict[str, Tensor]:
        """Block ``i``'s tensors as stored, memory-mapped, by their names in the checkpoint."""
        return dict(read_tensors(self._index, self._block_names(i)))

    def other_tensors(self) -> Iterator[tuple[str, Tensor]]:
        """Tensors outside the blocks as stored, memory-mapped, by their names in the checkpoint.

        A head tied to the embedding is left out where the checkpoint repeats it.
        """
        inside = {name for i in range(self.block_count) for name in self._block_names(i)}
        names = [name for name in self._index if name not in inside]
        for pair in self._model.all_tied_weights_keys.items():
            copy, original = (self._tensor_of[name] for name in pair)
            if copy != original:
                stored = dict(read_tensors(self._index, [copy, original]))
                if torch.equal(stored[copy], stored[original]):
                    names.remove(copy)
        yield from read_tensors(self._index, names)

    # --- running -----------------------------------------------------------------------------------------------------

    @torch.no_grad()
    def embed(self, input_ids: Int64[Tensor, "B T"]) -> Float[Tensor, "B T d"]:
        """The input of the first block. All rows are text: there is no padding.

        Raises:
            InputError: a token is outside the vocabulary, the embedding is not finite, or blocks depend on the text in
                other ways than by their hidden states.
        """
        with self._outside_loaded():
            hidden, calls = self._skeleton.trace(input_ids=input_ids.to(self.device))
        if not same_calls(self._calls.setdefault(tuple(input_ids.shape), calls), calls):
            raise InputError(f"the blocks of {self.source.name} read the text itself", hint="use another architecture")
        return hidden

    @contextlib.contextmanager
    def block(self, i: int) -> Iterator[nn.Module]:
        """Block ``i`` with its weights in ``dtype``; they are freed on leaving.

        Raises:
            InputError: a weight is not finite; the tensor is named.
        """
        modules = self._skeleton.block_modules(i)
        held = _Held()
        try:
            for path, module in modules:  # first, because making them may touch weights
                self._make_buffers(path, module)
            self._load(modules, held)
            yield self._skeleton.blocks[i]
        finally:
            held.free()

    @torch.no_grad()
    def run_block(
        self, block: nn.Module, i: int, hidden: Float[Tensor, "B T d"], cache: Any = None
    ) -> Float[Tensor, "B T d"]:
        """The output of block ``i``, as ``self.block(i)`` gave it, for one input.

        Attention reads keys and values back from ``cache.update(keys, values, layer)``, if given.

        Raises:
            InputError: a cache is given, and blocks of this class take none.
        """
        shape = tuple(hidden.shape[:2])
        if shape not in self._calls:
            with self._outside_loaded():
                nothing = self._skeleton.placeholder(shape, self.device)
                self._calls[shape] = self._skeleton.trace(inputs_embeds=nothing)[1]
        args, kwargs = self._calls[shape][i]
        if cache is not None:
            args, kwargs = self._with_cache(block, args, kwargs, cache)
        output = block(hidden, *args, **kwargs)
        return output[0] if isinstance(output, tuple | list) else output

    @contextlib.contextmanager
    def head(self) -> Iterator[None]:
        """Keep final norm and head in memory from their first use in this section to its end."""
        with self._outside_loaded():
            yield

    @torch.no_grad()
    def logits(self, hidden: Float[Tensor, "B T d"], positions: slice | None = None) -> Float[Tensor, "B S V"]:
        """Logits of the output of the last block at ``positions`` (all, if None).

        Final norm and head work on each position by itself, so the other positions are not computed. Inside ``with
        model.head():`` the weights are loaded once, outside of it at every call.
        """
        hidden = hidden[:, positions or slice(None)]
        nothing = self._skeleton.placeholder(tuple(hidden.shape[:2]), self.device)
        with self._outside_loaded(), self._skeleton.replaced(lambda *_: hidden):
            return self._model(inputs_embeds=nothing, use_cache=False).logits

    def linears(self, block: nn.Module) -> dict[str, BlockLinear]:
        """Every matrix of a block by name, in the order of the module tree."""
        return {
            name: BlockLinear(name, module)
            for name, module in block.named_modules()
            if isinstance(module, nn.Linear | Conv1D)
        }

    @contextlib.contextmanager
    def record_inputs(self, block: nn.Module, callback: Callable[[str, Tensor], None]) -> Iterator[dict[str, str]]:
        """Call ``callback(group, x)`` for every distinct input x (tokens, in) of the block's matrices in ``run_block``.

        Matrices that get the very same tensor (query, key and value; gate and up) are one group, named by the first of
        them. Yields the mapping from matrix to group, which fills as the block runs.
        """
        groups: dict[str, str] = {}
        first = _OncePerTensor()

        def record(name: str, x: Tensor) -> None:
            def announce() -> str:
                callback(name, x.detach().reshape(-1, x.shape[-1]))
                return name

            groups[name] = first.get(x, announce)

        with self._watched_inputs(block, self.linears(block), record):
            yield groups

    @contextlib.contextmanager
    def changed_inputs(
        self, block: nn.Module, names: Iterable[str], change: Callable[[Tensor], Tensor]
    ) -> Iterator[None]:
        """Give the matrices called ``names`` ``change(x)`` in place of their input x; called once for a shared x."""
        changed = _OncePerTensor()
        with self._watched_inputs(block, names, lambda _, x: changed.get(x, lambda: change(x))):
            yield

    # --- inside ------------------------------------------------------------------------------------------------------

    def _refuse_renamed_blocks(self) -> None:
        for name, stored in self._tensor_of.items():
            block, _, inner = name.removeprefix(f"{self._skeleton.blocks_name}.").partition(".")
            if name.startswith(f"{self._skeleton.blocks_name}.") and not stored.endswith(f".{block}.{inner}"):
                raise InputError(
                    f"{self.source.path} calls {name} {stored}, and such names are not supported in blocks"
                )

    @contextlib.contextmanager
    def _watched_inputs(
        self, block: nn.Module, names: Iterable[str], see: Callable[[str, Tensor], Tensor | None]
    ) -> Iterator[None]:
        def watch(name: str) -> Callable[[nn.Module, tuple[Tensor, ...]], tuple[Tensor, ...]]:
            def hook(_: nn.Module, args: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
                instead = see(name, args[0])
                return args if instead is None else (instead, *args[1:])

            return hook

        linears = self.linears(block)
        handles = [linears[name].module.register_forward_pre_hook(watch(name)) for name in names]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def _with_cache(self, block: nn.Module, args: tuple, kwargs: dict[str, Any], cache: Any) -> Call:
        signature = inspect.signature(block.forward)
        name = next((name for name in ("cache", "past_key_values", "layer_past") if name in signature.parameters), None)
        if name is None:
            raise InputError(f"the blocks of {self.source.name} take no key-value cache", hint="quantise weights alone")
        call = signature.bind_partial(None, *args, **kwargs)
        call.arguments[name] = cache
        return call.args[1:], call.kwargs

    def _block_names(self, i: int) -> list[str]:
        """The checkpoint's names of what belongs to block ``i``, used by the model or not."""
        prefix = f"{self._skeleton.blocks_name}.{i}."
        return [stored for stored, name in self._model_name.items() if name.startswith(prefix)]

    def _load(self, modules: Iterable[tuple[str, nn.Module]], held: "_Held") -> None:
        """Read what the modules themselves hold, in the dtype of this model."""
        places = [
            (module, name, self._tensor_of[f"{path}.{name}"])
            for path, module in modules
            for name in (*module._parameters, *module._buffers)
            if f"{path}.{name}" in self._tensor_of
        ]
        stored = dict(read_tensors(self._index, {tensor for _, _, tensor in places}))
        for module, name, tensor in places:
            held.put(module, name, self._in_dtype(self._checked(tensor, stored[tensor])))

    def _checked(self, name: str, tensor: Tensor) -> Tensor:
        if name not in self._finite:
            check_finite(self._index[name].file, name, tensor)
            self._finite.add(name)
        return tensor

    def _in_dtype(self, tensor: Tensor) -> Tensor:
        return tensor.to(self.device, self.dtype if tensor.is_floating_point() else tensor.dtype)

    def _make_buffers(self, path: str, module: nn.Module) -> None:
        """Compute buffers that no checkpoint holds (rotary frequencies, scales), as transformers does when it loads."""
        missing = {
            name: buffer
            for name, buffer in module._buffers.items()
            if buffer is not None and buffer.is_meta and f"{path}.{name}" not in self._tensor_of
        }
        for name, buffer in missing.items():
            module._buffers[name] = torch.empty_like(buffer, device=self.device)
        if missing:
            parts = path.split(".")
            around = (self._model.get_submodule(".".join(parts[:end])) for end in range(len(parts), -1, -1))
            with runnable(self.source.name):
                next(model for model in around if isinstance(model, PreTrainedModel))._init_weights(module)

    @contextlib.contextmanager
    def _outside_loaded(self) -> Iterator[None]:
        """Load modules outside the blocks when they are first called; free them at the end of the outermost section."""
        if self._in_section:
            yield
            return
        held = _Held()
        loaded: set[str] = set()

        def load(path: str) -> Callable[[nn.Module, tuple], Any]:
            def hook(module: nn.Module, args: tuple) -> Any:
                if module is self._skeleton.embedding:
                    return self._load_used_rows(path, module, args, held)
                if path not in loaded:
                    loaded.add(path)
                    self._load([(path, module)], held)
                return None

            return hook

        handles = [module.register_forward_pre_hook(load(path)) for path, module in self._outside]
        self._in_section = True
        try:
            yield
        finally:
            self._in_section = False
            for handle in handles:
                handle.remove()
            held.free()

    def _load_used_rows(self, path: str, embedding: nn.Module, args: tuple, held: "_Held") -> tuple:
        """Give the embedding just the rows it is asked for, as all of it can outweigh a block; return their places."""
        name = self._tensor_of[f"{path}.weight"]
        table = self._checked(name, dict(read_tensors(self._index, [name]))[name])
        rows, places = args[0].unique(return_inverse=True)
        if len(rows) and not 0 <= rows[0] <= rows[-1] < len(table):
            raise unknown_token(int(rows[-1]), len(table), self.source.name)
        held.put(embedding, "weight", self._in_dtype(table[rows.cpu()]))
        return (places, *args[1:])


class _OncePerTensor:
    """Results for tensors that several callers pass on, each made at the first."""

    def __init__(self) -> None:
        self._made: list[tuple[weakref.ref, Any]] = []  # weak, so that no tensor lives longer for being known

    def get(self, x: Tensor, make: Callable[[], Any]) -> Any:
        self._made = [(seen, result) for seen, result in self._made if seen() is not None]
        for seen, result in self._made:
            if seen() is x:
                return result
        result = make()
        self._made.append((weakref.ref(x), result))
        return result


class _Held:
    """Tensors put into modules for a while."""

    def __init__(self) -> None:
        self._before: dict[tuple[int, str], tuple[dict[str, Any], Any]] = {}

    def put(self, module: nn.Module, name: str, tensor: Tensor) -> None:
        is_parameter = name in module._parameters
        slots: dict[str, Any] = module._parameters if is_parameter else module._buffers
        self._before.setdefault((id(slots), name), (slots, slots[name]))
        slots[name] = nn.Parameter(tensor, requires_grad=False) if is_parameter else tensor

    def free(self) -> None:
        for (_, name), (slots, before) in self._before.items():
            slots[name] = before
        self._before.clear()
        # glibc keeps freed tensors of up to 32 MiB in its heap, where their holes add up from block to block.
        if trim := getattr(ctypes.CDLL(None), "malloc_trim", None):
            trim(0)


def write_checkpoint(
    directory: Path,
    source: ModelSource,
    blocks: Iterable[dict[str, Tensor]],
    dtype: torch.dtype | None = torch.bfloat16,
    config: dict[str, Any] | None = None,
    block_count: int | None = None,
) -> None:
    """Write a model directory that plain ``AutoModelForCausalLM.from_pretrained`` loads, one shard a block.

    Args:
        directory: exists, and is the caller's to commit or throw away (``runs.commit_output``).
        source: gives config, tokenizer and all tensors outside the blocks.
        blocks: for each block in order its tensors by checkpoint name, as ``StreamedModel.block_tensors`` gives them.
        dtype: of all floating-point tensors that the source has too; others (codes, scales) are written as they are.
            None leaves every tensor as it is.
        config: in place of the source's, whose every block then need not be there.
        block_count: of ``blocks``, where it is not the source's.

    Raises:
        ValueError: ``blocks`` yields too few or too many.
        OSError, SafetensorError: the disk is full or the place read-only; ``runs`` turns them into OutputError.
    """
    model = StreamedModel(source)
    block_count = model.block_count if block_count is None else block_count
    shards = block_count + 1
    weight_map: dict[str, str] = {}
    size = 0
    for tensors in chain(blocks, [dict(model.other_tensors())]):
        name = f"model-{len(set(weight_map.values())) + 1:05}-of-{shards:05}.safetensors"
        cast = {
            key: (x.to(dtype) if dtype and x.is_floating_point() and key in model._index else x).cpu().contiguous()
            for key, x in tensors.items()
        }
        save_file(cast, directory / name, metadata={"format": "pt"})
        weight_map |= dict.fromkeys(cast, name)
        size += sum(x.nbytes for x in cast.values())
    if len(set(weight_map.values())) != shards:
        raise ValueError(f"a model of {block_count} blocks was given {len(set(weight_map.values())) - 1}")
    index = {"metadata": {"total_size": size}, "weight_map": weight_map}
    (directory / INDEX).write_text(json.dumps(index, indent=2) + "\n")
    config = {key: value for key, value in (config or source.config).items() if key != "quantization_config"}
    if dtype:
        config.pop("torch_dtype", None)
        config["dtype"] = str(dtype).removeprefix("torch.")
    (directory / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    for pattern in _COPIED.split():
        for file in source.path.glob(pattern):
            shutil.copyfile(file, directory / file.name)
