"""Token embeddings: states of a few attention heads, tapped while a model runs, then searched.

REFORM, 3.2 and the search of 3.3 ("compressed cross-layer embeddings"). Independent of the KV
cache: layers are tapped whatever they attend to.
"""

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor

from longctx.core.common.device import moved
from longctx.core.common.errors import StateMismatch, UsageError
from longctx.core.contracts.memory import Rows, Scores
from longctx.core.model.adapter import Layer
from longctx.core.store.shards import AGAIN
from longctx.kernels.door import similarity_max, sliding_max
from longctx.kernels.quantize import quantize

GROUP = "embeddings"  # of shards
KINDS = ("q", "k", "v")

Head = tuple[int, str, int]  # layer, "q" | "k" | "v", head; 0-based


class Taps:
    """The states of the embedding heads for the tokens read since `embeddings` was last called.

    Args:
        heads: (layer, "q" | "k" | "v", head) of each, 0-based.
        layers: the model's layers.

    Attributes:
        depth: layers that must run, the last one up to its projections.

    Raises:
        UsageError: the model has no such layer or head.
    """

    def __init__(self, heads: tuple[Head, ...], layers: tuple[Layer, ...]):
        count = len(layers), layers[0].query_heads, layers[0].kv_heads
        require_heads(heads, *count)
        self.depth = max(layer for layer, _, _ in heads) + 1
        self._heads = heads
        self._states: dict[Head, list[Tensor]] = {}  # of each chunk (T, D)

    def tap(self, index: int, q: Tensor, k: Tensor, v: Tensor) -> None:
        """Takes the needed heads of one layer: position-free q (H, T, D), k and v (G, T, D)."""
        states = {"q": q, "k": k, "v": v}
        for layer, kind, head in self._heads:
            if layer == index:  # copied, or all heads would stay in memory with this one
                own = states[kind][head].clone()
                self._states.setdefault((layer, kind, head), []).append(own)

    def take(self, states: Mapping[Head, Tensor]) -> None:
        """Takes the states (T, D) of each head for more tokens."""
        for head, state in states.items():
            self._states.setdefault(head, []).append(state)

    def taken(self) -> dict[Head, Tensor]:
        """The states (T, D) of each head, on its layer's device; returned only once."""
        taken, self._states = self._states, {}
        return {head: torch.cat(parts) for head, parts in taken.items()}

    def embeddings(self, taken: Mapping[Head, Tensor] | None = None) -> tuple[Tensor, Tensor]:
        """int8 vectors (T, heads, D) and float16 scales (T, heads).

        Each head's state is L2-normalised separately, so that the mean of their dot products is the
        mean of their cosines.

        Args:
            taken: the states of all heads; None: those that are here, which are returned only once.
        """
        taken = self.taken() if taken is None else taken
        whole = [taken[head] for head in self._heads]
        # Where layers are on several devices, so are these.
        stacked = torch.stack([moved(head, whole[-1].device) for head in whole], dim=1)
        stacked = stacked if stacked.dtype == torch.float64 else stacked.float()
        return quantize(torch.nn.functional.normalize(stacked, dim=-1))  # (T, heads, D)

    def rows(self, skip: int = 0, taken: Mapping[Head, Tensor] | None = None) -> Rows:
        """The embeddings as store rows, without the first `skip` tokens; see `embeddings`."""
        vectors, scales = self.embeddings(taken)
        return {"vectors": vectors[skip:], "scales": scales[skip:]}


def embedding_bytes(heads: tuple[Head, ...], layers: tuple[Layer, ...]) -> int:
    """Bytes of a token's embeddings: int8 vectors and one float16 scale for each head."""
    return sum(layers[layer].head_dim + 2 for layer, _, _ in heads)


def search(
    question: tuple[Tensor, Tensor], scored: Tensor, rows: Iterable[tuple[int, Rows]], pool: int
) -> Scores:
    """Each token's best cosine with any of the user's tokens, then the maximum over its neighbours.

    Args:
        question: int8 vectors (T, heads, D) and float16 scales (T, heads) of the question.
        scored: (T,) bool, the tokens that are the user's own words.
        rows: the document's embeddings, in order, in blocks of any size.
        pool: neighbours on each side that share a token's score.

    Raises:
        StateMismatch: the rows are not embeddings of these heads.
    """
    query, scales = (part[scored.to(part.device)] for part in question)
    parts = []
    for _, block in rows:
        vectors, factors = fitting(block, query)
        parts.append(
            similarity_max(vectors.to(query.device), factors.to(query.device), query, scales)
        )
    raw = torch.cat(parts) if parts else torch.zeros(0, device=query.device)
    return Scores(raw, sliding_max(raw, pool))


def fitting(block: Rows, query: Tensor) -> tuple[Tensor, Tensor]:
    """Vectors and scales of stored rows; raises StateMismatch if `rows` cannot have given them."""
    vectors, scales = (block.get(name, torch.zeros(0)) for name in ("vectors", "scales"))
    shape = (len(vectors), *query.shape[1:])
    fits = (vectors.dtype, vectors.shape) == (torch.int8, shape)
    fits = fits and (scales.dtype, scales.shape) == (torch.float16, shape[:2])
    if not (fits and bool(scales.isfinite().all())):
        raise StateMismatch(
            "the vectors and scales of the document cannot be those of its embedding heads",
            "names, shapes or types are not what is written with these options and this model",
            AGAIN,
        )
    return vectors, scales


def require_heads(heads: tuple[Head, ...], layers: int, queries: int, keys: int) -> None:
    """Refuses heads that a model does not have.

    Args:
        heads: (layer, "q" | "k" | "v", head) of each, 0-based.
        layers: the model's number of layers.
        queries, keys: query heads and key/value heads of a layer.

    Raises:
        UsageError: names the head, and what the model has.
    """
    for layer, kind, head in heads:
        if not (0 <= layer < layers and 0 <= head < (queries if kind == "q" else keys)):
            raise UsageError(
                f"the model has no embedding head [{layer}, {kind}, {head}]",
                f"it has layers 0 to {layers - 1}, each with query heads 0 to {queries - 1} and "
                f"key/value heads 0 to {keys - 1}",
                "Use a profile of this model, or none (docs/profiles.md).",
            )
