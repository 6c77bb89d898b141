"""Evaluation: documents and questions with known answers, read and asked like any other.

`evaluation.py` asks tasks at several lengths (RULER, BABILong), `qa.py` asks files of questions on
documents of a library, and `compare.py` compares methods. Nothing here helps the model to answer.
"""
