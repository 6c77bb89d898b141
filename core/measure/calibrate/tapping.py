"""Records every head's states of a document and its question, in recurrent chunks (REFORM, C.1).

Chunks are read against a KV cache that evicts all but 256 heavy hitters (H2O) and the latest
tokens; the question is read last. States stay on the device, each as a unit vector in half
precision with its length: 5 GB for 8,000 tokens of an 8B model. A second pass over the document
would save that memory, but double the computation.
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
HEAVY = 256  # heavy hitters of each head; as many of the latest tokens are kept too
CHUNK = 1024
QUERIES = 128  # last queries of a chunk whose attention counts, as in REFORM
QUESTION = 512  # tokens of a question that there must be room for


@dataclass(frozen=True)
class Unit:
    """States of n tokens, as directions and lengths.

    Attributes:
        vectors: (heads, n, D) float16, of length 1.
        lengths: (heads, n) float32, before normalisation.
    """

    vectors: Tensor
    lengths: Tensor

    @classmethod
    def of(cls, states: Tensor) -> "Unit":
        """From states (heads, n, D)."""
        wide = states.float()
        lengths = wide.norm(dim=-1)
        least = torch.finfo(torch.float32).tiny
        return cls((wide / lengths.clamp_min(least)[..., None]).half(), lengths)

    def at(self, tokens: slice | Tensor) -> "Unit":
        """The states of some of the tokens."""
        return Unit(self.vectors[:, tokens], self.lengths[:, tokens])


@dataclass(frozen=True)
class LayerStates:
    """One layer's states of a document and of the words of its question, by STATES."""

    index: int
    document: dict[str, Unit]
    question: dict[str, Unit]


def options(window: int) -> Options:
    """H2O's options: 256 heavy hitters and the 256 latest tokens, or what fits the window.

    Args:
        window: tokens that the model was trained on.

    Raises:
        UsageError: not even one fits.
    """
    wanted = Options(budget=2 * HEAVY, chunk=CHUNK, question=QUESTION, queries=QUERIES)
    return wanted.fitted(window)


class StateTap(Memory):
    """A memory that records every layer's states and passes them on.

    Args:
        memory: the memory that attends.
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
        """All states of a layer, by kind; they are not kept after that."""
        return {kind: _joined(self._kept.pop((index, kind))) for kind in STATES}


def _joined(parts: list[Unit]) -> Unit:
    if len(parts) == 1:
        return parts[0]
    vectors, lengths = ([getattr(p, name) for p in parts] for name in ("vectors", "lengths"))
    return Unit(torch.cat(vectors, dim=1), torch.cat(lengths, dim=1))


def read(
    decoder: Decoder, sizes: Options, prompt: PromptEncoder, document: Tensor, question: str
) -> Iterator[LayerStates]:
    """Reads a document and then a question, and yields the states layer by layer.

    Args:
        decoder: the model.
        sizes: the result of `options`.
        prompt: encodes prefix and question.
        document: (N,) token ids.
        question: the user's words; the template's tokens have no states.

    Raises:
        UsageError: the question is too long for the model's window.
    """
    prefix = prompt.prefix()
    method = Method(sizes, decoder.layers, Place(str(decoder.device), decoder.dtype))
    text = StateTap(method)
    with decoder.watched(text.keep):
        for chunk in torch.cat([prefix, document]).split(sizes.chunk):
            decoder.read(chunk, text)
    ids, scored = prompt.question(question)
    words = StateTap(method.recall())
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
