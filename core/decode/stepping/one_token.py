"""The fast path of one token through a decoder of the common form, in few operations.

Norms, projections, gates and sums are fused (`kernels/door.py`); attention is the memory's. Whether
this computes what the model does is tested layer by layer, whatever the model is called; other
models use `Decoder.read`.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from longctx.core.model.adapter import Attends, Decoder, Layer
from longctx.core.model.agreement import Mixture, apart
from longctx.core.model.fused_weights import LayerParts, Parts
from longctx.core.model.load import check_key
from longctx.kernels.door import matvec

FORM = 1  # raise it when the computation changes: checks of another form do not apply
SCALES = (5e-4, 1.0)  # of the states tried: where the norms' epsilon counts, and a usual one
LARGE = 32.0  # factor on the head's states that reveals a cap on logits


class OneToken:
    """A decoder's parts in the usual order; `of` checks whether that equals the decoder.

    Args:
        parts: the decoder's weights.
        layers: what its memories need.
    """

    def __init__(self, parts: Parts, layers: tuple[Layer, ...]):
        self._parts, self._layers = parts, layers

    @classmethod
    def of(cls, decoder: Decoder) -> "OneToken | None":
        """A fast path for one token of the decoder; None: the decoder is not of the common form.

        It shares the decoder's weights; see `parts_of`. On a CPU, agreement is stored with the
        decoder's other checks.
        """
        parts = decoder.parts()
        if parts is None or not _fits(parts, decoder.layers):
            return None
        found = cls(parts, decoder.layers)
        name = f"one-token-{FORM}-{decoder.dtype}-{check_key(decoder.config, decoder.device)}"
        if decoder.checks.get(name):
            return found
        if not agrees(found, decoder):
            return None
        if decoder.device.type == "cpu":  # on a GPU each process also tests its kernels
            decoder.checks[name] = True
        return found

    @torch.inference_mode()
    def read(self, token: Tensor, memory: Attends) -> Tensor:
        """Runs a token through all layers, attending through a memory.

        Args:
            token: (1,) id, on the decoder's device.
            memory: gets every layer's position-free q, k and v.

        Returns:
            The hidden state (1, E) before the last norm.

        Raises:
            EarlyExit: the memory needs nothing above some layer's projections.
        """
        return self.read_layers(range(len(self._layers)), token, memory)

    @torch.inference_mode()
    def read_layers(self, layers: range, given: Tensor, memory: Attends) -> Tensor:
        """Runs a token through some layers, as `read` does.

        Args:
            layers: their numbers.
            given: the token (1,) if the first is among them, else its hidden state (1, E).
            memory: see `read`.

        Returns:
            The hidden state (1, E).
        """
        state = (given if layers.start else self.embed(given))[0]
        for index in layers:
            state = self.through(index, state, memory)
        return state[None]

    @property
    def depth(self) -> int:
        """How many layers there are."""
        return len(self._layers)

    @torch.inference_mode()
    def logits(self, hidden: Tensor) -> Tensor:
        """Logits (1, vocabulary), float32 or wider, of what `read` returns."""
        norm, head = self._parts.norm, self._parts.head
        return _wide(matvec(hidden[0], *head, *norm)[None])

    def embed(self, ids: Tensor) -> Tensor:
        """The first layer's input states (T, E)."""
        return F.embedding(ids, self._parts.embedding)

    def through(self, index: int, state: Tensor, memory: Attends) -> Tensor:
        """A token's state (E,) after a layer."""
        part, layer = self._parts.layers[index], self._layers[index]
        qkv = matvec(state, *part.qkv, *part.attention_norm)
        out = memory.attend(layer, *_heads(qkv, part, layer))  # (H, 1, D)
        state = matvec(out.reshape(-1), *part.out, residual=state)
        gated = matvec(state, *part.gate_up, *part.mlp_norm, gated=True)
        return matvec(gated, *part.down, residual=state)

    def unbounded(self, hidden: Tensor) -> Tensor:
        """The head's product (1, vocabulary) with a state (1, E) taken after the last norm."""
        return _wide(matvec(hidden[0], *self._parts.head)[None])


def _heads(qkv: Tensor, part: LayerParts, layer: Layer) -> tuple[Tensor, Tensor, Tensor]:
    """q (H, 1, D), k and v (G, 1, D) of one token, with q/k norms if the layer has them."""
    H, G = layer.query_heads, layer.kv_heads
    q, k, v = qkv.view(H + 2 * G, 1, layer.head_dim).split([H, G, G])
    return (
        q if part.q_norm is None else part.q_norm(q),
        k if part.k_norm is None else part.k_norm(k),
        v,
    )


def _wide(logits: Tensor) -> Tensor:
    return logits.float() if logits.dtype.itemsize < 4 else logits


# --- is it the decoder? -------------------------------------------------------------------------


def _fits(parts: Parts, layers: tuple[Layer, ...]) -> bool:
    """Whether projections and norms fit the heads of attention."""
    for part, layer in zip(parts.layers, layers, strict=True):
        H, G, D = layer.query_heads, layer.kv_heads, layer.head_dim
        if len(part.qkv.weight) != (H + 2 * G) * D or part.out.weight.shape[1] != H * D:
            return False
        norms = [norm for norm in (part.q_norm, part.k_norm) if norm is not None]
        if any([*weight.shape] != [D] for norm in norms for weight in norm.parameters()):
            return False
    return True


@torch.inference_mode()
def agrees(ours: OneToken, decoder: Decoder) -> bool:
    """Whether each part computes what the decoder's own does, from ids to logits."""
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(0, decoder.config.vocab_size, (len(SCALES),), generator=generator)
    begun = ours.embed(ids.to(decoder.device))
    shape = (len(decoder.layers) + 1, *begun.shape)
    scales = torch.tensor(SCALES)[:, None].to(begun)
    states = torch.randn(shape, generator=generator).to(begun) * scales
    trace, hidden = decoder.traced(ids, Mixture(scales), states)
    gave = [_layer(ours, index, states[index], scales) for index in range(len(decoder.layers))]
    large = LARGE * hidden[-1:]
    pairs = [
        *zip([begun, *trace.gave], trace.given, strict=True),  # nothing happens between layers
        *zip(gave, trace.gave, strict=True),
        (torch.cat([ours.logits(state[None]) for state in states[-1]]), decoder.logits(hidden)),
        (ours.unbounded(large), decoder.logits(large)),
    ]
    return not any(bool(apart(one, other, begun.dtype).any()) for one, other in pairs)


def _layer(ours: OneToken, index: int, states: Tensor, scales: Tensor) -> Tensor:
    """A layer's output for states (T, E), one at a time."""
    each = zip(states, scales, strict=True)
    return torch.stack([ours.through(index, state, Mixture(scale)) for state, scale in each])
