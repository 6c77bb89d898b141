"""H2O: half of the budget for the latest tokens, half for the most attended so far.

Zhang et al., "H2O: Heavy-Hitter Oracle for Efficient Generative Inference of Large Language
Models", NeurIPS 2023. A baseline; REFORM reads with a cache of this kind but answers differently.
"""

from dataclasses import dataclass

from torch import Tensor

from longctx.core.kv.evicting import Evicting, received
from longctx.core.kv.sizes import Sizes
from longctx.core.model.adapter import Layer
from longctx.kernels.door import heaviest_tokens


@dataclass(frozen=True)
class Options(Sizes):
    """Options of H2O.

    Attributes:
        queries: last queries of a chunk, or of a question, whose attention counts; None: all.
            REFORM's comparisons use 128.
    """

    queries: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.budget < 2:
            raise ValueError(f"budget: expected 2 or more, half of it recent, got {self.budget}")
        if self.queries is not None and self.queries < 1:
            raise ValueError(f"queries: expected 1 or more, got {self.queries}")

    def shortened(self, chunk: int, budget: int) -> dict[str, int]:
        """No more queries than a chunk has; see `MethodOptions.shortened`."""
        return {} if self.queries is None else {"queries": min(self.queries, chunk)}


class Method(Evicting):
    """The memory of H2O; each layer and key/value head keeps its own tokens.

    Differences from the paper: the input is read in chunks, and tokens are evicted after each whole
    chunk instead of one by one; a question is not evicted while it is read; attention is summed
    over the query heads of a group, which keep one set; positions are those in the cache. Ties go
    to the earlier token. Layers with a sliding window keep their window.
    """

    name, carries = "h2o", True

    def weigh(self, mass: Tensor, layer: Layer, q: Tensor, k: Tensor, lse: Tensor | None) -> Tensor:
        """The attention received so far; see `Evicting.weigh`."""
        return mass + received(layer, q, k, lse, self.options.queries)

    def stay(self, mass: Tensor) -> Tensor:
        """The latest tokens and the most attended of the others; see `Evicting.stay`."""
        return heaviest_tokens(mass, self.options.budget, 0, self.options.budget // 2)
