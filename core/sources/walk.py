"""Walks a folder: every file to read, always in the same order.

Files come in the order of the bytes of their paths. Links are not followed, so loops do not
matter and nothing outside the folder is read. Pipes, sockets and devices are not opened.
"""

import os
from collections.abc import Iterator
from typing import NamedTuple

from longctx.core.common.errors import UnreadableInput
from longctx.core.common.regular_files import NO_FILE
from longctx.core.sources.detect import NotText
from longctx.core.sources.ignore import IGNORE, Ignore, above
from longctx.core.sources.naming import is_hidden
from longctx.core.sources.parser import Allowed, GivenUp
from longctx.core.sources.rules import Rules


class Entry(NamedTuple):
    """A file in a folder.

    Attributes:
        path: the absolute path.
        inside: the path relative to the folder, with slashes.
        refused: why it is not read; None if it is.
    """

    path: str
    inside: str
    refused: UnreadableInput | None


class _Waiting(NamedTuple):
    entry: os.DirEntry
    inside: str
    folder: bool
    ignore: Ignore


def walk(folder: str, rules: Rules) -> Iterator[Entry]:
    """All files of a folder that are not excluded by name.

    Args:
        folder: its path.
        rules: which files are read.
    """
    top = os.path.realpath(folder)
    ignore = Ignore() if rules.ignored else above(top)
    allowed = Allowed.by(rules, folder, 0)
    waiting: list[_Waiting] = []
    try:
        yield from _look_into(top, "", ignore, rules, allowed, waiting)
        while waiting:
            entry, inside, is_folder, ignore = waiting.pop()
            if is_folder:
                yield from _look_into(entry.path, f"{inside}/", ignore, rules, allowed, waiting)
            else:
                yield Entry(entry.path, inside, _why_not(entry))
    except GivenUp as error:
        why = f"its .gitignore files cannot be followed, and what comes next is left: {error.why}"
        told = UnreadableInput(error.what, why, f"{error.remedy} Or add --no-ignore.")
        yield Entry(top, ".", told)


def _look_into(
    folder: str,
    inside: str,
    ignore: Ignore,
    rules: Rules,
    allowed: Allowed,
    waiting: list[_Waiting],
) -> Iterator[Entry]:
    """Pushes a folder's entries onto the stack; yields the folder itself if it cannot be read."""
    try:
        with os.scandir(folder) as found:
            entries = [entry for entry in found if not is_hidden(entry.name, rules.hidden)]
            has_own = not rules.ignored and os.path.lexists(os.path.join(folder, IGNORE))
    except OSError as error:
        why = error.strerror or str(error)
        refused = UnreadableInput(f"cannot look into '{folder}'", why, "Check its permissions.")
        yield Entry(folder, inside.rstrip("/") or ".", refused)
        return
    ignore = ignore.within(folder.rstrip("/")) if has_own else ignore
    folders = [entry.is_dir(follow_symlinks=False) for entry in entries]
    paths = [entry.path + "/" * is_one for entry, is_one in zip(entries, folders, strict=True)]
    kept = [
        _Waiting(entry, inside + entry.name, is_folder, ignore)
        for entry, is_folder, left_out in zip(
            entries, folders, ignore.ignored(paths, allowed), strict=True
        )
        if not left_out
    ]
    # A slash after folders gives the order of whole paths: "a.txt" comes before "a/b".
    waiting += sorted(kept, key=lambda w: os.fsencode(w.inside) + b"/" * w.folder, reverse=True)


def _why_not(entry: os.DirEntry) -> UnreadableInput | None:
    if entry.is_symlink():
        return NotText(f"'{entry.path}' is not read", "it is a link, and those are not followed")
    if not entry.is_file(follow_symlinks=False):
        return NotText(f"'{entry.path}' is not read", NO_FILE)
    return None
