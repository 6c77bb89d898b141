"""Memories of blocks: the input's first tokens, a local window, and blocks that are retrieved.

The base of InfLLM and Ltri-LLM: the window that streams over the input, attention to it, and what
is kept, saved and restored. A method defines retrieval: it makes index rows for each block that
leaves the local window, and chooses blocks for each chunk.
"""

import copy
from abc import abstractmethod
from collections.abc import Iterable
from typing import ClassVar, NamedTuple, Self

import torch
from torch import Tensor

from longctx.core.contracts.memory import (
    HERE,
    Groups,
    Held,
    Place,
    Recalled,
    Rows,
    Scores,
    Snapshot,
    Stored,
)
from longctx.core.contracts.method import Growing, Recallable
from longctx.core.kv.block_index import Forms, Known, RowForm
from longctx.core.kv.block_options import KV_DTYPES, BlockOptions
from longctx.core.kv.blocks import KeptBlocks, LayerBlocks
from longctx.core.kv.kept import GROUP
from longctx.core.kv.streaming_window import (
    Near,
    at_one_distance,
    near_of,
    one_after_another,
    own_maps,
    plain,
)
from longctx.core.model.adapter import Layer


class LayerChunk(NamedTuple):
    """A chunk in one layer, when blocks are chosen for it.

    Attributes:
        q: its position-free queries (H, T, D).
        k: its position-free keys (G, T, D), as they are kept.
        given: (R, T) attention that its tokens received from its own queries, post-softmax over
            the local window; R as in `Retrieving.index`.
        maps: (B, H, N, N) attention of its queries within the blocks of N tokens that they lie in:
            row and column are places in the block, rows of others and the upper triangle are 0.
            None if the layer has no `note_forms`.
        offset: tokens of the first of these blocks that were read before the chunk.
    """

    q: Tensor
    k: Tensor
    given: Tensor
    maps: Tensor
    offset: int


class ChosenBlocks(NamedTuple):
    """Blocks that a chunk attends to in one layer.

    Attributes:
        blocks: their numbers (n,), int64 on the device, ascending; n <= `retrieved`.
        votes: (n,) the weight of each among the passages; None: 1.
    """

    blocks: Tensor
    votes: Tensor | None = None


