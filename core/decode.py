"""Decoding: one token after another from a filled cache, and their text as it becomes certain."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from tokenizers.decoders import DecodeStream
from torch import Tensor

from longctx.core.errors import UsageError
from longctx.core.memory import Memory
from longctx.core.model import Decoder


@dataclass(frozen=True)
class Sampling:
    """How the next token is chosen.

    Attributes:
        max_new_tokens: length limit of the answer; None: the profile's.
        temperature: 0 takes the most likely token always.
        top_p: share of probability that is drawn from, with a temperature above 0.
        seed: makes a draw repeatable; None: another one each time.
    """

    max_new_tokens: int | None = None
    temperature: float = 0.0
    top_p: float = 1.0
    seed: int | None = None

    def __post_init__(self) -> None:
        if self.max_new_tokens is not None and self.max_new_tokens < 1:
            raise UsageError(f"cannot generate {self.max_new_tokens} tokens", "", "Give 1 or more.")
        if self.temperature < 0:
            raise UsageError(f"temperature {self.temperature} is negative", "", "Give 0 or more.")
        if not 0 < self.top_p <= 1:
            raise UsageError(f"top-p {self.top_p} is not in (0, 1]", "", "1 leaves nothing out.")


def generate(
    decoder: Decoder, memory: Memory, hidden: Tensor, sampling: Sampling, limit: int, ends: set[int]
) -> Iterator[int]:
    """Generates token ids until one of `ends` or the limit; the end itself is not given.

    Args:
        decoder: the model.
        memory: the cache of everything before.
        hidden: the last hidden state (1, E).
        sampling: how to choose.
        limit: tokens at most.
        ends: ids that end the answer.
    """
    choose = _chooser(sampling, decoder.device)
    for step in range(limit):
        token = choose(decoder.logits(hidden))
        if int(token) in ends:
            return
        yield int(token)
        if step + 1 < limit:
            hidden = decoder.read(token, memory)


def texts(tokenizer: Any, tokens: Iterator[int]) -> Iterator[str]:
    """The text of tokens as they come; bytes of an unfinished character wait for the rest."""
    stream = DecodeStream(skip_special_tokens=True)
    for token in tokens:
        piece = stream.step(tokenizer.backend_tokenizer, token)
        if piece:
            yield piece


def _chooser(sampling: Sampling, device: torch.device):
    if sampling.temperature == 0:
        return lambda logits: logits.argmax(dim=-1)
    from transformers import LogitsProcessorList, TemperatureLogitsWarper, TopPLogitsWarper

    warpers = LogitsProcessorList([TemperatureLogitsWarper(sampling.temperature)])
    if sampling.top_p < 1:
        warpers.append(TopPLogitsWarper(sampling.top_p))
    generator = torch.Generator(device)
    generator.seed() if sampling.seed is None else generator.manual_seed(sampling.seed)

    def draw(logits: Tensor) -> Tensor:
        weights = torch.softmax(warpers(None, logits), dim=-1)
        return torch.multinomial(weights, 1, generator=generator)[0]

    return draw
