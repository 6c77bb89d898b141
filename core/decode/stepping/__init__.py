"""The steps of an answer: one token through the model, the choice of the next, graphs of both.

`step.py` is one step and `steps.py` runs them in order; `graphs.py` records them on a GPU.
`choosing.py` draws a token, and `one_token.py` runs a common decoder in few operations.
`core/decode/decode.py` turns them into an answer.
"""
