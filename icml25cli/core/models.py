"""Models by name: an alias, a Hugging Face id, a directory or a .gguf file becomes a checked local directory.

The only place that loads models (``streaming`` does it block by block). Knows aliases, caches and the hub. Does not
know what is done with a model. Heavy libraries are imported inside functions: shell completion reads the aliases here.
"""

from __future__ import annotations

import contextlib
import difflib
import errno
import functools
import importlib.resources
import os
import re
import sys
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from icml25cli.core.checkpoint import check_directory, check_finite, tensor_index
from icml25cli.core.errors import InputError, MissingError, OutputError, ToolboxError, UsageError
from icml25cli.core.files import expand

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")  # read once, when huggingface_hub is imported

PRUNED = "pruned_"  # what the types of models in modeling_pruned begin with
FREE_DOWNLOAD = 50_000_000  # bytes that are fetched without asking
_HUB_SECONDS = 10
# Not every safetensors file: some repositories hold the same weights twice, the second time as consolidated.*.
_HUB_FILES = ["model*.safetensors", "*.json", "*.jinja", "tokenizer*", "*.model", "*.txt"]
_TOKENIZER_FILES = ("tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt", "spiece.model", "tekken.json")


@dataclass(frozen=True)
class ModelSource:
    """A model on this machine, checked to be whole."""

    name: str  # as the user typed it
    path: Path  # a directory in Hugging Face layout, weights in safetensors
    config: dict[str, Any]  # its config.json
    notes: tuple[str, ...] = ()  # sentences that a report on this model must show
    trust_remote_code: bool = False


@functools.cache
def aliases() -> dict[str, dict[str, Any]]:
    """The short names of models, from ``assets/aliases.toml``, which explains the fields."""
    return tomllib.loads(_shipped("aliases.toml").read_text(encoding="utf-8"))


def _shipped(name: str) -> Path:
    return Path(str(importlib.resources.files("icml25cli.assets"))) / name


def resolve(ref: str | Path, *, allow_download: bool = False, trust_remote_code: bool = False) -> ModelSource:
    """Find the model that ``ref`` names: on disk, then among aliases, then in caches, then on its hub.

    Args:
        ref: a directory, a .gguf file, an alias or a Hugging Face id (``org/name``).
        allow_download: a model of more than 50 MB may be fetched from its hub.
        trust_remote_code: the model's own Python files may be run.

    Raises:
        InputError: nothing has that name, or what has it is not a whole causal language model in safetensors or GGUF.
        MissingError: the model is known but not on this machine, or the hub does not give it out; the hint says how to
            get it.
    """
    name = str(ref)
    if not name:
        raise InputError("the name of a model is empty", hint="a model is an alias, a directory or a .gguf file")
    path = expand(name)
    notes: tuple[str, ...] = ()
    if not os.path.lexists(path):
        path = _find(name, allow_download=allow_download, trust_remote_code=trust_remote_code)
    if path.is_file():
        if path.suffix != ".gguf":
            raise InputError(f"{name} is a file, but not a .gguf file", hint="a model is a directory or a .gguf file")
        from icml25cli.core.gguf_cache import convert

        with quiet_transformers():
            path, note = convert(path)
        notes = (note,)
    config = check_directory(path)
    _check_causal(path, config, trust_remote_code)
    return ModelSource(name, path, config, notes, trust_remote_code)


def _find(name: str, **permissions: bool) -> Path:
    """The local path of a name that is none itself."""
    alias = aliases().get(name)
    if alias is None:
        if re.fullmatch(r"[\w-][\w.-]*/[\w-][\w.-]*", name) and not name.endswith(".gguf"):
            return _from_hub(name, {"hub": name}, **permissions)
        close = difflib.get_close_matches(name, aliases(), n=1)
        raise InputError(
            f"no model is called {name}: there is no such path, alias or Hugging Face id",
            hint=f"did you mean {close[0]}?" if close else f"aliases: {', '.join(aliases())}",
        )
    if "hub" in alias:
        return _from_hub(name, alias, **permissions)
    if "directory" in alias:
        path = _shipped(alias["directory"])
        if not path.is_dir():
            raise MissingError(f"the built-in model {name} is not in this installation", hint="install icml25 again")
        return path
    from icml25cli.core import store

    return store.path(alias["asset"])


# --- the hub -----------------------------------------------------------------------------------------------------


