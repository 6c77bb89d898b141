"""StreamingLLM: the first tokens and the latest ones, and nothing between.

Xiao et al., "Efficient Streaming Language Models with Attention Sinks", ICLR 2024. A baseline:
tokens that have left the window are gone, and must not be found.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from longctx.core.kv.evicting import Evicting
from longctx.core.kv.sizes import Sizes


@dataclass(frozen=True)
class Options(Sizes):
    """Options of StreamingLLM.

    Attributes:
        first: tokens at the start of the input that are never evicted, the attention sinks.
    """

    first: int = 4

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.first < self.budget:
            raise ValueError(f"first: expected 0 to {self.budget - 1:,}, got {self.first:,}")

    def shortened(self, chunk: int, budget: int) -> dict[str, int]:
        """Fewer first tokens; see `MethodOptions.shortened`."""
        return {"first": min(self.first, budget // 4)}


class Method(Evicting):
    """The memory of StreamingLLM; positions are those in the cache, as in the paper.

    Differences from the paper: the input is read in chunks, and tokens are evicted after each whole
    chunk instead of one by one; a question is not evicted while it is read; a token of the answer
    joins the cache before the oldest one leaves, so that it attends to `budget` tokens and itself.
    Layers with a sliding window keep their window.
    """

    name = "streaming"

    def stay(self, mass: Tensor) -> Tensor:
        """The first tokens and the latest; see `Evicting.stay`."""
        (G, S), o = mass.shape, self.options
        ends = range(o.first), range(S - o.budget + o.first, S)
        index = torch.cat([torch.arange(e.start, e.stop, device=mass.device) for e in ends])
        return index.expand(G, -1)
