"""Runs decode policies over small random models, and their transcription over the same tokens."""

from collections.abc import Callable
from contextlib import contextmanager, nullcontext
from typing import Any

import numpy as np
import pytest
import raas_transcription as transcription
import torch
from float64_models import ORDER, exact, float64_model, largest_difference, weights_of
from torch.utils._python_dispatch import TorchDispatchMode

from longctx.core.kv.pages import Paged
from longctx.core.kv.prompt import Prompt
from longctx.core.model.adapter import Decoder

WIDE = 1 << 14  # a trained window that nothing here fills


def small(make_model: Callable[..., Any], name: str = "llama-default", **changes: Any) -> Any:
    """A float64 model of a few layers."""
    return float64_model(make_model, name, **{"num_hidden_layers": 2} | changes)


def read(decoder: Decoder, length: int, room: int, plain: bool = False) -> Prompt:
    """A prompt of the first tokens, with room for others; `plain`: in float32."""
    prompt = Prompt(length + room)
    with nullcontext() if plain else exact():
        decoder.read(torch.tensor(ORDER[:length]), prompt)
    return prompt


def step(decoder: Decoder, policy: Any, token: int) -> np.ndarray:
    """Logits after one more token."""
    policy.begin_token()
    hidden = decoder.read(torch.tensor([token]), policy)
    policy.end_token()
    policy.advance()
    return decoder.logits(hidden)[0].numpy()


def decode(
    model: Any,
    module: Any,
    options: Any,
    length: int,
    steps: int,
    window: int = WIDE,
    after: Callable[[Any], None] = lambda policy: None,
) -> list[np.ndarray]:
    """Logits of every token of an answer; `after` sees the policy after each."""
    decoder = Decoder(model)
    prompt = read(decoder, length, options.reserve(steps))
    with exact():
        policy, found = module.Policy(options, prompt, window), []
        for token in ORDER[length : length + steps]:
            found.append(step(decoder, policy, token))
            after(policy)
    return found


def transcribed(
    model: Any, length: int, steps: int, settings: transcription.Settings
) -> list[transcription.Step]:
    """The same by the transcription."""
    weights = weights_of(model)
    cache = transcription.begin(weights, ORDER[:length])
    return transcription.decode(weights, cache, ORDER[length : length + steps], settings)


def furthest(found: list[np.ndarray], steps: list[Any]) -> float:
    """The largest difference of logits from those of a transcription, or from others."""
    others = [getattr(other, "logits", other) for other in steps]
    return largest_difference(found, others)


def greedy(decoder: Decoder, policy: Any, first: int, steps: int) -> tuple[list[int], Any]:
    """The most likely tokens, and their logits."""
    tokens, logits = [first], []
    for _ in range(steps):
        logits.append(step(decoder, policy, tokens[-1]))
        tokens.append(int(logits[-1].argmax()))
    return tokens, np.array(logits)


@contextmanager
def watched():
    """The pages that were attended to: a list of (layer, pages (G, P) or None), as it grows."""
    seen: list[tuple[int, torch.Tensor | None]] = []
    attention = Paged.attention

    def noting(self: Paged, q: torch.Tensor, pages: torch.Tensor | None) -> torch.Tensor:
        # A copy: policies may write the next layer's pages to the same place.
        seen.append((self.layer.index, None if pages is None else pages.clone()))
        return attention(self, q, pages)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Paged, "attention", noting)
        yield seen


class NeverWaiting(TorchDispatchMode):
    """Fails where a number of the device is asked for, or a size depends on one."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        waits = ("_local_scalar_dense", "nonzero", "masked_select", "_unique", "is_nonzero")
        assert not any(name in str(func) for name in waits), func
        return func(*args, **(kwargs or {}))
