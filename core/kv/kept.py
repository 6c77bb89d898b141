"""Keys and values of all layers that a method keeps: in memory and as stored rows.

Layers with full attention keep every token, layers with a sliding window those in it. The prefix
has no stored rows; its keys and values go to the snapshot. Independent of selection.
"""

import copy
from abc import ABC, abstractmethod
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Generic, Self, TypeVar

import torch
from torch import Tensor

from longctx.core.common.background import prefetched
from longctx.core.common.errors import StateMismatch
from longctx.core.contracts.memory import Held, Place, Rows, Snapshot, Stored
from longctx.core.kv.brought import Brought
from longctx.core.kv.coded import Coded, RowForm
from longctx.core.kv.host_memory import HostMemory
from longctx.core.kv.hosted import Hosted
from longctx.core.kv.keys import Keys
from longctx.core.kv.on_disk import OnDisk
from longctx.core.kv.resident import Resident
from longctx.core.kv.tiered import Tiered
from longctx.core.model.adapter import Layer
from longctx.core.store.shards import AGAIN

GROUP = "kv"  # of shards
COLUMNS = ("keys", "values")
SPARE = 4096  # room in a restored document for tokens of questions and answers
AHEAD = 2  # shards that are read before they are placed


K = TypeVar("K", bound=Keys | Resident | Hosted)


@dataclass
class LayerKV(Generic[K]):
    """One layer's keys and values.

    Attributes:
        keys: all of them.
        values: all of them.
        new: those of the last chunk, as they are stored.
    """

    keys: K
    values: Resident | Hosted | Tiered | OnDisk | Brought
    new: dict[str, Coded] = field(default_factory=dict)

    def append(self, form: RowForm, k: Tensor, v: Tensor) -> None:
        """Adds T tokens: position-free keys and values (G, T, D)."""
        # Both at once, which halves a GPU's operations: (2, T, G, D).
        both = form.code(torch.stack([k.transpose(0, 1), v.transpose(0, 1)]))
        for number, (name, column) in enumerate((("keys", self.keys), ("values", self.values))):
            self.new[name] = both.at(number)
            column.append(self.new[name])

    def fork(self) -> Self:
        """The same, for a question; only one fork is used at a time."""
        return replace(self, keys=self.keys.fork(), values=self.values.fork(), new={})


L = TypeVar("L", bound=LayerKV)


