"""Answers that are quotations: the likeliest stretch of a text under a model, found exactly.

`search.py` knows texts and log-probabilities, `forks.py` reads tokens after a prompt.
"""
