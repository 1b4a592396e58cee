"""Formulations of word problems without a language model: a grammar that proposes readings and scores them.

Knows problems of a few variables named in the text, with numbers in it. Says so where a text is of another kind.
"""
