"""Wrong versions of kernels, which tests of the methods that use them must notice."""

from typing import Any

from torch import Tensor

from longctx.kernels.door import attention_mass


def interleaved_mass(q: Tensor, k: Tensor, scale: float, lse: Tensor | None, **_: Any) -> Tensor:
    """`attention_mass` with the other GQA map: query head h reads key head h % G."""
    G = k.shape[0]
    return attention_mass(q.unflatten(0, (-1, G)).transpose(0, 1).flatten(0, 1), k, scale)
