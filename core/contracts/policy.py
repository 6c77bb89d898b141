"""The contract of a decode policy, which decides what each token of an answer attends to.

A policy is one file in `core/decode/policies/` with a frozen dataclass `Options` and a class
`Policy` that inherits the one below. Nothing here knows any policy.
"""

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from longctx.core.common.contract import Contract
from longctx.core.contracts.memory import Attempts, Memory
from longctx.core.model.adapter import Layer


@dataclass(frozen=True)
class PolicyOptions:
    """What the options of every policy provide.

    Attributes:
        less: what a user can do so that an answer needs fewer places; empty if nothing.
    """

    less: ClassVar[str] = (
        "lower --max-new-tokens, or take a decode policy that keeps less of an answer "
        "(docs/decoding.md)"
    )

    def reserve(self, answer: int) -> int:
        """Places after the prompt that an answer of at most `answer` tokens needs in the window."""
        return answer

    def require(self, prompt: int) -> None:
        """Checks, before a prompt of `prompt` tokens is read, that an answer can follow it.

        Raises:
            UsageError: it cannot; the error says what to do.
        """

    @property
    def observed(self) -> int:
        """Number of the prompt's latest queries that the policy needs."""
        return 0

    @property
    def period(self) -> int:
        """Steps after which their kinds repeat, at the latest."""
        return 1


@dataclass(frozen=True)
class Spent:
    """What an answer attended to.

    Attributes:
        attended: entries attended to by a token, mean over tokens, layers and key/value heads.
        refreshes: steps that attended to everything to choose again, mean over the layers; None if
            the policy has no such steps.
        held: most tokens held for a layer and key/value head, copies counted.
        reassigned: the answer reached the end of the trained window; from there on, positions are
            consecutive over what is held.
        narrowed: of all that a reading method kept, fewer tokens were selected than usual, so that
            the answer fits in the trained window.
    """

    attended: float
    refreshes: float | None
    held: int
    reassigned: bool = False
    narrowed: bool = False


class Looks:
    """Counts what the tokens of an answer attend to, on the host.

    Args:
        windows: the window of each layer by index, in tokens; None for full attention.

    Attributes:
        windows: the same; layers may be added before the first token is counted.
        steps: tokens counted so far.
    """

    def __init__(self, windows: Mapping[int, int | None]):
        self.windows = dict(windows)
        self.steps, self._entries = 0, 0.0

    def add(self, tokens: int, full: int) -> None:
        """Counts a token, the last of `tokens`; full-attention layers attend to `full` of them."""
        seen = [full if n is None else min(tokens, n) for n in self.windows.values()]
        self._entries += sum(seen) / len(seen)
        self.steps += 1

    @property
    def mean(self) -> float:
        """Entries attended to by a token, mean over tokens and layers."""
        return self._entries / max(1, self.steps)

    @property
    def share(self) -> float:
        """The share of layers with full attention."""
        return [*self.windows.values()].count(None) / len(self.windows)


class Policy(Contract, Memory, abstract=True):
    """The memory of one prompt and the answer after it; each pass reads one token.

    A step is `begin_token`, a pass through the model, `end_token`, `advance`. All but the last only
    queue work on the device, in buffers of fixed size, with every count and place on the device:
    steps of one kind can be captured in a graph once and replayed. Parts of a step that a policy
    does not define do nothing, and there is no chunk to close.

    Each is created with:
        options: its module's `Options`.
        prompt: read in full, with room for the answer (`core/kv/prompt.py`); the policy owns it
            and may shrink it.
        window: the model's window in tokens.

    Attributes:
        recalling: how the policy decodes over all that a reading method kept; None if it cannot.
    """

    on_one_device = True
    recalling: "ClassVar[type[Recalling] | None]" = None

    @property
    @abstractmethod
    def kind(self) -> str | None:
        """The kind of the next step; None if it waits for the device, so cannot be captured."""

    def begin_token(self) -> None:
        """Work before the pass."""

    @abstractmethod
    def attend(self, layer: Layer, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Attends one token of one layer; see `Memory.attend`."""

    def end_token(self) -> None:
        """Work after the pass."""

    def advance(self) -> None:
        """Ends the step for the host's counts; gives the device no work."""

    @abstractmethod
    def spent(self) -> Spent:
        """What was attended to so far."""

    def scored(self) -> float:
        """Pages whose bounds a token read to select pages, mean over tokens, layers and heads."""
        return 0.0


class Recalling(Policy, abstract=True):
    """A policy over a reading method's memory of a question instead of a prompt.

    Each is created with `options` and `window` like a `Policy`, and between them `recalled`: the
    memory, which has read the question.

    Attributes:
        chooses: it selects by itself among all that was kept, so it works only with methods that
            keep everything (`Whole` in `core/contracts/memory.py`).
    """

    on_one_device = False  # what was kept of a layer is where it computes
    chooses: ClassVar[bool] = False

    @property
    def kind(self) -> str | None:
        """None: the selection decides what is read from host memory or disk."""
        return None

    def attempting(self) -> Attempts | None:
        """What reads its tokens by attempts, and keeps them; None: nothing does."""
        return None