class KeptLayers(ABC, Generic[L]):
    """Keys and values of all layers; a subclass defines how each layer holds them.

    Args:
        layers: the model's.
        stored: dtype of keys and values on disk; int8 has scales.
        place: where they are in memory.
        keep: latest tokens that stay on the device.

    Attributes:
        seen: tokens so far.
        prefix: how many of them belong to the prefix.
    """

    def __init__(self, layers: tuple[Layer, ...], stored: torch.dtype, place: Place, keep: int):
        self.seen = self.prefix = 0
        self._place, self._keep = place, keep
        self._places = {layer.index: place.of(layer) for layer in layers}
        self._forms = {
            layer.index: RowForm(layer.kv_heads, layer.head_dim, stored, place.of(layer))
            for layer in layers
            if layer.window is None
        }
        self._sliding = {layer.index: layer for layer in layers if layer.window is not None}
        self._tails: dict[int, tuple[Tensor, Tensor]] = {}  # (G, n, D) of layers with a window
        self._before: Snapshot = {}  # rows of the prefix
        counts = Counter(own.device for own in self._places.values())
        self._memory = {device: HostMemory(device, layers) for device, layers in counts.items()}
        self._layers = self._made(place.tokens)
        self._reads = True

    @abstractmethod
    def _made(self, tokens: int) -> dict[int, L]:
        """All layers, empty, with room for `tokens` tokens."""

    @abstractmethod
    def _open(self, stored: Stored) -> None:
        """Opens rows to answer from."""

    def _column(self, form: RowForm, tokens: int) -> Resident | Hosted:
        if self._place.room is None:
            return Resident(form, tokens)
        return Hosted(form, self._keep, self._memory[form.place.device])

    def fork(self) -> Self:
        """The same, for a question; only one fork is used at a time."""
        fork = copy.copy(self)
        fork._tails, fork._reads = dict(self._tails), False
        fork._layers = {index: kv.fork() for index, kv in self._layers.items()}
        return fork

    @property
    def reads(self) -> bool:
        """Whether this is what reads a document, and not its copy for a question."""
        return self._reads

    def layer(self, index: int) -> L:
        """What is kept of a layer with full attention."""
        return self._layers[index]

    def layers(self) -> list[L]:
        """What is kept of all layers with full attention, in their order."""
        return [*self._layers.values()]

    def append(self, layer: Layer, k: Tensor, v: Tensor) -> L:
        """Adds T tokens to a layer with full attention: position-free (G, T, D)."""
        self._count(layer, k)
        kv = self._layers[layer.index]
        kv.append(self._forms[layer.index], k, v)
        if not self._reads:
            kv.new.clear()
        return kv

    def slide(self, layer: Layer, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Adds T tokens to a sliding layer; returns what they may attend to (G, n + T, D)."""
        self._count(layer, k)
        if layer.index in self._tails:
            k, v = (torch.cat(x, dim=1) for x in zip(self._tails[layer.index], (k, v), strict=True))
        n = layer.within(k.shape[1])
        self._tails[layer.index] = k[:, -n:].clone(), v[:, -n:].clone()
        return k, v

    def _count(self, layer: Layer, k: Tensor) -> None:
        self.seen += k.shape[1] if layer.index == 0 else 0

    # --- saving ---

    def taken(self) -> Rows:
        """Rows of the last chunk in all layers that read it; returned only once."""
        rows: Rows = {}
        for index, kv in self._layers.items():
            for column, coded in kv.new.items():
                parts = (x for x in coded if x is not None)
                rows.update(zip(self._names(index, (column,)), parts, strict=True))
            kv.new = {}
        return rows

    def rows(self, skip: int, rows: Rows | None = None) -> Rows:
        """Rows of the last chunk in all layers; the first `skip` are the prefix's.

        Args:
            skip: how many.
            rows: all of them, where another memory has taken them.
        """
        rows = self.taken() if rows is None else rows
        if skip:
            self.prefix += skip
            for name, x in rows.items():
                before = self._before.get(name, x[:0])
                self._before[name] = torch.cat([before, x[:skip]])
        return {name: x[skip:] for name, x in rows.items()}

    def snapshot(self) -> Snapshot:
        """The count of tokens, the rows of the prefix, and the windows of sliding layers."""
        found = {"seen": torch.tensor(self.seen), **self._before}
        for index, tails in self._tails.items():
            for name, x in zip(COLUMNS, tails, strict=True):
                found[f"window.{name}.{index}"] = x.contiguous()
        return found

    def restore(self, snapshot: Snapshot, stored: Stored, reading: bool) -> None:
        """Restores what `snapshot` and `rows` gave.

        Args:
            snapshot: on the CPU.
            stored: the document's rows.
            reading: reading resumes, so all rows are loaded; else they are opened to answer from.

        Raises:
            StateMismatch: they do not fit these layers.
        """
        self._require_snapshot(snapshot)
        self.seen = int(snapshot["seen"])
        names = [name for index in self._forms for name in self._names(index)]
        self._before = {name: snapshot[name] for name in names if name in snapshot}
        self.prefix = len(next(iter(self._before.values()), ()))
        for index in self._sliding:
            if f"window.keys.{index}" in snapshot:
                keys, values = (snapshot[f"window.{name}.{index}"] for name in COLUMNS)
                put = self._places[index].put
                self._tails[index] = put(keys), put(values)
        self._layers = {}  # their buffers may take half of the device
        if reading:
            self._take_forms(stored)
            self._layers = self._made(max(self._place.tokens, self.seen))
            self._load(stored, COLUMNS)
        else:
            self._open(stored)

    def _take_forms(self, stored: Stored) -> None:
        """New rows get the dtype of the stored ones, whatever the model computes in."""
        nothing = torch.zeros(0, dtype=torch.int64)
        for index, form in self._forms.items():
            name = self._names(index)[0]
            found = stored.take(GROUP, nothing, (name,))[name]
            require((form.stored == torch.int8) == (found.dtype == torch.int8))
            self._forms[index] = replace(form, stored=found.dtype)

    def _load(self, stored: Stored, columns: tuple[str, ...]) -> None:
        """Loads all rows to where they are kept, while AHEAD of the document's shards are read."""
        self._append(self._before, columns)
        names = tuple(name for index in self._forms for name in self._names(index, columns))
        if not names:
            return
        count = 0
        with prefetched(stored.rows(GROUP, names), AHEAD) as blocks:
            for _, rows in blocks:
                require(self._fits(rows, names))
                count += len(rows[names[0]])
                self._append(rows, columns)
        require(count == self.seen - self.prefix)

    def _append(self, rows: Rows, columns: tuple[str, ...]) -> None:
        for index, kv in self._layers.items() if rows else ():
            for column in columns:
                coded = Coded(*(rows[name] for name in self._names(index, (column,))))
                getattr(kv, column).append(coded)

    def _names(self, index: int, columns: tuple[str, ...] = COLUMNS) -> tuple[str, ...]:
        """The names of a layer's tensors in the store."""
        has_scales = self._forms[index].stored == torch.int8
        kinds = ("", ".scales") if has_scales else ("",)
        return tuple(f"{column}.{index}{kind}" for column in columns for kind in kinds)

    def _require_snapshot(self, snapshot: Snapshot) -> None:
        """Raises StateMismatch unless names, shapes and types are those that `snapshot` gives."""
        seen = snapshot.get("seen", torch.zeros(1))
        require(seen.dtype == torch.int64 and seen.dim() == 0 and int(seen) >= 0)
        names = [name for index in self._forms for name in self._names(index)]
        before = [name for name in names if name in snapshot]
        require(before in ([], names) and self._fits(snapshot, tuple(before)))
        windows = [f"window.{name}.{index}" for index in self._sliding for name in COLUMNS]
        require({*snapshot} == {"seen", *before, *(windows if int(seen) else ())})
        for index, layer in self._sliding.items() if int(seen) else ():
            shape = (layer.kv_heads, layer.within(int(seen)), layer.head_dim)
            for name in COLUMNS:
                x = snapshot[f"window.{name}.{index}"]
                require(tuple(x.shape) == shape and x.is_floating_point())

    def _fits(self, rows: Rows, names: tuple[str, ...]) -> bool:
        """Whether rows have the shapes and types written for these names."""
        if set(names) - rows.keys() or len({len(rows[name]) for name in names}) > 1:
            return False
        for name in names:
            form, x = self._forms[int(name.split(".")[1])], rows[name]
            scales = name.endswith("scales")
            dtypes = {torch.float16} if scales else {torch.int8}
            if form.stored != torch.int8:
                dtypes = {torch.bfloat16, torch.float16, torch.float32, torch.float64}
            if x.dtype not in dtypes or x.shape[1:] != (form.heads, form.dim)[: 2 - scales]:
                return False
        return True

    # --- what it takes ---

    def snapshot_bytes(self, itemsize: int) -> int:
        """Bytes of a snapshot without the prefix, whose length is not known in advance."""
        windows = ((x.window or 0) * x.kv_heads * x.head_dim for x in self._sliding.values())
        return 2 * itemsize * sum(windows)

    def row_bytes(self) -> int:
        """Bytes that a token takes on disk."""
        return 2 * sum(form.bytes(stored=True) for form in self._forms.values())

    def held_bytes(self, tokens: int) -> Held:
        """Memory that `tokens` tokens take."""
        device, host = 0, 0
        forms = {*self._forms.values()}
        for kv in self._layers.values():
            for column in (kv.keys, kv.values):
                held = column.held_bytes(tokens)
                device, host = device + held.device, host + held.host
        if host:
            for name, memory in self._memory.items():
                host += memory.ahead_bytes(form for form in forms if form.place.device == name)
        return Held(device, host)

    @torch.inference_mode()
    def fill(self, tokens: int) -> None:
        """As if `tokens` tokens had been read; for measurements."""
        self.seen = tokens
        for kv in self._layers.values():
            for column in (kv.keys, kv.values):
                if not isinstance(column, OnDisk | Brought):  # only used to answer from a document
                    column.fill(tokens)


def require(fits: bool) -> None:
    """Raises StateMismatch unless what a document has fits."""
    if not fits:
        raise mismatch()


def mismatch() -> StateMismatch:
    """The error for a document whose tensors are not this method's."""
    return StateMismatch(
        "the keys and values of the document cannot be those of this method",
        "names, shapes or types are not what it writes with these options and this model",
        AGAIN,
    )
