"""The least time a reading can take: what must be computed and written, at the measured ceilings.

Counts the multiplications of the layers that are really run, and nothing else: no norms, no
eviction, no copies. Knows nothing of devices.
"""

from dataclasses import dataclass
from typing import Any

from longctx.core.bench.ceilings import Ceilings
from longctx.core.memory import Method
from longctx.core.model import Layer


@dataclass(frozen=True)
class Floor:
    """Operations of a reading, and what they take at least.

    Attributes:
        layers: layers that are run whole; of one more only the projections are.
        matrix_flop, attention_flop: a multiplication and an addition count 2.
        matrix_s, attention_s: at the ceilings.
        disk_s: to write the state; None where none is written.
        seconds: matrix and attention after one another, or the disk, if that takes longer.
    """

    layers: int
    matrix_flop: int
    attention_flop: int
    matrix_s: float
    attention_s: float
    disk_s: float | None
    seconds: float


def floor_of(
    config: Any,
    method: Method,
    layers: tuple[Layer, ...],
    budget: int,
    tokens: int,
    ceilings: Ceilings,
    state_bytes: int | None,
) -> Floor:
    """The floor of a reading.

    Args:
        config: the model's.
        method: what reads: `chunk` and `depth`.
        layers: the model's.
        budget: tokens that a layer's cache keeps.
        tokens: of the document.
        ceilings: as measured.
        state_bytes: that are written; None: none are.
    """
    *whole, last = layers[: method.depth]
    each = sum(layer_flop(config, layer) for layer in whole) + projection_flop(config, last)
    attention = sum(
        4 * layer.query_heads * layer.head_dim * pairs(tokens, method.chunk, budget, layer.window)
        for layer in whole
    )
    matrix_s = each * tokens / ceilings.matmul_flops
    attention_s = attention / ceilings.attention_flops
    speed = ceilings.disk_write_bytes_s
    disk_s = state_bytes / speed if state_bytes and speed else None
    return Floor(
        layers=len(whole),
        matrix_flop=each * tokens,
        attention_flop=attention,
        matrix_s=matrix_s,
        attention_s=attention_s,
        disk_s=disk_s,
        seconds=max(matrix_s + attention_s, disk_s or 0.0),
    )


def projection_flop(config: Any, layer: Layer) -> int:
    """Operations of the q, k and v projections for one token."""
    return 2 * config.hidden_size * (layer.query_heads + 2 * layer.kv_heads) * layer.head_dim


def layer_flop(config: Any, layer: Layer) -> int:
    """Operations of all matrices of a layer for one token; a gated MLP has three."""
    output = 2 * config.hidden_size * layer.query_heads * layer.head_dim
    mlp = 2 * 3 * config.hidden_size * config.intermediate_size
    return projection_flop(config, layer) + output + mlp


def pairs(tokens: int, chunk: int, budget: int, window: int | None) -> int:
    """How many (query, key) pairs a layer looks at while it reads chunk after chunk.

    Args:
        tokens: of the document.
        chunk: tokens read at a time.
        budget: tokens kept after a chunk.
        window: a query sees only so many keys, which are what is kept then; None: all.
    """
    found, cached, kept = 0, 0, budget if window is None else window
    for start in range(0, tokens, chunk):
        new = min(chunk, tokens - start)
        # Query number t of the chunk, from 1, sees `cached + t` keys, or the window.
        grown = new if window is None else min(max(window - cached, 0), new)
        found += grown * cached + grown * (grown + 1) // 2 + (new - grown) * (window or 0)
        cached = min(cached + new, kept)
    return found
