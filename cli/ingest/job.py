"""What `ingest` is to read, into which library and within which limits: its options, understood.

How it is read, by which model, is `loading.make_setup`'s affair.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from longctx.core.ingest.checkpoints import Cadence
    from longctx.core.sources.rules import Rules


@dataclass(frozen=True)
class Job:
    """One run of `ingest`.

    Attributes:
        paths: files, folders, patterns, `-`; they are there.
        library: the library's folder.
        name: the document's, as the user named it; None: it is named after the first path.
        replace: a document of this name gives way.
        rules: what is read of folders and archives, and how.
        every: tokens and seconds after which a checkpoint is written; None: the usual number.
        max_size: bytes that the library may have; None: as many as the disk has.
    """

    paths: list[str]
    library: Path
    name: str | None
    replace: bool
    rules: "Rules"
    every: tuple[int | None, int | None]
    max_size: int | None

    @property
    def called(self) -> str:
        """The title that the document has or gets, or else its name."""
        from longctx.core.store.naming import called_after

        if self.name is not None:
            return self.name
        name, title = called_after(self.paths[0])
        return title or name

    def require_there(self) -> None:
        """NotFound unless there is a document that is called so."""
        from longctx.core.store.library import Library

        Library.open(self.library).document(self.called)

    def make_shared(self) -> None:
        """Makes the library, for others to read, where there is none."""
        from longctx.core.store.library import Library

        Library.open(self.library, create=True, shared=True)

    def is_there(self) -> bool:
        """Whether there is a document that is called so, and can be read."""
        from longctx.core.common.errors import LongctxError

        try:
            self.require_there()
        except LongctxError:
            return False
        return True

    def cadence(self) -> "Cadence":
        """Says for one document when to write a checkpoint."""
        from longctx.core.ingest.checkpoints import Cadence

        return Cadence.given(*self.every)


def understood(
    paths: list[str],
    library: Path,
    name: str | None,
    replace: bool,
    *,
    hidden: bool,
    no_ignore: bool,
    raw: bool,
    max_unpacked: str | None,
    max_parser_memory: str | None,
    max_parser_time: str | None,
    checkpoint: str | None,
    max_size: str | None,
) -> Job:
    """What the options come to. Takes no time, so that mistakes are told before anything slow.

    Args:
        paths, library, name, replace: as `Job` has them.
        hidden, no_ignore, raw, max_unpacked: what is read of folders and archives, and how.
        max_parser_memory, max_parser_time: what parsing a file may take.
        checkpoint, max_size: as they were typed.

    Raises:
        UsageError: a missing file, or a number that is none.
    """
    from longctx.core.common.units import parse_bytes, parse_seconds, parse_tokens_or_seconds
    from longctx.core.sources.find import check
    from longctx.core.sources.rules import Rules

    sizes = [parse_bytes(size) if size else None for size in (max_unpacked, max_parser_memory)]
    seconds = parse_seconds(max_parser_time) if max_parser_time else None
    rules = Rules(hidden, no_ignore, raw, *sizes, seconds)
    check(paths, rules)
    every = parse_tokens_or_seconds(checkpoint) if checkpoint else (None, None)
    limit = parse_bytes(max_size) if max_size else None
    return Job(paths, library, name, replace, rules, every, limit)
