"""Needle in a haystack: is a fact retrieved wherever it is in a text of a given length?

`kinds.py` draws needles, `laying.py` hides them at all depths of one haystack, `needle_test.py`
reads it and asks, and `report.py` counts. Only an answer's words count; nothing here helps the
model.
"""
