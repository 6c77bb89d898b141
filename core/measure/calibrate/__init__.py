"""Calibration: the heads and thresholds that a profile holds, found by running the model.

`tasks.py` makes documents with questions, `tapping.py` reads them, `ranks.py` ranks the heads by
two measures, `choosing.py` chooses REFORM's heads, `copying.py` finds retrieval heads, and
`span_search.py` fits thresholds for spans. `calibration.py` runs all of it, with a journal.
"""
