"""Ltri-LLM: the layers' retrieval heads vote for the blocks that stay for an answer.

Tang et al., "Ltri-LLM: Streaming Long Context Inference for LLMs with Training-Free Dynamic
Triangular Attention Pattern". With `run: 0` the heads compare the paper's spans, the triangles of
the attention map (`core/kv/spans.py`); by default the mean keys of short runs of tokens, with which
far more needles are found (docs/benchmarks/accuracy.md, "Blocks"). With `in_order: false` what is
retrieved stands at one distance, as in the paper. The window is InfLLM's (`core/kv/retrieving.py`).
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor

from longctx.core.common.errors import UsageError
from longctx.core.contracts.memory import HERE, Place, Rows
from longctx.core.kv import spans
from longctx.core.kv.block_index import RowForm
from longctx.core.kv.block_options import BlockOptions
from longctx.core.kv.block_vectors import (
    best_blocks,
    most_shared,
    representatives,
    run_means,
    shares,
)
from longctx.core.kv.retrieving import ChosenBlocks, LayerChunk, Retrieving
from longctx.core.model.adapter import Layer
from longctx.core.profile.described import Described

EARLY, EARLY_LAMBDA, LAMBDA = 4, 20.0, 3.0  # number of early layers, their lambda, the others'
VOTING = 0.25, 0.875  # where heads vote without a profile, as shares of the layers
REPRESENTATIVE = 4  # keys of a block's vector in layers below the first retrieval head


@dataclass(frozen=True)
class Options(BlockOptions):
    """Options of Ltri-LLM; the defaults are the paper's (section 4), but for `run` and
    `in_order`.

    Spans, and what they depend on (`spans` to `ratio`), are used where `run` is 0.

    Attributes:
        spans: most spans of a block.
        vectors: most index vectors of a block.
        theta: quantile of a block's attention that is subtracted before spans are scored, for all
            layers or one for each.
        phi: intersection over union above which a span is suppressed, likewise.
        lam: how fast a span's vectors become fewer as its neighbours attend to it, likewise; None:
            20 in the first four layers, 3 above.
        ratio: which neighbours count: row, column or row+column.
        heads: retrieval heads: layer, query head and copy score; the best of each layer is used.
    """

    spans: int = 4
    vectors: int = 12
    theta: float | tuple[float, ...] = 0.9
    phi: float | tuple[float, ...] = 0.1
    lam: float | tuple[float, ...] | None = None
    ratio: str = "row"
    heads: tuple[tuple[int, int, float], ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 1 <= self.spans <= self.vectors:
            raise ValueError(f"spans: expected 1 to vectors, {self.vectors}, got {self.spans}")
        if self.ratio not in spans.RATIOS:
            raise ValueError(f"ratio: expected one of {', '.join(spans.RATIOS)}, got {self.ratio}")
        for name, least in (("theta", 0), ("phi", 0), ("lam", 0)):
            value = getattr(self, name)
            each = value if isinstance(value, tuple) else (value,)
            most = float("inf") if name == "lam" else 1
            if not all(x is None or least <= x <= most for x in each):
                raise ValueError(f"{name}: expected {least} to {most}, got {value}")
        for head in self.heads:
            if not 0 <= head[2] <= 1:
                raise ValueError(f"heads: expected copy scores of 0 to 1, got {list(head)}")

    @classmethod
    def by_rule(cls, model: Described, window: int) -> dict[str, Any]:
        """LTRIRULE"""
        low, high = (at * model.shape.num_hidden_layers for at in VOTING)
        voters = tuple((i, 0, 1.0) for i in model.full_layers if low <= i < high)
        rest = tuple((i, 0, 1.0) for i in model.full_layers[-1:])
        return {**super().by_rule(model, window), "heads": voters or rest}

    def require_heads(self, model: Described) -> None:
        """See `MethodOptions.require_heads`."""
        shape = model.shape
        require_heads(
            self.heads, shape.num_hidden_layers, shape.num_attention_heads, model.full_layers
        )

    def fitted(self, window: int) -> Self:
        """Retrieves fewer blocks; see `BlockOptions.fitted`.

        Raises:
            UsageError: not even one block fits, or no retrieval heads are known.
        """
        if not self.heads:
            raise UsageError(
                "Ltri-LLM needs retrieval heads, and there are none",
                "`heads` of `ltri` is empty; only layers with full attention can have some, and a "
                "shape without weights has none",
                "Find them with `longctx calibrate MODEL --out PROFILE.yaml`, and give --profile "
                "PROFILE.yaml, or use another --method.",
            )
        return super().fitted(window)


class Method(Retrieving):
    """The memory of Ltri-LLM.

    Differences from the paper: unless `run` is 0, spans have no part in retrieval. A block is
    represented by the mean keys of its runs, of the retrieval head in its layer, and of all heads
    in layers below the first; each query of a question is compared with them (`shares`). Unless
    `in_order` is false, first and retrieved tokens stand one after another.

    What the paper leaves open: a block leaves the local window with the
    maps of all its rows, and a layer without a retrieval head retrieves by the votes so far, or
    below the first such head by InfLLM's vectors; ties of votes go to the latest similarity, then
    to the earlier block; a span has at least one index vector, and if a block has too many, those
    beyond one are scaled down in proportion; a chunk without any span counts as one span in each of
    its blocks. Only the sum of a span's index vectors is kept, which is all that the sum over pairs
    (equation 8) needs. Layers with a sliding window retrieve nothing.

    Args:
        options: `Options`.
        layers, place: see `Method`.

    Raises:
        UsageError: a retrieval head or a layer's option does not fit the model.
    """

    name, per_head, anew = "ltri", True, False

    def __init__(self, options: Options, layers: tuple[Layer, ...], place: Place = HERE):
        self._heads = best_heads(options.heads, layers)
        self._first = min(self._heads)  # retrieval layer
        self._theta = of_layers("theta", options.theta, len(layers))
        self._phi = of_layers("phi", options.phi, len(layers))
        usual = tuple(EARLY_LAMBDA if i < EARLY else LAMBDA for i in range(len(layers)))
        lam = usual if options.lam is None else options.lam
        self._lam = of_layers("lam", lam, len(layers))
        self._ballot = self._similar = torch.zeros(0)  # (n,) of all layers so far, of the latest
        super().__init__(options, layers, place)

    # --- the index ---

    def forms(self, layer: Layer) -> dict[str, RowForm]:
        """Vectors of runs; or sums of each span's, or InfLLM's; see `Retrieving.forms`."""
        o, wide = self.options, torch.promote_types(self._place.dtype, torch.float32)
        if o.run and (heads := self._indexed(layer)):
            return {"runs": RowForm((o.block // o.run, heads, layer.head_dim))}
        if o.run:
            return {}
        if layer.index in self._heads:
            sums = RowForm((o.spans, layer.head_dim), wide)
            return {"sums": sums, "there": RowForm((o.spans,), torch.bool)}
        if layer.index < self._first:
            return {"vectors": RowForm((layer.query_heads, layer.head_dim))}
        return {}

    def note_forms(self, layer: Layer) -> dict[str, RowForm]:
        """First and last token of each span and its number of vectors, 0 if there is no span."""
        if layer.index in self._heads and not self.options.run:
            return {"spans": RowForm((self.options.spans, 3), torch.int32)}
        return {}

    def note(self, layer: Layer, maps: Tensor) -> Rows:
        """Finds the spans of blocks; see `Retrieving.note`."""
        return {"spans": torch.stack(self._spans(layer, maps), dim=2).int()}

    def index(self, layer: Layer, keys: Tensor, received: Tensor, notes: Rows) -> Rows:
        """Index vectors of blocks; see `Retrieving.index`."""
        if self.options.run:
            return self._runs(layer, keys)
        if layer.index in self._heads:
            head = self._key_head(layer)
            x, y, count = notes["spans"].long().unbind(2)
            tokens = spans.chosen(received.sum(dim=1), x, y, count)
            return {
                "sums": spans.summed_vectors(keys[:, :, head], tokens),
                "there": count > 0,
            }
        if layer.index < self._first:
            return {"vectors": representatives(keys, received, REPRESENTATIVE)}
        return {}

    def _indexed(self, layer: Layer) -> int:
        """Key heads of a layer whose runs are kept."""
        if layer.index in self._heads:
            return 1
        return layer.kv_heads if layer.index < self._first else 0

    def _runs(self, layer: Layer, keys: Tensor) -> Rows:
        """Vectors of runs of blocks' keys (B, N, G, D)."""
        if layer.index in self._heads:
            head = self._key_head(layer)
            return {"runs": run_means(keys[:, :, head : head + 1], self.options.run)}
        return {"runs": run_means(keys, self.options.run)} if layer.index < self._first else {}

    def _key_head(self, layer: Layer) -> int:
        """The key head of a layer's retrieval head."""
        return self._heads[layer.index][0] // (layer.query_heads // layer.kv_heads)

    def _spans(self, layer: Layer, maps: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """First tokens, last tokens and vectors (B, spans) of the spans of maps (B, H, N, N)."""
        o, i = self.options, layer.index
        x, y, there = spans.find(maps, self._theta[i], self._phi[i], o.spans)
        r = spans.ratios(maps.sum(dim=1), x, y, o.ratio)
        return x, y, spans.counts(y - x + 1, r, there, self._lam[i], o.vectors)

    # --- retrieval ---

    @property
    def chunk(self) -> int:
        """Tokens read next; a question at once, since the blocks of its last chunk stay."""
        return self.options.local if self._votes is not None else super().chunk

    def begin_chunk(self) -> None:
        """Clears the votes."""
        self._ballot = self._similar = torch.zeros(0)

    def choose(self, layer: Layer, read: LayerChunk, index: Rows) -> ChosenBlocks:
        """The blocks with the most votes; the layer may be on another device than the last."""
        self._ballot, self._similar = (x.to(read.q.device) for x in (self._ballot, self._similar))
        if layer.index < self._first:
            blocks = self._by_all_heads(layer, read, index)
            return ChosenBlocks(blocks, torch.zeros_like(blocks))
        if layer.index in self._heads:
            self._poll(layer, read, index)
        blocks = spans.best(self._similar, self.options.retrieved, self._ballot)
        return ChosenBlocks(blocks, self._ballot[blocks])

    def _poll(self, layer: Layer, read: LayerChunk, index: Rows) -> None:
        """Adds a layer's copy score to the votes of its own best blocks."""
        self._similar = self._fit(layer, read, index)
        if not len(self._ballot):
            self._ballot = torch.zeros_like(self._similar)
        own = spans.best(self._similar, self.options.retrieved)
        self._ballot[own] += self._heads[layer.index][1]

    def _by_all_heads(self, layer: Layer, read: LayerChunk, index: Rows) -> Tensor:
        """The blocks (n,) that fit best in a layer below the first retrieval head."""
        count = self.options.retrieved
        if self.options.run:
            return most_shared(read.q, index["runs"], layer.scale, count)
        return best_blocks(read.q, index["vectors"], count)

    def _fit(self, layer: Layer, read: LayerChunk, index: Rows) -> Tensor:
        """How well each block (n,) fits a chunk by the layer's retrieval head."""
        if self.options.run:
            head = self._heads[layer.index][0]
            return shares(read.q[head : head + 1], index["runs"], layer.scale)
        queries, asking = self._asking(layer, read)
        return spans.block_scores(queries, asking, index["sums"], index["there"])

    def _asking(self, layer: Layer, read: LayerChunk) -> tuple[Tensor, Tensor]:
        """The chunk's spans: sums of index vectors (J, D), and which of them exist (J,)."""
        q, given = read.q[self._heads[layer.index][0]], read.given.sum(dim=0)  # (T, D), (T,)
        sums, there, whole = [], [], []
        start = 0
        for blocks, inside in parts(read.offset, len(q), self.options.block):
            maps = read.maps[blocks, :, inside, inside]  # (B, H, n, n)
            B, n = len(maps), maps.shape[-1]
            end = start + B * n
            own, vectors = given[start:end].view(B, n), q[start:end].view(B, n, -1)
            start = end
            x, y, count = self._spans(layer, maps)
            sums.append(spans.summed_vectors(vectors, spans.chosen(own, x, y, count)).flatten(0, 1))
            there.append((count > 0).flatten())
            whole.append(self._whole(own, vectors))
        found, all_parts = torch.cat(there), torch.cat(whole)
        none = (~found.any()).expand(len(all_parts))  # nothing is copied to the host
        return torch.cat([*sums, all_parts]), torch.cat([found, none])

    def _whole(self, given: Tensor, vectors: Tensor) -> Tensor:
        """Sums (B, D) of index vectors of parts that are a single span, without neighbours."""
        B, n = given.shape
        zero = torch.zeros(B, 1, dtype=torch.int64, device=given.device)
        tokens = spans.chosen(given, zero, zero + n - 1, zero + min(n, self.options.vectors))
        return spans.summed_vectors(vectors, tokens)[:, 0]


def parts(offset: int, tokens: int, block: int) -> list[tuple[slice, slice]]:
    """A chunk divided at block borders; parts at the same place in their blocks are grouped.

    Args:
        offset: tokens of the first block that come before the chunk, less than `block`.
        tokens: in the chunk.
        block: tokens of a block.

    Returns:
        Slices of blocks and of their tokens that belong to the chunk, in order.
    """
    end, begin = offset + tokens, 0
    found = []
    if offset:
        found.append((slice(0, 1), slice(offset, min(end, block))))
        begin = 1
    whole = end // block
    if whole > begin:
        found.append((slice(begin, whole), slice(0, block)))
    if whole >= begin and end % block:
        found.append((slice(whole, whole + 1), slice(0, end % block)))
    return found


def best_heads(
    heads: tuple[tuple[int, int, float], ...], layers: tuple[Layer, ...]
) -> dict[int, tuple[int, float]]:
    """Each layer's retrieval head with the highest copy score, and that score.

    Raises:
        UsageError: a head that the model does not have, or in a layer with a sliding window.
    """
    full = [layer.index for layer in layers if layer.window is None]
    require_heads(heads, len(layers), layers[0].query_heads if layers else 0, full)
    best: dict[int, tuple[int, float]] = {}
    for index, head, score in heads:
        if index not in best or score > best[index][1]:
            best[index] = head, score
    return best


def require_heads(
    heads: tuple[tuple[int, int, float], ...], layers: int, queries: int, full: Collection[int]
) -> None:
    """Refuses heads that a model does not have, or that cannot retrieve.

    Args:
        heads: layer, query head and copy score of each.
        layers, queries: the model's number of layers, and of query heads in each.
        full: the layers without a sliding window.

    Raises:
        UsageError: names the head, and what the model has.
    """
    for index, head, _ in heads:
        if index not in full or not 0 <= head < queries:
            raise UsageError(
                f"the model has no retrieval head {head} in layer {index}",
                f"it has {layers} layers with {queries} query heads each, and only those with full "
                "attention retrieve",
                "Correct `heads` of `ltri` in the profile, or find them by `longctx calibrate`.",
            )


def of_layers(name: str, value: float | tuple[float, ...], layers: int) -> tuple[float, ...]:
    """An option's value for every layer.

    Raises:
        UsageError: the number of values is not that of the layers.
    """
    if not isinstance(value, tuple):
        return (value,) * layers
    if len(value) != layers:
        raise UsageError(
            f"`{name}` of `ltri` has {len(value)} values",
            f"the model has {layers} layers",
            "Give one value, or one for each layer.",
        )
    return value
