"""TOVA: keeps the tokens that the last one attends to most, whatever was needed before.

Oren et al., "Transformers are Multi-State RNNs", EMNLP 2024: token omission via attention. A
baseline.
"""

from dataclasses import dataclass

from torch import Tensor

from longctx.core.kv.evicting import Evicting, received
from longctx.core.kv.sizes import Sizes
from longctx.core.model.adapter import Layer
from longctx.kernels.door import heaviest_tokens


@dataclass(frozen=True)
class Options(Sizes):
    """TOVA has no options of its own."""


class Method(Evicting):
    """The memory of TOVA; all heads of a layer keep the same tokens.

    Differences from the paper: the input is read in chunks, and tokens are evicted after each whole
    chunk, by the attention of its last token, instead of one by one; a question is not evicted
    while it is read; positions are those in the cache. Ties go to the earlier token. The last token
    can be evicted like any other. Layers with a sliding window keep their window.
    """

    name = "tova"

    def weigh(self, mass: Tensor, layer: Layer, q: Tensor, k: Tensor, lse: Tensor | None) -> Tensor:
        """The attention of the last query, mean over all heads; see `Evicting.weigh`."""
        mean = received(layer, q, k, lse, queries=1).sum(dim=0, keepdim=True) / layer.query_heads
        return mean.expand_as(mass)

    def stay(self, mass: Tensor) -> Tensor:
        """The most attended tokens, the same for all heads; see `Evicting.stay`."""
        return heaviest_tokens(mass, self.options.budget, 0, 0)
