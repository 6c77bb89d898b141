"""Attention received by each key from the last queries of a chunk: the definition, in PyTorch."""

import torch
from torch import Tensor

from longctx.kernels.choice import operation


@operation
def attention_mass(
    q: Tensor,
    k: Tensor,
    scale: float,
    lse: Tensor | None = None,
    softcap: float | None = None,
    sinks: Tensor | None = None,
) -> Tensor:
    """Sums the attention that each key receives from a chunk's last queries, over a group's heads.

    Args:
        q: rotated queries (H, W, D) at the last W of S consecutive positions.
        k: rotated keys (G, S, D); query head h reads key head h // (H/G).
        scale: factor on q·k.
        lse: log-sum-exps (H, W) of these queries' logits over all keys that they see and their
            sinks, if attention returned them: they save the kernel a pass. The definition ignores
            them.
        softcap: logits are bounded to softcap * tanh(logits / softcap); None: no bound.
        sinks: (H,) logit of each query head that takes attention but is not a key; None: none.

    Returns:
        (G, S), float32 (float64 for float64 inputs); without sinks each row sums to W * H / G.
    """
    (H, W, D), (G, S, _) = q.shape, k.shape
    wide = torch.float64 if q.dtype == torch.float64 else torch.float32
    grouped = q.reshape(G, H // G * W, D).to(wide)
    logits = torch.bmm(grouped, k.transpose(1, 2).to(wide)).mul_(scale)  # (G, H/G * W, S)
    if softcap is not None:
        logits.div_(softcap).tanh_().mul_(softcap)
    future = torch.ones(W, W, dtype=torch.bool, device=q.device).triu_(1)
    # Only the last W keys can be in the future of one of the last W queries.
    logits.view(G, H // G, W, S)[..., S - W :].masked_fill_(future, -torch.inf)
    if sinks is not None:
        column = sinks.to(wide).view(G, H // G, 1).expand(-1, -1, W).reshape(G, -1, 1)
        logits = torch.cat([logits, column], dim=-1)  # (G, H/G * W, S + 1)
    return torch.softmax(logits, dim=-1)[..., :S].sum(dim=1)
