"""Measuring: speed, accuracy, and the heads of a model that retrieve.

    bench/      speed and memory
    niah/       needles in a haystack
    eval/       published tasks, questions of one's own, methods compared
    calibrate/  the heads and thresholds that a profile holds

All but `bench` share what stands beside them: `case.py` is what is asked, `runner.py` reads and
asks, `journal.py` keeps finished results, so that a stopped run goes on, `prose.py` and
`haystack.py` make texts of an exact length, `figures.py` and `markdown.py` show results.
"""
