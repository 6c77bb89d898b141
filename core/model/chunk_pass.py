"""A chunk through a model's layers in few operations: products, and one pass between them.

The products of a layer are four; sum and norm, gate, and the rotation are one operation each
(`kernels/door.py`), attention is the memory's. Each step is rounded as the model's own layers round
it. Whether this computes what they do is tested layer by layer, whatever the model is called;
where it does not, they are used.
"""

import logging
import os
from collections.abc import Callable
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from longctx.core.common.device import moved
from longctx.core.model.agreement import Mixture, apart
from longctx.core.model.chunk_parts import Around, ChunkLayer, ChunkParts, Gated
from longctx.core.model.fused_weights import Matrix
from longctx.kernels import choice
from longctx.kernels.door import Scaled, gated_product, residual_norm

VARIABLE, OWN = "LONGCTX_CHUNKS", "model"  # the model's own layers read
FORM = 1  # of the computation; raise it when its bits change
FEWEST = 16  # tokens of a chunk; fewer go through the model's own layers
SCALES = (5e-4, 0.05, 1.0, 4.0)  # of the states tried: where the norms' epsilon counts, and usual
ROWS = 16  # states tried
FLIPPED = ROWS // 4  # rows that may go to other experts, where two are as good

_log = logging.getLogger(__name__)

Embed = Callable[[Tensor], Tensor]


class ChunkPass:
    """The layers of a decoder, for chunks.

    Args:
        parts: what they are made of; different layers may be on different devices.
        layers: what memories must know about each; see `Layer`.
        embed: the first layer's input (T, E) for ids (1, T).
    """

    def __init__(self, parts: ChunkParts, layers: tuple, embed: Embed):
        self._parts, self._layers, self.embed = parts, layers, embed

    @property
    def parts(self) -> ChunkParts:
        """What the layers are made of."""
        return self._parts

    def read(self, ids: Tensor, memory, depth: int | None) -> Tensor:
        """Runs ids (1, T) through the first `depth` layers; None: all of them.

        Returns:
            The states (T, E) after the last norm.

        Raises:
            EarlyExit: the memory needs nothing above some layer's projections.
        """
        end, norm = len(self._parts.layers[:depth]), self._parts.norm
        state = self.run(self.embed(ids), memory, 0, end)
        return first_norm(moved(state, norm.weight.device), norm)

    def run(self, state: Tensor, memory, first: int, end: int) -> Tensor:
        """Runs states (T, E) through layers [first, end), each on the device of its weights.

        Where a run of layers ends changes no bit: the states between layers are rounded to their
        dtype before they are normed, in the same operation or in another.

        Returns:
            The states (T, E) after these layers.

        Raises:
            EarlyExit: see `read`.
        """
        parts, norm, place = self._parts.layers, state, None
        for index in range(first, end):
            part = parts[index]
            if part.place != place:  # the first one, or the first on its device
                place = part.place
                state = moved(state, place)
                norm = self.first(state, part.attention.before)
            near = index + 1 < end and parts[index + 1].place == place
            then = parts[index + 1].attention.before if near else None
            state, norm = self.through(index, part, state, norm, memory, then)
        return state

    def stretches(self, depth: int) -> list[tuple[int, int]]:
        """The first `depth` layers as runs [first, end) that are on one device each."""
        places = [part.place for part in self._parts.layers[:depth]]
        begin = [n for n, place in enumerate(places) if n == 0 or place != places[n - 1]]
        return [*zip(begin, [*begin[1:], len(places)], strict=True)]

    def layer_weights(self) -> int | None:
        """The most weights that a layer multiplies with; None: its MLP is the model's own module.

        Such a module may wait for the device.
        """
        counts = []
        for part in self._parts.layers:
            if not isinstance(part.inner, Gated):
                return None
            products = part.qkv, part.out, part.inner.gate_up, part.inner.down
            counts.append(sum(product.weight.numel() for product in products))
        return max(counts, default=None)

    def through(
        self, index: int, part: ChunkLayer, state: Tensor, norm: Any, memory, then: Scaled | None
    ) -> tuple[Tensor, Any]:
        """A chunk's states after a layer, and their norm.

        Args:
            index, part: the layer.
            state, norm: its input (T, E), and the norm of that, as `first` gives it.
            memory: what attends.
            then: the norm before the next layer; None: the states themselves are returned twice.
        """
        q, k, v = _heads(self.product(norm, part.qkv), part, self._layers[index])
        attended = memory.attend(self._layers[index], q, k, v).transpose(0, 1)  # (T, H, D)
        added = self.product(attended.reshape(len(state), -1), part.out)
        gated = isinstance(part.inner, Gated)
        state, norm = self.summed(state, added, part.attention, part.mlp.before, gated)
        added = self.inner(part, norm)
        return self.summed(state, added, part.mlp, then, True)

    # What a pass in other numbers computes otherwise; see `narrow.py`.

    def first(self, state: Tensor, norm: Scaled | None) -> Any:
        """The norm of states, as `product` takes it."""
        return first_norm(state, norm)

    def product(self, states: Any, matrix: Matrix) -> Tensor:
        """States (T, E) through a projection."""
        return F.linear(states, *matrix)

    def summed(
        self, state: Tensor, added: Tensor, around: Around, then: Scaled | None, product: bool
    ) -> tuple[Tensor, Any]:
        """States and what a part of a layer adds to them, and the norm of the sum.

        Args:
            state, added: (T, E).
            around: the part's.
            then: the norm before the next part.
            product: what follows is a product of ours, not the model's own module.
        """
        return residual_norm(state, added, around.after, around.factor, then)

    def inner(self, part: ChunkLayer, states: Any) -> Tensor:
        """What the MLP makes of states (T, E)."""
        return inner(part, states)


