"""Dense decoding: every token of an answer attends to everything before it."""

from dataclasses import dataclass

import torch
from torch import Tensor

from longctx.core.contracts import policy
from longctx.core.contracts.memory import Recalled
from longctx.core.contracts.policy import Looks, PolicyOptions, Spent
from longctx.core.kv.prompt import Prompt
from longctx.core.model.adapter import Layer
from longctx.kernels.door import Store


@dataclass(frozen=True)
class Options(PolicyOptions):
    """Dense decoding has no options."""


class Policy(policy.Policy):
    """All tokens, at consecutive positions from 0.

    Args:
        options: `Options`.
        prompt: read in full, with room for the answer.
        window: tokens that the model was trained on.
    """

    def __init__(self, options: Options, prompt: Prompt, window: int):
        self._caches = prompt.caches
        self._grows = any(cache.grows for cache in prompt.caches.values())
        self._start = prompt.length
        device = next(iter(self._caches.values())).keys.device
        self._position = torch.tensor([self._start], device=device)  # of the next token
        self._count = self._position + 1
        self._looks = Looks(prompt.windows)

    @property
    def kind(self) -> str | None:
        """Every step is like the one before."""
        return None if self._grows else "dense"

    def attend(self, layer: Layer, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Attends one token to all tokens so far; see `Memory.attend`."""
        cache = self._caches[layer.index]
        if self._grows:
            return cache.read(q, k, v)
        keys, values = cache.keys, cache.values
        q = cache.put(q, k, v, self._position, [Store(keys, values, self._position)])
        return cache.attention(q, keys, values, self._count)

    def end_token(self) -> None:
        """The next token has the next place."""
        self._position += 1
        self._count += 1

    def advance(self) -> None:
        """Counts the entries that were attended to."""
        count = self._start + self._looks.steps + 1
        self._looks.add(count, count)

    def spent(self) -> Spent:
        """All tokens, in every step."""
        return Spent(self._looks.mean, None, self._start + self._looks.steps)


class Recalling(policy.Policy):
    """Each token attends as the reading method does: to what it selects of everything it kept.

    Args:
        options: `Options`.
        recalled: the method's memory, which has read the question.
        window: tokens that the model was trained on.
    """

    kind = None  # what is selected decides what is read from host memory or disk

    def __init__(self, options: Options, recalled: Recalled, window: int):
        self._recalled = recalled

    def attend(self, layer: Layer, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Attends one token; see `Memory.attend`."""
        return self._recalled.attend(layer, q, k, v)

    def spent(self) -> Spent:
        """What was selected, in every step."""
        return Spent(self._recalled.attended(), None, self._recalled.kept)
