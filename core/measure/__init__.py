"""Measuring: speed, accuracy, and the heads of a model that retrieve.

    bench/      speed and memory
    niah/       needles in a haystack
    eval/       published tasks, your own questions, comparison of methods
    calibrate/  the heads and thresholds that a profile holds

All but `bench` share the files beside them: `case.py` has what is asked, `runner.py` reads and
asks, `journal.py` keeps finished results so that a stopped run can resume, `prose.py` and
`haystack.py` make texts of an exact length, `figures.py` and `markdown.py` show results.
"""
