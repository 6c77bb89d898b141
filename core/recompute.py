"""Recomputing: the gathered tokens go through the whole model again, in order, with the question.

REFORM, 3.3 ("on-demand cache recomputation"). The result is a cache to decode from.
"""

import torch
from torch import Tensor

from longctx.core.decoding.dense import Dense
from longctx.core.model import Decoder


def recompute(
    decoder: Decoder, prefix: Tensor, gathered: Tensor, question: Tensor, answer: int
) -> tuple[Dense, Tensor]:
    """Runs [prefix | gathered | question] at consecutive positions from 0.

    Args:
        decoder: the model.
        prefix, gathered, question: (n,) token ids each, gathered in document order.
        answer: tokens that may follow.

    Returns:
        The filled cache, and the last hidden state (1, E).
    """
    ids = torch.cat([prefix, gathered, question])
    memory = Dense(capacity=len(ids) + answer)
    hidden = decoder.read(ids, memory)
    return memory, hidden[-1:]
