"""Recompute: prefill of the gathered tokens, in order, and the question through the whole model.

REFORM, 3.3 ("on-demand cache recomputation"). The result is a cache to decode from.
"""

import torch
from torch import Tensor

from longctx.core.kv.prompt import Prompt
from longctx.core.model.adapter import Decoder


def recompute(
    decoder: Decoder,
    prefix: Tensor,
    gathered: Tensor,
    question: Tensor,
    answer: int,
    observed: int = 0,
) -> tuple[Prompt, Tensor]:
    """Runs [prefix | gathered | question] at consecutive positions from 0.

    Args:
        decoder: the model.
        prefix, gathered, question: (n,) token ids each, gathered in document order.
        answer: the most tokens that may follow.
        observed: how many of the latest queries are kept.

    Returns:
        The filled cache, and the last hidden state (1, E).
    """
    ids = torch.cat([prefix, gathered, question])
    prompt = Prompt(len(ids) + answer, observed)
    hidden = decoder.read(ids, prompt)
    return prompt, hidden[-1:]
