"""What is to be read, into which document and how; and who hears how it goes."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from longctx.core.common.errors import Locked
from longctx.core.ingest.checkpoints import Cadence
from longctx.core.sources.rules import Rules
from longctx.core.store.naming import called_after, require_name

if TYPE_CHECKING:  # which import torch
    from longctx.core.engine.choice import Setup
    from longctx.core.engine.setup import Engine


INDEXING, ENCODING = "indexing words", "encoding passages"  # phases of progress


@dataclass(frozen=True)
class Job:
    """What is to be read, into which document and how.

    Attributes:
        library: the library's folder; made if absent, unless the document must exist.
        paths: files, folders, patterns, or `-` for standard input.
        setup: model, method and device; an existing document's own settings take precedence.
        name: what the document is called, in any script; None: after the first path.
        replace: replace a finished document of this name with the new state, and start again if
            an unfinished reading of this name is of something else.
        cadence: when to write a checkpoint.
        max_size: bytes that the library may have; None: no limit but the disk.
        passing: by path, what files of `paths` that will not stay are called, such as those that
            were sent to a server; their paths are not recorded.
        rules: what is read from folders and archives, and how.
        engine: the engine that `setup` gives, if already made.
        units: each source is read by itself, so that a later reading takes over what is unchanged;
            False: all sources are one text; None: as the document of this name was read or begun,
            and for a new one each by itself where a path is a folder and the method can.
        vectors: a new document gets a vector for each passage; one that was read or begun goes on
            as it is.
    """

    library: Path
    paths: list[str]
    setup: "Setup"
    name: str | None = None
    replace: bool = False
    cadence: Cadence = field(default_factory=Cadence)
    max_size: int | None = None
    passing: Mapping[str, str] = field(default_factory=dict)
    rules: Rules = field(default_factory=Rules)
    engine: "Engine | None" = None
    units: bool | None = None
    vectors: bool = False
    shard: tuple[int, int] = (1, 1)

    @property
    def called(self) -> str:
        """The document's name; UsageError where it cannot have the one that the user gives."""
        if self.name is not None:
            return require_name(self.name)
        return called_after(self.passing.get(self.paths[0], self.paths[0]))


@dataclass(frozen=True)
class Overall:
    """The progress of many documents together.

    Attributes:
        documents: files that are done, also those that failed.
        of: files in all.
        total: bytes of all files.
        cache: bytes that took no reading in this run.
        processed: bytes done.
        tokens: tokens read in this run.
        time_ms: time since the first one began.
    """

    documents: int
    of: int
    total: int
    cache: int
    processed: int
    tokens: int
    time_ms: int

    @property
    def tokens_per_s(self) -> float:
        """The speed of all readers together in this run."""
        return self.tokens / (max(self.time_ms, 1) / 1000)

    @property
    def left_s(self) -> float | None:
        """Seconds left; None where nothing says how long it takes."""
        read = self.processed - self.cache
        if read <= 0:
            return None
        return max(self.time_ms, 1) / 1000 * max(self.total - self.processed, 0) / read


@dataclass(frozen=True)
class Progress:
    """The progress of an ingest.

    Before the model reads anything, words may be indexed and passages encoded; bytes, tokens and
    time are then those of this phase.

    Attributes:
        total: bytes of all sources; None if unknown, as for a stream.
        cache: bytes taken over from an earlier run.
        processed: bytes read so far.
        tokens: document tokens so far.
        kept: tokens that the last checkpoint holds.
        time_ms: time since the reading began.
        overall: of many documents, the progress of all.
        phase: empty while the model reads the document, else INDEXING or ENCODING.
    """

    total: int | None
    cache: int
    processed: int
    tokens: int
    kept: int
    time_ms: int
    overall: Overall | None = None
    phase: str = ""

    @property
    def tokens_per_s(self) -> float:
        """The speed of this run."""
        read = self.processed - self.cache
        return self.tokens * read / max(self.processed, 1) / (max(self.time_ms, 1) / 1000)

    @property
    def left_s(self) -> float | None:
        """Seconds left; None where nothing says how long it takes."""
        read = self.processed - self.cache
        if self.total is None or not read:
            return None
        return max(self.time_ms, 1) / 1000 * (self.total - self.processed) / read


def _nobody(*told: object, **named: object) -> None:
    """Ignores everything."""


@dataclass(frozen=True)
class Observer:
    """Callbacks about the work; an exception in one of them ends it.

    Attributes:
        progress: called after every chunk with a `Progress` and, if there are many documents, the
            name of its `document`.
        done: called with an `Ingested` when one of many documents is complete, or a followed one
            has grown; and with a `Failed` for one of many files.
        waits: called with the error `Locked` while an appended document waits for the readers of
            the old one.
        empty: called once with a followed file that is still empty.
    """

    progress: Callable[..., None] = _nobody
    done: Callable[..., None] = _nobody
    waits: Callable[[Locked], None] = _nobody
    empty: Callable[[Path], None] = _nobody


NOBODY = Observer()