def _from_hub(name: str, alias: dict[str, Any], *, allow_download: bool, trust_remote_code: bool) -> Path:
    """A complete snapshot from the Hugging Face cache, else from the hub if it is small or allowed."""
    repo = alias["hub"]
    patterns = _HUB_FILES + ["*.py"] * trust_remote_code
    if cached := _cached(repo, patterns):
        return cached
    shown = name if name == repo else f"{name} ({repo})"
    if "gigabytes" in alias and not allow_download:
        raise _refusal(shown, repo, alias["gigabytes"], alias["licence"], alias.get("gated", False))

    import huggingface_hub
    from huggingface_hub import errors

    get_elsewhere = f"where there is a network: hf download {repo} --local-dir DIR, then give DIR as the model"
    try:
        info = huggingface_hub.HfApi().model_info(repo, files_metadata=True, timeout=_HUB_SECONDS)
        files = list(huggingface_hub.utils.filter_repo_objects(
            info.siblings or [], allow_patterns=patterns, key=lambda sibling: sibling.rfilename
        ))  # fmt: skip
        if not any(file.rfilename.endswith(".safetensors") for file in files):
            raise MissingError(f"{shown} has no safetensors weights on the hub", hint="choose another model")
        size = sum(file.size or 0 for file in files)
        if size > FREE_DOWNLOAD and not allow_download:
            licence = getattr(info.card_data, "license", None) or alias.get("licence")
            raise _refusal(shown, repo, size / 1e9, licence, bool(info.gated))
        if not sys.stderr.isatty():
            huggingface_hub.utils.disable_progress_bars()
        return Path(huggingface_hub.snapshot_download(repo, allow_patterns=patterns))
    except errors.GatedRepoError as error:
        raise MissingError(f"{shown} is gated: the hub does not give it to this account", hint=_gate(repo)) from error
    except (errors.RepositoryNotFoundError, errors.RevisionNotFoundError) as error:
        raise MissingError(
            f"{shown} is no path here, and the hub knows no such model or it is private",
            hint="check the spelling; for a private model run `hf auth login` first",
        ) from error
    except errors.OfflineModeIsEnabled as error:
        raise MissingError(f"{shown} is not in the cache and HF_HUB_OFFLINE is set", hint=get_elsewhere) from error
    except Exception as error:
        # The hub's client raises its own errors, those of its HTTP library and plain OSError, all for "no answer".
        if isinstance(error, MissingError):
            raise
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EROFS):
            reason = os.strerror(error.errno).lower()
            raise OutputError(f"{shown} cannot be stored in the Hugging Face cache: {reason}") from error
        raise MissingError(
            f"{shown} is not on this machine and the hub cannot be reached ({type(error).__name__})", hint=get_elsewhere
        ) from error


def _cached(repo: str, patterns: list[str]) -> Path | None:
    """The snapshot of ``repo`` in the Hugging Face cache if its weights are there. Never goes to the network."""
    import huggingface_hub
    from huggingface_hub.errors import IncompleteSnapshotError

    try:
        path = huggingface_hub.snapshot_download(repo, local_files_only=True, allow_patterns=patterns)
    except IncompleteSnapshotError as error:  # transformers, for one, fetches only the files that it needs
        path = error.snapshot_path
    except (OSError, ValueError):  # nothing there, or an id that the hub would not accept
        return None
    try:
        check_directory(Path(path))
    except InputError:
        return None
    return Path(path)


def _refusal(shown: str, repo: str, gigabytes: float, licence: str | None, gated: bool) -> MissingError:
    facts = [f"{gigabytes:.1f} GB" if gigabytes >= 1 else f"{gigabytes * 1000:.0f} MB", licence or "licence not stated"]
    return MissingError(
        f"{shown} is not on this machine and would be a download of {', '.join(facts + ['gated'] * gated)}",
        hint=(_gate(repo) + "; then " if gated else "")
        + "repeat the command with --allow-download, or give a directory that holds the model",
    )


def _gate(repo: str) -> str:
    return f"accept its licence at https://huggingface.co/{repo} and run `hf auth login`"


# --- architecture ------------------------------------------------------------------------------------------------


