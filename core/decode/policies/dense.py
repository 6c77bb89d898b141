"""Dense decoding: everything before it."""

from dataclasses import dataclass

from torch import Tensor

from longctx.core.contracts import policy
from longctx.core.contracts.memory import Attempts, Recalled
from longctx.core.contracts.policy import PolicyOptions, Spent
from longctx.core.kv.prompt import Prompt
from longctx.core.kv.prompt_policy import PromptPolicy
from longctx.core.model.adapter import Layer
from longctx.kernels.door import Store


@dataclass(frozen=True)
class Options(PolicyOptions):
    """Dense decoding has no options."""


class Recalling(policy.Recalling):
    """Each token selects as the method does."""

    def __init__(self, options: Options, recalled: Recalled, window: int):
        self._recalled = recalled

    def attend(self, layer: Layer, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Attends one token; see `Memory.attend`."""
        return self._recalled.attend(layer, q, k, v)

    def attempting(self) -> Attempts | None:
        """The memory's own."""
        return self._recalled.attempting()

    def spent(self) -> Spent:
        """How much was selected, in every step."""
        return Spent(self._recalled.attended(), None, self._recalled.kept)


class Policy(PromptPolicy):
    """All tokens, at consecutive positions from 0."""

    recalling = Recalling

    def __init__(self, options: Options, prompt: Prompt, window: int):
        super().__init__(prompt)

    @property
    def kind(self) -> str | None:
        """Every step is like the one before."""
        return None if self._grows else "dense"

    def attend(self, layer: Layer, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Attends one token to all tokens so far; see `Memory.attend`."""
        cache = self._caches[layer.index]
        if self._grows:
            return cache.read(q, k, v)
        keys, values = cache.keys, cache.values
        q = cache.put(q, k, v, self._position, [Store(keys, values, self._position)])
        return cache.attention(q, keys, values, self._count)

    def advance(self) -> None:
        """Counts the entries attended to."""
        count = self._start + self._looks.steps + 1
        self._looks.add(count, count)
