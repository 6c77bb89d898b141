"""Retrieval heads: those that attend to what is being copied (Wu et al., "Retrieval Head
Mechanistically Explains Long-Context Factuality").

Needles are hidden in prose within the model's window, and asked for one by one; answers are decoded
greedily, with full attention. A head copies a token of a needle's value if it attends most to that
token while the same token is generated.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean

import torch
from torch import Tensor

from longctx.core.contracts.memory import Memory
from longctx.core.measure.calibrate.choosing import standard_error
from longctx.core.model.adapter import Decoder, Layer
from longctx.core.profile.prompt import PromptEncoder

THRESHOLD = 0.1  # a head that copies more than this share is a retrieval head
CHUNK = 2048  # tokens read at a time
MORE = 16  # tokens that an answer may have besides the value's


@dataclass(frozen=True)
class Copied:
    """The result of one needle.

    Attributes:
        scores: (L, H) float64, the share of the value's tokens that each head copied.
        answer: token ids.
    """

    scores: Tensor
    answer: list[int]


class Context(Memory):
    """Full attention at consecutive positions; records what single tokens attend to most.

    Attributes:
        looked: by layer, (H,) the token to which each query head of the last single token attended
            most.
    """

    def __init__(self) -> None:
        self._kept: dict[int, tuple[Tensor, Tensor]] = {}  # position-free (G, S, D)
        self.looked: dict[int, Tensor] = {}

    def fork(self) -> "Context":
        """A copy that can continue reading, while this context stays as it is."""
        other = Context()
        other._kept = dict(self._kept)
        return other

    def attend(self, layer: Layer, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Attends causally to all tokens so far; see `Memory.attend`."""
        if layer.index in self._kept:
            keys, values = self._kept[layer.index]
            k, v = torch.cat([keys, k], dim=1), torch.cat([values, v], dim=1)
        self._kept[layer.index] = k, v
        T, S = q.shape[1], k.shape[1]
        q, k = layer.rotate(q, slice(S - T, S), S), layer.rotate(k, slice(0, S), S)
        if T == 1:
            self.looked[layer.index] = most_attended(layer, q, k)
        return layer.attention(q, k, v)


def most_attended(layer: Layer, q: Tensor, k: Tensor) -> Tensor:
    """The token that each query head attends to most from the last token: (H,) int64.

    Args:
        layer: the layer; anything it adds to the logits leaves their order unchanged.
        q: rotated queries (H, 1, D).
        k: rotated keys (G, S, D).
    """
    before = 0 if layer.window is None else max(0, k.shape[1] - layer.window)
    grouped = q[:, 0].unflatten(0, (len(k), -1))  # (G, H/G, D)
    logits = grouped.float() @ k[:, before:].float().transpose(1, 2) * layer.scale
    return logits.flatten(0, 1).argmax(dim=1) + before


def copy_scores(
    decoder: Decoder,
    prompt: PromptEncoder,
    document: Tensor,
    needles: Sequence[tuple[str, range]],
    ends: set[int],
) -> Iterator[Copied]:
    """Reads a haystack once, and asks for its needles one by one.

    Args:
        decoder: the model.
        prompt: encodes prefix and question.
        document: (N,) token ids of the haystack.
        needles: the question for each, and its value's tokens in the document.
        ends: token ids that end an answer.
    """
    ids = torch.cat([prompt.prefix(), document])
    before, context = len(prompt.prefix()), Context()
    for chunk in ids.split(CHUNK):
        decoder.read(chunk, context)
    for words, value in needles:
        place = range(before + value.start, before + value.stop)
        question = prompt.question(words)[0]
        answer, looked = _answer(decoder, context.fork(), question, len(place) + MORE, ends)
        yield Copied(copied(ids, place, answer, looked), answer)


def _answer(
    decoder: Decoder, context: Context, question: Tensor, limit: int, ends: set[int]
) -> tuple[list[int], Tensor]:
    """Token ids, and the tokens (n, L, H) attended to most while these were generated."""
    answer: list[int] = []
    looked: list[Tensor] = []
    if len(question) > 1:
        decoder.read(question[:-1], context)
    token = question[-1:]
    while len(answer) < limit:
        hidden = decoder.read(token, context)
        chosen = int(decoder.logits(hidden[-1:]).argmax())
        if chosen in ends:
            break
        answer.append(chosen)
        looked.append(torch.stack([context.looked[i] for i in sorted(context.looked)]).cpu())
        token = torch.tensor([chosen])
    layers, heads = len(decoder.layers), decoder.layers[0].query_heads
    return answer, torch.stack(looked) if looked else torch.zeros(0, layers, heads).long()


def copied(ids: Tensor, place: range, answer: Sequence[int], looked: Tensor) -> Tensor:
    """The share of a needle's tokens that each head copied: (L, H) float64.

    A token counts once, however often it is copied.

    Args:
        ids: (S,) token ids that were read.
        place: positions of the needle's tokens.
        answer: n token ids.
        looked: (n, L, H) the tokens attended to most while the answer was generated.
    """
    found = torch.zeros(*looked.shape[1:], len(place), dtype=torch.bool)  # (L, H, needle)
    for chosen, tokens in zip(answer, looked, strict=True):
        own = tokens[..., None] == torch.tensor(place)  # (L, H, needle)
        found |= own & (ids[place.start : place.stop] == chosen)
    return found.double().mean(dim=2)


# --- which heads --------------------------------------------------------------------------------


@dataclass(frozen=True)
class RetrievalHead:
    """A query head, its mean copy score, and its standard error (None for one needle)."""

    layer: int
    head: int
    score: float
    error: float | None


def score_table(samples: Sequence[Sequence[Sequence[float]]]) -> list[RetrievalHead]:
    """Each query head's mean over samples, best first; ties in layer order.

    Args:
        samples: (n, L, H) copy scores.
    """
    heads = [
        RetrievalHead(layer, head, fmean(values), standard_error(values))
        for layer, row in enumerate(zip(*samples, strict=True))
        for head, values in enumerate(zip(*row, strict=True))
    ]
    return sorted(heads, key=lambda each: -each.score)


def best_of_layers(heads: Sequence[RetrievalHead], layers: set[int]) -> list[RetrievalHead]:
    """The best retrieval head of each of these layers, if it has one, in layer order.

    Args:
        heads: best first.
        layers: indices.
    """
    above = [each for each in heads if each.score > THRESHOLD and each.layer in layers]
    best = {each.layer: each for each in reversed(above)}
    return [best[layer] for layer in sorted(best)]
