"""`find` on a CPU without PyTorch, because importing that takes longer than the search itself.

A question is a few dozen tokens through the lowest layers of a small model, against a saved cache:
numpy does that in some milliseconds, and torch takes most of a second to import. Only what is
computed exactly so is done here (`covered.py`); for everything else there is `core/ask/`, with the
same results up to the rounding of floats. Nothing here imports torch.
"""
