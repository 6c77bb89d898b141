"""Crashes made on purpose: what a layer below Python sees, and what a disk may hold after a cut.

`layer.c` is loaded into the process that runs a command, `disk.py` is the model of a disk that
loses what was not synced, `scenes.py` has the commands, `process.py` runs them, `cases.py` judges.
"""
