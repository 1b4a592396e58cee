"""Hidden states of a language model as embeddings: a row a text, or a row a token. Knows models and texts."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import torch
from jaxtyping import Float32
from numpy import ndarray

from icml25cli.core.embeddings import write_rows
from icml25cli.core.errors import InputError
from icml25cli.core.models import ModelSource, load_model, load_tokenizer, runnable
from icml25cli.core.progress import track, warn
from icml25cli.core.text import read_json_lines

Pool = Literal["mean", "last", "tokens"]


def read_texts(path: Path) -> list[str]:
    """Texts of a .jsonl (field ``text``, or strings), or the lines of any other file.

    Raises:
        InputError: the file cannot be read or holds no text; a line is neither.
    """
    if path.suffix == ".jsonl":
        texts = []
        for number, value in read_json_lines(path, hint='one {"text": ...} a line'):
            text = value.get("text") if isinstance(value, dict) else value
            if not isinstance(text, str):
                raise InputError(f"{path}: line {number} has no text", hint='write {"text": "..."}')
            texts.append(text)
    else:
        try:
            texts = path.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"{path} cannot be read as text: {error}") from error
    if not any(texts):
        raise InputError(f"{path} holds no text")
    return texts


def collect(
    source: ModelSource,
    texts: Sequence[str],
    output: Path,
    *,
    layer: int,
    pool: Pool = "mean",
    longest: int = 512,
    device: str = "cpu",
    force: bool = False,
) -> tuple[int, int]:
    """Write the hidden states after ``layer`` (0: token embeddings; negative: from the end) as .npy.

    Each text goes through the model alone, cut at ``longest`` tokens. Returns rows and columns.

    Raises:
        InputError: the model has no such layer, or a text has no token.
        OutputError: as ``write_rows``.
    """
    tokenizer: Any = load_tokenizer(source)
    model: Any = load_model(source, device=device)
    layers = int(model.config.get_text_config().num_hidden_layers)
    if not -layers - 1 <= layer <= layers:
        raise InputError(f"{source.name} has {layers} layers, not layer {layer}", hint=f"0 to {layers}, or -1 for last")
    tokens = [tokenizer(text, verbose=False)["input_ids"] for text in texts]
    if (empty := next((i for i, ids in enumerate(tokens) if not ids), None)) is not None:
        raise InputError(f"text {empty} has no token", hint="leave out empty texts")
    if cut := sum(len(ids) > longest for ids in tokens):
        warn(f"{cut} texts have more than {longest} tokens and were cut there")
    tokens = [ids[:longest] for ids in tokens]
    rows = sum(map(len, tokens)) if pool == "tokens" else len(tokens)
    width = int(model.config.get_text_config().hidden_size)

    def states() -> Iterator[Float32[ndarray, "k d"]]:
        for ids in track(tokens, f"texts through {source.name}"):
            with torch.inference_mode(), runnable(source.path):
                given = torch.tensor([ids], device=model.device)
                hidden = model(input_ids=given, output_hidden_states=True, use_cache=False).hidden_states[layer][0]
            hidden = hidden.float().cpu()
            yield (hidden if pool == "tokens" else hidden[-1:] if pool == "last" else hidden.mean(0, True)).numpy()

    write_rows(output, (rows, width), states(), force=force)
    return rows, width
