"""RULER's thirteen tasks (Hsieh et al., 2024), as documents that are read before they are asked.

`tasks.py` lists them with their settings; each family has its own file. docs/evaluation.md lists
the differences from the published benchmark.
"""
