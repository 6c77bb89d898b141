"""Estimates an ingest before it runs: tokens, disk, memory, time.

Tokens and compressed text are counted over the whole input; memory, time and snapshot size are
measured on a trial of a few chunks, until the snapshot stops growing. What grows with the document
is extrapolated: memory that is held, and chunks that attend to more and more. A CUDA graph, which
the trial does not record, is reckoned to take what reading a chunk does. Nothing is written.
"""

import time
from dataclasses import asdict, dataclass, field
from typing import Any

import torch

from longctx.core.common.device import (
    dtype_name,
    free_memory,
    held_memory,
    peak_memory,
    reset_peak_memory,
    synchronize,
)
from longctx.core.common.errors import UnreadableInput
from longctx.core.contracts.memory import Held
from longctx.core.contracts.method import Growing
from longctx.core.engine.chunk_graphs import recording_bytes
from longctx.core.engine.disk import TOKEN_BYTES, holds, stored_token_bytes
from longctx.core.engine.setup import Engine, prepare
from longctx.core.ingest.job import Job
from longctx.core.ingest.units import BY_SOURCE, tokens_again, units_for
from longctx.core.retrieve.word_sizes import SAMPLE, vector_bytes, word_bytes
from longctx.core.sources.detect import NotText
from longctx.core.sources.find import open_sources
from longctx.core.sources.reader import Source
from longctx.core.store.shard_writer import compress_member, rows_of_shard
from longctx.core.store.shards import MEMBER
from longctx.core.store.space import folder_bytes, free_disk
from longctx.core.tokens.tokens import TokenStream

NEWLINE_BYTES = 8
MANIFEST_BYTES = 4096
FILLED = 32768  # tokens at which to time chunks that attend to everything before them


@dataclass(frozen=True)
class Estimate:
    """What an ingest would take.

    Attributes:
        name: of the document.
        tokens, bytes: of the sources.
        disk_bytes, free_disk_bytes: of the state; free on the disk, or up to the library's limit.
        peak_memory_bytes, free_memory_bytes: on the device, by this process, with a CUDA graph of
            a chunk if one is recorded, though not without room for it; None if unknown.
        host_bytes, free_host_bytes: of pinned memory on the host of a GPU; free there.
        seconds, tokens_per_s: for the whole reading, from the trial's rate.
        method, device, dtype: what it would be read with.
        fits: whether the state fits on the disk and what is held fits in memory.
        sources: how many would be read.
        skipped, left_out: why others would not, as in `Ingested`.
    """

    name: str
    tokens: int
    bytes: int
    disk_bytes: int
    free_disk_bytes: int
    peak_memory_bytes: int | None
    free_memory_bytes: int | None
    host_bytes: int
    free_host_bytes: int | None
    seconds: float
    tokens_per_s: float
    method: str
    device: str
    dtype: str
    fits: bool
    sources: int = 1
    skipped: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """The JSON object of `ingest --dry-run`."""
        return {"schema_version": 1, **asdict(self)}


