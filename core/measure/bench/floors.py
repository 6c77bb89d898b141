"""The floor of a reading: the least time to compute and write it at the measured ceilings.

Counts only the multiplications of the layers that run: no norms, no eviction, no copies.
"""

from dataclasses import dataclass
from typing import Any

from longctx.core.contracts.method import Method, MethodOptions
from longctx.core.measure.bench.ceilings import Ceilings
from longctx.core.model.adapter import Layer


@dataclass(frozen=True)
class Floor:
    """Operations of a reading, and what they take at least.

    Attributes:
        layers: layers that are run whole; of one more, if there is one, only the projections are.
        matrix_flop, attention_flop: a multiplication and an addition count 2.
        scan_flop: of the products that choose which keys are attended to.
        matrix_s, attention_s: at the ceilings.
        scan_s: at that of a matrix product.
        disk_s: to write the state; None where none is written.
        seconds: matrix, attention and scan after one another, or the disk, if that takes longer.
    """

    layers: int
    matrix_flop: int
    attention_flop: int
    scan_flop: int
    matrix_s: float
    attention_s: float
    scan_s: float
    disk_s: float | None
    seconds: float


@dataclass(frozen=True)
class Pairs:
    """How many (query, key) pairs a layer looks at.

    Attributes:
        attended: in its attention.
        scanned: only to choose the keys.
    """

    attended: int
    scanned: int = 0


def floor_of(
    config: Any,
    method: Method,
    layers: tuple[Layer, ...],
    tokens: int,
    ceilings: Ceilings,
    state_bytes: int | None,
) -> Floor:
    """The floor of a reading.

    Args:
        config: the model's.
        method: what reads: `options`, `depth` and `capabilities`.
        layers: the model's.
        tokens: of the document.
        ceilings: as measured.
        state_bytes: that are written; None: none are.
    """
    options = method.options.reading
    whole, each = layers[: method.depth], 0
    if method.capabilities.last_in_part:
        *whole, last = whole
        each = projection_flop(config, last)
    each += sum(layer_flop(config, layer) for layer in whole)
    looked = {layer.window: pairs_of(options, tokens, layer.window) for layer in whole}
    widths = [(layer.query_heads * layer.head_dim, looked[layer.window]) for layer in whole]
    attention = sum(4 * width * pairs.attended for width, pairs in widths)
    scan = sum(2 * width * pairs.scanned for width, pairs in widths)
    matrix_s = each * tokens / (ceilings.narrow_flops or ceilings.matmul_flops)
    attention_s = attention / ceilings.attention_flops
    scan_s = scan / ceilings.matmul_flops
    speed = ceilings.disk_write_bytes_s
    disk_s = state_bytes / speed if state_bytes and speed else None
    return Floor(
        layers=len(whole),
        matrix_flop=each * tokens,
        attention_flop=attention,
        scan_flop=scan,
        matrix_s=matrix_s,
        attention_s=attention_s,
        scan_s=scan_s,
        disk_s=disk_s,
        seconds=max(matrix_s + attention_s + scan_s, disk_s or 0.0),
    )


def projection_flop(config: Any, layer: Layer) -> int:
    """Operations of the q, k and v projections for one token."""
    return 2 * config.hidden_size * (layer.query_heads + 2 * layer.kv_heads) * layer.head_dim


def layer_flop(config: Any, layer: Layer) -> int:
    """Operations of all matrices of a layer for one token; a gated MLP has three.

    Of a mixture of experts those that a token goes to count, each a gated MLP.
    """
    output = 2 * config.hidden_size * layer.query_heads * layer.head_dim
    experts = getattr(config, "num_experts_per_tok", None)
    width = config.intermediate_size
    if experts is not None:
        width = experts * (getattr(config, "moe_intermediate_size", None) or width)
    mlp = 2 * 3 * config.hidden_size * width
    return projection_flop(config, layer) + output + mlp


def weight_bytes(config: Any, layers: tuple[Layer, ...], itemsize: int) -> int:
    """Bytes that each token of an answer reads of the matrices of all layers and of the output.

    Of the input's embeddings it reads one row, which is nothing beside them.
    """
    weights = sum(layer_flop(config, layer) // 2 for layer in layers)
    return (weights + config.vocab_size * config.hidden_size) * itemsize


def entry_bytes(layers: tuple[Layer, ...], itemsize: int) -> int:
    """Bytes of one token's keys and values in all layers."""
    return sum(2 * layer.kv_heads * layer.head_dim for layer in layers) * itemsize


def pairs_of(options: MethodOptions, tokens: int, window: int | None) -> Pairs:
    """How many (query, key) pairs a layer looks at while it reads a document.

    Args:
        options: of the reading: with a `budget`, or such as keep everything.
        tokens: of the document.
        window: of the layer, if it slides.
    """
    assert options.chunk is not None
    if options.budget is not None or window is not None:
        return Pairs(evicting_pairs(tokens, options.chunk, options.budget or 0, window))
    assert options.near is not None
    assert options.window is not None
    return selecting_pairs(tokens, options.near, options.chunk, options.window)


def selecting_pairs(tokens: int, near: int, chunk: int, window: int) -> Pairs:
    """Pairs of a layer that keeps everything and selects some of it for each chunk.

    Args:
        tokens: of the document.
        near: tokens of the first chunk; as many are attended to always, and not scanned.
        chunk: tokens of all others.
        window: tokens attended to at most; so many, where there are so many.
    """
    attended = scanned = total = 0
    while total < tokens:
        new = min(chunk if total else near, tokens - total)
        total += new
        attended += new * (min(total, window) - new) + new * (new + 1) // 2
        scanned += new * max(0, total - near)
    return Pairs(attended, scanned)


def evicting_pairs(tokens: int, chunk: int, budget: int, window: int | None) -> int:
    """Pairs of a layer that keeps so many tokens after each chunk.

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
