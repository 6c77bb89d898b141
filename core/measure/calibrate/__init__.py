"""Calibration: what a profile says of a model's heads, found by running the model.

`tasks.py` makes samples of our own material, `tapping.py` reads them, `measures.py` ranks heads by
late interaction (`window_ranks.py`) and as REFORM does (`ranks.py`), `choosing.py` takes REFORM's
heads, `copying.py` finds retrieval heads, `span_search.py` fits spans, and `run.py` does all of it,
kept in a journal.
"""
