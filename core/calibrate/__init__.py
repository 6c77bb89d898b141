"""Calibration: what a profile says of a model's heads, found by running the model.

`tasks.py` makes samples of our own material, `tapping.py` reads them, `ranks.py` scores and ranks,
`choosing.py` takes REFORM's heads, `copying.py` finds retrieval heads, `span_search.py` fits spans,
and `run.py` does all of it, kept in a journal.
"""
