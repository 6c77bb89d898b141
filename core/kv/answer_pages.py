"""A prompt and an answer whose least recently used pages are evicted: memory does not grow.

The base of policies of that kind. Where an answer would pass the window that the model was trained
on, positions are re-assigned: the prompt keeps its own, and in each key/value head the answer's
tokens that it still holds follow consecutively.
"""

import torch
from torch import Tensor

from longctx.core.contracts.policy import Looks, Policy, Spent
from longctx.core.kv.page_stamps import Turnover
from longctx.core.kv.pages import Paged, pages_of, renew, rotated_each
from longctx.core.kv.prompt import Prompt
from longctx.core.kv.rings import Rings
from longctx.core.model.adapter import Layer
from longctx.kernels.door import PAGE, Store


def settled(prompt: Prompt, most: int, slots: int, window: int) -> int:
    """Settles a prompt for an answer; returns how many of the answer's pages can be in use at once.

    Args:
        prompt: its capacity limits the length of the answer.
        most: room in tokens that every longer answer gets too.
        slots: pages that may be held.
        window: tokens that the model was trained on.
    """
    room = prompt.capacity - prompt.length
    fits = min(room, window - prompt.length) < most
    length = prompt.capacity if fits else window
    for cache in prompt.caches.values():
        cache.settle(length)
    return min(slots, pages_of(room) if fits else (window - prompt.length) // PAGE)


class AnswerPages(Policy, abstract=True):
    """The tokens of an answer, in pages after those of the prompt.

    Args:
        prompt: settled; its tensors are not kept.
        paged: the layers with full attention, by their index.
        first: the page at which the answer begins.
        slots: pages of the answer.
        pinned: whether the prompt's pages are stamped too, or only the answer's.
        before: tokens of the prompt that each token of the answer attends to.
        window: tokens that the model was trained on.
        alpha: see `Stamps`.
    """

    def __init__(
        self,
        prompt: Prompt,
        paged: dict[int, Paged],
        first: int,
        slots: int,
        pinned: bool,
        before: int,
        window: int,
        alpha: float | None,
    ):
        caches = prompt.caches.values()
        G, device = next((len(x.keys), x.keys.device) for x in caches)
        stamped, before_it = (first, 0) if pinned else (0, first)
        shape = len(paged), G
        self._turnover = Turnover(shape, prompt.length, slots, stamped, before_it, alpha, device)
        self._rings = Rings(cache for cache in caches if cache.layer.window is not None)
        self._paged, self._window = paged, window
        self._before, self._looks = before, Looks(prompt.windows)
        self._rows = {index: row for row, index in enumerate(paged)}
        self._own = slice(first, first + slots)  # the answer's pages
        self._stamped = slice(0 if pinned else first, first + slots)
        # Page scores for a token; at its end the pages of all layers are stamped at once.
        wide = torch.promote_types(next(iter(caches)).keys.dtype, torch.float32)
        shape = (len(paged), G, self._own.stop)
        self._scores = torch.full(shape, -torch.inf, dtype=wide, device=device)
        # The answer's position-free keys (G, slots * PAGE, D), once its positions are re-assigned
        # or if longer windows have other frequencies; then positions (L, G, slots * PAGE) too.
        self._grows = any(cache.grows for cache in caches)
        each = paged.items() if self._grows else ()
        self._plain = {index: torch.zeros_like(self._held(x)) for index, x in each}
        self._places = torch.empty(0)

    @property
    def kind(self) -> str | None:
        """Whether a page is begun, and whether positions are re-assigned."""
        if self._grows:
            return None
        sort = "open" if self._turnover.opens else "step"
        if self._next < self._window:
            return sort
        return None if self._next == self._window else f"{sort}, re-assigned"

    @property
    def reassigned(self) -> bool:
        """Whether positions have been re-assigned."""
        return self._next > self._window

    @property
    def _next(self) -> int:
        """The next token's own position."""
        return self._turnover.start + self._turnover.steps

    def begin_token(self) -> None:
        """Finds the token's place, for which a page may be evicted."""
        if self._next == self._window:
            self._reassign()
        self._turnover.begin()
        self._rings.begin(self._turnover.position)
        if self._grows:
            self._turn(min(self._next + 1, self._window))
        if self._plain:
            self._places = self._positions(self._next >= self._window)

    def end_token(self) -> None:
        """Stamps the pages and moves to the next place."""
        self._turnover.stamp(self._scores[..., self._stamped])
        self._turnover.end()

    def advance(self) -> None:
        """Counts the tokens held and attended to."""
        turnover = self._turnover
        turnover.advance()
        self._looks.add(turnover.start + turnover.steps, self._before + turnover.resident)

    def spent(self) -> Spent:
        """How much was attended to and held."""
        turnover = self._turnover
        return Spent(self._looks.mean, None, turnover.start + turnover.most, self.reassigned)

    def slide(self, layer: Layer, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Attends one token of a layer with a sliding window to that window."""
        return self._rings.attend(layer, q, k, v, self._turnover.position)

    def write(self, layer: Layer, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Adds one token of a layer with full attention; returns its rotated queries (H, 1, D)."""
        held, slot = self._paged[layer.index], self._turnover.slot[self._rows[layer.index]]
        moved = self._next >= self._window
        position = self._turnover.place if moved else self._turnover.position
        stores = [Store(held.keys, held.values, slot)]
        q = held.rotation.put(q, k, v, position, stores, held.pages)
        if self._plain:
            self._rotate(held, k, slot)
        return q

    def score(self, layer: Layer, q: Tensor, part: slice, always: Tensor | None = None) -> Tensor:
        """Scores (G, P) of a layer's pages for its q; `part` includes the stamped ones."""
        out = self._scores[self._rows[layer.index], :, part]
        return self._paged[layer.index].scores(q, part, always, out)

    def _reassign(self) -> None:
        """Undoes the rotation of all tokens of the answer."""
        self._rings.reassign(self._turnover.position)
        if self._plain:
            return
        for (index, held), places in zip(self._paged.items(), self._positions(False), strict=True):
            keys = self._held(held)
            flat = keys.reshape(1, -1, keys.shape[-1]), places.flatten(), held.rotation.length
            self._plain[index] = held.layer.rope.unrotate(*flat).view(keys.shape).clone()

    @torch.inference_mode()
    def _turn(self, length: int) -> None:
        """Uses the basis of a window of `length` places from now on."""
        self._rings.turn(length)
        for held in self._paged.values():
            held.turn(length)

    def _positions(self, moved: bool) -> Tensor:
        """Positions (L, G, slots * PAGE) of the answer's entries, re-assigned or not."""
        turnover = self._turnover
        pages = turnover.start + (turnover.ranks() if moved else turnover.numbers() * PAGE)
        entries = pages[..., None] + torch.arange(PAGE, device=pages.device)
        # Entries after the last token have no position and are never attended to.
        return entries.flatten(2).clamp(max=min(self._next, self._window - 1))

    def _held(self, paged: Paged) -> Tensor:
        """The keys of the answer's pages (G, slots * PAGE, D)."""
        return paged.keys[:, self._own.start * PAGE : self._own.stop * PAGE]

    def _rotate(self, held: Paged, k: Tensor, slot: Tensor) -> None:
        """Rotates everything a layer holds of the answer to its current positions."""
        plain, row = self._plain[held.layer.index], self._rows[held.layer.index]
        heads = torch.arange(len(k), device=k.device)
        plain[heads, slot - self._own.start * PAGE] = k[:, 0]
        keys = rotated_each(held.layer, plain, self._places[row], held.rotation.length)
        self._held(held).copy_(keys)
        renew(held.pages, self._own, keys)