def plan(job: Job) -> Estimate:
    """Measures what reading a job's sources would take.

    Raises:
        UsageError, UnreadableInput, LongctxError: as `read`.
    """
    sources = open_sources(job.paths, job.rules, job.passing)
    engine = job.engine or prepare(job.setup)
    by_source = units_for(job, engine.method_name) == BY_SOURCE
    started = time.perf_counter()
    count = _Count(engine, sources)
    counted = time.perf_counter() - started
    longest = max(count.of_sources) if by_source else count.tokens
    trial = _Trial(engine, count.tokens, count.unsafe, longest)
    if by_source:
        # Each source had a snapshot of its own.
        again = tokens_again(count.of_sources, len(engine.prompt.prefix()))
        trial.snapshot_bytes = 0
        trial.kept_bytes = 0 if trial.can_leave_out(again) else trial.row_bytes
    disk = count.text_bytes + count.word_bytes + MANIFEST_BYTES + trial.snapshot_bytes
    disk += count.tokens * (count.token_bytes + trial.kept_bytes)
    disk += vector_bytes(count.of_sources) if job.vectors else 0
    seconds, free = counted + trial.seconds, _free_disk(job)
    return Estimate(
        name=job.called,
        tokens=count.tokens,
        bytes=count.bytes,
        disk_bytes=disk,
        free_disk_bytes=free,
        peak_memory_bytes=_peak(engine, trial, count.tokens),
        free_memory_bytes=trial.free,
        host_bytes=trial.held.host,
        free_host_bytes=free_memory("cpu"),
        seconds=round(seconds, 1),
        tokens_per_s=round(count.tokens / seconds, 1),
        method=engine.method_name,
        device=engine.device,
        dtype=dtype_name(engine.dtype),
        fits=disk <= free and holds(engine, trial.held),
        sources=len(sources) - len(count.skipped) - len(count.left_out),
        skipped=count.skipped,
        left_out=count.left_out,
    )


def _peak(engine: Engine, trial: "_Trial", tokens: int) -> int | None:
    """Peak bytes on the device while so many tokens are read; None if unknown."""
    if trial.peak is None:
        return None
    peak = max(trial.loaded or 0, trial.peak + trial.held.device + trial.recording)
    row = TOKEN_BYTES + trial.row_bytes
    if engine.device == "cpu":
        # A shard is held twice: as rows and as the bytes of its file.
        peak += 2 * row * min(tokens, rows_of_shard(row))
    return peak


def _free_disk(job: Job) -> int:
    """Bytes that the library may still take."""
    free = free_disk(job.library)
    if job.max_size is None:
        return free
    return min(free, max(0, job.max_size - folder_bytes(job.library)))


class _Count:
    """Tokens of the sources, how many of the last are not safe, bytes of text and words stored.

    Attributes:
        of_sources: tokens of each source.
        token_bytes: bytes stored of each token.
    """

    def __init__(self, engine: Engine, sources: list[Source]):
        self.tokens, self.text_bytes, self.bytes, self.unsafe, self._read = 0, 0, 0, 0, 0
        self.skipped: list[str] = []
        self.left_out: list[str] = []
        self.of_sources: list[int] = []
        self._waiting, self._first = bytearray(), bytearray()
        self._last_id = self._largest = 0  # the last id in the vocabulary that occurs; a source
        stream = TokenStream(engine.files.tokenizer)
        for source in sources:
            self._add(source, stream)
        if not self.tokens:
            raise UnreadableInput("nothing to read", " ".join(self.skipped or self.left_out[:3]))
        self.text_bytes += len(compress_member(bytes(self._waiting)))
        self.token_bytes = stored_token_bytes(self._last_id, self._largest)
        self.word_bytes = word_bytes(bytes(self._first), self._read, self.tokens)

    def _add(self, source: Source, stream: TokenStream) -> None:
        before = self.tokens
        try:
            for piece in stream.read(source, self._take):
                self.tokens += len(piece.ids)
                self._last_id = max(self._last_id, int(piece.ids.max(initial=0)))
                self.unsafe = len(piece.ids)  # of the last piece: more text may change them
            self.of_sources.append(self.tokens - before)
            self.bytes += source.size
            self._largest = max(self._largest, source.size)
        except UnreadableInput as error:
            if source.size:
                raise
            quiet = source.found and isinstance(error, NotText)
            (self.left_out if quiet else self.skipped).append(str(error))

    def _take(self, data: bytes) -> None:
        self.text_bytes += NEWLINE_BYTES * data.count(b"\n")
        self._read += len(data)
        self._first += data[: SAMPLE - len(self._first)]
        self._waiting += data
        while len(self._waiting) >= MEMBER:
            self.text_bytes += len(compress_member(bytes(self._waiting[:MEMBER])))
            del self._waiting[:MEMBER]


