"""Ctrl-C or `kill` while `ingest` reads: it ends soon, and says what is kept and finished.

The state on disk is whole at every moment; the same command resumes from it.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, NoReturn

import typer

from longctx.cli import progress, render
from longctx.cli.ingest.results import show, tell_many
from longctx.cli.interrupt import PRESSED_AGAIN, code_of, within
from longctx.cli.program import Interrupted, finish, interrupted, tell
from longctx.cli.run import current

if TYPE_CHECKING:
    from longctx.core.ingest.ingested import Ingested
    from longctx.core.ingest.job import Progress
    from longctx.core.ingest.many import Each


class Stop:
    """What to report on Ctrl-C or `kill`, or when an error ends the reading of many files.

    Args:
        json: results are JSON objects.

    Attributes:
        followed: the document of a followed file, once it exists; then Ctrl-C is not an error.
        many: with --each, the outcome of each file so far.
        by_others: other processes read, so that this one does not hear what they save at last.
        by_cluster: they are a cluster's, which ends them with this one.
    """

    def __init__(self, json: bool):
        self._json = json
        self._kept: int | None = None  # unknown before the first progress
        self._document = ""
        self.followed: Ingested | None = None
        self.many: Each | None = None
        self.by_others = self.by_cluster = False
        self._heard = False  # of a reading, which has something to save
        self._phase, self._drafted = "", False  # of this run: words are kept

    def note(self, state: "Progress", document: str = "") -> None:
        """Notes the progress of the reading, and the document if there are several."""
        from longctx.core.ingest.job import INDEXING  # `--help` needs none of it

        self._kept, self._document, self._heard = state.kept, document, True
        self._drafted |= self._phase == INDEXING != state.phase
        self._phase = state.phase

    def note_done(self) -> None:
        """Notes that a document is done; nothing is known about the next one yet."""
        self._kept, self._phase, self._drafted = None, "", False

    def leave(self, code: int) -> NoReturn:
        """Reports what was read of a followed file, or which of many files are finished.

        Args:
            code: the exit code, if it is an error.

        Raises:
            typer.Exit: a file was followed.
            Interrupted: says how to resume.
        """
        if self.followed:
            show(self.followed, self._json)
            raise typer.Exit
        if self.many is not None:
            self.many.interrupted = True
            tell_many(self.many, self._json)
        raise interrupted(code, self._remedy())

    def end(self, code: int) -> int:
        """Like `leave`, but from another thread: the process ends then.

        Returns:
            The exit code.
        """
        progress.stop_drawing()
        try:
            self.leave(code)
        except typer.Exit as left:
            return finish(current(), left.exit_code)
        except Interrupted as error:
            return finish(current(), tell(error, current()))

    def longer(self) -> float:
        """Like `end`, before it: seconds for which the process goes on nonetheless."""
        if not (self.by_cluster and self._heard):
            return 0.0
        from longctx.core.ingest.ray_fleet import SAVING

        progress.stop_drawing()
        again = f"Ctrl-C again, after {PRESSED_AGAIN:.0f} s, ends that"
        render.note(f"the cluster saves what it has read, where its chunks end; {again}")
        return 1.5 * SAVING

    def tell_done(self) -> None:
        """Reports the outcome of many files until an error ended the run, if there is any."""
        if self.many is not None and (self.many.documents or self.many.failed):
            tell_many(self.many, self._json)

    def _remedy(self) -> str:
        words = " Until then `ask` and `find` use its words." if self._drafted else ""
        return f"{self._how_to_go_on()}{words}"

    def _how_to_go_on(self) -> str:
        if self.by_others:
            return "The same command goes on from what is kept."
        if self._kept is None:
            return "The same command goes on with it."
        if not self._kept:
            return f"The same command starts {self._document or 'it'} again."
        of = f" of {self._document}" if self._document else ""
        return f"{self._kept:,} tokens{of} are kept; the same command goes on from there."


@contextmanager
def stoppable(json: bool) -> Iterator[Stop]:
    """Ctrl-C or `kill` ends the reading soon, reporting what is kept.

    Args:
        json: results are JSON objects.

    Returns:
        What to report by then.

    Raises:
        Interrupted: on Ctrl-C or `kill`.
        typer.Exit: likewise, for a followed file.
    """
    stop = Stop(json)
    try:
        with within(stop.end, longer=stop.longer):
            yield stop
    except KeyboardInterrupt as error:
        stop.leave(code_of(error))
    except Exception:  # report what was finished, then raise again
        stop.tell_done()
        raise
    finally:
        from longctx.core.sources import parser

        parser.end()  # the child process that parses files, if any
