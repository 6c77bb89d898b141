"""Where the time of a short reading goes: chunks, snapshots, files, words, and what waits for what.

    python docs/evaluation/reading_phases.py --tokens 128K --tokens 128K --out phases.jsonl
    python docs/evaluation/reading_phases.py --sizes 32k --tokens 128K --tokens 1M

Reads documents of random tokens one after another as `longctx bench ingest` does; a length that is
given twice is a second document of the same process. Every result is a line of JSON: the reading,
the seconds between the arrivals of its chunks' rows on the host, and each phase with the second of
the reading in which it began, and how long it took. Phases in other threads overlap. With `--disk`,
what the parts of writing a snapshot take alone: pinned memory, the file as safetensors writes it
with its sync, and the file as it is written here.
"""

import argparse
import json
import logging
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from safetensors.torch import save_file

from longctx.core.common.units import parse_tokens
from longctx.core.engine import chunk_graphs
from longctx.core.ingest import document_reading
from longctx.core.ingest.document_reading import DocumentReading
from longctx.core.measure.bench import ingesting
from longctx.core.measure.bench.shapes import Wanted
from longctx.core.store import behind, durable, writer
from longctx.core.store.confined import Confined
from longctx.core.store.shard_writer import write_tensors
from longctx.core.store.writer import Writer

SIZES = {"8k": 8192, "32k": 32768}
CALLS = (  # owner, name of the function, name of the phase; write_tensors tells its group
    (DocumentReading, "_checkpoint", "a checkpoint is begun"),
    (DocumentReading, "_save", "checkpoint"),
    (DocumentReading, "_complete", "completing"),
    (Writer, "growth", "size of what is left"),
    (Writer, "complete", "writing the rest"),
    (Writer, "_write_tables", "words or vectors"),
    (writer, "folded", "comparing with the boundary"),
    (writer, "write_tensors", "file of"),
    (writer, "linked", "second name of"),
    (durable, "fill", "writing and checksums"),
)