class _Trial:
    """What reading random tokens takes, and what the whole reading would take.

    Attributes:
        snapshot_bytes, kept_bytes: of the snapshots, and of each token's rows, that are kept.
        row_bytes: of each token's rows while it is read.
        seconds: for all tokens.
        held: memory at the end, beyond what the trial held.
        loaded, peak: peak memory on the device before the trial and during it; None if unknown.
        recording: what a CUDA graph of a chunk takes there; 0: none is recorded.
        free: memory free on the device before the trial; None if unknown.
    """

    def __init__(self, engine: Engine, tokens: int, unsafe: int, longest: int):
        self.free, self.loaded = free_memory(engine.device), peak_memory(engine.device)
        reset_peak_memory(engine.device)
        method = engine.new_method(reading=True)
        total = tokens + len(engine.prompt.prefix())
        self._engine, self._method = engine, method
        self.snapshot_bytes, self.row_bytes = 0, method.row_bytes()
        self.kept_bytes = self.row_bytes
        seconds, size, done, before, growth = 0.0, 1, 0, -1, 0
        while total - done >= method.chunk and self.snapshot_bytes != before + growth:
            before, size = self.snapshot_bytes, method.chunk
            seconds = self._read(size)
            growth = self._growth(done, done + size)
            done += size
        settled = done
        # The boundary needs its own snapshot if its chunk ends before the last whole one.
        more = (total - done) % method.chunk < unsafe and done > 0
        if (total - done) % method.chunk:
            rest = (total - done) % method.chunk
            took, done = self._read(rest), done + rest
            seconds, size = (took, rest) if not seconds else (seconds, size)
        self.snapshot_bytes += self._growth(done, total)
        self.snapshot_bytes *= 1 + more
        if self.can_leave_out(total):
            self.snapshot_bytes = self.kept_bytes = 0
        now, end = method.held_bytes(done), method.held_bytes(total)
        self.held = Held(end.device - now.device, end.host - now.host)
        self.peak = peak_memory(engine.device)  # before memory is filled for measurements
        self.recording = self._recording(longest - settled)
        self.seconds = (seconds + self._slower(seconds, done, total) / 2) * total / size

    def can_leave_out(self, tokens: int) -> bool:
        """See `Engine.can_leave_out`."""
        return self._engine.can_leave_out(self._method, tokens)

    def _recording(self, tokens: int) -> int:
        """Bytes of a recording on the device, where so many tokens are read behind the trial's."""
        chunks = (tokens + len(self._engine.prompt.prefix())) // self._method.chunk
        work = (self.peak or 0) - (held_memory(self._engine.device) or self.peak or 0)
        return recording_bytes(self._engine.reader, self._method, chunks, work)

    def _growth(self, done: int, total: int) -> int:
        """Bytes by which the snapshot grows from `done` to `total` if nothing is evicted."""
        if not isinstance(self._method, Growing):
            return 0
        size = self._engine.dtype.itemsize
        after, before = (self._method.snapshot_bytes(n, size) for n in (total, done))
        return after - before

    def _slower(self, seconds: float, done: int, total: int) -> float:
        """How many seconds longer the last chunk takes than one at the start."""
        method, filled = self._method, min(total, FILLED)
        if filled <= done or not isinstance(method, Growing):
            return 0.0
        method.fill(filled)
        self._read(method.chunk)  # the first pass allocates its memory
        more = self._read(method.chunk) - seconds
        return max(0.0, more) * (total - done) / (filled - done)

    def _read(self, tokens: int) -> float:
        """Seconds of one chunk."""
        size = self._engine.files.config.vocab_size
        started = time.perf_counter()
        self._engine.reader.read(torch.randint(size, (tokens,)), self._method, self._method.depth)
        self._method.rows()
        snapshot = self._method.snapshot()
        synchronize(self._engine.device)
        self.snapshot_bytes = sum(t.numel() * t.element_size() for t in snapshot.values())
        return time.perf_counter() - started
