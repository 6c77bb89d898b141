"""Keys and values of all tokens, of which all keys are scanned: on the device as far as they fit.

Where everything is there and has room, a chunk can be put in its place by the device alone.
"""

import copy
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from longctx.core.contracts.memory import Held, Stored
from longctx.core.kv.brought import Brought
from longctx.core.kv.coded import Coded, RowForm
from longctx.core.kv.kept import COLUMNS, GROUP, SPARE, KeptLayers, LayerKV
from longctx.core.kv.keys import Keys
from longctx.core.kv.on_disk import OnDisk, StoredRows
from longctx.core.kv.placed import Placed, Spot
from longctx.core.kv.resident import SLACK
from longctx.core.kv.tiered import Tiered

SURE = 0.9  # of the tokens there is room for; how many come is known roughly


class Scanned(KeptLayers[LayerKV[Keys]]):
    """Keys that can be scanned, and values; those of a question are read from disk as needed."""

    def _made(self, tokens: int) -> dict[int, LayerKV[Keys]]:
        return self._with_room(tokens, *self._limits(tokens))

    def _with_room(
        self, tokens: int, keys: int | None, values: int | None
    ) -> dict[int, LayerKV[Keys]]:
        """All layers, empty, with room for so many tokens, and these limits."""
        return {
            index: LayerKV(
                self._keys(form, tokens, keys),
                Tiered(form, tokens, values, self._keep, self._memory[form.place.device]),
            )
            for index, form in self._forms.items()
        }

    def _keys(self, form: RowForm, tokens: int, limit: int | None) -> Keys:
        return Keys(form, tokens, limit, self._keep, self._memory[form.place.device])

    def _limits(self, tokens: int) -> tuple[int | None, int | None]:
        """Keys, and values, of each layer that may be on its device; None: all.

        Keys come first, because all are scanned. Values are there as far as they fit beside the
        keys: in host memory, they are pinned, which takes long, and brought back bit by bit.
        """
        most = self._most()
        if most is None:
            return None, None
        if not tokens:
            return most, 0
        values = min(most // 2, max(0, most - int(tokens / SURE)))
        return most - values, values

    def _most(self) -> int | None:
        """Tokens whose keys, or values, there is room for on each device; None: any number."""
        width: dict[str, int] = {}  # bytes of a token's keys on each device
        for form in self._forms.values():
            width[form.place.device] = width.get(form.place.device, 0) + form.bytes()
        room = self._place.room
        return None if room is None else room // max(1, *width.values(), 1)

    def held_bytes(self, tokens: int) -> Held:
        """Memory that `tokens` tokens take where as many are expected."""
        expecting = copy.copy(self)
        expecting._layers = self._with_room(0, *self._limits(tokens))
        return KeptLayers.held_bytes(expecting, tokens)

    def buffers(self) -> list[Tensor]:
        """All tensors that keys and values are in, with room; none if some are in host memory.

        Values may be on disk only; see `Brought`.
        """
        found: list[Tensor] = []
        for kv in self._layers.values() if not self._sliding else ():
            for column in (kv.keys, kv.values):
                buffer = column.buffer if isinstance(column, Tiered | Brought) else None
                if buffer is None:
                    return []
                found += [x for x in buffer if x is not None]
        return found

    def has_room(self, tokens: int) -> bool:
        """Whether `buffers` can take so many more tokens."""
        found = self.buffers()
        return bool(found) and all(len(x) >= self.seen + tokens for x in found)

    @property
    def brings(self) -> bool:
        """Whether values are read from disk when they are needed, and stay then."""
        return any(isinstance(kv.values, Brought) for kv in self._layers.values())

    @property
    def on_one_device(self) -> bool:
        """Whether the device of all layers is the same."""
        return len({form.place.device for form in self._forms.values()}) == 1

    def placing(self, buffers: Sequence[Tensor], seen: Tensor) -> "Scanned":
        """The same for one chunk, which is put in the buffers where only the device knows.

        Args:
            buffers: as `buffers` gives them.
            seen: () int64 on the device of the layers that read it, tokens before.
        """
        made, given, spot = copy.copy(self), iter(buffers), Spot(seen)
        made._layers = {}
        for index, form in self._forms.items():
            columns: list[Any] = []  # like those of a reading, but for what they leave out
            for name in COLUMNS:
                rows = next(given)
                buffer = Coded(rows, next(given) if form.held == torch.int8 else None)
                column = getattr(self._layers[index], name)
                brought = isinstance(column, Brought)
                columns.append(
                    column.placed(buffer, spot) if brought else Placed(form, buffer, spot)
                )
            made._layers[index] = LayerKV(*columns)
        return made

    def placed(self, seen: int) -> None:
        """So many tokens are in the buffers now."""
        self.seen = seen
        for kv in self._layers.values():
            kv.new = {}
            for column in (kv.keys, kv.values):
                assert isinstance(column, Tiered | Brought)  # else there are no such buffers
                column.count(seen)

    def _open(self, stored: Stored) -> None:
        """Opens rows to answer from: keys are loaded, values are read when they are needed."""
        tokens, most = max(self._place.tokens, self.seen + SPARE), self._most()
        # A long question makes both buffers anew, longer, while the document's stay.
        stays = most is not None and (4 * SLACK + 2) * tokens <= most * SLACK
        self._layers = {
            index: LayerKV(self._keys(form, tokens, most), self._values(index, stored, stays))
            for index, form in self._forms.items()
        }
        self._load(stored, COLUMNS[:1])

    def _values(self, index: int, stored: Stored, stays: bool) -> OnDisk | Brought:
        """A layer's values, read when they are needed; `stays`: there is room for all of them."""
        form, names = self._forms[index], self._names(index, COLUMNS[1:])
        before = form.empty(0)
        if self._before:
            before = Coded(*(self._before[name] for name in names))
        rows = StoredRows(before, stored, GROUP, names, self.seen - self.prefix)
        return Brought(form, rows, SPARE) if stays else OnDisk(form, rows)
