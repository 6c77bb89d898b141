"""RULER's thirteen tasks (Hsieh et al., 2024), as documents that are read before they are asked.

`tasks.py` names them with their settings; each family has a file of its own. What differs from the
published benchmark stands in docs/evaluation.md.
"""
