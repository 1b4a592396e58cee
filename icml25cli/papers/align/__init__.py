"""How aligned two representations of the same items are, and whether it matters for a task.

Tjandrasuwita, Ekbote, Ziyin, Liang: Understanding the Emergence of Multimodal Representation Alignment, ICML 2025.
"""
