"""The index of a layer's blocks that left the local window, and what is known of local tokens.

Independent of keys, values and what the rows mean.
"""

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from longctx.core.contracts.memory import Place, Rows, Snapshot
from longctx.core.kv.block_options import BlockOptions
from longctx.core.kv.kept import require

STEP = 64  # rows that a buffer grows by at least
SLACK = 16  # a full buffer grows by 1/SLACK


class RowForm(NamedTuple):
    """One row of a tensor that has a row for each block.

    Attributes:
        shape: without the first dimension.
        dtype: None: the dtype that the model computes in.
    """

    shape: tuple[int, ...]
    dtype: torch.dtype | None = None

    def rows(self, count: int, place: Place) -> Tensor:
        """Empty rows."""
        return torch.empty(
            (count, *self.shape), dtype=self.dtype or place.dtype, device=place.device
        )

    def put(self, rows: Tensor, place: Place) -> Tensor:
        """Rows moved to where they are kept, in the dtype kept."""
        return rows.to(place.device, self.dtype or place.dtype)

    def bytes(self, itemsize: int) -> int:
        """Bytes of a row, where an element of what the model computes takes `itemsize`."""
        each = self.dtype.itemsize if self.dtype else itemsize
        return torch.Size(self.shape).numel() * each


class Index:
    """Rows of blocks by name, in buffers that grow.

    Args:
        forms: of the rows.
        place: where they are kept.

    Attributes:
        length: blocks so far.
    """

    def __init__(self, forms: dict[str, RowForm], place: Place):
        self.length = 0
        self._forms, self._place = forms, place
        self._buffers = {name: form.rows(0, place) for name, form in forms.items()}

    def fork(self) -> "Index":
        """The same rows, to which others can be appended; only one fork is used at a time."""
        fork = copy.copy(self)  # what a fork appends comes after the rows of the original
        fork._buffers = dict(self._buffers)
        return fork

    @property
    def rows(self) -> Rows:
        """All rows (length, ...)."""
        return {name: x[: self.length] for name, x in self._buffers.items()}

    def append(self, rows: Rows, count: int) -> None:
        """Adds the rows of `count` blocks."""
        self._require(self.length + count)
        for name, buffer in self._buffers.items():
            buffer[self.length : self.length + count] = rows[name]
        self.length += count

    def fill(self, count: int) -> None:
        """As if `count` random rows had been appended; for measurements."""
        self._require(count)
        for x in self._buffers.values():
            x.normal_() if x.is_floating_point() else x.zero_()
        self.length = count

    def _require(self, count: int) -> None:
        for name, buffer in self._buffers.items():
            if count > len(buffer):
                room = max(count, len(buffer) + max(STEP, len(buffer) // SLACK))
                grown = self._forms[name].rows(room, self._place)
                grown[: self.length] = buffer[: self.length]
                self._buffers[name] = grown


@dataclass(frozen=True)
class Forms:
    """The shapes of what is known of a layer's blocks.

    Attributes:
        layer: its index.
        index: tensors of the index rows.
        notes: tensors kept for whole local blocks.
        heads: rows of attention received.
        maps: heads of a block's own map; 0: no maps are needed.
    """

    layer: int
    index: dict[str, RowForm]
    notes: dict[str, RowForm]
    heads: int
    maps: int


class Known:
    """What is known of a layer: its index, and the attention its local tokens have received.

    Args:
        forms: of the tensors.
        sizes: how the tokens are divided.
        place: where they are kept.

    Attributes:
        index: rows of the blocks that have left the local window.
    """

    def __init__(self, forms: Forms, sizes: BlockOptions, place: Place):
        self._forms, self._sizes, self._place = forms, sizes, place
        self._wide = torch.promote_types(place.dtype, torch.float32)
        self.index = Index(forms.index, place)
        self._received = torch.zeros(
            forms.heads, 0, dtype=self._wide, device=place.device
        )  # (R, W)
        self._notes = {name: form.rows(0, place) for name, form in forms.notes.items()}
        self._map: Tensor | None = None  # (H, N, N) of the unfinished local block

    def fork(self) -> "Known":
        """The same, for a question; only one fork is used at a time."""
        fork = copy.copy(self)  # other tensors are replaced, not changed
        fork.index = self.index.fork()
        return fork

    def leave(self, count: int) -> tuple[Tensor, Rows]:
        """Removes the first local blocks; returns what they received (B, R, N), and their notes."""
        tokens = count * self._sizes.block
        received, self._received = self._received[:, :tokens], self._received[:, tokens:]
        notes = {name: x[:count] for name, x in self._notes.items()}
        self._notes = {name: x[count:] for name, x in self._notes.items()}
        return received.unflatten(1, (count, -1)).transpose(0, 1), notes

    def give(self, given: Tensor) -> None:
        """Adds what a chunk's queries gave (R, W); the chunk's own tokens are the last of W."""
        self._received = (
            F.pad(self._received, (0, given.shape[1] - self._received.shape[1])) + given
        )

    def add_maps(self, maps: Tensor, note: Callable[[Tensor], Rows]) -> None:
        """Adds a chunk's rows of own maps (B, H, N, N); `note` gives what is kept of whole ones."""
        if self._map is not None:
            maps = torch.cat([maps[:1] + self._map, maps[1:]])
        whole = len(maps) - (self._received.shape[1] % self._sizes.block > 0)
        self._map = maps[whole].clone() if whole < len(maps) else None
        if whole:
            new = note(maps[:whole])
            self._notes = {name: torch.cat([x, new[name]]) for name, x in self._notes.items()}

    # --- saving ---

    @property
    def names(self) -> tuple[str, ...]:
        """The names of its tensors in a snapshot."""
        layer, parts = self._forms.layer, ["received", *(["map"] if self._forms.maps else [])]
        parts += [f"index.{name}" for name in self._forms.index]
        parts += [f"notes.{name}" for name in self._forms.notes]
        return tuple(f"{part}.{layer}" for part in parts)

    def saved(self) -> Snapshot:
        """All of it, as a snapshot."""
        layer, found = self._forms.layer, {"received": self._received.contiguous()}
        if self._forms.maps:
            found["map"] = self._map_rows()
        found |= {f"index.{name}": x for name, x in self.index.rows.items()}
        found |= {f"notes.{name}": x for name, x in self._notes.items()}
        return {f"{part}.{layer}": x for part, x in found.items()}

    def _map_rows(self) -> Tensor:
        """Rows (H, n, N) of the n tokens of the unfinished block."""
        N, n = self._sizes.block, self._received.shape[1] % self._sizes.block
        if self._map is None:
            return self._received.new_zeros(self._forms.maps, 0, N)
        return self._map[:, :n].contiguous()

    def restore(self, snapshot: Snapshot, tokens: int) -> None:
        """Restores what `saved` gave after `tokens` tokens.

        Raises:
            StateMismatch: the snapshot does not fit this layer.
        """
        self._require(snapshot, tokens)
        layer = self._forms.layer
        self.index = Index(self._forms.index, self._place)
        rows = {name: snapshot[f"index.{name}.{layer}"] for name in self._forms.index}
        self.index.append(rows, self._sizes.left(tokens))
        self._notes = {
            name: form.put(snapshot[f"notes.{name}.{layer}"], self._place)
            for name, form in self._forms.notes.items()
        }
        self._received = snapshot[f"received.{layer}"].to(self._place.device, self._wide)
        if self._forms.maps and (rows := snapshot[f"map.{layer}"]).shape[1]:
            rows = rows.to(self._place.device, self._wide)
            self._map = F.pad(rows, (0, 0, 0, self._sizes.block - rows.shape[1]))

    def _require(self, snapshot: Snapshot, tokens: int) -> None:
        """Raises StateMismatch unless names and shapes are those that `saved` gives."""
        f, N, layer = self._forms, self._sizes.block, self._forms.layer
        blocks, W = self._sizes.left(tokens), tokens - self._sizes.start(tokens)
        shapes: dict[str, tuple[int, ...]] = {f"received.{layer}": (f.heads, W)}
        if f.maps:
            shapes[f"map.{layer}"] = (f.maps, W % N, N)
        for kind, forms, count in (("index", f.index, blocks), ("notes", f.notes, W // N)):
            shapes |= {f"{kind}.{name}.{layer}": (count, *x.shape) for name, x in forms.items()}
        for name, shape in shapes.items():
            require(name in snapshot and tuple(snapshot[name].shape) == shape)

    def bytes(self, tokens: int, itemsize: int) -> int:
        """The most bytes it takes after `tokens` tokens, in memory or in a snapshot.

        Args:
            tokens: read so far.
            itemsize: bytes of an element of what the model computes.
        """
        f, N = self._forms, self._sizes.block
        W = min(tokens, self._sizes.positions)
        counts = ((f.index, self._sizes.left(tokens)), (f.notes, W // N))
        rows = sum(form.bytes(itemsize) * n for forms, n in counts for form in forms.values())
        return rows + max(4, itemsize) * (f.heads * W + f.maps * N * N)

    def fill(self, tokens: int) -> None:
        """As if `tokens` tokens had been read, with random index rows; for measurements."""
        self.index.fill(self._sizes.left(tokens))
        W, N = tokens - self._sizes.start(tokens), self._sizes.block
        self._received = self._received.new_zeros(self._forms.heads, W)
        self._notes = {
            name: form.rows(W // N, self._place).zero_() for name, form in self._forms.notes.items()
        }
        self._map = self._received.new_zeros(self._forms.maps, N, N) if self._forms.maps else None
