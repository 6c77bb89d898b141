"""The layers of an answer's token as one CUDA graph, where the host must bring what they lack.

A token is attempted by replay, and again as long as something was missing (`Attempt` in
`core/contracts/memory.py`). Knows no method.
"""

import logging
from collections.abc import Callable
from functools import cache

import torch
from torch import Tensor

from longctx.core.contracts.memory import Attempt
from longctx.core.contracts.policy import Recalling
from longctx.core.decode.stepping.graphs import recorder
from longctx.core.decode.stepping.step import TokenPass
from longctx.core.model.adapter import Attends, Decoder
from longctx.kernels import choice

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
        attempt = self._policy.attempting()
        if attempt is None or not attempt.ready():
            return None
        try:
            with choice.recording():
                self._recorded = _Recorded(self._reader, self._decoder, attempt, token, capture)
                return self._recorded.attempted(token)
        except Exception as error:  # drivers and compilers fail in every possible way
            self._recorded = None
            _tell("directly", f"{type(error).__name__}: {error}".splitlines()[0])
            return None


class _Recorded:
    """A token's way through the layers, recorded.

    Args:
        reader, decoder, capture: see `Attempting`.
        attempt: is ready for a token.
        token: (1,), read before it is recorded, which compiles kernels.
    """

    def __init__(
        self,
        reader: TokenPass,
        decoder: Decoder,
        attempt: Attempt,
        token: Tensor,
        capture: Capture,
    ):
        self._reader, self._attempt = reader, attempt
        self.ready = attempt.ready
        with torch.inference_mode(False):  # it is changed in any mode
            self._token = token.clone()
        self._work()
        attempt.lacked()
        self._run = capture(decoder.device, self._work)
        self._tables = decoder.rotary_tables()  # which are read by each replay

    @torch.inference_mode()
    def _work(self) -> None:
        self._attempt.begin()
        self._hidden = self._reader.read(self._token, self._attempt)
        self._attempt.end()

    def attempted(self, token: Tensor) -> Tensor:
        """The hidden state (1, E) of a token (1,), until the next one; it is not kept."""
        self._token.copy_(token)
        self._run()
        while self._attempt.lacked():
            self._run()
        return self._hidden

    def keep(self, token: Tensor) -> Tensor:
        """The same, and it is kept."""
        hidden = self.attempted(token)
        self._attempt.keep()
        return hidden


def capture_of(decoder: Decoder) -> Capture | None:
    """What records tokens; None where there is no GPU."""
    return recorder() if decoder.device.type == "cuda" else None


@cache
def _tell(how: str, why: str) -> None:
    """Logs how tokens are read; `cache` makes it happen once."""
    _log.info("tokens of a recalled answer are read %s (%s)", how, why)
