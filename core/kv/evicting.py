"""Memories of bounded size: each chunk runs through all layers, then tokens are evicted.

The base of StreamingLLM, H2O and TOVA, each of which decides what stays. A question and its answer
attend to what is left, at consecutive positions from 0.
"""

import copy
from abc import abstractmethod
from dataclasses import replace
from typing import ClassVar

import torch
from torch import Tensor

from longctx.core.common.errors import UsageError
from longctx.core.contracts.memory import HERE, Place, Recalled, Scores, Snapshot, Stored
from longctx.core.contracts.method import Capabilities, Method, Recallable
from longctx.core.kv import evicted
from longctx.core.kv.evicted import Cache
from longctx.core.kv.sizes import Sizes
from longctx.core.model.adapter import Layer
from longctx.kernels.door import attention_mass

LOGITS = 1 << 26  # most attention logits at once where no kernel sums them


class Evicting(Method, Recallable, Recalled, abstract=True):
    """A reading method that keeps `budget` tokens of each layer, and a memory for questions to it.

    A method defines `stay`, and `weigh` if it ranks tokens by the attention that they receive.

    Args:
        options: `Sizes`.
        layers, place: see `Method`.

    Attributes:
        name: the method's, in messages.
        carries: whether attention received in earlier chunks counts and is saved.
    """

    name: ClassVar[str]
    carries: ClassVar[bool] = False
    capabilities = Capabilities(searches=False, renews=True)

    def __init__(self, options: Sizes, layers: tuple[Layer, ...], place: Place = HERE):
        super().__init__(options, layers, place)
        self._caches: list[Cache | None] = [None] * len(layers)
        self._seen = 0  # tokens of the input read so far
        # Only of a memory for a question:
        self._begun: Evicting | None = None  # the memory it was made from
        self._answers = False  # whether the question has been read
        self._looks = self._entries = self._most = 0  # of the answer's tokens in all layers

    @property
    def chunk(self) -> int:
        """Tokens read next; a question is read at once."""
        return self.options.longest if self._begun else self.options.chunk

    # --- which tokens stay ---

    def weigh(self, mass: Tensor, layer: Layer, q: Tensor, k: Tensor, lse: Tensor | None) -> Tensor:
        """The weights of a layer's tokens, now that T more have attended to them.

        Args:
            mass: (G, S), their weights before; 0 for the last T.
            layer: the layer.
            q: rotated queries (H, T, D) of the last T tokens.
            k: rotated keys (G, S, D).
            lse: log-sum-exps (H, T) of these queries, if known.

        Returns:
            (G, S).
        """
        return mass

    @abstractmethod
    def stay(self, mass: Tensor) -> Tensor:
        """Which of S > budget tokens stay: (G, budget) ascending, by their weights (G, S)."""

    # --- attending ---

    def attend(self, layer: Layer, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Attends T tokens to [kept cache | tokens]; see `Memory.attend`."""
        cache = self._caches[layer.index] or Cache.empty(layer, k)
        cache = cache.extended(k, v, self._seen)
        T, S = q.shape[1], cache.length
        self._require_room(layer, S, T)
        self._count(layer, S)
        q, k, attended, lse = cache.attend(layer, q)
        if layer.window is None:
            cache = replace(cache, mass=self.weigh(cache.mass, layer, q, k, lse))
        # Evicting now rather than after all layers keeps only one layer's chunk in memory.
        cache = self._evicted(layer, cache) if self._evicts(T) else cache
        self._caches[layer.index] = cache.joined()
        if layer.index == self.depth - 1:
            self._seen += T
        return attended

    def _evicts(self, T: int) -> bool:
        """Whether these T tokens are a whole chunk or one of an answer; a question waits."""
        return self._answers if self._begun else self.chunk == T

    def _evicted(self, layer: Layer, cache: Cache) -> Cache:
        """The cache cut down to its budget, or to the layer's sliding window."""
        if layer.window is not None:
            return cache.latest(layer.window)
        if cache.length <= self.options.budget:
            return cache
        return cache.kept(self.stay(cache.mass))

    def _require_room(self, layer: Layer, S: int, T: int) -> None:
        if self._begun and layer.window is None and self.options.longest < S:
            before, longest = S - T, self.options.longest
            raise UsageError(
                "the question is too long",
                f"it may have {longest - before:,} tokens: {before:,} of the document were kept, "
                f"and budget, chunk and question of {self.name!r} are {longest:,}",
                "Ask a shorter one, or set another `question` in a profile (docs/profiles.md).",
            )

    def _count(self, layer: Layer, S: int) -> None:
        """Counts what a token of the answer attends to in a layer."""
        if self._answers:
            seen = min(S, layer.window or S)
            self._looks, self._entries = self._looks + 1, self._entries + seen
            self._most = max(self._most, seen)

    # --- saving ---

    def snapshot(self) -> Snapshot:
        """The cache of every layer, tail included, and the count of tokens read."""
        return evicted.saved(self._caches, self._seen, self.carries)

    def restore(
        self, snapshot: Snapshot, stored: Stored | None = None, reading: bool = True
    ) -> None:
        """Restores what `snapshot` gave; nothing else of the document is needed."""
        given = self._layers, self._place, self.carries, self.name
        self._caches, self._seen = evicted.restored(snapshot, *given)

    def snapshot_bytes(self, tokens: int, itemsize: int) -> int:
        """Bytes of keys, values and positions of the evicted caches and an unfinished chunk."""
        o = self.options
        given = o.budget, o.chunk, tokens, itemsize, self.carries
        return evicted.saved_bytes(self._layers, *given)

    # --- a question ---

    def recall(self) -> "Evicting":
        """A memory for one question and its answer; this one does not change."""
        fork = copy.copy(self)
        fork._caches, fork._begun = list(self._caches), self
        return fork

    @torch.inference_mode()
    def begin_answer(self) -> None:
        """Marks the question as read: it now counts in the budget, and so does each token."""
        self._answers = True
        pairs = zip(self._layers, self._caches, strict=True)
        self._caches = [cache and self._evicted(layer, cache) for layer, cache in pairs]

    @property
    def kept(self) -> int:
        """Tokens that the largest cache holds, or held with a token of the answer included."""
        return max(self._most, *(cache.length if cache else 0 for cache in self._caches))

    def attended(self) -> float:
        """Mean number of tokens that an answer's token attended to, over tokens and layers."""
        return self._entries / max(1, self._looks)

    def scores(self, tokens: int) -> Scores:
        """How many layers and heads held each token when the question was read; none: -1 pooled.

        Tokens evicted during the answer count: the question, and so the answer's first token, saw
        them.
        """
        begun = self._begun or self
        count = torch.zeros(begun._seen, dtype=torch.int64, device=self._place.device)
        for layer, cache in zip(begun._layers, begun._caches, strict=True):
            if cache:
                # The question's first token is at `seen` and sees those above `seen - window`.
                reach = begun._seen if layer.window is None else layer.window - 1
                places = cache.positions[:, max(0, cache.length - reach) :].flatten()
                places = places.to(count.device)
                places = places.to(count.device)
                count.index_add_(0, places, torch.ones_like(places))
        raw = count[max(0, begun._seen - tokens) :].float()  # the prefix comes before it
        return Scores(raw, torch.where(raw > 0, raw, -1.0))


def received(
    layer: Layer, q: Tensor, k: Tensor, lse: Tensor | None, queries: int | None = None
) -> Tensor:
    """Attention that each key receives, summed over the last queries and a group's heads.

    Args:
        layer: the layer.
        q: rotated queries (H, T, D) of the last T of S tokens.
        k: rotated keys (G, S, D).
        lse: log-sum-exps (H, T) of these queries, if known.
        queries: how many of the last queries count; None: all.

    Returns:
        (G, S), float32 or wider.
    """
    (H, T, _), S = q.shape, k.shape[1]
    first = 0 if queries is None else max(0, T - queries)
    rows = max(1, LOGITS // (H * S))
    more = {"softcap": layer.softcap, "sinks": layer.sinks}
    mass = k.new_zeros(k.shape[:2], dtype=torch.promote_types(k.dtype, torch.float32))
    for start in range(first, T, rows):
        end = min(T, start + rows)
        seen = S - T + end  # keys up to the last query of the block
        part = None if lse is None else lse[:, start:end]
        mass[:, :seen] += attention_mass(q[:, start:end], k[:, :seen], layer.scale, part, **more)
    return mass
