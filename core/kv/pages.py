"""Keys and values of one layer in pages, with the bounds of each page.

Independent of the policy: `core/decode/policies/` and `page_stamps.py` decide which pages are
attended to and which are evicted.
"""

import torch
from torch import Tensor

from longctx.core.kv.prompt import LayerCache, Prompt, Rotation
from longctx.core.model.adapter import Layer
from longctx.kernels.door import PAGE, Pages, page_scores, paged_attention


def pages_of(tokens: int) -> int:
    """Pages that `tokens` tokens need."""
    return -(-tokens // PAGE)


class Paged:
    """One layer's keys and values in pages, those of a prompt first.

    Args:
        cache: of the prompt; written to unless `count` is given.
        count: pages to copy it to; None: uses the cache's own memory.

    Attributes:
        layer: the layer.
        rotation: of later tokens.
        keys, values: (G, pages * PAGE, D), keys rotated.
        pages: what is known of each page.
    """

    def __init__(self, cache: LayerCache, count: int | None = None):
        self.layer, self.rotation = cache.layer, cache.rotation
        self.keys, self.values = cache.keys, cache.values
        if count is not None:
            given = cache.length, count * PAGE
            self.keys, self.values = (_copied(x, *given) for x in (cache.keys, cache.values))
        self.pages = known(self.keys, cache.length)
        self._basis, self._plain = cache.length, cache.plain

    def turn(self, length: int) -> None:
        """Rotates the prompt and later tokens as in a window of `length`, if that differs.

        The answer's keys, which must begin a page, are left to the caller, who knows their places.
        """
        self.rotation = Rotation(self.layer, length, self.keys)
        if self._plain is None or self.layer.rope.same_basis(length, self._basis):
            return
        prompt, used = slice(0, self._plain.shape[1]), pages_of(self._plain.shape[1])
        self.keys[:, prompt] = self.layer.rotate(self._plain, prompt, length)
        renew(self.pages, slice(0, used), self.keys[:, : used * PAGE])
        self._basis = length

    def renew(self, length: int) -> None:
        """Computes all pages' bounds again, after `length` tokens; keys may have been rotated."""
        starts = torch.arange(0, self.keys.shape[1], PAGE, device=self.keys.device)
        self.pages.filled[:] = (length - starts).clamp(0, PAGE)
        renew(self.pages, slice(None), self.keys)

    def scores(
        self,
        q: Tensor,
        part: slice = slice(None),
        always: Tensor | None = None,
        out: Tensor | None = None,
    ) -> Tensor:
        """Upper bounds (G, P) on the scores of pages for rotated q (H, 1, D); see `page_scores`."""
        low, high, filled = (x[:, part] for x in self.pages)
        return page_scores(q, low, high, filled, self.layer.scale, always, out)

    def attention(self, q: Tensor, pages: Tensor | None) -> Tensor:
        """Attention (H, 1, D) to chosen pages (G, P), or to all."""
        x = self.layer
        more = (pages, x.scale, x.softcap, x.sinks)
        return paged_attention(q, self.keys, self.values, self.pages.filled, *more)


def paged(prompt: Prompt, count: int | None = None) -> dict[int, Paged]:
    """A prompt's layers with full attention in pages, by index; for `count` see `Paged`."""
    caches = prompt.caches.items()
    return {index: Paged(cache, count) for index, cache in caches if cache.layer.window is None}


def _copied(x: Tensor, length: int, capacity: int) -> Tensor:
    """The first entries of x (G, C, D) in a buffer of its own."""
    room = x.new_zeros(len(x), capacity, x.shape[-1])
    room[:, :length] = x[:, :length]
    return room


def known(keys: Tensor, length: int) -> Pages:
    """Bounds and fill of the pages of keys (G, C, D), the first `length` in use."""
    G, C, D = keys.shape
    low, high = (keys.new_zeros(G, pages_of(C), D) for _ in range(2))
    whole, rest = divmod(length, PAGE)
    parts = keys[:, : whole * PAGE].unflatten(1, (whole, PAGE))
    for bound, best in ((low, torch.amin), (high, torch.amax)):
        bound[:, :whole] = best(parts, dim=2)
        if rest:
            bound[:, whole] = best(keys[:, whole * PAGE : length], dim=1)
    starts = torch.arange(0, C, PAGE, device=keys.device)
    filled = (length - starts).clamp(0, PAGE).int()
    return Pages(low, high, filled.repeat(G, 1))


def renew(pages: Pages, part: slice, keys: Tensor) -> None:
    """Computes the bounds of some pages again from their keys (G, P * PAGE, D)."""
    keys = keys.unflatten(1, (-1, PAGE))  # (G, P, PAGE, D)
    entry = torch.arange(PAGE, device=keys.device)
    free = (entry >= pages.filled[:, part, None])[..., None]
    pages.low[:, part] = keys.masked_fill(free, torch.inf).amin(dim=2)
    pages.high[:, part] = keys.masked_fill(free, -torch.inf).amax(dim=2)


def rotated_each(layer: Layer, keys: Tensor, places: Tensor, length: int) -> Tensor:
    """Keys (G, n, D), rotated to each head's places (G, n) in a window of `length`."""
    return layer.rotate(keys.reshape(1, -1, keys.shape[-1]), places.flatten(), length).view_as(keys)
