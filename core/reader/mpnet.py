"""An MPNet encoder in torch that gives each token two numbers: an answer starts here, ends here.

Song et al., NeurIPS 2020. Attention adds a bias by distance, the same in all layers. Knows no files
and no documents.
"""

import math
from collections.abc import Mapping
from functools import lru_cache

import torch
from torch import Tensor
from torch.nn.functional import gelu, layer_norm, linear, scaled_dot_product_attention

BUCKETS, FARTHEST = 32, 128  # of distances, and tokens from which on all are alike
FIRST_PLACE = 2  # in the table of places
EPSILON = 1e-5


class MPNet:
    """The encoder with its head.

    Args:
        layers, heads: of the network.
        weights: by the names of the published checkpoint, and `head`; all on one device.
    """

    def __init__(self, layers: int, heads: int, weights: Mapping[str, Tensor]):
        self._layers, self._heads, self._weights = layers, heads, weights
        self._words = weights["embeddings.word_embeddings.weight"]
        self._places = weights["embeddings.position_embeddings.weight"][FIRST_PLACE:]
        self._parts = [self._projection(f"encoder.layer.{n}.") for n in range(layers)]
        self._bias = lru_cache(maxsize=16)(self._made_bias)

    def _projection(self, layer: str) -> tuple[Tensor, Tensor]:
        """The weight (3W, W) and bias (3W,) that give queries, keys and values at once."""
        names = [f"{layer}attention.attn.{part}." for part in "qkv"]
        weight = torch.cat([self._weights[f"{name}weight"] for name in names])
        return weight, torch.cat([self._weights[f"{name}bias"] for name in names])

    @property
    def device(self) -> torch.device:
        """Where it computes."""
        return self._words.device

    @torch.inference_mode()
    def __call__(self, ids: Tensor, lengths: Tensor) -> Tensor:
        """How well an answer starts and ends at each token.

        Args:
            ids: (B, T) int64; what follows a text's end is ignored.
            lengths: (B,) int64, the tokens of each text.

        Returns:
            (B, T, 2) float32.
        """
        length = ids.shape[1]
        x = self._norm(self._words[ids] + self._places[:length], "embeddings.")
        inside = torch.arange(length, device=ids.device) < lengths[:, None]
        mask = self._bias(length).masked_fill(~inside[:, None, None], -torch.inf)
        for number, projection in enumerate(self._parts):
            name = f"encoder.layer.{number}."
            mixed = self._linear(self._attention(x, projection, mask), f"{name}attention.attn.o.")
            x = self._norm(x + mixed, f"{name}attention.")
            inner = gelu(self._linear(x, f"{name}intermediate.dense."))
            x = self._norm(x + self._linear(inner, f"{name}output.dense."), f"{name}output.")
        head, bias = (self._weights[f"head.{part}"].float() for part in _PARTS)
        return linear(x.float(), head, bias)

    def _attention(self, x: Tensor, projection: tuple[Tensor, Tensor], mask: Tensor) -> Tensor:
        """(B, T, W): each token's values, weighed by how well its query fits their keys."""
        batch, length, width = x.shape
        parts = linear(x, *projection).view(batch, length, 3, self._heads, -1)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        mixed = scaled_dot_product_attention(query, key, value, attn_mask=mask)
        return mixed.transpose(1, 2).reshape(batch, length, width)

    def _made_bias(self, length: int) -> Tensor:
        """(1, H, T, T): what attention adds by distance."""
        at = torch.arange(length, device=self.device)
        table = self._weights["encoder.relative_attention_bias.weight"]
        return table[bucket(at[None, :] - at[:, None])].permute(2, 0, 1)[None].to(self._words.dtype)

    def _linear(self, x: Tensor, name: str) -> Tensor:
        return linear(x, *(self._weights[f"{name}{part}"] for part in _PARTS))

    def _norm(self, x: Tensor, name: str) -> Tensor:
        weight, bias = (self._weights[f"{name}LayerNorm.{part}"] for part in _PARTS)
        return layer_norm(x, x.shape[-1:], weight, bias, EPSILON)


_PARTS = ("weight", "bias")


def bucket(distances: Tensor) -> Tensor:
    """The bucket of each distance: exact up to 7, then by its logarithm; each way its own."""
    half = BUCKETS // 2
    exact = half // 2
    size = distances.abs()
    scaled = torch.log(size.clamp(min=1).float() / exact) / math.log(FARTHEST / exact)
    far = (exact + (scaled * (half - exact)).long()).clamp(max=half - 1)
    return (distances > 0) * half + torch.where(size < exact, size, far)
