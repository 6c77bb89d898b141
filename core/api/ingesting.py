"""What a library does with files: reads them, one document or many, again, and as they grow."""

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

from longctx.core.api.document import Document
from longctx.core.api.model import Model

if TYPE_CHECKING:
    from longctx.core.api.reading import Reading
    from longctx.core.ingest.ingested import Ingested
    from longctx.core.ingest.job import Progress
    from longctx.core.ingest.many import Each, Failed
    from longctx.core.ingest.plan import Estimate


class Ingesting(ABC):
    """A library as far as it reads files.

    Attributes:
        path: the folder.
    """

    path: Path

    @abstractmethod
    def __getitem__(self, name: str) -> Document: ...

    @abstractmethod
    def document(self, name: str | None = None, partial: bool = False) -> Document:
        """A document that can be asked."""

    @abstractmethod
    def _model(self, model: Model | str | None) -> Model:
        """The model that is named."""

    @abstractmethod
    def _let_go(self, folders: Sequence[str]) -> None:
        """Closes documents, so that they can be replaced or deleted."""

    def ingest(
        self,
        *paths: str | os.PathLike[str],
        name: str | None = None,
        replace: bool = False,
        append: str | Document | None = None,
        units: bool | None = None,
        on_progress: "Callable[[Progress], None] | None" = None,
        **how: "Unpack[Reading]",
    ) -> Document:
        """Reads files into one document, or into one that is there and has grown.

        The same call goes on with a reading that was stopped, by an exception of `on_progress` too,
        and is soon done where nothing has changed. Questions to the same model, of other threads,
        are answered meanwhile.

        Args:
            paths: files, folders, archives or patterns; "-" is standard input.
            name: what the document is called; None: after the first path.
            replace: replace a document of this name, and what was begun of something else.
            append: the document to extend, as if all had been read at once.
            units: read each file by itself, so that a later reading takes over what is unchanged;
                None: as by default.
            on_progress: gets a `Progress` after every chunk.
            how: options of the reading; see `Reading`.

        Raises:
            UsageError: a file is missing, a name unknown, or an option does not fit.
            UnreadableInput: no source could be read.
            Locked: another process reads a document of this name.
            LongctxError: no room for the model or the state.
        """
        from longctx.core.api.reading import reading

        extended = None if append is None else named(append)
        with reading(self.path, self._let_go, self._model(how.get("model")), how) as work:
            done, folder = work.read(paths, name, replace, extended, units, on_progress)
        document = self[folder]
        document.ingested = done
        return document

    def ingest_each(
        self,
        *paths: str | os.PathLike[str],
        replace: bool = False,
        on_progress: "Callable[..., None] | None" = None,
        on_done: "Callable[[Ingested | Failed], None] | None" = None,
        result: "Each | None" = None,
        workers: int | None = None,
        shard: str | None = None,
        retry: int = 0,
        ray: str | None = None,
        **how: "Unpack[Reading]",
    ) -> "Each":
        """Makes a document of every file, named after its path, and goes on past failures.

        Args:
            paths, replace, how: as of `ingest`.
            workers: processes that read at the same time, each with a model of its own; a script
                that asks for several needs `if __name__ == "__main__":` around what it does. None:
                one; with `ray`, as many as there is room for.
            shard: "i/n": only the i-th of n parts, for n calls that share the work.
            retry: how often a file that failed is tried again.
            ray: address of a Ray cluster whose hosts read: "auto", "host:port", or "local" for one
                that is started here; needs the package `ray`.
            on_progress: gets a `Progress` after every chunk, and the name as `document`; its
                `overall` is that of all documents.
            on_done: gets what became of each file.
            result: is filled as files are done, so that it can be used if that is interrupted.

        Raises:
            LongctxError: as `ingest`, where it would fail for every file.
        """
        from longctx.core.api.reading import reading

        with reading(self.path, self._let_go, self._model(how.get("model")), how) as work:
            return work.each(
                paths, replace, on_progress, on_done, result, workers, shard, retry, ray
            )

    def follow(
        self,
        *paths: str | os.PathLike[str],
        name: str | None = None,
        as_wanted: bool = False,
        on_progress: "Callable[[Progress], None] | None" = None,
        on_step: "Callable[[Ingested], None] | None" = None,
        on_wait: Callable[[Exception], None] | None = None,
        on_empty: Callable[[Path], None] | None = None,
        **how: "Unpack[Reading]",
    ) -> "Ingested":
        """Reads files, and then what is added to the last one, until Ctrl-C.

        Args:
            paths, name, on_progress, how: as of `ingest`.
            as_wanted: a document that is there must have been read as `how` says.
            on_step: gets what the document holds, at first and after each time that it has grown.
            on_wait: gets the reason while it waits for readers of the document.
            on_empty: gets the last file, if it is empty yet.

        Raises:
            LongctxError: as `ingest`; or the file was rewritten, cut or moved.
        """
        from longctx.core.api.reading import reading

        with reading(self.path, self._let_go, self._model(how.get("model")), how) as work:
            hears = {"done": on_step, "waits": on_wait, "empty": on_empty}
            return work.follow(paths, name, as_wanted, progress=on_progress, **hears)

    def plan(
        self,
        *paths: str | os.PathLike[str],
        name: str | None = None,
        replace: bool = False,
        units: bool | None = None,
        **how: "Unpack[Reading]",
    ) -> "Estimate":
        """What `ingest` would need: tokens, disk, memory and time; nothing is stored.

        Raises:
            LongctxError: as `ingest`.
        """
        from longctx.core.api.reading import reading

        with reading(self.path, self._let_go, self._model(how.get("model")), how) as work:
            return work.plan(paths, name, replace, units)

    def standing(
        self,
        *paths: str | os.PathLike[str],
        name: str | None = None,
        append: str | Document | None = None,
        partial: bool = False,
    ) -> Document | None:
        """The document that `ingest` of these would go on with, or find in its way; None: none.

        Args:
            paths, name, append: as of `ingest`.
            partial: an unfinished one counts too.

        Raises:
            NotFound: there is no document to append to.
        """
        from longctx.core.api.reading import standing

        extended = None if append is None else named(append)
        found = standing(self.path, [os.fspath(path) for path in paths], name, extended, partial)
        return found and self.document(found.folder, partial)


def named(document: str | Document) -> str:
    """What a document is called so that nothing else is meant."""
    return document.folder if isinstance(document, Document) else document
