"""Recycled Attention: mostly what one token before it needed, now and then everything.

Xu et al., "Recycled Attention: Efficient inference for long-context language models" (2024). A full
step chooses, for each layer and key/value head, the tokens with the most attention (2.3); later
steps attend to these and to newer tokens. With `similarity` a layer chooses again when its query
has changed (6).
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from longctx.core.common.errors import UsageError
from longctx.core.contracts import policy
from longctx.core.contracts.memory import Whole
from longctx.core.contracts.policy import PolicyOptions, Spent
from longctx.core.kv.prompt import LayerCache, Prompt
from longctx.core.kv.prompt_policy import PromptPolicy
from longctx.core.kv.recycled_cache import Places, Recycled
from longctx.core.kv.refresh import COMPARING, FULL, RECYCLED, Cycle, Schedule, Turn
from longctx.core.model.adapter import Layer
from longctx.kernels.door import Store


@dataclass(frozen=True)
class Options(PolicyOptions):
    """Options of Recycled Attention; the defaults are the paper's (3.3 and 6).

    Attributes:
        budget: tokens that are recycled, K in the paper.
        stride: steps from one full step to the next, S; not used with `similarity`, but the most
            over all that was kept.
        pool: neighbours, itself in the middle, of which a token takes the largest weight; odd, 1:
            only its own.
        similarity: cosine of queries, -1 to 1, up to which a layer has a full step, s; null: the
            stride alone counts.
        compare: steps from one comparison to the next, QC.
    """

    budget: int = 4096
    stride: int = 50
    pool: int = 7
    similarity: float | None = None
    compare: int = 10

    def __post_init__(self) -> None:
        for name in ("budget", "stride", "pool", "compare"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}: expected 1 or more, got {getattr(self, name)}")
        if self.pool % 2 == 0:
            raise ValueError(f"pool: expected an odd number, got {self.pool}")
        if self.similarity is not None and not -1 <= self.similarity <= 1:
            raise ValueError(f"similarity: expected -1 to 1, got {self.similarity}")

    @property
    def observed(self) -> int:
        """One: the last token of the prompt makes the first choice."""
        return 1

    @property
    def period(self) -> int:
        """Steps from one full step to the next."""
        return self.stride

    def cycle(self, keys: Tensor, values: Tensor, budget: int, longest: int) -> Cycle:
        """One layer's cycle over a cache (G, C, D); at most `longest` recycled steps in a row."""
        if self.similarity is None:
            schedule = Schedule(min(longest, self.stride - 1))
        else:
            schedule = Schedule(longest, self.compare)
        return Cycle(Recycled(keys, values, budget), schedule, self.pool, self.similarity)


