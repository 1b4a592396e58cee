"""Sentence embeddings by the asset ``all-minilm-l6-v2``: the mean of the last hidden states (Reimers and others 2019).

Knows models and texts. Does not know what texts are for.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float32
from numpy import ndarray

from icml25cli.core.errors import InputError
from icml25cli.core.models import quiet_transformers
from icml25cli.core.progress import track

ASSET, WIDTH, LONGEST, BATCH = "all-minilm-l6-v2", 384, 256, 32


def embed(texts: Sequence[str], folder: Path) -> Float32[ndarray, "n 384"]:
    """A row a text, of any length; ``folder`` is the model's. Texts are cut at 256 tokens.

    Raises:
        InputError: the folder does not hold the model.
    """
    from transformers import AutoModel, AutoTokenizer

    with quiet_transformers():
        try:
            options: dict[str, Any] = {"local_files_only": True}
            tokenizer: Any = AutoTokenizer.from_pretrained(str(folder), **options)
            model: Any = AutoModel.from_pretrained(str(folder), use_safetensors=True, **options).eval()
        except Exception as error:  # whatever its configuration makes transformers do
            raise InputError(f"{folder} cannot be loaded", hint=f"icml25 assets verify {ASSET}") from error
    rows = []
    with torch.inference_mode():
        for start in track(range(0, len(texts), BATCH), "texts"):
            given = tokenizer(
                list(texts[start : start + BATCH]),
                padding=True,
                truncation=True,
                max_length=LONGEST,
                return_tensors="pt",
            )
            hidden = model(**given).last_hidden_state
            mask = given["attention_mask"][:, :, None].to(hidden.dtype)
            rows.append(((hidden * mask).sum(dim=1) / mask.sum(dim=1)).float().numpy())
    return np.concatenate(rows)
