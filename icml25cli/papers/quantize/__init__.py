"""NestQuant: weights of a language model, or any rows of numbers, as points of a nested E8 lattice.

Savkin, Porat, Ordentlich, Polyanskiy: NestQuant: Nested Lattice Quantization for Matrix Products and LLMs. ICML 2025.
"""
