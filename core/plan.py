"""What an ingest would take, said before it is run: tokens, disk, memory, time.

Tokens and compressed text are counted over the whole input; memory, time and the size of the
snapshot are measured on a trial of a few chunks, until the snapshot grows no more. Nothing is
written.
"""

import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from longctx.core.device import dtype_name, free_memory, peak_memory
from longctx.core.disk import row_bytes
from longctx.core.reader import Source, open_sources
from longctx.core.setup import Engine, Setup, prepare
from longctx.core.store.places import document_name
from longctx.core.store.shard_writer import SHARD_ROWS, compress_member
from longctx.core.store.shards import MEMBER
from longctx.core.store.space import folder_bytes, free_disk
from longctx.core.tokens import TokenStream

NEWLINE_BYTES = 8
MANIFEST_BYTES = 4096


@dataclass(frozen=True)
class Plan:
    """What an ingest would take.

    Attributes:
        name: of the document.
        tokens, bytes: of the sources.
        disk_bytes, free_disk_bytes: of the state; free on the disk, or up to the library's limit.
        peak_memory_bytes, free_memory_bytes: on the device, by this process; None where unknown.
        seconds, tokens_per_s: for the whole reading, from the trial's rate.
        method, device, dtype: what it would be read with.
        fits: whether the state fits the disk.
    """

    name: str
    tokens: int
    bytes: int
    disk_bytes: int
    free_disk_bytes: int
    peak_memory_bytes: int | None
    free_memory_bytes: int | None
    seconds: float
    tokens_per_s: float
    method: str
    device: str
    dtype: str
    fits: bool

    def as_dict(self) -> dict[str, Any]:
        """The JSON object of `ingest --dry-run`."""
        return {"schema_version": 1, **asdict(self)}


def plan(
    library: Path,
    paths: list[str],
    setup: Setup,
    name: str | None = None,
    max_size: int | None = None,
) -> Plan:
    """Measures what `ingest` with the same arguments would take.

    Raises:
        UsageError, UnreadableInput, LongctxError: as `ingest`.
    """
    sources = open_sources(paths)
    engine = prepare(setup)
    started = time.perf_counter()
    count = _Count(engine, sources)
    counted = time.perf_counter() - started
    trial = _Trial(engine, count.tokens)
    row = row_bytes(engine)
    disk = count.text_bytes + count.tokens * row + trial.snapshot_bytes + MANIFEST_BYTES
    peak = peak_memory(engine.device)
    if peak is not None and engine.device == "cpu":
        # A shard is held once in rows and once as the bytes of its file.
        peak += 2 * min(count.tokens, SHARD_ROWS) * row
    seconds = counted + count.tokens * trial.seconds_per_token
    free = free_disk(library)
    if max_size is not None:
        free = min(free, max(0, max_size - folder_bytes(library)))
    return Plan(
        name=name or document_name(paths[0]),
        tokens=count.tokens,
        bytes=count.bytes,
        disk_bytes=disk,
        free_disk_bytes=free,
        peak_memory_bytes=peak,
        free_memory_bytes=free_memory(engine.device),
        seconds=round(seconds, 1),
        tokens_per_s=round(count.tokens / seconds, 1),
        method=engine.method_name,
        device=engine.device,
        dtype=dtype_name(engine.dtype),
        fits=disk <= free,
    )


class _Count:
    """Tokens of the sources, and the bytes that their text takes in the store."""

    def __init__(self, engine: Engine, sources: list[Source]):
        self.tokens, self.text_bytes, self.bytes = 0, 0, 0
        self._waiting = bytearray()
        stream = TokenStream(engine.files.tokenizer)
        for source in sources:
            self.tokens += sum(len(piece.ids) for piece in stream.read(source, self._take))
            self.bytes += source.size
        self.text_bytes += len(compress_member(bytes(self._waiting)))

    def _take(self, data: bytes) -> None:
        self.text_bytes += NEWLINE_BYTES * data.count(b"\n")
        self._waiting += data
        while len(self._waiting) >= MEMBER:
            self.text_bytes += len(compress_member(bytes(self._waiting[:MEMBER])))
            del self._waiting[:MEMBER]


class _Trial:
    """Seconds a token and the bytes of the snapshot, from reading random tokens."""

    def __init__(self, engine: Engine, tokens: int):
        method = engine.new_method()
        total = tokens + len(engine.prompt.prefix())
        whole, tail = divmod(total, method.chunk)
        self._engine, self._method = engine, method
        self.seconds_per_token, self.snapshot_bytes, grown = 0.0, 0, -1
        while whole and grown != self.snapshot_bytes:
            grown, whole = self.snapshot_bytes, whole - 1
            self._read(method.chunk)
            method.end_chunk()
        if tail:
            self._read(tail)

    def _read(self, tokens: int) -> None:
        size = self._engine.files.config.vocab_size
        started = time.perf_counter()
        self._engine.decoder.read(torch.randint(size, (tokens,)), self._method, self._method.depth)
        self._method.rows()
        snapshot = self._method.snapshot()
        seconds = (time.perf_counter() - started) / tokens
        if tokens == self._method.chunk or not self.seconds_per_token:
            self.seconds_per_token = seconds
        self.snapshot_bytes = sum(t.numel() * t.element_size() for t in snapshot.values())