def first_norm(state: Tensor, norm: Scaled | None) -> Tensor:
    """The norm of states; they themselves if there is none."""
    return state if norm is None else residual_norm(state, before=norm)[1]


def inner(part: ChunkLayer, states: Tensor) -> Tensor:
    """What the MLP makes of states (T, E)."""
    mlp = part.inner
    if isinstance(mlp, Gated):
        gated = gated_product(F.linear(states, *mlp.gate_up), mlp.activation)
        return F.linear(gated, *mlp.down)
    out = mlp(states[None])  # a mixture of experts may return more than the states
    return (out if torch.is_tensor(out) else out[0])[0]


def _heads(qkv: Tensor, part: ChunkLayer, layer) -> tuple[Tensor, Tensor, Tensor]:
    """q (H, T, D), k and v (G, T, D) of a chunk, with their norms if the layer has them."""
    H, G, D = layer.query_heads, layer.kv_heads, layer.head_dim
    q, k, v = qkv.split([H * D, G * D, G * D], dim=-1)
    q, k = _normed(q, part.q_norm, D), _normed(k, part.k_norm, D)
    q, k, v = (x.view(len(x), -1, D).transpose(0, 1) for x in (q, k, v))
    return q, k, v


def _normed(x: Tensor, norm: Scaled | None, D: int) -> Tensor:
    """Queries or keys (T, n) normed, each head by itself or all of a token's as one."""
    if norm is None:
        return x
    rows = x if len(norm.weight) == x.shape[1] else x.view(len(x), -1, D)
    return first_norm(rows, norm).view(len(x), -1)


# --- is it the model? ---------------------------------------------------------------------------


@torch.inference_mode()
def agrees(ours: ChunkPass, decoder) -> bool:
    """Whether each layer computes what the decoder's own does, from ids to the last norm.

    Args:
        ours: the pass.
        decoder: a `Decoder` with the same layers, which may be on several devices.
    """
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(0, decoder.config.vocab_size, (ROWS,), generator=generator)
    scales = torch.tensor(SCALES).repeat(ROWS // len(SCALES))[:, None]
    begun = ours.embed(ids[None].to(decoder.device))
    scales = scales.to(begun)
    shape = (len(decoder.layers) + 1, *begun.shape)
    states = torch.randn(shape, generator=generator).to(begun) * scales
    trace, hidden = decoder.traced(ids, Mixture(scales), states)
    if apart(begun, trace.given[0], begun.dtype).any():
        return False
    for index, (part, own) in enumerate(zip(ours._parts.layers, trace.gave, strict=True)):
        state = states[index].to(part.place)
        norm = ours.first(state, part.attention.before)
        found, _ = ours.through(index, part, state, norm, Mixture(scales), None)
        allowed = 0 if isinstance(part.inner, Gated) else FLIPPED
        if int(apart(found, own, begun.dtype).sum()) > allowed:
            return False
    last = ours._parts.norm
    found = first_norm(states[-1].to(last.weight.device), last)
    return not bool(apart(found, hidden, begun.dtype).any())


def wanted(device: torch.device) -> bool:
    """Whether chunks pass through the layers like this on a device, if the model allows."""
    return device.type == "cuda" and os.environ.get(VARIABLE) != OWN


def computed_by(device: str) -> str | None:
    """What computes chunks on a device; another value may give other bits. None: PyTorch alone."""
    place = torch.device(device)
    if place.type != "cuda":
        return None
    asked = choice.asked_for()
    kind = "fused" if wanted(place) else OWN
    return f"{kind}-{FORM}" if asked is None else f"{kind}-{FORM}-{asked}"


@cache
def tell(choice: str, why: str) -> None:
    """Logs by what chunks are read; `cache` makes it happen once."""
    _log.info("chunks: %s (%s)", choice, why)
