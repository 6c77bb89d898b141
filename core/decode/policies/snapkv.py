"""SnapKV: what the question needed of the prompt, and the answer.

Li et al., "SnapKV: LLM Knows What You are Looking for Before Generation", NeurIPS 2024.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from longctx.core.contracts.policy import PolicyOptions, Spent
from longctx.core.kv.prompt import LayerCache, Prompt
from longctx.core.kv.prompt_policy import PromptPolicy
from longctx.core.model.adapter import Layer
from longctx.kernels.door import Store, attention_mass, best_tokens


@dataclass(frozen=True)
class Options(PolicyOptions):
    """Options of SnapKV.

    Attributes:
        budget: tokens of the prompt that stay, the last ones included.
        window: last tokens of the prompt, whose attention decides.
        pool: neighbours, itself in the middle, of which a token takes the largest mean; odd, 1:
            only its own.
    """

    budget: int = 4096
    window: int = 32
    pool: int = 7

    def __post_init__(self) -> None:
        if not 1 <= self.window < self.budget:
            raise ValueError(f"expected 1 <= window < budget, got {self}")
        if self.pool < 1 or self.pool % 2 == 0:
            raise ValueError(f"pool: expected an odd number from 1 on, got {self.pool}")

    @property
    def observed(self) -> int:
        """The queries that choose."""
        return self.window


class Policy(PromptPolicy):
    """The chosen tokens of a prompt and all of the answer, at their original positions.

    What the paper leaves open: attention is averaged over a group's query heads and over the
    queries, so that each key/value head has one set; ties of means go to the larger before pooling,
    then to the earlier token; layers with a sliding window choose nothing.
    """

    def __init__(self, options: Options, prompt: Prompt, window: int):
        super().__init__(prompt)
        self._steps, self._entries = 0, 0
        self._kept = {index: self._keep(options, cache) for index, cache in self._caches.items()}
        # Per layer: the next token's entry, and the number of entries with it.
        self._slots = torch.tensor([*self._kept.values()], device=self._device)
        self._ends = self._slots + 1
        rows = zip(self._slots.split(1), self._ends.split(1), strict=True)
        self._rows = dict(zip(self._kept, rows, strict=True))

    @staticmethod
    @torch.inference_mode()
    def _keep(options: Options, cache: LayerCache) -> int:
        """Cuts a layer down; returns how many tokens it keeps."""
        tokens = chosen(options, cache)
        cache.keep(tokens)
        return tokens.shape[1]

    @property
    def kind(self) -> str | None:
        """Every step is like the one before."""
        return None if self._grows else "snapkv"

    def attend(self, layer: Layer, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Attends one token to everything kept; see `Memory.attend`."""
        cache, (slot, count) = self._caches[layer.index], self._rows[layer.index]
        q = cache.put(q, k, v, self._position, [Store(cache.keys, cache.values, slot)])
        return cache.attention(q, cache.keys, cache.values, count)

    def end_token(self) -> None:
        """Moves to the next place."""
        super().end_token()
        self._slots += 1
        self._ends += 1

    def advance(self) -> None:
        """Counts the entries attended to."""
        self._steps += 1
        self._entries += sum(self._seen())

    def _seen(self) -> Iterator[int]:
        for index, kept in self._kept.items():
            window = self._caches[index].layer.window
            yield kept + self._steps if window is None else min(kept + self._steps, window)

    def spent(self) -> Spent:
        """How much was attended to and held: what was kept, and the answer so far."""
        attended = self._entries / max(1, self._steps * len(self._kept))
        return Spent(attended, None, max(self._kept.values()) + self._steps)


def chosen(options: Options, cache: LayerCache) -> Tensor:
    """The tokens (G, n) that a layer keeps, ascending."""
    layer, n, W = cache.layer, cache.length, options.window
    reach = options.budget if layer.window is None else layer.window
    places, G = torch.arange(n, device=cache.keys.device), len(cache.keys)
    if layer.window is not None or n <= reach:
        return places[max(0, n - reach) :].expand(G, -1)
    q = layer.rotate(cache.queries[:, -W:], slice(n - W, n), n)
    more = {"softcap": layer.softcap, "sinks": layer.sinks}
    # Summed over queries and heads, which gives the order of the mean.
    mass = attention_mass(q, cache.keys[:, :n], layer.scale, **more)[:, : n - W]
    best = best_tokens(mass, places[n - W :][:1], options.budget - W, options.pool)
    return torch.cat([best.sort(dim=1).values, places[n - W :].expand(G, -1)], dim=1)
