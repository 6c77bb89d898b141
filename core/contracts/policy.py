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
from longctx.core.contracts.memory import Memory
from longctx.core.model.adapter import Layer


@dataclass(frozen=True)
class PolicyOptions:
    """What all options of policies can say.

    Attributes:
        less: what a user can do for an answer to need fewer places; empty: nothing.
    """

    less: ClassVar[str] = (
        "lower --max-new-tokens, or take a decode policy that keeps less of an answer "
        "(docs/decoding.md)"
    )

    def reserve(self, answer: int) -> int:
        """Places beyond the prompt that an answer of at most so many tokens needs in the window."""
        return answer

    def require(self, prompt: int) -> None:
        """Checks that an answer can follow a prompt of so many tokens, before it is read.

        Raises:
            UsageError: it cannot, with what to do about it.
        """

    @property
    def observed(self) -> int:
        """Latest queries of the prompt that the policy wants to see."""
        return 0

    @property
    def period(self) -> int:
        """Steps after which their kinds repeat."""
        return 1


@dataclass(frozen=True)
class Spent:
    """What an answer attended to.

    Attributes:
        attended: entries attended to by a token, mean over tokens, layers and key/value heads.
        refreshes: steps that attended to everything to choose anew, mean over the layers; None: the
            policy knows no such steps.
        held: most tokens that were held for a layer and key/value head, copies counted.
        reassigned: the answer came to the end of the trained window, from where on positions are
            consecutive over what is held.
        narrowed: of all that a reading method kept, fewer tokens were selected than usual, for the
            answer's to have room in the trained window.
    """

    attended: float
    refreshes: float | None
    held: int
    reassigned: bool = False
    narrowed: bool = False


class Looks:
    """Counts what the tokens of an answer attend to, on the host.

    Args:
        windows: of all layers by their index, in tokens; None: full attention.

    Attributes:
        windows: likewise; layers may be added before the first token is counted.
        steps: tokens so far.
    """

    def __init__(self, windows: Mapping[int, int | None]):
        self.windows = dict(windows)
        self.steps, self._entries = 0, 0.0

    def add(self, tokens: int, full: int) -> None:
        """Counts a token, the last of `tokens`; full attention is to `full` of them."""
        seen = [full if n is None else min(tokens, n) for n in self.windows.values()]
        self._entries += sum(seen) / len(seen)
        self.steps += 1

    @property
    def mean(self) -> float:
        """Entries that a token attended to, mean over tokens and layers."""
        return self._entries / max(1, self.steps)

    @property
    def share(self) -> float:
        """The share of layers with full attention."""
        return [*self.windows.values()].count(None) / len(self.windows)


class Policy(Contract, Memory, abstract=True):
    """The memory of one prompt and the answer after it; each pass reads one token.

    A step is `begin_token`, a pass through the model, `end_token`, `advance`. All but the last only
    give work to the device, in buffers of fixed size, with every count and place on the device:
    steps of one kind can be captured in a graph once and run again. Parts of a step that a policy
    does not define do nothing; nor is there a chunk to close.

    Each is made with:
        options: its module's `Options`.
        prompt: read in full, with room for the answer (`core/kv/prompt.py`); it belongs to the
            policy, which may cut it down.
        window: tokens that the model was trained on.

    Attributes:
        recalling: how the policy decodes over all that a reading method kept; None: it does not.
    """

    recalling: "ClassVar[type[Recalling] | None]" = None

    @property
    @abstractmethod
    def kind(self) -> str | None:
        """What sort of step comes next; None: it waits for the device, so it cannot be captured."""

    def begin_token(self) -> None:
        """Work before the pass."""

    @abstractmethod
    def attend(self, layer: Layer, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Attends one token of one layer; see `Memory.attend`."""

    def end_token(self) -> None:
        """Work after the pass."""

    def advance(self) -> None:
        """Says that the step is done, for what the host counts; gives the device no work."""

    @abstractmethod
    def spent(self) -> Spent:
        """What was attended to so far."""

    def scored(self) -> float:
        """Pages whose bounds a token read to choose, mean over tokens, layers and heads."""
        return 0.0


class Recalling(Policy, abstract=True):
    """A policy over a reading method's memory of a question in place of a prompt.

    Each is made with `options` and `window` as a `Policy`, and between them `recalled`: the memory,
    which has read the question.

    Attributes:
        chooses: it chooses by itself among all that was kept, so it goes with those methods alone
            that keep everything (`Whole` in `core/contracts/memory.py`).
    """

    chooses: ClassVar[bool] = False

    @property
    def kind(self) -> str | None:
        """None: what is selected decides what is read from host memory or disk."""
        return None
