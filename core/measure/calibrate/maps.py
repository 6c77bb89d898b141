"""Needles that are each within one block, and the local attention maps of their blocks.

The search for Ltri-LLM's spans needs to know, for each needle, how the tokens of its block attend
to each other in every layer. The maps are recorded during full attention, one block at a time.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import cycle
from typing import NamedTuple

import torch
from torch import Tensor

from longctx.core.common.errors import UsageError
from longctx.core.contracts.memory import Memory
from longctx.core.engine.setup import Engine
from longctx.core.kv import spans
from longctx.core.kv.streaming_window import near_of, own_maps, plain
from longctx.core.measure.haystack import LEAST_FILLER, Builder, Group
from longctx.core.measure.niah.drawing import Draw
from longctx.core.measure.niah.kinds import MAKERS
from longctx.core.measure.prose import read_prose
from longctx.core.model.adapter import Layer

NEEDLES = 8  # most needles in a haystack; every other block has one


class BlockPlace(NamedTuple):
    """A needle: the first token of its block, and its own tokens [begin, end)."""

    block: int
    begin: int
    end: int


@dataclass(frozen=True)
class MapSample:
    """A document with its needles.

    Attributes:
        ids: (n,) token ids, the prefix included.
        places: its needles' places, in tokens of `ids`.
    """

    ids: Tensor
    places: tuple[BlockPlace, ...]


class LayerMaps(NamedTuple):
    """The blocks of all needles in one layer.

    Attributes:
        summed: (B, N, N) attention of each block's tokens to each other, summed over heads.
        thetas: (B, n) the entries at n quantiles of each block, over single heads.
        heads: H.
    """

    summed: Tensor
    thetas: Tensor
    heads: int


# --- samples ------------------------------------------------------------------------------------


def haystacks(
    engine: Engine, needles: int, seed: int, first: int, block: int
) -> Iterator[MapSample]:
    """Prose with needles, each wholly within one block.

    Args:
        engine: the model.
        needles: total number.
        seed: seed of needles, places and prose.
        first: tokens before the first block, the prefix included.
        block: tokens of a block.

    Raises:
        UsageError: the model's window is too short, or no needle fits into a block.
        LongctxError: the tokenizer gives no exact length.
    """
    builder, prefix = Builder(engine.files.tokenizer, read_prose()), engine.prompt.prefix()
    starts = _starts(engine.window, len(prefix), first, block)
    draw = random.Random(f"spans/{seed}")
    for done in range(0, needles, len(starts)):
        name, blocks = f"spans/{seed}/{done}", starts[: needles - done]
        lines = _lines(Draw(MAKERS, builder.prose, name), builder, len(blocks), block)
        begins = [
            start + draw.randint(0, block - builder.count(line)) - len(prefix)
            for start, line in zip(blocks, lines, strict=True)
        ]
        length = blocks[-1] + block + LEAST_FILLER - len(prefix)
        built = builder.build(_groups(builder, lines, begins, length), length, name)
        ids = torch.cat([prefix, built.ids])
        tokens = [built.tokens(line.start, line.end) for (line,) in built.places]
        places = [
            BlockPlace(at, len(prefix) + first, len(prefix) + end)
            for at, (first, end) in zip(blocks, tokens, strict=True)
        ]
        yield MapSample(ids, tuple(places))


def _starts(window: int, prefix: int, first: int, block: int) -> list[int]:
    """First tokens of the blocks with a needle; there is prose between and around them."""
    lead = max(1, -(-(prefix + LEAST_FILLER - first) // block))  # blocks before the first one
    starts = [first + (lead + 2 * number) * block for number in range(NEEDLES)]
    fitting = [start for start in starts if start + block + LEAST_FILLER <= window]
    if not fitting:
        raise UsageError(
            f"cannot search for spans in a window of {window:,} tokens",
            f"{first:,} initial tokens and {lead + 1} blocks of {block:,} do not fit",
            "Use a model with a longer window, or smaller blocks.",
        )
    return fitting


def _lines(draw: Draw, builder: Builder, count: int, block: int) -> list[str]:
    """Needles of all kinds in turn, except those that are longer than a block."""
    kinds, lines, refused = cycle(MAKERS), [], 0
    while len(lines) < count:
        line = draw.needle(next(kinds)).lines[0]
        if builder.count(line) <= block:
            lines.append(line)
        elif (refused := refused + 1) == len(MAKERS) * count:
            raise UsageError(
                f"no needle fits into a block of {block} tokens",
                f"'{line}' takes {builder.count(line)}",
                "Use larger blocks.",
            )
    return lines


def _groups(builder: Builder, lines: list[str], begins: list[int], length: int) -> list[Group]:
    """Groups of one line each, at depths that make the lines begin at these tokens."""
    sizes = [builder.count(line) for line in lines]
    prose = length - sum(sizes)
    befores = [begin - sum(sizes[:number]) for number, begin in enumerate(begins)]
    return [Group(n / prose, (line,)) for n, line in zip(befores, lines, strict=True)]


# --- maps ---------------------------------------------------------------------------------------


class MapTap(Memory):
    """Full attention of one pass; records the local maps of some blocks.

    They are the maps that Ltri-LLM uses: of attention over the local window only, which begins
    after the initial tokens.

    Args:
        sample: what is read.
        first: initial tokens.
        block: N.
        shares: n quantiles, each above 0 and at most 1.

    Attributes:
        maps: maps of every needle's block, by layer; none for layers with a sliding window.
    """

    def __init__(self, sample: MapSample, first: int, block: int, shares: list[float]):
        self._blocks = [(place.block - first) // block for place in sample.places]
        self._first, self._block, self._shares = first, block, shares
        self.maps: dict[int, LayerMaps] = {}

    def attend(self, layer: Layer, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Attends causally to all tokens of the pass; see `Memory.attend`."""
        if layer.window is None:
            near = near_of(layer, *(x[:, self._first :] for x in (q, k, v)), length=q.shape[1])
            own = own_maps(near, self._block)[0][self._blocks]  # (B, H, N, N)
            # Block by block: sorting all of them together takes more memory.
            thetas = torch.cat([spans.quantiles(each, self._shares) for each in own.split(1)])
            self.maps[layer.index] = LayerMaps(own.sum(dim=1), thetas, layer.query_heads)
        return plain(layer, q, k, v)
