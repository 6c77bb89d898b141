"""The last answer that a person got, for `ask --continue`: one file in the user's state folder.

It is kept only where somebody sits at a terminal, and never with --json, so that a service or a
timed job leaves nothing behind and takes nothing away.
"""

import json
import logging
import sys
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from longctx.cli.settings import state_path
from longctx.core.ask.follow_up import Exchange
from longctx.core.common import file_limits
from longctx.core.common.errors import LongctxError, UsageError
from longctx.core.common.outputs import PRIVATE, Output
from longctx.core.common.records import Reader
from longctx.core.common.regular_files import read_json

FILE = "last-answer.json"
REMEDY = "Ask without --continue."
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class LastAnswer:
    """The last question with its answer, and where it was asked.

    Attributes:
        library: the library's folder.
        documents: the names of those asked.
        exchanges: the question, behind those that it referred to.
    """

    library: str
    documents: tuple[str, ...]
    exchanges: tuple[Exchange, ...]


def keep(last: LastAnswer) -> None:
    """Keeps it in place of the one before; where it cannot be written, the log says so."""
    if not any(stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr)):
        return
    try:
        path = state_path(FILE)
        with suppress(FileNotFoundError):
            path.chmod(PRIVATE)  # what replaces a file has its mode
        Output(path).write(json.dumps(asdict(last)))
    except (OSError, LongctxError) as error:
        _log.info("the answer is not kept for --continue: %s", error)


def last_answer() -> LastAnswer:
    """What was kept of the last answer.

    Raises:
        UsageError: nothing is there, or it cannot be read.
    """
    what = "cannot go on from the question before"
    try:
        found = read_json(state_path(FILE), file_limits.STATE)
        return Reader(REMEDY).read(LastAnswer, found, "the last answer")
    except FileNotFoundError as error:
        why = "none is kept; the last one answered at a terminal is, but not with --json"
        raise UsageError(what, why, REMEDY) from error
    except (OSError, ValueError, UsageError) as error:
        raise UsageError(what, f"it cannot be read: {error}", REMEDY) from error


def require_library(last: LastAnswer, library: Path) -> None:
    """Refuses to ask the documents of another library.

    Raises:
        UsageError: the question before was asked of another one.
    """
    if last.library != str(library.absolute()):
        what = "cannot ask the documents of the question before"
        why = f"they are in the library '{last.library}'"
        raise UsageError(what, why, "Name that one with --library, or a document with --doc.")
