"""Attention to two sets of keys merged into one, with sinks: the definition, in PyTorch."""

import torch
from torch import Tensor

from longctx.kernels.choice import operation


@operation
def merged_attention(
    past: Tensor, past_lse: Tensor, own: Tensor, own_lse: Tensor, sinks: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Attention to two sets of keys, each with its log-sum-exps, merged into one.

    Args:
        past, own: (H, T, D).
        past_lse, own_lse: (H, T).
        sinks: (H,) logit of each head that takes attention but has no value; None: none.

    Returns:
        (H, T, D), and the log-sum-exps (H, T), sinks included.
    """
    share = torch.sigmoid(past_lse - own_lse).to(own.dtype)[..., None]  # (H, T, 1)
    out, lse = own.lerp(past, share), torch.logaddexp(past_lse, own_lse)
    return (out, lse) if sinks is None else with_sinks(out, lse, sinks)


def with_sinks(out: Tensor, lse: Tensor, sinks: Tensor) -> tuple[Tensor, Tensor]:
    """Gives each sink its share of the attention, and adds it to the log-sum-exp."""
    sink = sinks[:, None].to(lse.dtype)  # (H, 1)
    return out * torch.sigmoid(lse - sink).to(out.dtype)[..., None], torch.logaddexp(lse, sink)
