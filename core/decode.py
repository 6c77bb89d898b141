"""Decoding: one token after another from a filled cache, and their text as it becomes certain."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from tokenizers.decoders import DecodeStream
from torch import Tensor

from longctx.core.memory import Memory
from longctx.core.model import Decoder
from longctx.core.sampling import Sampling

Choose = Callable[[Tensor, Tensor], Tensor]  # (seen (n,), logits (1, vocabulary)) -> token (1,)


class Generation:
    """One answer, generated as its text is asked for.

    Args:
        decoder: the model.
        memory: the cache of the prompt.
        hidden: the prompt's last hidden state (1, E).
        prompt: (n,) token ids that the model has seen; a repetition penalty counts them.
        sampling: how to choose, and the texts that end the answer.
        limit: tokens at most.
        ends: token ids that end the answer.

    Attributes:
        on_token: called when a token is chosen, also one that ends the answer.
        count: tokens so far, without one of `ends`.
        stop: why there are no more: "end" (the model's own), "length" or "stop string"; empty
            before.
    """

    def __init__(
        self,
        decoder: Decoder,
        memory: Memory,
        hidden: Tensor,
        prompt: Tensor,
        sampling: Sampling,
        limit: int,
        ends: set[int],
    ):
        self._decoder, self._memory, self._hidden = decoder, memory, hidden
        self._prompt, self._limit, self._ends = prompt, limit, ends
        self._sampling, self._choose = sampling, _chooser(sampling, decoder.device)
        self.on_token: Callable[[], None] = lambda: None
        self.count, self.stop = 0, ""

    def tokens(self) -> Iterator[int]:
        """The token ids; the one that ends the answer is not given, nor are stop strings seen."""
        n, device = len(self._prompt), self._decoder.device
        seen = torch.cat([self._prompt, self._prompt.new_zeros(self._limit)]).to(device)
        for step in range(self._limit):
            token = self._choose(seen[: n + step], self._decoder.logits(self._hidden))
            chosen = int(token)  # waits for the device
            self.on_token()
            if chosen in self._ends:
                self.stop = "end"
                return
            self.count += 1
            seen[n + step] = token[0]
            yield chosen
            if step + 1 < self._limit:
                self._hidden = self._decoder.read(token, self._memory)
        self.stop = "length"

    def texts(self, tokenizer: Any) -> Iterator[str]:
        """The text as it becomes certain: nothing of a stop string, or of half a character."""
        yield from self._before_stop(texts(tokenizer, self.tokens()))

    def _before_stop(self, pieces: Iterable[str]) -> Iterator[str]:
        stops, held = self._sampling.stop or (), ""
        for piece in pieces:
            held += piece
            found = [place for place in map(held.find, stops) if place >= 0]
            if found:
                self.stop = "stop string"
                held = held[: min(found)]
                break
            certain = len(held) - _may_begin(held, stops)
            if certain:
                yield held[:certain]
                held = held[certain:]
        if held:
            yield held


def texts(tokenizer: Any, tokens: Iterator[int]) -> Iterator[str]:
    """The text of tokens as they come; bytes of an unfinished character wait for the rest."""
    stream = DecodeStream(skip_special_tokens=True)
    for token in tokens:
        piece = stream.step(tokenizer.backend_tokenizer, token)
        if piece:
            yield piece


def _may_begin(text: str, stops: Iterable[str]) -> int:
    """How many characters at the end of a text may be the beginning of a stop string."""
    lengths = (n for stop in stops for n in range(1, len(stop)) if text.endswith(stop[:n]))
    return max(lengths, default=0)


def _chooser(sampling: Sampling, device: torch.device) -> Choose:
    """transformers' own processors, in the order in which its `generate` has them."""
    from transformers import LogitsProcessorList, RepetitionPenaltyLogitsProcessor

    processors = LogitsProcessorList()
    if sampling.repetition_penalty is not None:
        penalty = float(sampling.repetition_penalty)
        processors.append(RepetitionPenaltyLogitsProcessor(penalty))
    if not sampling.temperature:
        return lambda seen, logits: processors(seen[None], logits).argmax(dim=-1)
    processors.extend(_warpers(sampling))
    generator = torch.Generator(device)
    generator.seed() if sampling.seed is None else generator.manual_seed(sampling.seed)

    def draw(seen: Tensor, logits: Tensor) -> Tensor:
        weights = torch.softmax(processors(seen[None], logits), dim=-1)
        return torch.multinomial(weights, 1, generator=generator)[0]

    return draw


def _warpers(sampling: Sampling) -> Iterator[Any]:
    from transformers import (
        MinPLogitsWarper,
        TemperatureLogitsWarper,
        TopKLogitsWarper,
        TopPLogitsWarper,
    )

    yield TemperatureLogitsWarper(float(sampling.temperature))
    if sampling.top_k is not None:
        yield TopKLogitsWarper(sampling.top_k)
    if sampling.top_p is not None and sampling.top_p < 1:
        yield TopPLogitsWarper(float(sampling.top_p))
    if sampling.min_p:
        yield MinPLogitsWarper(float(sampling.min_p))
