"""One step of an answer: the latest token runs through the model, and the next is chosen.

All of it happens on the device, in buffers of fixed size, so that a step can be captured in a graph
and run again for every token. Knows nothing of text, and of where an answer ends.
"""

from typing import Protocol

import torch
from torch import Tensor

from longctx.core.contracts.policy import Policy
from longctx.core.decode.stepping.choosing import Chooser
from longctx.core.model.adapter import Attends


class Reader(Protocol):
    """What runs one token through a model."""

    def read(self, token: Tensor, memory: Attends, /) -> Tensor:
        """Runs a token (1,) through the model: its hidden state (1, E)."""
        ...

    def logits(self, hidden: Tensor) -> Tensor:
        """Logits (1, vocabulary), float32 or wider, of such a hidden state."""
        ...


class Step:
    """One token through the model, and the choice of the next.

    Args:
        reader: runs the token.
        policy: what it attends to.
        choose: makes the choice.
        prompt: (n,) token ids that the model has seen, at least one, on its device.
        limit: tokens that may be chosen.

    Attributes:
        ready: whether to put it in line takes the host no time.
        token: (1,) the latest token, overwritten by each step.
        seen: (n + limit,) the prompt and all tokens. Where there is none yet stands the prompt's
            first token, which a repetition penalty knows already.
    """

    ready = False  # the host puts each of its operations in line

    def __init__(self, reader: Reader, policy: Policy, choose: Chooser, prompt: Tensor, limit: int):
        device = prompt.device
        self._reader, self._policy, self._choose = reader, policy, choose
        self.token = torch.zeros(1, dtype=torch.long, device=device)
        self.seen = torch.cat([prompt, prompt[:1].expand(limit)])
        self._place = torch.tensor([len(prompt)], device=device)  # of the next token

    @property
    def kind(self) -> str | None:
        """What sort of step comes next; None: one that waits for the device."""
        return self._policy.kind

    @property
    def generator(self) -> torch.Generator | None:
        """What draws; None: nothing does."""
        return self._choose.generator

    @torch.inference_mode()
    def first(self, logits: Tensor) -> None:
        """Chooses the first token, from the prompt's logits (1, vocabulary)."""
        self._next(logits)

    @torch.inference_mode()
    def __call__(self) -> None:
        """Reads the latest token, and chooses the next."""
        self._policy.begin_token()
        hidden = self._reader.read(self.token, self._policy)
        self._policy.end_token()
        self._next(self._reader.logits(hidden))

    def _next(self, logits: Tensor) -> None:
        self.token.copy_(self._choose(self.seen, logits))
        self.seen.index_copy_(0, self._place, self.token)
        self._place += 1

    def advance(self) -> None:
        """Says that the step is done, for what the host counts."""
        self._policy.advance()

    def renew_generator(self) -> None:
        """Draws from a copy of the generator: a recording that failed may hold on to it."""
        if self._choose.generator is not None:
            self._choose.generator = self._choose.generator.clone_state()