class Retrieving(Growing, Recallable, Recalled, abstract=True):
    """A reading method over blocks, and a memory for questions to it.

    A method defines `forms`, `index` and `choose`; one that needs a block's attention to itself
    defines `note_forms` and `note` too. None of them changes its arguments. They are called for
    layers with full attention, in the order of the layers for each chunk. Each token of an answer
    is a chunk of its own; if the blocks of the question's last chunk stay for the answer, they are
    not called for it.

    Args:
        options: `BlockOptions`.
        layers, place: see `Method`.

    Attributes:
        name: the method's, in messages.
        per_head: attention received is given for each query head, else summed over them.
        anew: each token of an answer retrieves again; else it uses the question's last blocks.
        answering: of a memory for a question: whether the question has been read.
    """

    name: ClassVar[str]
    per_head: ClassVar[bool] = False
    anew: ClassVar[bool] = True

    # --- what a method defines ---

    @abstractmethod
    def forms(self, layer: Layer) -> dict[str, RowForm]:
        """The tensors of a layer's index: name to shape and dtype of a block's row."""

    @abstractmethod
    def index(self, layer: Layer, keys: Tensor, received: Tensor, notes: Rows) -> Rows:
        """Index rows of B blocks that leave the local window.

        Args:
            layer: the layer.
            keys: position-free keys (B, N, G, D), as they are kept.
            received: (B, R, N) attention that each token received while it was local, summed over
                the queries of all chunks since it was read: R = H if `per_head`, else 1, summed
                over the heads too. Post-softmax over the local keys; float32 or wider.
            notes: what `note` gave for these blocks, (B, ...) by name.

        Returns:
            (B, ...) by name, as in `forms`.
        """

    @abstractmethod
    def choose(self, layer: Layer, read: LayerChunk, index: Rows) -> ChosenBlocks:
        """The blocks that a chunk attends to; called once any has left the local window.

        Args:
            layer: the layer.
            read: the chunk.
            index: rows of all blocks that have left it, (n, ...) by name.
        """

    def note_forms(self, layer: Layer) -> dict[str, RowForm]:
        """The tensors that `note` gives: name to shape and dtype of a block's row."""
        return {}

    def note(self, layer: Layer, maps: Tensor) -> Rows:
        """What is kept of B blocks' own maps until they leave; called when blocks become whole.

        Args:
            layer: the layer.
            maps: (B, H, N, N) post-softmax attention over the local window: row and column are
                places in the block, 0 above the diagonal. Float32 or wider.

        Returns:
            (B, ...) by name, as in `note_forms`.
        """
        return {}

    def begin_chunk(self) -> None:
        """Begins a chunk: called before its first layer."""

    # --- attending ---

    def __init__(self, options: BlockOptions, layers: tuple[Layer, ...], place: Place = HERE):
        super().__init__(options, layers, place)
        self.gather, self.answering = options.gather, False
        stored = KV_DTYPES[options.kv_dtype] or place.dtype
        self._kept = KeptBlocks(layers, stored, place, options)
        self._known = {
            layer.index: Known(self._forms(layer), options, place.of(layer))
            for layer in layers
            if layer.window is None
        }
        # Only of a memory for a question:
        self._votes: Tensor | None = None  # (blocks of the document,)
        self._near: int | None = None  # where the local window of its first chunk begins
        self._stay: dict[int, Tensor] = {}  # by layer, the blocks that its last chunk retrieved
        self._looks = self._entries = 0  # of the answer's tokens in all layers

    def _forms(self, layer: Layer) -> Forms:
        notes, rows = self.note_forms(layer), layer.query_heads if self.per_head else 1
        return Forms(layer.index, self.forms(layer), notes, rows, layer.query_heads if notes else 0)

    @property
    def chunk(self) -> int:
        """Tokens read next: `first + local` at the start, before any block has left."""
        return self.options.chunk if self._kept.seen else self.options.near

    def attend(self, layer: Layer, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Attends a chunk to [first | retrieved | local]; see `Memory.attend`."""
        if layer.index == 0:
            self._begin(q.shape[1])
        if layer.window is not None:
            k, v = self._kept.slide(layer, k, v)
            self._count(layer.within(self._kept.seen))
            return plain(layer, q, k, v)
        kv, o = self._kept.append(layer, k, v), self.options
        if self._learns:
            self._leave(layer, kv)
        keys, values = _heads_first(kv.latest(o.start(kv.length)))  # (G, W, D)
        T = min(q.shape[1], keys.shape[1])  # the first tokens of the input are never local
        near = near_of(layer, q[:, -T:], keys, values, o.rotated) if T else None
        read = self._read(layer, near, q[:, -T:], keys[:, -T:]) if near and self._learns else None
        if near is None or kv.length <= o.first + o.local:
            self._count(kv.length)
            return plain(layer, q, *_heads_first(kv.latest(0)))
        return self._attended(near, q, kv, self._chosen(layer, read))

    @property
    def _learns(self) -> bool:
        """Whether more will be retrieved; if not, nothing more is learned."""
        return self.anew or not self.answering

    def _begin(self, tokens: int) -> None:
        """Notes where the local window of a question begins."""
        if self._votes is not None and self._near is None:
            self._near = self.options.start(self._kept.seen + tokens)
        self.begin_chunk()

    def _leave(self, layer: Layer, kv: LayerBlocks) -> None:
        """Moves whole blocks out of a layer's local window and makes their index rows."""
        known, N = self._known[layer.index], self.options.block
        before, after = known.index.length, self.options.left(kv.length)
        if before < after:
            blocks = torch.arange(before, after, device=self._place.of(layer).device)
            keys = kv.blocks(blocks)[0].unflatten(0, (-1, N))  # (B, N, G, D)
            received, notes = known.leave(after - before)
            rows = self.index(layer, keys, received, notes)
            known.index.append(rows, after - before)

    def _read(self, layer: Layer, near: Near, q: Tensor, k: Tensor) -> LayerChunk:
        """Adds the attention that a chunk gives to the local window to what is known of it."""
        known, given = self._known[layer.index], near.given(self.per_head)
        known.give(given)
        maps, offset = given[:0], 0
        if self.note_forms(layer):
            maps, offset = own_maps(near, self.options.block)
            known.add_maps(maps, lambda whole: self.note(layer, whole))
        return LayerChunk(q, k, given[:, -q.shape[1] :], maps, offset)

    def _chosen(self, layer: Layer, read: LayerChunk | None) -> Tensor:
        """The blocks (n,) that a chunk attends to; without `read`, the previous ones."""
        index = self._known[layer.index].index
        chosen = torch.zeros(0, dtype=torch.int64, device=self._place.of(layer).device)
        if read is None:
            return self._stay.get(layer.index, chosen)
        if index.length:
            chosen, votes = self.choose(layer, read, index.rows)
            self._vote(chosen, votes)
        if not self.anew:
            self._stay[layer.index] = chosen
        return chosen

    def _attended(self, near: Near, q: Tensor, kv: LayerBlocks, chosen: Tensor) -> Tensor:
        """Attention (H, T, D) to the first tokens, chosen blocks and the local window."""
        o = self.options
        far = (torch.cat(parts) for parts in zip(kv.initial(), kv.blocks(chosen), strict=True))
        keys, values = _heads_first(far)
        self._count(keys.shape[1] + near.k.shape[1])
        if not keys.shape[1]:
            return near.out
        if o.in_order:
            both = one_after_another(near, q, keys, values, o.rotated)
        else:
            both = at_one_distance(near, q, keys, values, o.local, o.rotated)
        if kv.on_disk and len(chosen):
            received = both.given()[o.first :].unflatten(0, (-1, o.block)).sum(1)
            kv.used(chosen, received)
        return both.out

    def _vote(self, chosen: Tensor, votes: Tensor | None) -> None:
        """Counts the blocks that a question retrieves."""
        if self._votes is not None and not self.answering:
            votes = torch.ones_like(chosen) if votes is None else votes
            chosen, votes = chosen.to(self._votes.device), votes.to(self._votes)
            old = chosen < len(self._votes)  # later ones are the question's own
            self._votes.index_add_(0, chosen[old], votes[old])

    def _count(self, entries: int) -> None:
        """Counts what a token of the answer attends to in a layer."""
        if self.answering:
            self._looks, self._entries = self._looks + 1, self._entries + entries

    # --- saving ---

    def rows(self, skip: int = 0) -> Groups:
        """Keys and values (T, G, D) of the last chunk, for each layer with full attention."""
        return {GROUP: self._kept.rows(skip)}

    def snapshot(self) -> Snapshot:
        """What has no rows: what is known of blocks and local tokens, and `KeptBlocks.snapshot`."""
        saved = self._kept.snapshot()
        for known in self._known.values():
            saved |= known.saved()
        return saved

    def restore(self, snapshot: Snapshot, stored: Stored, reading: bool) -> None:
        """Restores a document; to answer from it, blocks are read when they are retrieved."""
        own = {name for known in self._known.values() for name in known.names}
        others = {name: x for name, x in snapshot.items() if name not in own}
        self._kept.restore(others, stored, reading)
        for known in self._known.values():
            known.restore(snapshot, self._kept.seen)

    def snapshot_bytes(self, tokens: int, itemsize: int) -> int:
        """Bytes of the index, of what is known of local tokens, and of sliding windows."""
        known = sum(known.bytes(tokens, itemsize) for known in self._known.values())
        return known + self._kept.snapshot_bytes(itemsize)

    def row_bytes(self) -> int:
        """Bytes of keys and values of all layers with full attention."""
        return self._kept.row_bytes()

    def held_bytes(self, tokens: int) -> Held:
        """Keys and values, with a GPU those of blocks in host memory; the index on the device."""
        held, size = self._kept.held_bytes(tokens), self._place.dtype.itemsize
        known = sum(known.bytes(tokens, size) for known in self._known.values())
        return Held(held.device + known, held.host)

    @torch.inference_mode()
    def fill(self, tokens: int) -> None:
        """As if `tokens` tokens had been read, with random contents; for measurements."""
        self._kept.fill(tokens)
        for known in self._known.values():
            known.fill(tokens)

    # --- a question ---

    def recall(self) -> Self:
        """A memory for one question and its answer; this one does not change."""
        fork = copy.copy(self)
        fork._kept = self._kept.fork()
        fork._known = {index: known.fork() for index, known in self._known.items()}
        behind = max(0, self._kept.seen - self.options.first)
        blocks = -(-behind // self.options.block)  # local ones may leave while the question is read
        fork._votes, fork._stay = torch.zeros(blocks, device=self._place.device), {}
        return fork

    def begin_answer(self) -> None:
        """Marks the question as read; what the answer retrieves does not count for passages."""
        self.answering = True

    @property
    def kept(self) -> int:
        """All tokens so far."""
        return self._kept.seen

    def attended(self) -> float:
        """Mean number of tokens that an answer's token attended to, over tokens and layers."""
        return self._entries / max(1, self._looks)

    def scores(self, tokens: int) -> Scores:
        """Votes of each token's block for the question, summed over the layers.

        Without votes, tokens that are always in view (the first and the local ones) have 0, others
        -1 pooled.
        """
        o, P = self.options, self._kept.prefix
        place = torch.arange(P, P + tokens, device=self._place.device)
        block = torch.div(place - o.first, o.block, rounding_mode="floor")
        votes = torch.zeros(0, device=block.device) if self._votes is None else self._votes
        whole = (block >= 0) & (block < len(votes))
        votes = torch.cat([votes, votes.new_zeros(1)])
        raw = votes[torch.where(whole, block, -1)]
        near = o.start(self._kept.seen) if self._near is None else self._near
        seen = (raw > 0) | (place < o.first) | (place >= near)
        return Scores(raw, torch.where(seen, raw, -1.0))


def _heads_first(pair: Iterable[Tensor]) -> tuple[Tensor, Tensor]:
    """Keys and values (S, G, D) as (G, S, D)."""
    keys, values = (x.transpose(0, 1) for x in pair)
    return keys, values