class Phases:
    """What happens in one reading.

    Attributes:
        found: name, begin and seconds of each phase, from the reading's begin.
        arrived: when each chunk's rows were on the host.
    """

    def __init__(self):
        self.begin()

    def begin(self) -> None:
        """A reading begins."""
        self.found: list[tuple[str, float, float]] = []
        self.arrived: list[float] = []
        self._began = time.perf_counter()

    def timed(self, call: Callable, name: str) -> Callable:
        """The same call, as a phase."""

        def run(*args: Any, **named: Any) -> Any:
            began = time.perf_counter()
            try:
                return call(*args, **named)
            finally:
                told = f"{name} {args[1]}" if call is WRITE else name
                self.found.append((told, began - self._began, time.perf_counter() - began))

        return run

    def copies(self, call: Callable, rows: bool) -> Callable:
        """`to_host` as a phase, and the arrival of what it copies as another."""
        begun = self.timed(call, "copies are begun")

        def run(*args: Any, **named: Any) -> Any:
            copies, arrive = call(*args, **named) if rows else begun(*args, **named)

            def arrives() -> None:
                arrive()
                self.arrived.append(time.perf_counter() - self._began)

            return copies, arrives if rows else self.timed(arrive, "copies arrive")

        return run

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Inside, phases are noted."""
        with ExitStack() as held:
            for owner, attribute, name in CALLS:
                if call := getattr(owner, attribute, None):
                    held.enter_context(patch.object(owner, attribute, self.method(call, name)))
            for module, rows in ((behind, True), (document_reading, False)):
                found = self.copies(module.to_host, rows)
                held.enter_context(patch.object(module, "to_host", found))
            held.enter_context(patch.object(ingesting, "_run", self.each(ingesting._run)))
            yield

    def method(self, call: Callable, name: str) -> Callable:
        """A function that takes the place of a method."""
        timed = self.timed(call, name)
        return lambda *args, **named: timed(*args, **named)

    def each(self, call: Callable) -> Callable:
        """A reading that begins anew."""

        def run(*args: Any) -> Any:
            self.begin()
            result = call(*args)
            self.told()
            return result

        return run

    def told(self) -> None:
        """The phases of the reading that ended, as a line."""
        whole = time.perf_counter() - self._began
        chunks = [round(end - begin, 4) for begin, end in pairwise([0.0, *self.arrived])]
        last = round(self.arrived[-1], 3)
        tell(
            reading_s=round(whole, 3), chunks_s=chunks[:40], tenths_s=tenths(self.arrived),
            last_rows_s=last,
        )  # fmt: skip
        for name, began, took in sorted(self.found, key=lambda one: one[1]):
            if took > 0.002:
                tell(phase=name, at_s=round(began, 3), took_s=round(took, 4))


def tenths(arrived: list[float]) -> list[float]:
    """Seconds of each tenth of a long reading: whether a GPU gets slower under its load."""
    if len(arrived) < 10:
        return []
    ends = [arrived[len(arrived) * n // 10 - 1] for n in range(1, 11)]
    return [round(end - begin, 3) for begin, end in pairwise([0.0, *ends])]


WRITE = writer.write_tensors
OUT: list[Path] = []


def tell(**fields: Any) -> None:
    """Writes a line."""
    line = json.dumps(fields)
    print(line, flush=True)
    for path in OUT:
        with path.open("a", encoding="utf-8") as file:
            file.write(line + "\n")


def disk(megabytes: int = 720, each: int = 16) -> None:
    """What the parts of writing a snapshot take, one after another."""

    def took(name: str, call: Callable[[], Any]) -> Any:
        began = time.perf_counter()
        result = call()
        tell(alone=name, megabytes=megabytes, took_s=round(time.perf_counter() - began, 4))
        return result

    device = "cuda" if torch.cuda.is_available() else "cpu"
    given = [torch.ones(each << 19, dtype=torch.bfloat16, device=device) for _ in range(45)]
    for turn in ("first", "again"):
        host = took(f"copies to pinned memory, {turn}", lambda: copied(given))
        if turn == "first":
            del host
    tensors = {str(number): tensor for number, tensor in enumerate(host)}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "file"
        for turn in ("first", "again"):
            took(f"file as safetensors writes it, {turn}", lambda: save_file(tensors, path))
            with path.open("rb+") as file:
                took("its sync", lambda: os.fsync(file.fileno()))
        place = Confined(Path(folder)), "memory", "memory-00000.safetensors"
        for turn in ("first", "again"):
            took(f"file, checksums and sync, {turn}", lambda: write_tensors(*place, tensors))


def copied(given: list[torch.Tensor]) -> list[torch.Tensor]:
    """On the host."""
    copies = [tensor.to("cpu", non_blocking=True) for tensor in given]
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return copies


def main() -> None:
    """Reads each document."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--tokens", action="append", type=parse_tokens, help="of a document")
    parser.add_argument("--sizes", default="8k", help="8k or 32k, of chunk and cache")
    parser.add_argument("--shape", default="llama-3.1-8b")
    parser.add_argument(
        "--method", default="reform", help="what keeps everything has its own sizes"
    )
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--precision", help="full or fp8")
    parser.add_argument("--direct", action="store_true", help="no chunk is replayed from a graph")
    parser.add_argument("--chunk", type=parse_tokens, help="of chunk and cache, instead of --sizes")
    parser.add_argument("--disk", action="store_true", help="the parts of writing, alone")
    parser.add_argument("--out", default=None, help="file for the lines")
    given = parser.parse_args()
    OUT.extend([Path(given.out)] if given.out else [])
    if given.disk:
        disk()
    size, phases = given.chunk or SIZES[given.sizes], Phases()
    logging.basicConfig(format="%(message)s")
    logging.getLogger(chunk_graphs.__name__).setLevel(logging.INFO)  # says whether it replays
    most = 0 if given.direct else chunk_graphs.MOST
    with phases.watched(), patch.object(chunk_graphs, "MOST", most):
        wanted = Wanted(
            shape=given.shape, device=given.device, method=given.method, precision=given.precision
        )
        sizes = [(size, size)] if given.method == "reform" else []
        report = ingesting.ingest(wanted, given.tokens or [131072], sizes, on_note=print)
    for one in report.readings:
        tell(
            shape=given.shape, size=size, direct=given.direct, precision=given.precision,
            tokens=one.tokens,
            seconds=one.seconds, floor_s=round(one.floor.seconds, 3), over_floor=one.over_floor,
            checkpoint_s=one.checkpoint_s, peak_gib=round((one.peak_memory or 0) / 2**30, 2),
            processor=report.machine.processor,
        )  # fmt: skip


if __name__ == "__main__":
    main()
