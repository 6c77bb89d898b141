"""Whole chunks on GPUs as CUDA graphs: recorded once, replayed without the host.

For models so small, or over so many devices, that these would wait for the launches. A memory must
be full, or have room where it grows. Each device has a graph of its own layers. The recording is
used only if its first replay gives, to the last bit, what the layers gave for the same chunk. Knows
no method.
"""

import logging
from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor

from longctx.core.common.device import moved
from longctx.core.contracts.memory import Groups
from longctx.core.contracts.method import Method, Replayable
from longctx.core.decode.stepping.graphs import recorder
from longctx.core.model.adapter import Decoder, Stretch
from longctx.kernels import choice

SETTLED = 6  # whole chunks of equal shapes, before one is recorded
MOST = 1 << 39  # weights of a layer times tokens of a chunk, up to which the device would wait

SAME, OTHER = "they give the same bits", "a replay gives other bits"

_log = logging.getLogger(__name__)

Work = Callable[[], None]
Rows = Callable[[int], Groups]  # without those of the first tokens of a chunk
Capture = Callable[[torch.device, Work], Work]  # records work of a device, gives what replays it


class ChunkReader:
    """Reads chunks with a method: through the layers, and whole ones by replay once that is so.

    Args:
        decoder: the model.
        method: what is read with.
    """

    def __init__(self, decoder: Decoder, method: Method):
        self._decoder, self._method = decoder, method
        self._refused = False  # chunks cannot be recorded, or need not
        self._replayed: _Replayed | None = None
        self._rows: Rows | None = None  # of the last chunk, if it was replayed
        self._shapes: list[torch.Size] = []
        self._settled = 0  # chunks in a row that left these shapes

    def read(self, ids: Tensor) -> None:
        """Reads the next chunk (T,)."""
        method = self._method
        if self._replayed and len(ids) == method.chunk:
            if self._replayed.fits(ids):
                self._rows = self._replayed(ids)
                return
            self._replayed, self._settled = None, 0  # chunks settle again
        begun = self._begun(ids)
        self._decoder.read(ids, method, method.depth)
        if self._refused or len(ids) != method.chunk:
            return
        if begun:
            self._record(ids, begun)
        else:
            self._count()

    def rows(self, skip: int) -> Groups:
        """See `Method.rows`."""
        rows, self._rows = self._rows, None
        return rows(skip) if rows else self._method.rows(skip)

    def _states(self) -> list[Tensor]:
        return self._method.states() if isinstance(self._method, Replayable) else []

    def _begun(self, ids: Tensor) -> list[Tensor]:
        """The states from which a chunk is recorded that is read next; none: it is not."""
        method = self._method
        due = self._settled >= SETTLED and not self._refused
        if not due or not isinstance(method, Replayable):
            return []
        # A buffer without room grows while the chunk is read: these states would not be its. And
        # without room for another one, the recording would never be replayed.
        return method.states() if method.fits(2 * len(ids)) else []

    def _count(self) -> None:
        """Counts chunks that left the shapes of what is held as they were."""
        shapes = [state.shape for state in self._states()]
        self._settled = self._settled + 1 if shapes == self._shapes else 0
        self._shapes = shapes

    def _record(self, ids: Tensor, begun: list[Tensor]) -> None:
        """Records a chunk that has just been read, from the states in which it was begun."""
        method, capture = self._method, capture_of(self._decoder, self._method)
        if capture is None or not isinstance(method, Replayable):
            self._refused = True
            return
        taken = method.taken()
        self._rows = partial(method.rows_of, taken)
        self._replayed = self._recorded(ids, begun, method, taken, capture)
        if self._replayed:
            self._replayed.take_over()
            return
        self._refused = True
        if method.in_place:  # a replay may have left other bits where the chunk is
            method.hold(begun, method.seen - len(ids))
            self._decoder.read(ids, method, method.depth)
            method.taken()

    def _recorded(
        self,
        ids: Tensor,
        begun: list[Tensor],
        method: Replayable,
        taken: Mapping[Any, Tensor],
        capture: Capture,
    ) -> "_Replayed | None":
        """The recording, if its first replay leaves what the layers left, `taken` for rows."""
        try:
            with choice.recording():
                found = _Replayed(self._decoder, method, ids, begun, capture)
                same = found.equals(taken, method)
        except Exception as error:  # drivers and compilers fail in every possible way
            _tell("directly", f"{type(error).__name__}: {error}".splitlines()[0])
            return None
        _tell(*(("by replay", SAME) if same else ("directly", OTHER)))
        return found if same else None


