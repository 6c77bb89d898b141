"""Prompts that are read side by side: their tokens go through a model in the same passes.

A model multiplies each token by all its weights, so few tokens take it nearly as long as many, on a
GPU above all. Only attention is each prompt's own.
"""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from longctx.core.common.interrupts import check
from longctx.core.contracts.memory import Memory
from longctx.core.kv.prompt import Prompt
from longctx.core.model.adapter import Decoder, Layer

MOST = 1024  # tokens of a pass, if it reads more than one prompt


class Packed(Memory):
    """A memory for tokens of several prompts, one prompt's after another's.

    Args:
        prompts: all different.
        lengths: tokens of each that come next.
    """

    on_one_device = True

    def __init__(self, prompts: Sequence[Prompt], lengths: Sequence[int]):
        self._prompts, self._lengths = prompts, [*lengths]

    def attend(self, layer: Layer, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Attends each prompt's tokens to that prompt; see `Memory.attend`."""
        parts = zip(*(x.split(self._lengths, dim=1) for x in (q, k, v)), strict=True)
        own = zip(self._prompts, parts, strict=True)
        return torch.cat([prompt.attend(layer, *part) for prompt, part in own], dim=1)


def read_packed(decoder: Decoder, ids: Sequence[Tensor], prompts: Sequence[Prompt]) -> Tensor:
    """Reads further tokens of several prompts.

    Args:
        decoder: the model.
        ids: (T,) token ids for each prompt, one or more.
        prompts: all different.

    Returns:
        The last norm's output (n, E) for the last token of each.
    """
    last = []
    for some in groups([len(own) for own in ids], MOST):
        check()
        lengths = [len(ids[n]) for n in some]
        memory = Packed([prompts[n] for n in some], lengths)
        hidden = decoder.read(torch.cat([ids[n] for n in some]), memory)
        last.append(hidden[torch.tensor(lengths).cumsum(0) - 1])
    return torch.cat(last)


def groups(sizes: Sequence[int], most: int) -> Iterator[range]:
    """Neighbours whose sizes add up to `most` at most, or one that is larger, in order."""
    first, total = 0, 0
    for place, size in enumerate(sizes):
        if place > first and total + size > most:
            yield range(first, place)
            first, total = place, 0
        total += size
    if sizes:
        yield range(first, len(sizes))
