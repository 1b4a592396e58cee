"""A quantised model as directories: plain bfloat16 for any engine, and packed codes with their loader.

A packed directory is laid out like any Hugging Face model, one safetensors shard a decoder block, but a quantised
linear ``NAME`` has the tensors its method stores (``NAME.codes``, ``NAME.scales`` ...) in place of ``NAME.weight``, and
``config.json`` says under ``quantization_config`` how to decode them. Knows files of models and codes. Does not know
how codes were found.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from icml25cli.core.errors import InputError
from icml25cli.core.files import write_json
from icml25cli.core.report import Report
from icml25cli.core.runs import commit_output
from icml25cli.core.streaming import StreamedModel, write_checkpoint
from icml25cli.papers.quantize import pipeline
from icml25cli.papers.quantize.job import Job
