"""GPTQ W4A16 of llm-compressor on given windows; bench_llmcompressor.py runs this with the environment it built.

    python llmcompressor_gptq.py MODEL WINDOWS GROUP OUT

Reads a model directory and token windows, and writes to OUT what the library saves and, in decoded.safetensors, what
its weights then are. The last line says how long quantising took, in CPU seconds, as JSON. Imports nothing of icml25.
"""

import json
import sys
import time
from pathlib import Path

import torch
from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme
from datasets import Dataset
from llmcompressor import oneshot
from llmcompressor.modifiers.gptq import GPTQModifier
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM


def main(model_directory: str, windows: str, group: int, out: Path) -> None:
    tokens = load_file(windows)["calibration"]
    rows = {"input_ids": tokens.tolist(), "attention_mask": torch.ones_like(tokens).tolist()}
    model = AutoModelForCausalLM.from_pretrained(model_directory, dtype="auto", local_files_only=True)
    # What its preset W4A16 says, but for the group, which must divide every width.
    weights = QuantizationArgs(num_bits=4, type="int", strategy="group", group_size=group, symmetric=True)
    recipe = GPTQModifier(
        config_groups={"weights": QuantizationScheme(targets=["Linear"], weights=weights)}, ignore=["lm_head"]
    )
    started = time.process_time()
    oneshot(
        model=model,
        tokenizer=model_directory,
        dataset=Dataset.from_dict(rows),
        recipe=recipe,
        max_seq_length=tokens.shape[1],
        num_calibration_samples=len(tokens),
        shuffle_calibration_samples=False,
    )
    seconds = time.process_time() - started
    out.mkdir()
    decoded = {
        f"{name}.weight": module.weight.detach().float().contiguous()
        for name, module in model.named_modules()
        if isinstance(module, torch.nn.Linear) and hasattr(module, "weight_scale")
    }
    save_file(decoded, out / "decoded.safetensors")
    model.save_pretrained(out / "saved", save_compressed=True)
    print(json.dumps({"seconds": seconds}))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), Path(sys.argv[4]))
