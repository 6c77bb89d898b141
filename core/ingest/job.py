"""What is to be read, into which document and how; and who hears how it goes."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from longctx.core.ingest.checkpoints import Cadence
from longctx.core.sources.rules import Rules
from longctx.core.store.naming import called, called_after

if TYPE_CHECKING:  # which import torch
    from longctx.core.engine.choice import Setup
    from longctx.core.engine.setup import Engine


@dataclass(frozen=True)
class Job:
    """What is to be read, into which document and how.

    Attributes:
        library: the library's folder; made if absent, but for a document that is to be there.
        paths: files, folders, patterns, or `-` for standard input.
        setup: model, method and device; how a document that is there is read on, it says itself.
        name: what the document is called, in any script; None: after the first path.
        replace: put the new state in the place of a finished one of this name, and begin anew
            where a reading of this name was begun from something else.
        cadence: when to write a checkpoint.
        max_size: bytes that the library may have; None: as many as the disk has.
        rules: what is read of folders and archives, and how.
        engine: what `setup` comes to, where that is known.
    """

    library: Path
    paths: list[str]
    setup: "Setup"
    name: str | None = None
    replace: bool = False
    cadence: Cadence = field(default_factory=Cadence)
    max_size: int | None = None
    rules: Rules = field(default_factory=Rules)
    engine: "Engine | None" = None

    def names(self) -> tuple[str, str | None]:
        """The document's name, and its title where that is another."""
        return called_after(self.paths[0]) if self.name is None else called(self.name)

    @property
    def called(self) -> str:
        """What the user calls the document, or else its title or name."""
        name, title = self.names()
        return self.name or title or name


def _nobody(*told: object, **named: object) -> None:
    """Hears nothing."""


@dataclass(frozen=True)
class Observer:
    """Who hears how the work goes; what one of these raises ends it.

    Attributes:
        progress: called after every chunk with a `Progress`, and of many documents with the name
            of the `document` that it is of.
        done: called with an `Ingested` when one of many documents is whole, or one that is
            followed has become longer; and with a `Failed` for a file of many.
        waits: called with the error `Locked` while a longer document waits for the readers of the
            one before.
        empty: called once with a file that is followed and has nothing in it yet.
    """

    progress: Callable[..., None] = _nobody
    done: Callable[..., None] = _nobody
    waits: Callable[..., None] = _nobody
    empty: Callable[[Path], None] = _nobody


NOBODY = Observer()
