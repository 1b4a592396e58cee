"""Autoformulation: from a problem in words to a mathematical model that is solved, explained and compared.

Astorga, Liu, Xiao, van der Schaar: Autoformulation of Mathematical Optimization Models Using LLMs. ICML 2025.
"""