class Recalling(policy.Recalling):
    """A full step uses the method's selection, and recycled tokens are chosen from it.

    Recycled tokens keep their positions in the full step's window, and later ones follow it, so
    the window must leave room for them. The answer's first token has a full step, because only the
    selection of the question's whole last chunk is known, not of its last token. A layer also has
    one when keys would have to be rotated again.

    Raises:
        UsageError: the steps between two full ones leave no room in the window for a selection.
    """

    chooses = True

    def __init__(self, options: Options, recalled: Whole, window: int):
        self._options, self._recalled = options, recalled
        self._longest = min(options.budget, options.stride - 1)
        self._narrowed = self._narrow(window)
        self._turns: dict[int, Turn] = {}
        self._looks, self._entries = 0, 0

    def _narrow(self, window: int) -> bool:
        """Leaves room for the recycled steps; returns whether less is selected for that."""
        try:
            return self._recalled.narrow(window - self._longest)
        except UsageError as error:
            raise UsageError(
                f"cannot recycle for {self._longest:,} steps",
                f"the model's window is {window:,} tokens, and beside these steps a selection of "
                "the document has to fit in",
                "Lower `stride` or `budget` of recycled.",
            ) from error

    def attend(self, layer: Layer, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Attends one token to a new selection, or to what is recycled; see `Memory.attend`."""
        self._looks += 1
        if layer.window is not None:
            out = self._recalled.attend(layer, q, k, v)
            self._entries = self._entries + min(self._recalled.kept, layer.window)
            return out
        turn = self._turns.get(layer.index)
        step = FULL if turn is None or not turn.holds(layer) else turn.cycle.step(q)
        if turn and step != FULL:
            out = turn.recycle(layer, q, *self._recalled.add(layer, k, v))
        else:
            seen = self._recalled.look(layer, q, k, v)
            if turn is None:
                given = seen.keys, seen.values, self._options.budget, self._longest
                turn = self._turns[layer.index] = Turn(self._options.cycle(*given))
            out = turn.look(layer, q, seen)
        turn.cycle.schedule.advance(step)
        self._entries = self._entries + turn.count
        return out

    def spent(self) -> Spent:
        """How much was attended to; everything kept is held, the recycled tokens twice."""
        refreshes = [turn.cycle.schedule.refreshes for turn in self._turns.values()]
        mean = sum(refreshes) / max(1, len(refreshes))
        held = self._recalled.kept
        held += min(self._options.budget, held) if self._turns else 0
        attended = float(self._entries) / max(1, self._looks)
        return Spent(attended, mean, held, narrowed=self._narrowed)


class Policy(PromptPolicy):
    """The full cache and, for each layer and key/value head, a recycled one.

    Differences from the paper: a new token goes to the full cache at once, not at the next full
    step, with the same result; when no chosen token is left in a layer, it has a full step. What
    the paper leaves open: ties of weights go to the larger before pooling, then to the earlier
    token; queries are compared position-free; layers with a sliding window choose nothing.
    """

    recalling = Recalling

    def __init__(self, options: Options, prompt: Prompt, window: int):
        super().__init__(prompt)
        self._steps, self._entries = 0, 0
        self._budget = K = min(options.budget, prompt.capacity)
        wanted = [i for i, cache in self._caches.items() if cache.layer.window is None]
        self._rows = {index: row for row, index in enumerate(wanted)}
        self._places = Places(len(wanted), K, self._device)
        caches = {i: (self._caches[i].keys, self._caches[i].values) for i in wanted}
        self.cycles = {i: options.cycle(*caches[i], K, longest=K) for i in wanted}
        self._compared: dict[int, str] = {}  # what comparing layers do in this step
        for index in wanted:
            self._begin(self._caches[index])

    @torch.inference_mode()
    def _begin(self, cache: LayerCache) -> None:
        """The prompt's last token chooses."""
        n, plain = cache.length, cache.queries[:, -1:]
        self._look(cache, plain, cache.layer.rotate(plain, slice(n - 1, n), n), self._position)

    @property
    def kind(self) -> str | None:
        """Full or recycled, if all layers agree; None too if some must compare."""
        planned = {cycle.schedule.planned for cycle in self.cycles.values()} or {RECYCLED}
        return None if self._grows or len(planned) > 1 or COMPARING in planned else planned.pop()

    def begin_token(self) -> None:
        """Counts the places in the recycled caches."""
        self._places.next()

    def attend(self, layer: Layer, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Attends one token to everything, or to what is recycled; see `Memory.attend`."""
        cache = self._caches[layer.index]
        everything = Store(cache.keys, cache.values, self._position)
        if layer.window is not None:
            rotated = cache.put(q, k, v, self._position, [everything])
            return cache.attention(rotated, cache.keys, cache.values, self._count)
        cycle, row = self.cycles[layer.index], self._rows[layer.index]
        step = cycle.step(q)
        if cycle.schedule.planned == COMPARING:
            self._compared[layer.index] = step
        if step == FULL:
            rotated = cache.put(q, k, v, self._position, [everything])
            return self._look(cache, q, rotated, self._count)
        own, slot = cycle.recycled, self._places.slots[row]
        rotated = cache.put(q, k, v, self._position, [everything, own.store(slot)])
        if cache.grows:
            own.follow(cache.keys, cache.values, slot, self._position)
        return cache.attention(rotated, own.keys, own.values, self._places.counts[row])

    def _look(self, cache: LayerCache, plain: Tensor, q: Tensor, count: Tensor) -> Tensor:
        layer = cache.layer
        self._places.chosen(self._rows[layer.index], count)
        return self.cycles[layer.index].look(layer, plain, q, cache.keys, cache.values, count)

    def advance(self) -> None:
        """Advances the schedules and counts the entries attended to."""
        self._steps += 1
        tokens = self._start + self._steps
        for index, cache in self._caches.items():
            seen = tokens
            if index in self.cycles:
                schedule = self.cycles[index].schedule
                done = self._compared.get(index, schedule.planned)
                schedule.advance(done)
                seen = tokens if done == FULL else min(tokens, self._budget + 1)
            elif cache.layer.window is not None:
                seen = min(tokens, cache.layer.window)
            self._entries += seen
        self._compared.clear()

    def spent(self) -> Spent:
        """How much was attended to; all tokens are held, the recycled ones twice."""
        attended = self._entries / max(1, self._steps * len(self._caches))
        refreshes = [cycle.schedule.refreshes for cycle in self.cycles.values()]
        mean = sum(refreshes) / max(1, len(refreshes))
        held = self._start + self._steps
        copies = min(self._budget, held) if self.cycles else 0
        return Spent(attended, mean, held + copies)
