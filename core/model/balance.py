"""Which layers of a model go to which device, so that all take equal time for a chunk.

What a layer takes is counted: multiplications of a chunk with its weights, and attention. Layers of
one model may differ: some have windows, and of the last one a method may need the projections only.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import inf
from operator import itemgetter

from torch import nn

from longctx.core.model.adapter import Decoder, Layer

EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts")  # in configurations


@dataclass(frozen=True)
class Reading:
    """What a method runs of a model for a whole chunk.

    Attributes:
        depth: layers.
        chunk: tokens.
        cached: tokens that a layer without a window has kept of those before.
        last_in_part: of the last layer, only the projections to queries, keys and values.
    """

    depth: int
    chunk: int = 8192
    cached: int = 8192
    last_in_part: bool = False


def costs_of(decoder: Decoder, layers: Sequence[nn.Module], reading: Reading) -> list[float]:
    """Multiplications for a token of each of the first layers that run, without the embeddings.

    Args:
        decoder: the model.
        layers: its modules.
        reading: what runs.
    """
    share, known = _share(decoder.config), decoder.layers[: reading.depth]
    costs = [
        _weights(layer, share) + _attention(of, reading)
        for layer, of in zip(layers, known, strict=False)
    ]
    if reading.last_in_part and costs:
        costs[-1] = min(costs[-1], _projections(layers[len(costs) - 1], known[-1]))
    return costs


def _weights(layer: nn.Module, share: float) -> float:
    """Weights that a token is multiplied with; of experts, those that it is sent to."""
    kinds = {2: 1.0, 3: share}  # a matrix, and one for each expert
    return sum(weight.numel() * kinds.get(weight.ndim, 0.0) for weight in layer.parameters())


def _share(config: object) -> float:
    """The part of a layer's experts that a token is sent to."""
    experts = next((n for name in EXPERTS if (n := getattr(config, name, None))), None)
    chosen = getattr(config, "num_experts_per_tok", None)
    return chosen / experts if experts and chosen else 1.0


def _attention(layer: Layer, reading: Reading) -> float:
    """Two products for each key that a token sees, on average over a chunk."""
    seen = reading.cached + reading.chunk / 2
    if layer.window is not None:
        seen = min(seen, layer.window)
    return 2.0 * layer.query_heads * layer.head_dim * seen


def _projections(module: nn.Module, layer: Layer) -> float:
    """Weights of the projections to queries, keys and values."""
    widths = [weight.shape[-1] for weight in module.parameters() if weight.ndim > 1]
    heads = layer.query_heads + 2 * layer.kv_heads
    return float(heads * layer.head_dim * min(widths, default=0))


def balanced(costs: Sequence[float], limits: Sequence[int]) -> list[int]:
    """How many neighbouring layers each device gets, so that the slowest one takes least.

    Of several such ways, the one with the least differences; of these, more layers first.

    Args:
        costs: of each layer.
        limits: the most layers of each device.

    Raises:
        ValueError: they do not fit.
    """
    if sum(limits) < len(costs):
        raise ValueError(f"{len(costs)} layers do not fit where {[*limits]} do")
    most, _ = _best(costs, limits, max)

    def even(own: float, rest: float) -> float:
        return own * own + rest if own <= most else inf

    return _best(costs, limits, even)[1]


def _best(
    costs: Sequence[float], limits: Sequence[int], joined: Callable[[float, float], float]
) -> tuple[float, list[int]]:
    """The least value of a way to place layers, and its counts.

    Args:
        costs, limits: see `balanced`.
        joined: the value of a device's costs and of that of the devices after it.
    """
    sums = [0.0, *accumulate(costs)]
    # For layers from `first` on: the value of the best way on the devices considered, the counts.
    later: list[tuple[float, list[int]]] = [(inf, []) for _ in costs] + [(0.0, [])]
    for limit in reversed(limits):
        now = []
        for first in range(len(costs) + 1):
            counts = range(min(limit, len(costs) - first), -1, -1)
            ways = [(joined(sums[first + n] - sums[first], later[first + n][0]), n) for n in counts]
            value, n = min(ways, key=itemgetter(0))  # of equal ones the first, the longest
            now.append((value, [n, *later[first + n][1]]))
        later = now
    return later[0]
