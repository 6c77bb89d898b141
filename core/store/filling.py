"""Fills a file from pieces of memory: threads write it and compute its checksums on the way.

The disk takes over what has come while the rest is still written: a large file waits for it only
once, and is not read again. Knows nothing of names or formats.
"""

import io
import os
import threading
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from itertools import islice

from xxhash import xxh3_128

from longctx.core.store import shards
from longctx.core.store.open_files import in_threads

Piece = bytes | bytearray | memoryview  # memory views are of bytes

RUN_BLOCKS = 8  # that a thread writes at a time
AT_ONCE = 16  # runs that are written before the disk is asked to take them

_turn = threading.Lock()  # where writing moves a file's position, which all threads share


def fill(file: io.FileIO, pieces: Iterable[Piece]) -> list[str]:
    """Writes pieces one after another from the file's beginning.

    Files of up to one run get no thread: Python waits forever for a thread that finds no memory.

    Args:
        file: empty, and not buffered; the caller syncs it.
        pieces: one after another.

    Returns:
        The xxh3-128 of each block of the file.

    Raises:
        OSError: they cannot be written.
    """
    size = RUN_BLOCKS * shards.BLOCK
    runs, blocks, first = _runs(pieces, size), list[str](), 0
    with _Syncing(file.fileno()) as disk:
        while some := [*islice(runs, AT_ONCE)]:
            found: list[list[str]] = [[] for _ in some]
            calls = []
            for place, run in enumerate(some):
                calls.append(partial(_written, file, first + size * place, run, found[place]))
            if first:
                disk.take()
            in_threads(calls)
            blocks += [block for each in found for block in each]
            first += size * len(some)
    return blocks


class _Syncing:
    """Has the disk take what a file has so far, in a thread of its own; raises what failed.

    Args:
        number: of the open file.
    """

    def __init__(self, number: int):
        self._number = number
        self._pool: ThreadPoolExecutor | None = None
        self._taking: Future[None] | None = None

    def __enter__(self) -> "_Syncing":
        return self

    def __exit__(self, *error: object) -> None:
        if self._pool:
            self._pool.shutdown()
        if self._taking and error[0] is None:
            self._taking.result()  # the system tells a failure once: the last sync may not

    def take(self) -> None:
        """Unless it is still taking what came before."""
        if self._taking:
            if not self._taking.done():
                return
            self._taking.result()
        self._pool = self._pool or ThreadPoolExecutor(1, "longctx-sync")
        self._taking = self._pool.submit(getattr(os, "fdatasync", os.fsync), self._number)


def _runs(pieces: Iterable[Piece], size: int) -> Iterator[list[memoryview]]:
    """Parts of pieces, `size` bytes in each run; the last one may have less."""
    run: list[memoryview] = []
    room = size
    for piece in pieces:
        view = memoryview(piece)
        while view:
            part, view = view[:room], view[room:]
            run.append(part)
            room -= len(part)
            if not room:
                yield run
                run, room = [], size
    if run:
        yield run


def _written(file: io.FileIO, start: int, run: list[memoryview], blocks: list[str]) -> None:
    """Writes one run at its place; `blocks` gets its checksums."""
    blocks += _checksums(run)
    for part in run:
        _put(file, start, part)
        start += len(part)


def _put(file: io.FileIO, start: int, data: memoryview) -> None:
    while data:
        if hasattr(os, "pwrite"):
            done = os.pwrite(file.fileno(), data, start)
        else:
            with _turn:
                file.seek(start)
                done = file.write(data) or 0
        start, data = start + done, data[done:]


def _checksums(run: list[memoryview]) -> Iterator[str]:
    """The xxh3-128 of each block of a run, whose parts end anywhere."""
    digest, room = xxh3_128(), shards.BLOCK
    for part in run:
        view = part
        while view:
            some, view = view[:room], view[room:]
            digest.update(some)
            room -= len(some)
            if not room:
                yield digest.hexdigest()
                digest, room = xxh3_128(), shards.BLOCK
    if room < shards.BLOCK:
        yield digest.hexdigest()
