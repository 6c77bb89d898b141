"""The base of policies that decode from a prompt's own caches."""

import torch

from longctx.core.contracts.policy import Looks, Policy, Spent
from longctx.core.kv.prompt import Prompt


class PromptPolicy(Policy, abstract=True):
    """Tokens of an answer follow those of the prompt, at consecutive positions.

    Args:
        prompt: read in full, with room for the answer.
    """

    def __init__(self, prompt: Prompt):
        self._caches, self._start = prompt.caches, prompt.length
        self._grows = any(cache.grows for cache in self._caches.values())
        self._device = next(iter(self._caches.values())).keys.device
        # Tokens before the next one, and including it; one addition counts both.
        self._counts = torch.tensor([self._start, self._start + 1], device=self._device)
        self._position, self._count = self._counts.split(1)
        self._looks = Looks(prompt.windows)

    def end_token(self) -> None:
        """Moves to the next place."""
        self._counts += 1

    def spent(self) -> Spent:
        """How much the tokens attended to; everything is held."""
        return Spent(self._looks.mean, None, self._start + self._looks.steps)