def _check_causal(path: Path, config: dict[str, Any], trust_remote_code: bool) -> None:
    """Raise InputError unless config.json describes a causal language model that transformers can build."""
    from transformers import AutoConfig
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    file = path / "config.json"
    for field, kind in (("auto_map", dict), ("architectures", list)):
        if not isinstance(config.get(field) or kind(), kind):
            raise InputError(f"{file}: {field} is no {'object' if kind is dict else 'list'}")
    remote = "AutoModelForCausalLM" in (config.get("auto_map") or {})
    ours = know_pruned() if config["model_type"].startswith(PRUNED) else {}
    known = config["model_type"] in {*MODEL_FOR_CAUSAL_LM_MAPPING_NAMES, *ours}
    if not known and not (remote and trust_remote_code):
        raise InputError(
            f"{file}: transformers knows no causal language model of type {config['model_type']}",
            hint="it brings code of its own: --trust-remote-code runs it" if remote else None,
        )
    architectures = [str(name) for name in config.get("architectures") or []]
    causal = {*MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.values(), *ours.values()}
    if known and architectures and not causal.intersection(architectures):
        raise InputError(f"{file} names the architecture {architectures[0]}, which is no causal language model")
    _check_counts(file, config, len(tensor_index(path)))
    try:
        AutoConfig.from_pretrained(str(path), local_files_only=True, trust_remote_code=trust_remote_code)
    except Exception as error:  # transformers checks fields by many kinds of exception
        raise InputError(f"{file} cannot be used: {first_line(error)}") from error


def know_pruned() -> dict[str, str]:
    """Let transformers load what ``icml25 prune`` writes without running the code beside it: class names by type."""
    from transformers import AutoConfig, AutoModelForCausalLM

    from icml25cli.core.modeling_pruned import Pruned

    classes: Any = Pruned.__subclasses__()
    for model in classes:
        AutoConfig.register(model.config_class.model_type, model.config_class, exist_ok=True)
        AutoModelForCausalLM.register(model.config_class, model, exist_ok=True)
        model.config_class.register_for_auto_class()  # save_pretrained then copies the code, too
        model.register_for_auto_class("AutoModelForCausalLM")
    return {model.config_class.model_type: model.__name__ for model in classes}


def _check_counts(file: Path, config: dict[str, Any], tensors: int) -> None:
    """Refuse counts by which transformers would fill lists without end, or that leave no room for text."""
    limits = dict.fromkeys(("num_hidden_layers", "num_layers", "n_layers", "n_layer"), (0, tensors))
    limits |= dict.fromkeys(("max_position_embeddings", "n_positions"), (2, 2**40)) | {"num_labels": (0, 2**16)}
    for fields in (config, *(value for value in config.values() if isinstance(value, dict))):
        for name, (low, high) in limits.items():
            count = fields.get(name)
            if isinstance(count, int | float) and not low <= count <= high:
                raise InputError(
                    f"{file}: {name} is {count}, and no model with these files has that", hint="restore config.json"
                )


# --- loading -----------------------------------------------------------------------------------------------------


def pick_device(name: str) -> torch.device:
    """``auto`` is CUDA where there is a device, else the CPU; anything else as torch spells it.

    Raises:
        UsageError: torch knows no such device, or this machine has none.
    """
    import torch

    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(1, device=device).cpu()  # meta, or a device that torch knows and this machine lacks, fails here
    except (RuntimeError, NotImplementedError, AssertionError, ImportError) as error:
        raise UsageError(f"there is no device {name} here", hint="--device auto takes what there is") from error
    return device


def context_length(config: Mapping[str, Any]) -> int | None:
    """The longest text that a model with this config.json is made for; None where it does not say."""
    longest = config.get("max_position_embeddings") or config.get("n_positions")
    return longest if isinstance(longest, int) and longest > 1 else None


def load_model(source: ModelSource, dtype: torch.dtype | str = "float32", device: str = "cpu") -> PreTrainedModel:
    """The whole model in memory, in evaluation mode, for work small enough to need no streaming.

    Raises:
        InputError: a tensor of the architecture is missing or has another shape or kind, which is found before anything
            is allocated; or a value is not finite, or the model cannot be run.
        MissingError: the weights need a package that is not installed.
        UsageError: no such device.
    """
    from transformers import AutoConfig, AutoModelForCausalLM

    from icml25cli.core.architecture import build, check_files

    target = pick_device(device)
    trust = source.trust_remote_code
    config = AutoConfig.from_pretrained(str(source.path), local_files_only=True, trust_remote_code=trust)
    index = tensor_index(source.path)
    empty = build(config, index, source.path, trust_remote_code=trust)
    check_files(empty, index, source.config, source.path)
    with quiet_transformers():
        try:
            loaded: Any = AutoModelForCausalLM.from_pretrained(
                str(source.path),
                config=config,
                dtype=dtype,
                local_files_only=True,
                use_safetensors=True,
                trust_remote_code=trust,
                output_loading_info=True,
            )
        except InputError:  # of a format that icml25cli.hf registers; it names the tensor
            raise
        except ImportError as error:  # weights quantised by a library that is not installed
            raise MissingError(f"{source.path} cannot be loaded: {first_line(error)}", hint="install it") from error
        except Exception as error:  # each architecture and each quantiser has its own for a configuration it cannot use
            raise InputError(f"{source.path} cannot be loaded: {first_line(error)}") from error
    model, loading = loaded
    ready: Any = checked(model, loading, source.path)
    return ready.to(target)


