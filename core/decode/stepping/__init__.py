"""The steps of an answer: one token through the model, the choice of the next, graphs of both.

`step.py` is one of them and `steps.py` their order; `graphs.py` records them on a GPU.
`choosing.py` draws a token, and `one_token.py` runs a usual decoder in few operations.
`core/decode/decode.py` makes an answer of them.
"""
