"""Beta: a frozen prior-fitted network for tables, adapted by bagging and by encoders of its input.

Liu and Ye: TabPFN Unleashed: A Scalable and Effective Solution to Tabular Classification Problems. ICML 2025.
"""
