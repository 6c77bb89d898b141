"""A BERT encoder in torch: hidden states of whole texts, each token seeing every other.

Devlin et al., NAACL 2019, as in MiniLM (Wang et al., NeurIPS 2020). Knows no files and no
documents.
"""

from collections.abc import Mapping

import torch
from torch import Tensor
from torch.nn.functional import gelu, layer_norm, linear, scaled_dot_product_attention

from longctx.core.dense.weights import EncoderConfig


class Bert:
    """The encoder with its weights.

    Args:
        config: its sizes.
        weights: by the names of the published checkpoint, all of one type on one device.
    """

    def __init__(self, config: EncoderConfig, weights: Mapping[str, Tensor]):
        self.config, self._weights = config, weights
        name = "embeddings.{}_embeddings.weight"
        self._words = weights[name.format("word")]
        self._places = weights[name.format("position")] + weights[name.format("token_type")][0]
        self._layers = [self._projections(f"encoder.layer.{n}.") for n in range(config.layers)]

    def _projections(self, layer: str) -> tuple[Tensor, Tensor]:
        """The weight (3W, W) and bias (3W,) that give queries, keys and values at once."""
        names = [f"{layer}attention.self.{part}." for part in ("query", "key", "value")]
        weight = torch.cat([self._weights[f"{name}weight"] for name in names])
        return weight, torch.cat([self._weights[f"{name}bias"] for name in names])

    @property
    def device(self) -> torch.device:
        """Where it computes."""
        return self._words.device

    @torch.inference_mode()
    def __call__(self, ids: Tensor, lengths: Tensor) -> Tensor:
        """The last hidden states.

        Args:
            ids: (B, T) int64 tokens, at most `config.positions` of each text; what follows a
                text's end is ignored.
            lengths: (B,) int64, the tokens of each text.

        Returns:
            (B, T, W) of the weights' type.
        """
        states = self._words[ids] + self._places[: ids.shape[1]]
        states = self._norm(states, "embeddings.")
        inside = torch.arange(ids.shape[1], device=ids.device) < lengths[:, None]
        mask = None if bool(inside.all()) else inside[:, None, None]
        for number, projection in enumerate(self._layers):
            name = f"encoder.layer.{number}."
            mixed = self._attention(states, projection, mask)
            states = self._added(states, mixed, f"{name}attention.output.")
            inner = gelu(self._linear(states, f"{name}intermediate."))
            states = self._added(states, inner, f"{name}output.")
        return states

    def _attention(self, states: Tensor, projection: tuple[Tensor, Tensor], mask: Tensor | None):
        """(B, T, W): each token's values, weighed by how well its query fits their keys."""
        batch, length, width = states.shape
        parts = linear(states, *projection).view(batch, length, 3, self.config.heads, -1)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        mixed = scaled_dot_product_attention(query, key, value, attn_mask=mask)
        return mixed.transpose(1, 2).reshape(batch, length, width)

    def _added(self, states: Tensor, change: Tensor, name: str) -> Tensor:
        return self._norm(states + self._linear(change, name), name)

    def _linear(self, states: Tensor, name: str) -> Tensor:
        return linear(states, *(self._weights[f"{name}dense.{part}"] for part in _PARTS))

    def _norm(self, states: Tensor, name: str) -> Tensor:
        weight, bias = (self._weights[f"{name}LayerNorm.{part}"] for part in _PARTS)
        return layer_norm(states, states.shape[-1:], weight, bias, self.config.epsilon)


_PARTS = ("weight", "bias")
