"""The keys and values of all layers as initial tokens, blocks and a local window.

While a document is read, all of them are in memory. While questions are answered, its first tokens
and local window are in memory and its blocks on disk: retrieved blocks are read and cached.
Independent of how blocks are chosen and attended to.
"""

from dataclasses import dataclass, field

import torch
from torch import Tensor

from longctx.core.contracts.memory import Place, Stored
from longctx.core.kv.block_cache import BlockCache
from longctx.core.kv.block_options import BlockOptions
from longctx.core.kv.coded import Coded, RowForm, pairs
from longctx.core.kv.hosted import Hosted
from longctx.core.kv.kept import COLUMNS, GROUP, SPARE, KeptLayers, LayerKV, mismatch, require
from longctx.core.kv.resident import Resident
from longctx.core.model.adapter import Layer

Pair = tuple[Tensor, Tensor]  # keys and values


@dataclass(frozen=True)
class StoredPart:
    """A layer's rows in a document, and those of the prefix, which are not stored there.

    Attributes:
        form: of the rows.
        before: keys and values of the prefix.
        stored: the document.
        names: of the tensors of its keys and its values, each with scales for int8.
    """

    form: RowForm
    before: tuple[Coded, ...]
    stored: Stored
    names: tuple[tuple[str, ...], ...]

    def read(self, rows: Tensor) -> list[Coded]:
        """Keys and values of tokens (S,), ascending, on the CPU.

        Raises:
            StateMismatch: the document lacks such rows.
        """
        P = len(self.before[0].rows)
        early = int((rows < P).sum())
        try:
            every = tuple(name for names in self.names for name in names)
            taken = self.stored.take(GROUP, rows[early:] - P, every)
        except ValueError as error:  # fewer than the snapshot says
            raise mismatch() from error
        columns = [Coded(*(taken[name] for name in names)) for names in self.names]
        if not early:
            return columns
        first = [before.at(rows[:early]) for before in self.before]
        both = zip(first, columns, strict=True)
        return [Coded(*(torch.cat(x) for x in pairs(one, other))) for one, other in both]


@dataclass(frozen=True)
class StoredLayer:
    """The part of a layer that is on disk.

    Attributes:
        blocks: how many are on disk, from the start of the input.
        end: tokens before the local window in memory.
        initial: keys and values (first, G, D) of the first tokens.
        cache: of blocks (2, block, G, D): keys and values.
    """

    blocks: int
    end: int
    initial: Pair
    cache: BlockCache


@dataclass
class LayerBlocks(LayerKV[Resident | Hosted]):
    """One layer's keys and values.

    Attributes:
        sizes: how the tokens are divided.
        on_disk: what is not in memory; None: everything is.
    """

    sizes: BlockOptions = field(kw_only=True)
    on_disk: StoredLayer | None = None

    @property
    def length(self) -> int:
        """Tokens so far."""
        return self.keys.length + (self.on_disk.end if self.on_disk else 0)

    def initial(self) -> Pair:
        """Keys and values (first, G, D) of the first tokens."""
        return (
            self.on_disk.initial if self.on_disk else self._gather(self._range(0, self.sizes.first))
        )

    def latest(self, start: int) -> Pair:
        """Keys and values (W, G, D) of the tokens from `start` on, which are in memory."""
        return self._gather(self._range(start, self.length))

    def blocks(self, chosen: Tensor) -> Pair:
        """Keys and values (n * block, G, D) of blocks (n,), ascending.

        Blocks on disk that are not cached are read; this waits for the device.
        """
        there = self._there(chosen)
        here = self._gather(block_rows(chosen[len(there) :], self.sizes))
        if not self.on_disk or not there:
            return here
        taken = self.on_disk.cache.take(there)  # (n, 2, block, G, D)
        columns = (x.flatten(0, 1) for x in taken.unbind(1))
        keys, values = (torch.cat(parts) for parts in zip(columns, here, strict=True))
        return keys, values

    def used(self, chosen: Tensor, received: Tensor) -> None:
        """Records how much attention (n,) the blocks requested last received."""
        there = self._there(chosen)
        if self.on_disk and there:
            self.on_disk.cache.gain(there, received[: len(there)].tolist())

    def _there(self, chosen: Tensor) -> list[int]:
        """The blocks that are on disk."""
        if not self.on_disk:
            return []
        return [block for block in chosen.tolist() if block < self.on_disk.blocks]

    def _range(self, first: int, last: int) -> Tensor:
        return torch.arange(first, last, device=self.keys.form.place.device)

    def _gather(self, rows: Tensor) -> Pair:
        """Keys and values (S, G, D) of tokens in memory."""
        rows = rows - self.on_disk.end if self.on_disk else rows
        return self.keys.gather(rows), self.values.gather(rows)


