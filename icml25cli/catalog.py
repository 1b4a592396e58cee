"""The one table of commands.

``icml25 --help`` and ``icml25 papers`` are printed from it without importing any command. A paper whose ``module`` is
``None`` is planned: the toolbox names it and says that it does not run yet.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Command:
    """A command of the root: its name, one line of help, and the module that holds its ``app``."""

    name: str
    help: str
    module: str | None


@dataclass(frozen=True)
class Paper(Command):
    """A command that does one paper's job."""

    method: str
    title: str
    authors: str
    link: str


def _module(name: str) -> str:
    return f"icml25cli.commands.{name.replace('-', '_')}"


PAPERS: tuple[Paper, ...] = (
    Paper(
        "quantize",
        "Make my LLM's weights 4 bits.",
        _module("quantize"),
        "NestQuant",
        "NestQuant: Nested Lattice Quantization for Matrix Products and LLMs",
        "Savkin, Porat, Ordentlich, Polyanskiy",
        "https://arxiv.org/abs/2502.09720",
    ),
    Paper(
        "prune",
        "Cut heads and channels out of my LLM.",
        _module("prune"),
        "SlimLLM",
        "SlimLLM: Accurate Structured Pruning for Large Language Models",
        "Guo, Chen, Tang, Wang",
        "https://arxiv.org/abs/2505.22689",
    ),
    Paper(
        "formulate",
        "Turn this word problem into a solved optimisation model.",
        _module("formulate"),
        "Autoformulation (MCTS)",
        "Autoformulation of Mathematical Optimization Models Using LLMs",
        "Astorga, Liu, Xiao, van der Schaar",
        "https://arxiv.org/abs/2411.01679",
    ),
    Paper(
        "select-data",
        "Pick the training examples that raise my metric.",
        _module("select-data"),
        "NICE",
        "NICE Data Selection for Instruction Tuning in LLMs with Non-differentiable Evaluation Metric",
        "Wang and others",
        "https://github.com/JTWang2000/NICE",
    ),
    Paper(
        "linkpred",
        "Say which links are missing in my graph.",
        _module("linkpred"),
        "GVN, E-GVN",
        "Open Your Eyes: Vision Enhances Message Passing Neural Networks in Link Prediction",
        "Wei, Wang, Zhuang, Chen, Chen, Zhang, Kwok, Zhang",
        "https://arxiv.org/abs/2505.08266",
    ),
    Paper(
        "tabpfn-bag",
        "Classify my table without tuning.",
        _module("tabpfn-bag"),
        "Beta",
        "TabPFN Unleashed: A Scalable and Effective Solution to Tabular Classification Problems",
        "Liu, Ye",
        "https://arxiv.org/abs/2502.02527",
    ),
    Paper(
        "superpose",
        "Find out whether my LLM can do several in-context tasks at once.",
        None,
        "Task superposition",
        "Everything Everywhere All at Once: LLMs can In-Context Learn Multiple Tasks in Superposition",
        "Xiong, Cai, Cooper, Ge, Papageorgiou, Sifakis, and others",
        "https://arxiv.org/abs/2410.05603",
    ),
    Paper(
        "init-scale",
        "See what initialisation scale teaches my transformer.",
        None,
        "Small-initialisation bias",
        "An Analysis for Reasoning Bias of Language Models with Small Initialization",
        "Yao, Zhang, Xu",
        "https://arxiv.org/abs/2502.04375",
    ),
    Paper(
        "soft-reason",
        "Search for a better answer than greedy decoding.",
        None,
        "Soft Reasoning",
        "Soft Reasoning: Navigating Solution Spaces in Large Language Models through Controlled Embedding Exploration",
        "Zhu, Zhao, Yan, He, Chen, Gui",
        "https://arxiv.org/abs/2505.24688",
    ),
    Paper(
        "speculate",
        "Overlap attention with the rest of the layer.",
        None,
        "ALSpec",
        "Attention-Level Speculation",
        "Cai, Vora, Zhang, O'Connor, Jeffrey",
        "https://proceedings.mlr.press/v267/cai25g.html",
    ),
    Paper(
        "sae",
        "Interpret embeddings with a hierarchical sparse autoencoder.",
        _module("sae"),
        "MSAE",
        "Interpreting CLIP with Hierarchical Sparse Autoencoders",
        "Zaigrajew, Baniecki, Biecek",
        "https://arxiv.org/abs/2502.20578",
    ),
    Paper(
        "align",
        "Tell whether two representations are aligned, and whether it matters.",
        _module("align"),
        "alignment emergence",
        "Understanding the Emergence of Multimodal Representation Alignment",
        "Tjandrasuwita, Ekbote, Ziyin, Liang",
        "https://arxiv.org/abs/2502.16282",
    ),
    Paper(
        "fuse",
        "Fuse modalities keeping only task-relevant information.",
        None,
        "OMIB",
        "Learning Optimal Multimodal Information Bottleneck Representations",
        "Wu, Shao, Wang, Sun",
        "https://arxiv.org/abs/2505.19996",
    ),
    Paper(
        "native-vlm",
        "Build a single-transformer vision-language model.",
        None,
        "HaploVL",
        "HaploVL: A Single-Transformer Baseline for Multi-Modal Understanding",
        "Yang, Song, Xiao, Huang, Ge, Shan, Zhao",
        "https://arxiv.org/abs/2503.14694",
    ),
    Paper(
        "video-qa",
        "Understand video at 16 frames a second.",
        None,
        "F-16",
        "Improving LLM Video Understanding with 16 Frames Per Second",
        "Li, Tang, Zhuang, Yang, Sun, Li, Ma, Zhang",
        "https://arxiv.org/abs/2503.13956",
    ),
    Paper(
        "immunize",
        "Stop an infection spreading through my agents.",
        None,
        "Cowpox",
        "Cowpox: Towards the Immunity of VLM-based Multi-Agent Systems",
        "Wu, Zhang, Li, Zhang, Guo, Qiu, Lukas, Zhang",
        "https://arxiv.org/abs/2508.09230",
    ),
    Paper(
        "safety-eval",
        "Score vision-language answers for harm.",
        None,
        "ELITE",
        "ELITE: Enhanced Language-Image Toxicity Evaluation for Safety",
        "Lee, Lee, Choi, Yu, Yousefpour, Park, Ham, Kim",
        "https://arxiv.org/abs/2502.04757",
    ),
    Paper(
        "ui-bench",
        "Score a GUI agent on desktop screenshots.",
        None,
        "UI-Vision",
        "UI-Vision: A Desktop-centric GUI Benchmark for Visual Perception and Interaction",
        "Nayak, Jian, Lin, Rodriguez, Kalsi, Awal, and others",
        "https://arxiv.org/abs/2503.15661",
    ),
)

SERVICES: tuple[Command, ...] = (
    Command("papers", "List the eighteen papers and what runs today.", _module("papers")),
    Command("assets", "Fetch, add, verify and remove models and data.", _module("assets")),
    Command("evaluate", "Measure perplexity and multiple-choice accuracy of any causal LM.", _module("evaluate")),
    Command("claims", "Check the papers' main claims at a size this machine can carry.", _module("claims")),
    Command("doctor", "Show versions, devices, caches and what is missing.", _module("doctor")),
)

COMMANDS: dict[str, Command] = {command.name: command for command in (*PAPERS, *SERVICES)}


def paper(name: str) -> Paper:
    """The paper behind command ``name``."""
    found = COMMANDS[name]
    assert isinstance(found, Paper)
    return found
