"""Whole chunks on a GPU as a CUDA graph: recorded once a memory is full, replayed without the host.

For models so small that the device would wait for the launches. The recording is used only if its
first replay gives, to the last bit, what the layers gave for the same chunk. Knows no method.
"""

import logging
from collections.abc import Callable
from functools import cache

import torch
from torch import Tensor

from longctx.core.contracts.memory import Groups
from longctx.core.contracts.method import Method, Replayable
from longctx.core.decode.stepping.graphs import Graphs
from longctx.core.model.adapter import Decoder
from longctx.core.model.split import SplitDecoder
from longctx.kernels import choice

SETTLED = 6  # whole chunks of equal shapes, before one is recorded
MOST = 1 << 39  # weights of a layer times tokens of a chunk, up to which the device would wait

_log = logging.getLogger(__name__)

Work = Callable[[], None]


class ChunkReader:
    """Reads chunks with a method: through the layers, and whole ones by replay once that is so.

    Args:
        decoder: the model.
        method: what is read with.
    """

    def __init__(self, decoder: Decoder, method: Method):
        self._decoder, self._method = decoder, method
        self._capture = capture_of(decoder, method)
        self._replayed: _Replayed | None = None
        self._rows: Groups | None = None  # of the last chunk, if it was replayed
        self._shapes: list[torch.Size] = []
        self._settled = 0  # chunks in a row that left these shapes

    def read(self, ids: Tensor) -> None:
        """Reads the next chunk (T,)."""
        method = self._method
        if self._replayed and len(ids) == method.chunk:
            self._rows = self._replayed(ids)
            return
        begun = self._states() if self._settled >= SETTLED else []
        self._decoder.read(ids, method, method.depth)
        if self._capture is None or len(ids) != method.chunk:
            return
        if begun:
            self._record(ids, begun)
        else:
            self._count()

    def rows(self, skip: int) -> Groups:
        """See `Method.rows`."""
        rows, self._rows = self._rows, None
        return self._method.rows(skip) if rows is None else rows

    def _states(self) -> list[Tensor]:
        return self._method.states() if isinstance(self._method, Replayable) else []

    def _count(self) -> None:
        """Counts chunks that left the shapes of what is held as they were."""
        shapes = [state.shape for state in self._states()]
        self._settled = self._settled + 1 if shapes == self._shapes else 0
        self._shapes = shapes

    def _record(self, ids: Tensor, begun: list[Tensor]) -> None:
        """Records a chunk that has just been read, from the states in which it was begun."""
        method, capture, self._capture = self._method, self._capture, None
        assert isinstance(method, Replayable)
        assert capture is not None
        broken = set(choice.broken)
        try:
            replayed = _Replayed(self._decoder, method, ids, begun, capture)
        except Exception as error:  # drivers and compilers fail in every possible way
            for key in set(choice.broken) - broken:  # a kernel that only cannot be recorded
                del choice.broken[key]
            _tell("directly", f"{type(error).__name__}: {error}".splitlines()[0])
            return
        self._rows = method.rows()
        if not replayed.equals(self._rows, method):
            _tell("directly", "a replay gives other bits")
            return
        _tell("by replay", "they give the same bits")
        replayed.take_over()
        self._replayed = replayed


class _Replayed:
    """A chunk that is recorded, and the memory in which it is read.

    Args:
        decoder: the model.
        method: it has read the chunk.
        ids: of the chunk.
        begun: the states before.
        capture: see `ChunkReader`.
    """

    def __init__(
        self,
        decoder: Decoder,
        method: Replayable,
        ids: Tensor,
        begun: list[Tensor],
        capture: Callable[[Work, None], Work],
    ):
        self._decoder, self._method = decoder, method
        device = begun[0].device
        with torch.inference_mode(False):  # they are changed in any mode
            self._states = [state.clone() for state in begun]
            self._ids = ids.to(device, copy=True)
            self._seen = torch.tensor(method.seen - len(ids), device=device)
            self._out: Groups = {}
            self._replay = capture(self._work, None)
            self._replay()

    @torch.inference_mode()
    def _work(self) -> None:
        """One chunk, in place."""
        memory = self._method.replaying(self._states, self._seen)
        self._decoder.read(self._ids, memory, memory.depth)
        self._out = memory.rows()
        for state, now in zip(self._states, memory.states(), strict=True):
            state.copy_(now)
        self._seen.copy_(torch.as_tensor(memory.seen))

    def __call__(self, ids: Tensor) -> Groups:
        """Reads a whole chunk and gives its rows."""
        self._decoder.require_known(ids)
        self._ids.copy_(ids, non_blocking=True)
        self._replay()
        self._method.hold(self._states, self._method.seen + len(ids))
        return {
            group: {name: rows.clone() for name, rows in parts.items()}
            for group, parts in self._out.items()
        }

    def equals(self, rows: Groups, method: Replayable) -> bool:
        """Whether the replay left the rows and states that the method has."""
        given = [*method.states(), *_tensors(rows)]
        found = [*self._states, *_tensors(self._out)]
        if len(given) != len(found) or int(self._seen) != method.seen:
            return False
        return all(torch.equal(one, other) for one, other in zip(given, found, strict=True))

    def take_over(self) -> None:
        """The method goes on from here."""
        self._method.hold(self._states, self._method.seen)


def _tensors(groups: Groups) -> list[Tensor]:
    return [groups[group][name] for group in sorted(groups) for name in sorted(groups[group])]


def capture_of(decoder: Decoder, method: Method) -> Callable[[Work, None], Work] | None:
    """What records chunks; None where that gains nothing, or cannot be."""
    if decoder.device.type != "cuda" or isinstance(decoder, SplitDecoder):
        return None
    chunks = decoder.chunks_by(method.chunk) if isinstance(method, Replayable) else None
    weights = chunks and chunks.layer_weights()
    if not weights or weights * method.chunk > MOST:
        return None
    return Graphs(decoder.device).capture


@cache
def _tell(how: str, why: str) -> None:
    """Logs how whole chunks are read; `cache` makes it happen once."""
    _log.info("whole chunks are read %s (%s)", how, why)