def checked(model: PreTrainedModel, loading: dict[str, Any], where: Path) -> PreTrainedModel:
    """What ``from_pretrained`` returned, in evaluation mode, once it is seen to be whole and to work.

    Raises:
        InputError: a tensor was missing or has values that are not finite, or the model cannot read two tokens.
    """
    import torch

    if loading["missing_keys"]:
        raise InputError(f"{where} lacks the tensor {min(loading['missing_keys'])}")
    for name, parameter in model.named_parameters():
        check_finite(where, name, parameter.detach())
    model.eval()
    with torch.no_grad(), runnable(where):
        how = {"use_cache": False} if model.can_generate() else {}
        model(input_ids=torch.zeros(1, 2, dtype=torch.long, device=model.device), **how)
    return model


@contextlib.contextmanager
def runnable(where: Path | str) -> Iterator[None]:
    """Turn what modelling code raises, on a configuration that fits the tensors but not itself, into InputError."""
    try:
        yield
    except (ToolboxError, MemoryError):
        raise
    except Exception as error:
        raise InputError(f"{where} cannot be run: {first_line(error)}", hint="check its config.json") from error


def load_tokenizer(source: ModelSource) -> PreTrainedTokenizerBase:
    """The model's own tokenizer.

    Raises:
        InputError: the directory has none, or it cannot be read.
    """
    if not any((source.path / name).exists() for name in _TOKENIZER_FILES):
        raise InputError(
            f"{source.path} has no tokenizer", hint="copy tokenizer.json and tokenizer_config.json of the model into it"
        )
    from transformers import AutoTokenizer

    with quiet_transformers():
        try:
            tokenizer: Any = AutoTokenizer.from_pretrained(
                str(source.path), local_files_only=True, trust_remote_code=source.trust_remote_code
            )
            _keep_no_words(tokenizer)
            tokenizer(["a word"], verbose=False)  # some fields are looked at only then
            return tokenizer
        except Exception as error:  # its parsers raise plain Exception
            raise InputError(f"the tokenizer in {source.path} cannot be read: {first_line(error)}") from error


def _keep_no_words(tokenizer: Any) -> None:
    """Turn off a tokenizer's memory of words, which threads keep beyond its life: megabytes a model, in a service."""
    kept = getattr(getattr(tokenizer, "backend_tokenizer", None), "model", None)
    if hasattr(kept, "_resize_cache"):  # of BPE and Unigram
        kept._resize_cache(0)  # type: ignore[union-attr]


def load_classifier(path: Path, device: str = "cpu") -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """A sequence classifier in a directory, such as a reward model, in evaluation mode, with its tokenizer.

    Raises:
        InputError: the directory holds no whole classifier in safetensors, or no tokenizer.
        UsageError: no such device.
    """
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    config = check_directory(path)
    if not any("SequenceClassification" in str(name) for name in config.get("architectures") or ()):
        raise InputError(f"{path} is no sequence classifier", hint="give a reward model with such a head")
    with quiet_transformers():
        try:
            loaded: Any = AutoModelForSequenceClassification.from_pretrained(
                str(path), dtype="float32", local_files_only=True, use_safetensors=True, output_loading_info=True
            )
            tokenizer: Any = AutoTokenizer.from_pretrained(str(path), local_files_only=True)
            _keep_no_words(tokenizer)
        except Exception as error:  # as for language models
            raise InputError(f"{path} cannot be loaded: {first_line(error)}") from error
    model, loading = loaded
    return checked(model, loading, path).to(pick_device(device)), tokenizer  # type: ignore[arg-type]


@contextlib.contextmanager
def quiet_transformers() -> Iterator[None]:
    """No bars and no advice from transformers: standard error is ours, and what matters becomes an error or a note."""
    from transformers.utils import logging

    verbosity, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()


def first_line(error: Exception) -> str:
    """What a library's exception says, as the end of one sentence."""
    return str(error).strip().partition("\n")[0].rstrip(".:") or type(error).__name__
