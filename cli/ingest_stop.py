"""Ctrl-C while `ingest` reads: it ends soon, and says what is kept and what was finished.

What is on disk is whole at every moment; the same command goes on with it.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from longctx.cli import ingest_each, progress
from longctx.cli.ingest_results import print_one
from longctx.cli.interrupt import within
from longctx.cli.program import Interrupted, finish, tell
from longctx.cli.run import current

if TYPE_CHECKING:
    from longctx.core.each import Each
    from longctx.core.ingest import Ingested, Progress


class Stop:
    """What there is to say when Ctrl-C comes.

    Args:
        json: results are told as JSON objects.

    Attributes:
        followed: what was read of a file that is followed: then Ctrl-C is no error.
        many: what became of each file so far, with --each.
    """

    def __init__(self, json: bool):
        self._json = json
        self._kept: int | None = None  # not known before the first progress
        self._document = ""
        self.followed: Ingested | None = None
        self.many: Each | None = None

    def note(self, state: "Progress", document: str = "") -> None:
        """Notes how far the reading has come, and of which document where there are several."""
        self._kept, self._document = state.kept, document

    def note_done(self) -> None:
        """Notes that a document is done; of the next one nothing is known yet."""
        self._kept = None

    def leave(self) -> Interrupted:
        """Tells what was finished of many documents.

        Returns:
            What to raise.
        """
        if self.many is not None:
            self.many.interrupted = True
            ingest_each.tell(self.many, self._json)
        return Interrupted("interrupted", "", self._remedy())

    def end(self) -> int:
        """Tells all there is to say, from another thread: the process ends then.

        Returns:
            The exit code.
        """
        progress.stop_drawing()
        if self.followed:
            print_one(self.followed, self._json)
            return finish(current(), 0)
        return finish(current(), tell(self.leave(), current()))

    def _remedy(self) -> str:
        if self._kept is None:
            return "The same command goes on with it."
        if not self._kept:
            return f"The same command starts {self._document or 'it'} again."
        of = f" of {self._document}" if self._document else ""
        return f"{self._kept:,} tokens{of} are kept; the same command goes on from there."


@contextmanager
def stoppable(json: bool) -> Iterator[Stop]:
    """Ctrl-C ends the reading soon, with what is kept of it.

    Args:
        json: results are told as JSON objects.

    Returns:
        What is to be told by then.

    Raises:
        Interrupted: by Ctrl-C.
    """
    stop = Stop(json)
    try:
        with within(stop.end):
            yield stop
    except KeyboardInterrupt as error:
        raise stop.leave() from error
