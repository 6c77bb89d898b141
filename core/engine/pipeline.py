"""The reading loop over several devices: chunks follow one another through stages of layers.

Each stage has a thread and a device. A chunk is in one stage while the next one is in the stage
before; a layer still gets its chunks one after another, each with what the layer kept of those
before, so a state has the same bytes as from one device. The caller sees what `encode` shows: the
method after each chunk, in order.
"""

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from queue import Queue
from typing import Any

import torch
from torch import Tensor

from longctx.core.common.device import held
from longctx.core.common.interrupts import check
from longctx.core.contracts.method import Staged
from longctx.core.engine.lanes import Lanes, Mark
from longctx.core.model.balance import Reading
from longctx.core.model.split import SplitDecoder, Stage


@dataclass
class _Passing:
    """A chunk on its way through the stages.

    Attributes:
        given: its tokens, then its hidden states.
        memory: its own.
        before: that of the chunk before.
        arrived: when its hidden states are on the next device.
        marks: when each stage that it has left has computed it.
        done: set at the end, or at an error.
    """

    given: Tensor | None
    memory: Staged
    before: Staged
    arrived: Mark = None
    marks: list[Mark] = field(default_factory=list)
    error: BaseException | None = None
    done: threading.Event = field(default_factory=threading.Event)


class Pipeline:
    """Stages, each with a thread, while the context lasts.

    Args:
        stages: of the model, in order.

    Attributes:
        lanes: what moves between devices does so there.
    """

    def __init__(self, stages: list[Stage]):
        self._stages, self.lanes = stages, Lanes(stage.device for stage in stages)
        self._queues: list[Queue[_Passing | None]] = [Queue() for _ in stages]
        self._broken = threading.Event()
        self._threads = [
            threading.Thread(target=self._work, args=(n,), name=f"longctx-stage-{n}", daemon=True)
            for n in range(len(stages))
        ]

    def __enter__(self) -> "Pipeline":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._broken.set()  # what is on its way is dropped
        for queue in self._queues:
            queue.put(None)
        for thread in self._threads:
            thread.join()

    def put(self, passing: _Passing) -> None:
        """Sends a chunk on its way."""
        self._queues[0].put(passing)

    def _work(self, number: int) -> None:
        """Runs what arrives, in order."""
        stage, following = self._stages[number], self._queues[number + 1 :]
        if stage.device.startswith("cuda"):
            torch.cuda.set_device(stage.device)
        while passing := self._queues[number].get():
            try:
                if self._broken.is_set():
                    raise InterruptedError("the reading has ended")
                passing.memory.take_over(passing.before, stage.first, stage.end, stage.device)
                self._run(number, passing)
            except BaseException as error:  # the main thread raises it
                passing.error = error
                self._broken.set()
                passing.done.set()
                continue
            if following:
                following[0].put(passing)
            else:
                passing.given = None
                passing.done.set()

    def _run(self, number: int, passing: _Passing) -> None:
        """A chunk through one stage, and on its way to the next device."""
        stage, given = self._stages[number], passing.given
        if given is not None:
            passing.given = stage.run(self.lanes.receive(given, passing.arrived), passing.memory)
        passing.marks.append(self.lanes.mark(stage.device))
        if passing.given is not None and number + 1 < len(self._stages):
            to = self._stages[number + 1].device
            passing.given, passing.arrived = self.lanes.send(passing.given, to)


def stages_of(decoder: SplitDecoder, method: Staged) -> list[Stage]:
    """The stages of a model for a method, which take about the same time for a chunk of it."""
    reading = method.options.reading
    cached, part = reading.budget or method.chunk, method.capabilities.last_in_part
    return decoder.stages(Reading(method.depth, method.chunk, cached, part))


def encode_in_stages(
    stages: list[Stage],
    method: Staged,
    chunks: Iterable[Tensor],
    read: int,
    sink: Any,
    before: Callable[[int | None], None],
    during: Callable[[], AbstractContextManager] = nullcontext,
) -> Iterator[int]:
    """Reads chunks as `encode` does; see there.

    Args:
        stages: the model's, up to the method's depth.
        method: it has read what comes before; after each chunk it holds what its snapshot saves.
        chunks: token ids, each of `method.chunk` tokens but the last.
        read: document tokens before the first chunk; below 0 by the tokens of the prefix.
        sink, before, during: as for `encode`.

    Yields:
        After each full chunk, how many document tokens were read.
    """
    size, waiting, ahead = method.chunk, deque[tuple[Tensor, _Passing]](), len(stages) + 1
    start, last, source = method.seen, method, iter(chunks)
    with Pipeline(stages) as pipeline:
        more = True
        while more or waiting:
            while more and len(waiting) < ahead:
                chunk = next(source, None)
                more = chunk is not None
                if chunk is not None:
                    passing = _Passing(chunk, last.following(start), last)
                    start, last = start + len(chunk), passing.memory
                    waiting.append((chunk, passing))
                    pipeline.put(passing)
            if not waiting:
                return
            check()
            chunk, passing = waiting.popleft()
            full = len(chunk) == size
            before(max(0, read + len(chunk)) if full else None)
            with during():
                passing.done.wait()
            if passing.error:
                raise passing.error
            method.become(passing.memory)
            skip = min(len(chunk), max(0, -read))
            # What a method keeps of the prefix is used later, by whatever is current then.
            with nullcontext() if skip else pipeline.lanes.beside(passing.marks):
                for group, rows in method.rows(skip=skip).items():
                    sink.append(group, {name: held(x) for name, x in rows.items()})
            read += len(chunk)
            if full:
                yield max(0, read)
