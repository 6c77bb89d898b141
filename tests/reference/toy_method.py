"""Toy: the latest tokens, and nothing else. As small as a method that reads and recalls can be."""

import copy
from dataclasses import dataclass

import torch

from longctx.core.common.errors import StateMismatch
from longctx.core.contracts import method as contract
from longctx.core.contracts.memory import HERE, Recalled, Scores


@dataclass(frozen=True)
class Options(contract.MethodOptions):
    """Options of the toy.

    Attributes:
        chunk: tokens of the input read at a time.
        budget: tokens that stay after a chunk.
    """

    chunk: int = 32
    budget: int = 64


class Method(contract.Method, contract.Recallable, Recalled):
    """Keeps the latest keys and values of each layer."""

    capabilities = contract.Capabilities(searches=False)

    def __init__(self, options, layers, place=HERE):
        super().__init__(options, layers, place)
        self._kv = {}  # of each layer: keys and values, (G, S, D)
        self._seen, self._asked, self._attended = 0, False, []

    def attend(self, layer, q, k, v):
        keys, values = self._kv.get(layer.index, (k[:, :0], v[:, :0]))
        keys, values = torch.cat([keys, k], 1), torch.cat([values, v], 1)
        T, S = q.shape[1], keys.shape[1]
        if layer.index == 0:
            self._seen += T
        if T == 1 and self._asked:
            self._attended.append(S)
        cut = self.chunk == T and not self._asked
        kept = S - self.options.budget if cut and self.options.budget < S else 0
        self._kv[layer.index] = keys[:, kept:], values[:, kept:]
        q, keys = layer.rotate(q, slice(S - T, S), S), layer.rotate(keys, slice(0, S), S)
        return layer.attention(q, keys, values)

    # --- saving ---

    def snapshot(self):
        saved = {"seen": torch.tensor(self._seen)}
        for index, pair in self._kv.items():
            saved |= {f"{name}.{index}": x for name, x in zip("kv", pair, strict=True)}
        return saved

    def restore(self, snapshot, stored, reading):
        wanted = {"seen", *(f"{name}.{layer.index}" for name in "kv" for layer in self._layers)}
        if snapshot.keys() != wanted:
            raise StateMismatch("the snapshot is no toy's", "", "Read the document again.")
        self._seen = int(snapshot["seen"])
        for layer in self._layers:
            pair = (snapshot[f"{name}.{layer.index}"] for name in "kv")
            self._kv[layer.index] = tuple(map(self._place.put, pair))

    def snapshot_bytes(self, tokens, itemsize):
        most = min(tokens, self.options.budget + self.options.chunk)
        return sum(2 * most * x.kv_heads * x.head_dim for x in self._layers) * itemsize

    # --- a question ---

    def recall(self):
        fork = copy.copy(self)
        fork._kv, fork._asked, fork._attended = dict(self._kv), True, []
        fork._before, fork._held = self._seen, self.kept
        return fork

    @property
    def kept(self):
        return self._kv[0][0].shape[1]

    def begin_answer(self):
        self._attended = []

    def attended(self):
        return sum(self._attended) / max(1, len(self._attended))

    def scores(self, tokens):
        place = torch.arange(self._before - tokens, self._before)
        raw = (place >= self._before - self._held).float()
        return Scores(raw, raw * 2 - 1)
