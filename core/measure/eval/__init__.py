"""Evaluation: documents with questions whose answers are known, read and asked like any other.

`case.py` is what is asked, `asking.py` asks it, `journal.py` keeps what was answered so that a long
run can go on, and `figures.py` draws it. Each evaluation is a file that makes cases and counts.
Nothing here helps the model to an answer.
"""
