"""Follows a growing file: appends to its document whenever enough has arrived, until Ctrl-C.

The file is checked once a second and never kept open; the model is loaded once. `append.py` does
the appending.
"""

import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from stat import S_ISREG

from longctx.core.common.device import dtype_name
from longctx.core.common.errors import Locked, NotFound, UsageError
from longctx.core.engine.choice import Setup
from longctx.core.engine.setup import Engine, prepare
from longctx.core.ingest.append import append
from longctx.core.ingest.ingest import read
from longctx.core.ingest.ingested import Ingested
from longctx.core.ingest.job import NOBODY, Job, Observer
from longctx.core.ingest.resume import engine_for, read_in_dtype, read_otherwise
from longctx.core.ingest.units import BY_SOURCE
from longctx.core.sources.find import open_sources
from longctx.core.sources.naming import kind_of, layers
from longctx.core.sources.rules import Rules
from longctx.core.store.document import Document
from longctx.core.store.library import Library
from longctx.core.store.manifest import Manifest

POLL = 1.0  # seconds between two checks of the file
PAUSE = 10.0  # seconds after which even less than a chunk is read


def follow(
    job: Job,
    observer: Observer = NOBODY,
    as_wanted: bool = False,
    wait: Callable[[float], None] = lambda seconds: time.sleep(seconds),
) -> Ingested:
    """Reads files, and then whatever is added to the last one, until Ctrl-C.

    Args:
        job: its last path is a file, which is followed; its document is made if absent, else
            appended to.
        observer: hears about progress, about the document at first and after each append, about
            waiting for readers, and that the last file is still empty.
        as_wanted: an existing document must have been read with the setup's method, options and
            profile; otherwise its own are used, whatever the setup says.
        wait: waits for so many seconds.

    Returns:
        What the document holds at Ctrl-C, if there is one by then.

    Raises:
        as `read` and `append`; also where the file was rewritten, cut or rotated.
        UsageError: an existing document was read in another way, and `as_wanted` is true; or
            its files were read one by one.
    """
    file = Path(job.paths[-1])
    _require_plain(job.paths[-1], job.rules)
    store, name = Library.open(job.library, create=True), job.called
    document, engine = _begin(store, name, job.setup, as_wanted)
    if not _ends_with(document, file):
        _wait_for_bytes(file, observer, wait)
    job = replace(job, name=name, replace=False, engine=engine, units=False)
    if document:
        done = append(job, observer)
    else:
        done = read(job, observer)
        job = replace(job, engine=_engine_now(store.document(name), engine, job.setup))
    job = replace(job, paths=job.paths[-1:])
    try:
        observer.done(done)
        per_token = done.bytes / max(1, done.tokens)
        growth = _Growth(file, _read(store, name), int(engine.new_method().chunk * per_token))
        while True:
            new = _longer(job, observer, store) if growth.is_due() else None
            if new:
                growth.note(_read(store, name))
            if new and new.bytes != done.bytes:  # also one that only had to be published
                done = replace(new, status="complete")
                observer.done(done)
            else:
                wait(POLL)  # with nothing to read now, perhaps next time too
    except KeyboardInterrupt:
        return done


def _longer(job: Job, observer: Observer, store: Library) -> Ingested | None:
    """The result of an append; None where it waits for readers."""
    try:
        return append(job, observer)
    except Locked as why:
        if not store.is_waiting(job.called):
            raise
        observer.waits(why)
        return None


def _require_plain(path: str, rules: Rules) -> None:
    """Refuses what cannot be followed as it grows.

    Raises:
        UsageError: it is not a file, or one that is unpacked or converted.
    """
    what, file = f"cannot follow '{path}'", Path(path)
    if file.is_dir():
        raise UsageError(what, "it is a folder", "Name the file in it that grows.")
    if not file.is_file():
        raise UsageError(what, "it is not a file", "Name the file that grows last.")
    if layers(path)[1] or kind_of(path):
        raise UsageError(what, "it is compressed or an archive", "Name a file of text last.")
    if any(source.made for source in open_sources([path], rules)):
        why = "it would be converted, which takes the whole file each time"
        raise UsageError(what, why, "Add --raw to read the text that it is written in.")


def _begin(
    store: Library, name: str, setup: Setup, as_wanted: bool
) -> tuple[Document | None, Engine]:
    """The document, if there is one already, and the engine to read it with."""
    try:
        document = store.document(name)
    except NotFound:
        return None, prepare(setup)
    _require_one_text(document.manifest)
    engine = engine_for(document, setup)
    if as_wanted:
        _require_read_as(document, setup)
    return document, engine


def _require_one_text(manifest: Manifest) -> None:
    """UsageError where a file of a document is read whole when it has changed."""
    if manifest.units == BY_SOURCE:
        raise UsageError(
            f"cannot follow for '{manifest.name}'",
            "each of its files was read by itself, and is read whole when it has grown",
            "Give another --name. Or read it as one text first, with ingest --replace --no-units.",
        )


def _engine_now(document: Document, engine: Engine, setup: Setup) -> Engine:
    """The same engine, or another one if a resumed reading has another number format."""
    same = read_in_dtype(document.manifest) == dtype_name(engine.dtype)
    return engine if same else engine_for(document, setup)


def _require_read_as(document: Document, setup: Setup) -> None:
    """UsageError where a document was read in another way."""
    manifest = document.manifest
    wanted = prepare(replace(setup, model=setup.model or manifest.model["name"]))
    if why := read_otherwise(wanted, manifest):
        raise UsageError(
            f"cannot follow for '{manifest.name}' in the way that is wanted",
            f"{why}, and is read on as it was begun",
            "Leave out --method, --profile, --keep-kv and --kv-dtype, or give another --name.",
        )


def _ends_with(document: Document | None, file: Path) -> bool:
    """Whether a file is a document's last source: if so and it is empty now, it was cut."""
    return document is not None and document.manifest.sources[-1].path == str(file.resolve())


def _wait_for_bytes(file: Path, observer: Observer, wait: Callable[[float], None]) -> None:
    """Waits until a file is not empty, even if it is moved meanwhile."""
    if not _look(file)[1]:
        observer.empty(file)
    while not _look(file)[1]:
        wait(POLL)


def _read(store: Library, name: str) -> int:
    """Bytes of its last source that a document has."""
    return store.document(name).manifest.sources[-1].size


class _Growth:
    """How much a file has grown since it was read.

    Args:
        file: the file.
        size: bytes of it that were read.
        chunk: new bytes that are worth an append.
    """

    def __init__(self, file: Path, size: int, chunk: int):
        self._file, self._size, self._chunk = file, size, chunk
        self._looks = 0  # checks since it has grown
        self._inode = _look(self._file)[0]

    def is_due(self) -> bool:
        """Whether to read it now: it grew enough or a while ago, or is no longer the same file."""
        inode, size = _look(self._file)
        if size is None:
            return False  # moved away; another may replace it
        if size < self._size or inode != self._inode:
            return True  # the append reports what is wrong
        if size > self._size:
            self._looks += 1
        return size - self._size >= self._chunk or self._looks * POLL > PAUSE

    def note(self, size: int) -> None:
        """Notes that `size` bytes of it were read."""
        self._size, self._looks, self._inode = size, 0, _look(self._file)[0]


def _look(file: Path) -> tuple[int | None, int | None]:
    """A file's inode number and size in bytes; None for each if it is missing or out of reach.

    Something that is not a file, such as a pipe that replaced it, cannot grow.
    """
    try:
        status = os.stat(file)
    except OSError:
        return None, None
    return (status.st_ino, status.st_size) if S_ISREG(status.st_mode) else (None, None)
