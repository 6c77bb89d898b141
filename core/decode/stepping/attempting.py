"""Each layer of an answer's token as a CUDA graph, where the host must bring what it lacks.

A layer is attempted by replay, and again as long as something was missing (`Attempt` in
`core/contracts/memory.py`); then the next one is. Knows no method.
"""

import logging
from collections.abc import Callable
from contextlib import suppress
from functools import cache, partial

import torch
from torch import Tensor

from longctx.core.common.errors import StateMismatch
from longctx.core.contracts.memory import Attempt, Attempts
from longctx.core.contracts.policy import Recalling
from longctx.core.decode.stepping.graphs import recorder
from longctx.core.decode.stepping.one_token import OneToken
from longctx.core.decode.stepping.step import TokenPass
from longctx.core.model.adapter import Attends, Decoder
from longctx.kernels import choice

LAYERS = 1  # of a part; of more, all are repeated where one lacked something, and read in vain

Run = Callable[[Tensor, Attends], Tensor]
Capture = Callable[[torch.device, Callable[[], None]], Callable[[], None]]

_log = logging.getLogger(__name__)


class Attempting:
    """Runs the tokens of an answer: two as `reader` does, others by replay if it gives the same.

    Args:
        reader: runs a token.
        decoder: the model, on one device.
        policy: what the tokens attend to.
        capture: records work of a device.
    """

    def __init__(self, reader: TokenPass, decoder: Decoder, policy: Recalling, capture: Capture):
        self._reader, self._decoder, self._policy = reader, decoder, policy
        self._capture: Capture | None = capture
        self._begun = False  # one token was read, which compiled its kernels
        self._recorded: _Recorded | None = None

    def logits(self, hidden: Tensor) -> Tensor:
        """See `TokenPass.logits`."""
        return self._reader.logits(hidden)

    def read(self, token: Tensor, memory: Attends) -> Tensor:
        """See `TokenPass.read`; the memory is the policy."""
        if self._recorded and self._recorded.ready():
            with suppress(StateMismatch):  # of a row that may only have seemed to be missing
                return self._recorded.keep(token)
        self._recorded, capture = None, self._capture
        if not self._begun or capture is None:
            self._begun = True
            return self._reader.read(token, memory)
        self._capture = None  # it is tried once
        attempted = self._attempted(token, capture)
        hidden = self._reader.read(token, memory)
        if attempted is not None and not torch.equal(attempted, hidden):
            self._recorded = None
            _tell("directly", "a replay gives other bits")
        elif attempted is not None:
            _tell("by replay", "it gives the same bits")
        return hidden

    def _attempted(self, token: Tensor, capture: Capture) -> Tensor | None:
        """The hidden state of a token that is recorded but not kept; None: it cannot be."""
        attempts = self._policy.attempting()
        if attempts is None or not attempts.ready():
            return None
        try:
            with choice.recording():
                self._recorded = _Recorded(self._reader, self._decoder, attempts, token, capture)
                return self._recorded.left
        except Exception as error:  # drivers and compilers fail in every possible way
            self._recorded = None
            _tell("directly", f"{type(error).__name__}: {error}".splitlines()[0])
            return None


class _Recorded:
    """A token's way through the layers, recorded in parts.

    Args:
        reader, decoder, capture: see `Attempting`.
        attempts: ready for a token.
        token: (1,), read before each part is recorded, which compiles kernels.
    """

    def __init__(
        self,
        reader: TokenPass,
        decoder: Decoder,
        attempts: Attempts,
        token: Tensor,
        capture: Capture,
    ):
        self._attempts, self.ready = attempts, attempts.ready
        self._parts: list[_Part] = []
        for run in _runs(reader):
            self._parts.append(_Part(run, attempts, token, decoder.device, capture))
            token = self._parts[-1](token)
        self.left = token
        self._tables = decoder.rotary_tables()  # which are read by each replay

    def keep(self, token: Tensor) -> Tensor:
        """The hidden state (1, E) of a token (1,), which is kept; until the next one."""
        for part in self._parts:
            token = part(token)
        self._attempts.keep([part.attempt for part in self._parts])
        return token


class _Part:
    """Some layers, recorded.

    Args:
        run: runs a token through them.
        attempts: for the whole answer.
        given: what `run` is given for one token.
        device, capture: records work of it.

    Attributes:
        attempt: at these layers.
    """

    attempt: Attempt

    def __init__(
        self, run: Run, attempts: Attempts, given: Tensor, device: torch.device, capture: Capture
    ):
        self._layers, self._attempts = run, attempts
        with torch.inference_mode(False):  # it is changed in any mode
            self._given = given.clone()
        self._work()
        while self.attempt.lacked():
            self._work()
        self._replay = capture(device, self._work)

    @torch.inference_mode()
    def _work(self) -> None:
        self.attempt = self._attempts.begin()
        self._left = self._layers(self._given, self.attempt)
        self.attempt.end()

    def __call__(self, given: Tensor) -> Tensor:
        """What the layers give, until the next token."""
        self._given.copy_(given)
        self._replay()
        while self.attempt.lacked():
            self._replay()
        return self._left


def _runs(reader: TokenPass) -> list[Run]:
    """Runs a token through some layers after others."""
    if not isinstance(reader, OneToken):
        return [reader.read]
    firsts = range(0, reader.depth, LAYERS)
    parts = [range(first, min(first + LAYERS, reader.depth)) for first in firsts]
    return [partial(reader.read_layers, layers) for layers in parts]


def capture_of(decoder: Decoder) -> Capture | None:
    """What records tokens; None where there is no GPU."""
    return recorder() if decoder.device.type == "cuda" else None


@cache
def _tell(how: str, why: str) -> None:
    """Logs how tokens are read; `cache` makes it happen once."""
    _log.info("tokens of a recalled answer are read %s (%s)", how, why)
