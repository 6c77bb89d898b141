"""Text that `ask --text` is given: read into a library of its own, asked, and deleted.

With --keep it becomes a document of the user's library, as `longctx ingest` would make it.
"""

import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from longctx.cli import progress, render
from longctx.cli.ingest.results import PARTLY_READ, summary, tell_of
from longctx.cli.ingest.stop import stoppable
from longctx.cli.interrupt import ENDING, TERMINATED, first_alone, within
from longctx.cli.program import finish, interrupted, tell
from longctx.cli.run import current
from longctx.core.common.errors import NotFound, UsageError

if TYPE_CHECKING:
    from longctx.core.api.document import Document
    from longctx.core.api.library import Library
    from longctx.core.ingest.job import Progress

STANDARD_INPUT = "-"
PREFIX = "longctx-text-"  # of a folder among the system's temporary ones


@dataclass(frozen=True)
class GivenText:
    """A text that was read.

    Attributes:
        document: what was made of it.
        code: the exit code, where the questions' is 0: that of a part that could not be read.
    """

    document: "Document"
    code: int


@contextmanager
def reading(
    texts: list[str], keep: str | None, library: "Library", json: bool
) -> Iterator[GivenText]:
    """Reads texts into one document, which goes at the end unless it is kept.

    Its model stays loaded for the questions.

    Args:
        texts: files, folders or patterns; `-` is standard input.
        keep: what the document is called in the user's library; None: it is not kept.
        library: that, with the model that reads.
        json: results are JSON objects.

    Raises:
        UsageError: there is no such file, or a document of this name.
        UnreadableInput: nothing in it is text.
        Interrupted: by Ctrl-C or `kill` before it was read.
    """
    from longctx.core.sources.find import check
    from longctx.core.sources.rules import Rules

    check(texts, Rules())
    if keep is not None:
        _require_free(library, keep)
    if STANDARD_INPUT in texts and sys.stdin.isatty():
        render.note("type the text; Ctrl-D at the beginning of a line ends it")
    with ExitStack() as held:
        if keep is None:
            passing = held.enter_context(_passing_library(library))
            document = _read(passing.library, texts, passing.end)
        else:
            document = _read_to_keep(library, texts, keep, json)
        done = document.ingested
        assert done is not None  # it was read here
        render.note(summary(done))
        yield GivenText(document, 0 if tell_of(done) else PARTLY_READ)


def _require_free(library: "Library", name: str) -> None:
    """Refuses the name of a whole document.

    Raises:
        UsageError: there is one.
    """
    try:
        library.document(name)
    except NotFound:
        return
    remedy = "Give --keep another name, or ask that document with --doc and without --text."
    raise UsageError(f"the document '{name}' exists", "", remedy)


def _read_to_keep(library: "Library", texts: list[str], name: str, json: bool) -> "Document":
    with stoppable(json) as stop, progress.reading() as show:

        def on_progress(state: "Progress") -> None:
            stop.note(state)
            show(state)

        return library.ingest(*texts, name=name, method=None, on_progress=on_progress)


def _read(library: "Library", texts: list[str], end: Callable[[int], int]) -> "Document":
    with within(end), progress.reading() as show:
        return library.ingest(*texts, method=None, on_progress=show)


@dataclass(frozen=True)
class _Passing:
    """A library for a text that is not kept.

    Attributes:
        library: it, whose folder is not made yet.
        end: deletes it where the process ends at once, and tells of that; from an exit code to one.
    """

    library: "Library"
    end: Callable[[int], int]


@contextmanager
def _passing_library(own: "Library") -> Iterator[_Passing]:
    """A library in a folder that is its owner's alone, and deleted however the run ends.

    What a run left that was killed outright, the next one deletes.

    Args:
        own: the user's library, whose model it has.

    Raises:
        KeyboardInterrupt: by Ctrl-C outside of an answer, or by `kill`.
    """
    import tempfile

    from longctx.cli.temporary_folders import lock_of, sweep
    from longctx.core.api.library import Library

    sweep(PREFIX)
    folder = Path(tempfile.mkdtemp(prefix=PREFIX))

    def end(code: int) -> int:
        progress.stop_drawing()
        shutil.rmtree(folder, ignore_errors=True)
        return finish(current(), tell(interrupted(code), current()))

    try:
        with first_alone(*ENDING, end=end) as first, lock_of(folder):
            try:
                with Library(folder / "library", own.model, on_note=render.note) as library:
                    yield _Passing(library, end)
            finally:
                if first.came == TERMINATED:  # and not the answer alone
                    raise KeyboardInterrupt(TERMINATED)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
