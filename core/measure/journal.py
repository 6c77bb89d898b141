"""The finished results of a long run, kept in a folder so that a stopped run can resume.

DIR/settings.json    what the results depend on
DIR/results.jsonl    one result per line, in order of completion
"""

import errno
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from longctx.core.common import file_limits
from longctx.core.common.errors import Locked, LongctxError, UsageError
from longctx.core.common.outputs import PRIVATE, Output, is_unfinished, make_folder
from longctx.core.common.regular_files import open_regular, parsed_json, read_json, read_regular

SETTINGS, RESULTS, LOCK = "settings.json", "results.jsonl", ".lock"
LONGEST = 80  # characters of a value in a message
Record = dict[str, Any]
# Gets what is being done, how much is done, the total, the unit, and how much an earlier run did.
# The first call for each `what` reports that it begins.
Tell = Callable[[str, int, int, str, int], None]


class Journal:
    """Results by name. A context: it locks the folder against other processes.

    Args:
        folder: where results are kept, made if absent; None: nowhere.
        settings: what results depend on, as JSON; a resumed run must have the same.

    Raises:
        UsageError: the folder has other settings, holds something else, or cannot be written.
        Locked: another process writes to it.
        LongctxError: there is no room for it.
    """

    def __init__(self, folder: Path | None, settings: Record):
        self._folder, self._records = folder, {}
        if folder is None:
            return
        try:
            make_folder(folder)
            self._lock = FileLock(folder / LOCK, timeout=0, mode=PRIVATE)
            self._lock.acquire()
            try:
                self._take_up(folder, json.loads(json.dumps(settings)))
            except BaseException:  # Ctrl-C too: nobody would release the lock
                self._lock.release()
                raise
        except Timeout as error:
            why = "another process is writing its results there"
            raise Locked(f"cannot use '{folder}'", why, "Wait for it to end.") from error
        except OSError as error:
            file = folder.exists() and not folder.is_dir()
            why = "it is a file, not a folder" if file else error.strerror or str(error)
            kind = LongctxError if error.errno in (errno.ENOSPC, errno.EDQUOT) else UsageError
            raise kind(f"cannot write '{folder}'", why, "Choose another --out.") from error

    def __enter__(self) -> "Journal":
        return self

    def __exit__(self, *error: object) -> None:
        if self._folder is not None:
            self._lock.release()

    def __len__(self) -> int:
        return len(self._records)

    def get(self, name: str) -> Record | None:
        """A result of this run or an earlier one; None: there is none yet."""
        return self._records.get(name)

    def put(self, name: str, record: Record) -> None:
        """Keeps a result.

        Raises:
            LongctxError: it cannot be written.
        """
        self._records[name] = json.loads(json.dumps(record))
        if self._folder is None:
            return
        line = json.dumps({"name": name, "result": record}, ensure_ascii=False) + "\n"
        file = self._folder / RESULTS
        try:
            with Output(file).appending() as out, open(out.fileno(), "ab", closefd=False) as whole:
                whole.write(line.encode())
                whole.flush()
                os.fsync(out.fileno())
        except OSError as error:
            why = error.strerror or str(error)
            raise LongctxError(f"cannot write '{file}'", why, "Make room and run again.") from error

    def fetch(self, name: str, make: Callable[[], Record]) -> Record:
        """A result; a missing one is made and kept.

        Raises:
            LongctxError: it cannot be written.
        """
        if self.get(name) is None:
            self.put(name, make())
        return self._records[name]

    def complete(
        self, what: str, unit: str, pieces: Mapping[str, Callable[[], Record]], tell: Tell
    ) -> list[Record]:
        """Results in order; missing ones are made and kept.

        Args:
            what, unit: for `tell`.
            pieces: by name, the callable that makes the result.
            tell: called first, and after each new result.

        Raises:
            LongctxError: one cannot be written.
        """
        missing = [name for name in pieces if self.get(name) is None]
        total, kept = len(pieces), len(pieces) - len(missing)
        tell(what, kept, total, unit, kept)
        for done, name in enumerate(missing, start=kept + 1):
            self.put(name, pieces[name]())
            tell(what, done, total, unit, kept)
        return [self._records[name] for name in pieces]

    def _take_up(self, folder: Path, settings: Record) -> None:
        file = folder / SETTINGS
        if file.exists():
            self._require(folder, _parsed(file), settings)
            self._records = _results(folder / RESULTS)
            return
        if {entry.name for entry in folder.iterdir() if not is_unfinished(entry.name)} - {
            LOCK,
            f"{SETTINGS}.new",
        }:
            why = "it holds files that are no results of an evaluation"
            raise UsageError(f"cannot use '{folder}'", why, "Choose another --out.")
        Output(file).write(json.dumps(settings, indent=1, ensure_ascii=False))

    @staticmethod
    def _require(folder: Path, before: Record, now: Record) -> None:
        differing = [key for key in {**before, **now} if before.get(key) != now.get(key)]
        if differing:
            key = differing[0]
            raise UsageError(
                f"cannot go on in '{folder}'",
                f"{key} was {_shown(before.get(key))} there, and is {_shown(now.get(key))} now",
                "Give the same options, or another --out.",
            )


def has_finished(folder: Path) -> bool:
    """Whether a folder has results of any run."""
    try:
        with open_regular(folder / RESULTS) as file:
            line = file.readline(file_limits.JOURNAL)
            return line.endswith(b"\n")  # a line that was cut off is not finished
    except OSError:
        return False


def _shown(value: Any) -> str:
    """A value, or its beginning."""
    text = repr(value)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}..."


def _parsed(file: Path) -> Record:
    try:
        settings = read_json(file, file_limits.CONFIG)
    except ValueError:
        settings = None
    if isinstance(settings, dict):
        return settings
    raise UsageError(f"cannot use '{file.parent}'", f"{file.name} is damaged", "Delete the folder.")


def _results(file: Path) -> dict[str, Record]:
    """Results of whole lines; an incomplete last line is dropped, from the file too."""
    if not file.exists():
        return {}
    data = read_regular(file, file_limits.JOURNAL)
    whole = data[: data.rfind(b"\n") + 1]
    if len(whole) < len(data):
        os.truncate(file, len(whole))
    try:
        lines = [parsed_json(line) for line in whole.split(b"\n")[:-1]]
        return {line["name"]: line["result"] for line in lines}
    except (ValueError, KeyError, TypeError) as error:
        why = f"{file.name} is damaged"
        raise UsageError(f"cannot use '{file.parent}'", why, "Delete the folder.") from error