class _Replayed:
    """A chunk that is recorded, on each device by itself, and the memory in which it is read.

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
        capture: Capture,
    ):
        self._decoder, self._method = decoder, method
        before = method.seen - len(ids)
        with torch.inference_mode(False):  # they are changed in any mode
            self._states = begun if method.in_place else [state.clone() for state in begun]
            self._parts: list[_Part] = []
            given = ids.to(decoder.device, copy=True)
            for stretch in decoder.stretches(len(ids), method.depth):
                given = moved(given, stretch.device)
                part = _Part(stretch, method, self._states, given, before, capture)
                given = part.replay(given)
                self._parts.append(part)
        self._tables = decoder.rotary_tables()  # which are read by each replay

    def _replay(self, ids: Tensor) -> None:
        """Reads a whole chunk."""
        given = ids
        for part in self._parts:
            given = part.replay(given)

    def fits(self, ids: Tensor) -> bool:
        """Whether there is room for a chunk where the recording puts it."""
        return self._method.fits(len(ids))

    def _taken(self) -> dict[Any, Tensor]:
        """What rows are made of, of the chunk that was replayed last."""
        last = self._parts[-1].given.device
        taken: dict[Any, Tensor] = {}
        for part in self._parts:
            # Copies: a device goes on to its next chunk while others wait for what it has taken.
            # Keys and values stay where they are.
            here = self._method.in_place
            taken |= {key: x if here else _sent(x, last) for key, x in part.taken.items()}
        return taken

    def __call__(self, ids: Tensor) -> Rows:
        """Reads a whole chunk; what gives its rows, until the next one."""
        self._decoder.require_known(ids)
        self._replay(ids)
        self._method.hold(self._states, self._method.seen + len(ids))
        return partial(self._method.rows_of, self._taken())

    def equals(self, taken: Mapping[Any, Tensor], method: Replayable) -> bool:
        """Whether the replay left what the layers did: what was taken of them, and the states."""
        given, found = {**taken}, self._taken()
        if not method.in_place:
            given |= enumerate(method.states())
            found |= enumerate(self._states)
        if given.keys() != found.keys() or any(
            int(part.seen) != method.seen for part in self._parts
        ):
            return False
        # What was taken may be on another device than it was.
        return all(torch.equal(one, found[key].to(one.device)) for key, one in given.items())

    def take_over(self) -> None:
        """The method goes on from here."""
        self._method.hold(self._states, self._method.seen)


class _Part:
    """What one device does of a chunk, recorded.

    Args:
        stretch: its layers.
        method: what reads.
        states: of all layers, changed in place.
        given: memory for what the first of these layers is given, on the device.
        seen: tokens of the input read before.
        capture: see `ChunkReader`.

    Attributes:
        given: as above.
        seen: () int64, tokens of the input read so far, on the device.
        left: what the layers leave for the next device, until the next replay; None: nothing.
        taken: see `Replayable.taken`, until the next replay.
    """

    def __init__(
        self,
        stretch: Stretch,
        method: Replayable,
        states: list[Tensor],
        given: Tensor,
        seen: int,
        capture: Capture,
    ):
        self._stretch, self._method, self._states = stretch, method, states
        self.given, self.seen = given, torch.tensor(seen, device=given.device)
        self.left: Tensor | None = None
        self.taken: dict[Any, Tensor] = {}
        self._run = capture(stretch.device, self._work)

    @torch.inference_mode()
    def _work(self) -> None:
        """One chunk, in place."""
        memory = self._method.replaying(self._states, self.seen)
        self.left = self._stretch.read(self.given, memory)
        self.taken = memory.taken()
        states = self._states if memory.in_place else memory.states()
        for state, now in zip(self._states, states, strict=True):
            if now is not state:  # else it is of another device's layers
                state.copy_(now)
        self.seen.add_(len(self.given))

    def replay(self, given: Any) -> Any:
        """Runs what was recorded; a copy of what it leaves for the next device, None if nothing."""
        self.given.copy_(moved(given, self.given.device), non_blocking=True)
        self._run()
        return None if self.left is None else self.left.clone()


def _sent(tensor: Tensor, device: torch.device) -> Tensor:
    """A tensor that the next replay changes, as it is now; on its own device it is used before."""
    return tensor if tensor.device == device else moved(tensor.clone(), device)


def capture_of(decoder: Decoder, method: Method) -> Capture | None:
    """What records chunks; None where that gains nothing, or cannot be."""
    if decoder.device.type != "cuda" or not isinstance(method, Replayable):
        return None
    chunks = decoder.chunks_by(method.chunk)
    weights = chunks and chunks.layer_weights()
    if not chunks or not weights:
        return None
    # The host issues the chunks of all devices, each of which computes a part of one meanwhile.
    if weights * method.chunk > MOST * len(chunks.stretches(method.depth)):
        return None
    return recorder()


def recording_bytes(decoder: Decoder, method: Method, chunks: int, work: int) -> int:
    """Bytes that a recorded chunk takes on a device, beyond those of chunks that are read directly.

    They are not needed: where there is no room for them, chunks are read directly.

    Args:
        decoder: the model.
        method: it has read as much as its memory holds.
        chunks: whole ones that follow.
        work: bytes that reading one takes meanwhile; a recording has as many of its own.
    """
    if chunks < SETTLED + 2 or not isinstance(method, Replayable):
        return 0
    states = method.states()
    if not states or capture_of(decoder, method) is None:
        return 0
    copies = () if method.in_place else (state.nbytes for state in states)
    return work + sum(copies)


@cache
def _tell(how: str, why: str) -> None:
    """Logs how whole chunks are read; `cache` makes it happen once."""
    _log.info("whole chunks are read %s (%s)", how, why)
