"""SlimLLM: a smaller dense language model, without gradients, by removing attention heads and feed-forward channels.

Guo, Chen, Tang, Wang: SlimLLM: Accurate Structured Pruning for Large Language Models. ICML 2025.

``load`` brings back what ``icml25 prune`` wrote.
"""

from icml25cli.papers.prune.export import load

__all__ = ["load"]
