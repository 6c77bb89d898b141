"""The steps of one answer in order, and the copies of their tokens to the host.

If steps are captured, the host launches one before it reads the previous token, so that the GPU
never waits for it. Independent of what a step does and of where an answer ends.
"""

from typing import Protocol

import torch
from torch import Tensor

from longctx.core.decode.stepping.graphs import Captured, Graphs
from longctx.core.decode.stepping.step import Step

WORTH_CAPTURING = 8  # tokens; recording a step takes the host about as long as running it


class HostTokens(Protocol):
    """How the host gets tokens."""

    def send(self) -> None:
        """Sends the latest token, which is chosen or will be by a step already launched."""
        ...

    def receive(self) -> int:
        """The oldest token that was sent and not received, when it is there."""
        ...

    def wait(self) -> None:
        """Returns when nothing is being computed."""
        ...


class InTurn:
    """Tokens that the host reads directly, each before the next step.

    Args:
        token: (1,) the latest.
    """

    def __init__(self, token: Tensor):
        self._token = token

    def send(self) -> None:
        """Does nothing: the token is read where it is."""

    def receive(self) -> int:
        """The latest token."""
        return int(self._token)

    def wait(self) -> None:
        """Does nothing: all work is finished."""


class OnTheWay:
    """Tokens copied to the host right after the steps that choose them, at most two at a time.

    Args:
        token: (1,) the latest, on a GPU.
    """

    def __init__(self, token: Tensor):
        self._token = token
        self._places = [torch.zeros(1, dtype=token.dtype, pin_memory=True) for _ in range(2)]
        self._events = [torch.cuda.Event() for _ in range(2)]
        self._sent = self._received = 0

    def send(self) -> None:
        """Queues a copy of the latest token."""
        which, self._sent = self._sent % 2, self._sent + 1
        self._places[which].copy_(self._token, non_blocking=True)
        self._events[which].record(self._stream())

    def receive(self) -> int:
        """The oldest token that was sent and not received, when it is there."""
        which, self._received = self._received % 2, self._received + 1
        self._events[which].synchronize()
        return int(self._places[which])

    def wait(self) -> None:
        """Returns when nothing is being computed."""
        self._stream().synchronize()

    def _stream(self) -> torch.cuda.Stream:
        return torch.cuda.current_stream(self._token.device)


class Steps:
    """The steps of an answer, at most one more than the host has requested.

    Args:
        step: one of them.
        run: runs the next one.
        tokens: how the host gets the tokens they choose.
    """

    def __init__(self, step: Step, run: Step | Captured, tokens: HostTokens):
        self._step, self._run, self._tokens = step, run, tokens
        self._unread = 0  # tokens that were sent and not received

    @property
    def captured(self) -> tuple[str, ...]:
        """Kinds of steps that run as graphs."""
        return self._run.kinds if isinstance(self._run, Captured) else ()

    def begin(self, logits: Tensor) -> None:
        """Chooses the first token, from the prompt's logits (1, vocabulary)."""
        self._step.first(logits)
        self._send()

    def read(self, more: bool) -> int:
        """The next token.

        Args:
            more: whether one after it may be needed; its step is launched first if that takes the
                host no time.
        """
        if more and self._run.ready:
            self._launch()
        self._unread -= 1
        return self._tokens.receive()

    def go_on(self) -> None:
        """Requests a token after the last one read; its step counts from now on."""
        if not self._unread:
            self._launch()
        self._step.advance()

    def wait(self) -> None:
        """Returns when nothing is being computed."""
        self._tokens.wait()

    def _launch(self) -> None:
        self._run()
        self._send()

    def _send(self) -> None:
        self._tokens.send()
        self._unread += 1


def steps_of(step: Step, capture: bool) -> Steps:
    """The steps of an answer, run in the best way for the device.

    Args:
        step: one of them.
        capture: whether to capture them in graphs.
    """
    device = step.token.device
    if device.type != "cuda":
        return Steps(step, step, InTurn(step.token))
    run = Captured(step, Graphs(device).capture) if capture else step
    return Steps(step, run, OnTheWay(step.token))
