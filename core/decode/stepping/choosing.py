"""The next token from logits, on the device: nothing here waits for the device.

So a choice can be captured in a graph and made before the host knows the last one. Independent of
models and answers.
"""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from longctx.core.common import libraries
from longctx.core.profile.sampling import Sampling


class Chooser:
    """transformers' own processors, in the order of its `generate`, then a draw.

    Args:
        sampling: how to choose.
        device: of the logits.

    Attributes:
        generator: random generator of the draws; None: the most likely token is always taken.
    """

    def __init__(self, sampling: Sampling, device: torch.device):
        self._processors = list(_processors(sampling))
        self.generator: torch.Generator | None = None
        if sampling.temperature:
            self.generator = torch.Generator(device)
            if sampling.seed is None:
                self.generator.seed()
            else:
                self.generator.manual_seed(sampling.seed)

    def __call__(self, seen: Tensor, logits: Tensor) -> Tensor:
        """Chooses a token.

        Args:
            seen: (n,) token ids that a repetition penalty applies to, however often each occurs.
            logits: (1, vocabulary).

        Returns:
            The token (1,).
        """
        for process in self._processors:
            logits = process(seen[None], logits)
        if self.generator is None:
            return logits.argmax(dim=-1)
        weights = torch.softmax(logits, dim=-1)
        # `torch.multinomial` draws a token the same way, but first waits for the device to check.
        return (weights / self._exponential(weights)).argmax(dim=-1)

    def _exponential(self, like: Tensor) -> Tensor:
        return torch.empty_like(like).exponential_(generator=self.generator)


def _processors(sampling: Sampling) -> Iterator[Any]:
    if sampling.repetition_penalty is not None:
        penalty = libraries.transformers().RepetitionPenaltyLogitsProcessor
        yield penalty(float(sampling.repetition_penalty))
    if sampling.temperature:
        yield from _warpers(sampling, sampling.temperature)


def _warpers(sampling: Sampling, temperature: float) -> Iterator[Any]:
    library = libraries.transformers()
    yield library.TemperatureLogitsWarper(float(temperature))
    if sampling.top_k is not None:
        yield library.TopKLogitsWarper(sampling.top_k)
    if sampling.top_p is not None and sampling.top_p < 1:
        yield library.TopPLogitsWarper(float(sampling.top_p))
    if sampling.min_p:
        yield library.MinPLogitsWarper(float(sampling.min_p))
