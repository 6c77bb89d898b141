"""Every head's states of a document and its question, read by recurrent chunks (REFORM, C.1).

The chunks go through an evicted cache with 256 heavy hitters (H2O), and the question is read after
the document against what is left. States are kept on the device, each as a unit vector in half
precision with its length: 5 GB for 8,000 tokens of an 8B model. Scoring in a second pass over the
document would need none of it and twice the computation; memory is what there is more of. Knows
nothing of scores.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from longctx.core.contracts.memory import Memory, Place
from longctx.core.methods.h2o import Method, Options
from longctx.core.model.adapter import Decoder, Layer
from longctx.core.profile.prompt import PromptEncoder

STATES = ("q", "k", "v", "hidden")
HEAVY = 256  # heavy hitters of each head; as many of the latest tokens stay beside them
CHUNK = 1024
QUERIES = 128  # last ones of a chunk whose attention counts, as in REFORM
QUESTION = 512  # tokens of a question that find room at least


@dataclass(frozen=True)
class Unit:
    """States of n tokens and some heads.

    Attributes:
        vectors: (heads, n, D) float16, of length 1.
        lengths: (heads, n) float32, those that they had.
    """

    vectors: Tensor
    lengths: Tensor

    @classmethod
    def of(cls, states: Tensor) -> "Unit":
        """Takes states (heads, n, D) apart."""
        wide = states.float()
        lengths = wide.norm(dim=-1)
        least = torch.finfo(torch.float32).tiny
        return cls((wide / lengths.clamp_min(least)[..., None]).half(), lengths)

    def at(self, tokens: slice | Tensor) -> "Unit":
        """Of some of the tokens."""
        return Unit(self.vectors[:, tokens], self.lengths[:, tokens])


@dataclass(frozen=True)
class LayerStates:
    """One layer's states of a document's tokens and of the words of its question, by STATES."""

    index: int
    document: dict[str, Unit]
    question: dict[str, Unit]


def options(window: int) -> Options:
    """How documents are read: 256 heavy hitters and the 256 latest tokens, or what fits.

    Args:
        window: tokens that the model was trained on.

    Raises:
        UsageError: not even one fits.
    """
    wanted = Options(budget=2 * HEAVY, chunk=CHUNK, question=QUESTION, queries=QUERIES)
    return wanted.fitted(window)


class Tap(Memory):
    """A memory that keeps every layer's states on their way to another one.

    Args:
        memory: what attends.
    """

    def __init__(self, memory: Memory):
        self._memory = memory
        self._kept: dict[tuple[int, str], list[Unit]] = {}

    def attend(self, layer: Layer, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Keeps position-free q, k and v, and attends; see `Memory.attend`."""
        for kind, states in zip(STATES, (q, k, v), strict=False):
            self.keep(layer.index, kind, states)
        return self._memory.attend(layer, q, k, v)

    def keep(self, index: int, kind: str, states: Tensor) -> None:
        """Keeps states (heads, T, D) of a layer."""
        self._kept.setdefault((index, kind), []).append(Unit.of(states))

    def take(self, index: int) -> dict[str, Unit]:
        """All states of a layer, by kind; handed out once."""
        return {kind: _joined(self._kept.pop((index, kind))) for kind in STATES}


def _joined(parts: list[Unit]) -> Unit:
    if len(parts) == 1:
        return parts[0]
    vectors, lengths = ([getattr(p, name) for p in parts] for name in ("vectors", "lengths"))
    return Unit(torch.cat(vectors, dim=1), torch.cat(lengths, dim=1))


def read(
    decoder: Decoder, sizes: Options, prompt: PromptEncoder, document: Tensor, question: str
) -> Iterator[LayerStates]:
    """Reads a document and then a question, and hands out one layer's states after another.

    Args:
        decoder: the model.
        sizes: as `options` gave them.
        prompt: encodes prefix and question.
        document: (N,) token ids.
        question: the user's words; the template's tokens have no states.

    Raises:
        UsageError: the question is too long for the model's window.
    """
    prefix = prompt.prefix()
    method = Method(sizes, decoder.layers, Place(str(decoder.device), decoder.dtype))
    text = Tap(method)
    with decoder.watched(text.keep):
        for chunk in torch.cat([prefix, document]).split(sizes.chunk):
            decoder.read(chunk, text)
    ids, scored = prompt.question(question)
    words = Tap(method.recall())
    with decoder.watched(words.keep):
        decoder.read(ids, words)
    own, after = scored.nonzero()[:, 0].to(decoder.device), slice(len(prefix), None)
    for index in range(len(decoder.layers)):
        taken, asked = text.take(index), words.take(index)
        yield LayerStates(
            index,
            {kind: unit.at(after) for kind, unit in taken.items()},
            {kind: unit.at(own) for kind, unit in asked.items()},
        )
