"""Questions on a GPU as CUDA graphs: launching their layers takes longer than computing them.

A question is short, and read behind the same memory as the one before. From the third of about the
same length on, all its layers are one launch. Knows no method.
"""

import logging
from collections.abc import Mapping
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from longctx.core.contracts.memory import Chunked
from longctx.core.contracts.method import ReplayableQuestions
from longctx.core.decode.stepping.graphs import recorder
from longctx.core.engine.chunk_graphs import Capture
from longctx.core.model.adapter import Decoder, Stretch
from longctx.kernels import choice

STEP = 32  # questions are padded to as many tokens, or a multiple: so they share a recording
LONGEST = 8 * STEP  # longer ones keep the device busy
KEPT = 4  # recordings

_log = logging.getLogger(__name__)


class QuestionReader:
    """Reads questions behind what documents left.

    Args:
        decoder: the model.
    """

    def __init__(self, decoder: Decoder):
        self._decoder, self._capture = decoder, capture_of(decoder)
        self._begun: set[tuple] = set()  # read once, which compiled their kernels
        self._recorded: dict[tuple, _Recorded] = {}  # the latest last

    def read(self, ids: Tensor, memory: Chunked, depth: int) -> None:
        """Reads a question (T,); the memory evicts nothing, and is asked for nothing else."""
        states = memory.states() if isinstance(memory, ReplayableQuestions) else []
        in_one = 0 < len(ids) <= min(LONGEST, memory.chunk)
        stretch = self._stretch(len(ids), depth) if states and in_one else None
        if stretch is None or not isinstance(memory, ReplayableQuestions):
            for piece in ids.split(memory.chunk):
                self._decoder.read(piece, memory, depth)
            return
        self._decoder.require_known(ids)
        # What follows a token changes nothing of it.
        padded = F.pad(ids, (0, -len(ids) % STEP), value=int(ids[-1]))
        key = (len(padded), memory.seen, *(state.data_ptr() for state in states))
        if recorded := self._recorded.pop(key, None):
            self._recorded[key] = recorded
            taken = recorded(padded)
        else:
            taken = self._directly(stretch, padded, memory, states, key)
        memory.take(taken, len(ids))

    def _stretch(self, tokens: int, depth: int) -> Stretch | None:
        """What reads all layers, if that can be recorded."""
        padded = tokens + -tokens % STEP
        chunks = self._decoder.chunks_by(padded) if self._capture else None
        if chunks is None or not chunks.layer_weights():
            return None
        stretches = self._decoder.stretches(padded, depth)
        return stretches[0] if len(stretches) == 1 else None

    def _directly(
        self,
        stretch: Stretch,
        ids: Tensor,
        memory: ReplayableQuestions,
        states: list[Tensor],
        key: tuple,
    ) -> Mapping[Any, Tensor]:
        """What its layers leave; it is recorded if one like it was read before."""
        once = memory.replaying(states, memory.seen)
        stretch.read(ids.to(self._decoder.device), once)
        taken, capture = once.taken(), self._capture
        if key not in self._begun or capture is None:
            self._begun.add(key)
            return taken
        try:
            with choice.recording():
                recorded = _Recorded(self._decoder, stretch, ids, memory, states, capture)
                same = all(torch.equal(taken[name], x) for name, x in recorded(ids).items())
        except Exception as error:  # drivers and compilers fail in every possible way
            self._capture = None
            _tell("directly", f"{type(error).__name__}: {error}".splitlines()[0])
            return taken
        if not same:
            self._capture = None
            _tell("directly", "a replay gives other bits")
            return taken
        _tell("by replay", "they give the same bits")
        self._recorded[key] = recorded
        if len(self._recorded) > KEPT:
            del self._recorded[next(iter(self._recorded))]
        return taken


class _Recorded:
    """A question of some length behind some states, recorded.

    Args:
        decoder: the model.
        stretch: reads all layers.
        ids: (T,) of one that was read just so.
        memory: reads it.
        states: its own; they stay, and are never changed.
        capture: see `ChunkReader`.
    """

    def __init__(
        self,
        decoder: Decoder,
        stretch: Stretch,
        ids: Tensor,
        memory: ReplayableQuestions,
        states: list[Tensor],
        capture: Capture,
    ):
        self._stretch, self._memory, self._states = stretch, memory, states
        self._taken: Mapping[Any, Tensor] = {}
        with torch.inference_mode(False):  # they are changed in any mode
            self._given = ids.to(stretch.device, copy=True)
        self._run = capture(stretch.device, self._work)
        self._tables = decoder.rotary_tables()  # which are read by each call

    @torch.inference_mode()
    def _work(self) -> None:
        memory = self._memory.replaying(self._states, self._memory.seen)
        self._stretch.read(self._given, memory)
        self._taken = memory.taken()

    def __call__(self, ids: Tensor) -> Mapping[Any, Tensor]:
        """What the layers leave for ids (T,), until the next call."""
        self._given.copy_(ids, non_blocking=True)
        self._run()
        return self._taken


def capture_of(decoder: Decoder) -> Capture | None:
    """What records questions; None where there is no GPU."""
    return recorder() if decoder.device.type == "cuda" else None


@cache
def _tell(how: str, why: str) -> None:
    """Logs how questions are read; `cache` makes it happen once."""
    _log.info("questions are read %s (%s)", how, why)
