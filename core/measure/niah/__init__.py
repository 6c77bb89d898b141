"""Needle in a haystack: is a fact found again wherever it stands in a text of a given length?

`kinds.py` draws needles, `laying.py` puts those of all depths into one haystack, `run.py` reads and
asks, and `report.py` counts. An answer is judged by its own words; nothing here helps the model.
"""