class KeptBlocks(KeptLayers[LayerBlocks]):
    """Keys and values of all layers.

    Args:
        layers: the model's.
        stored: dtype of keys and values on disk; int8 has scales.
        place: where they are in memory.
        sizes: how the tokens are divided.
    """

    def __init__(
        self, layers: tuple[Layer, ...], stored: torch.dtype, place: Place, sizes: BlockOptions
    ):
        self._sizes = sizes
        super().__init__(layers, stored, place, sizes.positions)

    def _made(self, tokens: int) -> dict[int, LayerBlocks]:
        def empty(form: RowForm) -> LayerBlocks:
            keys, values = (self._column(form, tokens) for _ in COLUMNS)
            return LayerBlocks(keys, values, sizes=self._sizes)

        return {index: empty(form) for index, form in self._forms.items()}

    def _open(self, stored: Stored) -> None:
        """Opens rows to answer from: blocks are read when they are retrieved."""
        self._layers = {
            index: self._opened(self._part(index, stored), form)
            for index, form in self._forms.items()
        }

    def _part(self, index: int, stored: Stored) -> StoredPart:
        names = tuple(self._names(index, (column,)) for column in COLUMNS)
        form, nothing = self._forms[index], torch.zeros(0, dtype=torch.int64)
        every = self._names(index)
        require(self._fits(stored.take(GROUP, nothing, every), every))
        before = tuple(
            Coded(*(self._before[name] for name in each)) if self._before else form.empty(0)
            for each in names
        )
        return StoredPart(form, before, stored, names)

    def _opened(self, part: StoredPart, form: RowForm) -> LayerBlocks:
        """A layer with its first tokens and its local window in memory."""
        sizes, blocks = self._sizes, self._sizes.left(self.seen)
        start = sizes.start(self.seen) if blocks else 0
        first = torch.arange(min(sizes.first, start))
        keys, values = (Resident(form, self.seen - start + SPARE) for _ in COLUMNS)
        rows = part.read(torch.arange(start, self.seen))
        for column, new in zip((keys, values), rows, strict=True):
            column.append(new)
        on_disk = None
        if blocks:
            first_keys, first_values = (_decoded(x, form) for x in part.read(first))

            def read(chosen: list[int]) -> Tensor:
                """Blocks (n, 2, block, G, D) on the device."""
                rows = part.read(block_rows(torch.tensor(chosen), sizes))
                both = torch.stack([_decoded(x, form) for x in rows])  # (2, n * block, G, D)
                return both.unflatten(1, (len(chosen), sizes.block)).transpose(0, 1)

            cache = BlockCache(sizes.cached, sizes.decay, read)
            on_disk = StoredLayer(blocks, start, (first_keys, first_values), cache)
        return LayerBlocks(keys, values, sizes=sizes, on_disk=on_disk)


def _decoded(rows: Coded, form: RowForm) -> Tensor:
    """The rows where their layer computes."""
    return rows.decoded(form.place.dtype).to(form.place.device)


def block_rows(blocks: Tensor, sizes: BlockOptions) -> Tensor:
    """The tokens (n * block,) of blocks (n,)."""
    inside = torch.arange(sizes.block, device=blocks.device)
    return (sizes.first + blocks[:, None] * sizes.block + inside).flatten()
