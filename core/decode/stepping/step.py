"""One step of an answer: the latest token runs through the model, and the next is chosen.

All of it happens on the device, in buffers of fixed size, so that a step can be captured in a graph
and replayed for every token. Independent of text and of where an answer ends.
"""

from typing import Protocol

import torch
from torch import Tensor

from longctx.core.contracts.policy import Policy
from longctx.core.decode.stepping.choosing import Chooser
from longctx.core.model.adapter import Attends


class TokenPass(Protocol):
    """Runs one token through a model."""

    def read(self, token: Tensor, memory: Attends, /) -> Tensor:
        """Runs a token (1,) through the model; returns its hidden state (1, E)."""
        ...

    def logits(self, hidden: Tensor) -> Tensor:
        """Logits (1, vocabulary), float32 or wider, of that hidden state."""
        ...


class Step:
    """One token through the model, and the choice of the next.

    Args:
        reader: runs the token.
        policy: what it attends to.
        choose: makes the choice.
        prompt: (n,) token ids that the model has seen, at least one, on its device.
        limit: most tokens that are chosen.

    Attributes:
        ready: whether launching it takes the host no time.
        token: (1,) the latest token, overwritten by each step.
        seen: (n + limit,) the prompt and all tokens, filled up with the prompt's first token,
            which a repetition penalty counts anyway.
    """

    ready = False  # the host launches each of its operations

    def __init__(
        self, reader: TokenPass, policy: Policy, choose: Chooser, prompt: Tensor, limit: int
    ):
        device = prompt.device
        self._reader, self._policy, self._choose = reader, policy, choose
        self.token = torch.zeros(1, dtype=torch.long, device=device)
        self.seen = torch.cat([prompt, prompt[:1].expand(limit)])
        self._place = torch.tensor([len(prompt)], device=device)  # of the next token

    @property
    def kind(self) -> str | None:
        """The kind of the next step; None: one that waits for the device."""
        return self._policy.kind

    @property
    def generator(self) -> torch.Generator | None:
        """The random generator; None: nothing is drawn."""
        return self._choose.generator

    @torch.inference_mode()
    def first(self, logits: Tensor) -> None:
        """Chooses the first token, from the prompt's logits (1, vocabulary)."""
        self._next(logits)

    @torch.inference_mode()
    def __call__(self) -> None:
        """Reads the latest token and chooses the next."""
        self._policy.begin_token()
        hidden = self._reader.read(self.token, self._policy)
        self._policy.end_token()
        self._next(self._reader.logits(hidden))

    def _next(self, logits: Tensor) -> None:
        self.token.copy_(self._choose(self.seen, logits))
        self.seen.index_copy_(0, self._place, self.token)
        self._place += 1

    def advance(self) -> None:
        """Counts a finished step on the host."""
        self._policy.advance()

    def renew_generator(self) -> None:
        """Draws from a copy of the generator, as a failed recording may still hold it."""
        if self._choose.generator is not None:
            self._choose.generator = self._choose.generator.clone_state()
