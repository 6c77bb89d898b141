"""Decoding: one token after another from a filled cache, and their text as it becomes certain."""

import time
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing
from typing import Any, Protocol
from weakref import WeakKeyDictionary

import torch
from tokenizers.decoders import DecodeStream
from torch import Tensor

from longctx.core.common.interrupts import check
from longctx.core.contracts.policy import Policy, Recalling, Spent
from longctx.core.decode.stepping import attempting
from longctx.core.decode.stepping.attempting import Attempting
from longctx.core.decode.stepping.choosing import Chooser
from longctx.core.decode.stepping.one_token import OneToken
from longctx.core.decode.stepping.step import Step, TokenPass
from longctx.core.decode.stepping.steps import WORTH_CAPTURING, steps_of
from longctx.core.model.adapter import Decoder
from longctx.core.model.split import SplitDecoder
from longctx.core.profile.sampling import Sampling

UNFINISHED = 64  # longer than any character: the stream decodes all waiting tokens each time


class Model(TokenPass, Protocol):
    """The model that answers: a `Decoder`, or a stand-in for one.

    Attributes:
        device: where it computes.
    """

    device: torch.device


class Generation:
    """One answer, generated as its text is requested.

    Args:
        decoder: the model.
        policy: what each token attends to.
        hidden: the prompt's last hidden state (1, E).
        prompt: (n,) token ids that the model has seen; a repetition penalty counts them.
        sampling: how to choose, and the stop strings.
        limit: most tokens of the answer.
        ends: token ids that end the answer.
        capture: whether steps may be captured in graphs, if the device has them.

    Attributes:
        on_token: called for each chosen token, including one that ends the answer.
        count: tokens so far, without one of `ends`.
        stop: why the answer ended: "end" (the model's own), "length", "stop string", or
            "interrupted" (by Ctrl-C, or the caller stopped); empty before.
    """

    def __init__(
        self,
        decoder: Model,
        policy: Policy,
        hidden: Tensor,
        prompt: Tensor,
        sampling: Sampling,
        limit: int,
        ends: set[int],
        capture: bool = True,
    ):
        self._decoder, self._policy, self._hidden = decoder, policy, hidden
        self._limit, self._ends = limit, ends
        self._stops = sampling.stop or ()
        alone = not isinstance(decoder, SplitDecoder)  # a graph is of one device
        choose, prompt = Chooser(sampling, decoder.device), prompt.to(decoder.device)
        worth = capture and alone and limit >= WORTH_CAPTURING
        reader = _quick(decoder, policy) if worth else _reader(decoder)
        self._steps = steps_of(Step(reader, policy, choose, prompt, limit), worth)
        self._clock = _Clock()
        self.on_token: Callable[[], None] = lambda: None
        self.count, self.stop = 0, ""

    @property
    def tokens_per_s(self) -> float | None:
        """Tokens per second after the first, including one that ends the answer; None: none yet."""
        return self._clock.rate()

    @property
    def captured(self) -> tuple[str, ...]:
        """Kinds of steps that run as captured graphs."""
        return self._steps.captured

    def spent(self) -> Spent:
        """How much the answer's tokens attended to so far."""
        return self._policy.spent()

    def tokens(self) -> Generator[int]:
        """The token ids, without one that ends the answer; stop strings are not checked.

        Raises:
            KeyboardInterrupt: from the user or another thread; `stop` and `count` stay valid.
        """
        try:
            yield from self._tokens()
        except (KeyboardInterrupt, GeneratorExit):
            self.stop = self.stop or "interrupted"
            raise
        finally:
            self._steps.wait()

    def _tokens(self) -> Iterator[int]:
        self._steps.begin(self._decoder.logits(self._hidden))
        for number in range(1, self._limit + 1):
            chosen = self._steps.read(more=number < self._limit)  # waits for the device
            check()
            self._clock.tick()
            self.on_token()
            if chosen in self._ends:
                self.stop = "end"
                return
            self.count += 1
            if number == self._limit:
                self.stop = "length"
            yield chosen
            if number < self._limit:
                self._steps.go_on()

    def texts(self, tokenizer: Any) -> Iterator[str]:
        """The text as it becomes certain, without stop strings or partial characters.

        Raises:
            KeyboardInterrupt: from the user; `stop` and `count` stay valid.
        """
        with closing(self.tokens()) as tokens:
            yield from self._before_stop(texts(tokenizer, tokens))

    def _before_stop(self, pieces: Iterable[str]) -> Iterator[str]:
        stops, held = self._stops, ""
        try:
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
        except KeyboardInterrupt:
            if held:  # it can no longer become a stop string
                yield held
            raise
        if held:
            yield held


_one_token: WeakKeyDictionary[Decoder, OneToken | None] = WeakKeyDictionary()


def _reader(decoder: Model) -> TokenPass:
    """The fastest way to run one token; searched for once per decoder."""
    if not isinstance(decoder, Decoder):  # a stand-in already runs one token
        return decoder
    if decoder not in _one_token:
        _one_token[decoder] = OneToken.of(decoder)
    return _one_token[decoder] or decoder


def _quick(decoder: Model, policy: Policy) -> TokenPass:
    """The fastest way to run the tokens of one answer with a policy."""
    reader = _reader(decoder)
    if not isinstance(decoder, Decoder) or not isinstance(policy, Recalling):
        return reader
    capture = attempting.capture_of(decoder)
    return Attempting(reader, decoder, policy, capture) if capture else reader


def texts(tokenizer: Any, tokens: Iterator[int]) -> Iterator[str]:
    """The text of tokens as they come; bytes of an unfinished character are held back."""
    backend, waiting = tokenizer.backend_tokenizer, []
    stream = DecodeStream(skip_special_tokens=True)
    for token in tokens:
        waiting.append(token)
        piece = stream.step(backend, token)
        if piece is None and len(waiting) == UNFINISHED:
            piece = backend.decode(waiting, skip_special_tokens=True)
            stream = DecodeStream(skip_special_tokens=True)
        if piece is not None:
            waiting = []
        if piece:
            yield piece


def _may_begin(text: str, stops: Iterable[str]) -> int:
    """How many characters at the end of a text may be the beginning of a stop string."""
    longest = {stop: min(len(stop) - 1, len(text)) for stop in stops}
    lengths = (n for stop in stops for n in range(1, longest[stop] + 1) if text.endswith(stop[:n]))
    return max(lengths, default=0)


class _Clock:
    """When the first and the latest token came."""

    def __init__(self) -> None:
        self._count, self._first, self._last = 0, 0.0, 0.0

    def tick(self) -> None:
        self._last = time.perf_counter()
        self._first = self._first if self._count else self._last
        self._count += 1

    def rate(self) -> float | None:
        return (self._count - 1) / (self._last - self._first) if self._count > 1 else None
