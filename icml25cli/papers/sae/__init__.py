"""MSAE: interpret embeddings with a hierarchical (Matryoshka) sparse autoencoder.

Zaigrajew, Baniecki, Biecek: Interpreting CLIP with Hierarchical Sparse Autoencoders. ICML 2025.
"""
