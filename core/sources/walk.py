"""Going through a folder: every file that is to be read, always in the same order.

Files come in the order of the bytes of their paths. Links are not followed, so loops do not
matter and nothing outside the folder is read; pipes, sockets and devices are not opened.
"""

import os
from collections.abc import Iterator
from typing import NamedTuple

from longctx.core.detect import NotText
from longctx.core.errors import UnreadableInput
from longctx.core.regular_files import NO_FILE
from longctx.core.sources.ignore import IGNORE, Ignore, above
from longctx.core.sources.naming import is_hidden
from longctx.core.sources.rules import Rules


class Entry(NamedTuple):
    """A file in a folder.

    Attributes:
        path: absolute.
        inside: relative to the folder, with slashes.
        refused: why it is not read; None: it is.
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
    """All files of a folder that are not left out by name.

    Args:
        folder: its path.
        rules: what is left out.
    """
    top = os.path.realpath(folder)
    ignore = Ignore() if rules.ignored else above(top)
    waiting: list[_Waiting] = []
    yield from _look_into(top, "", ignore, rules, waiting)
    while waiting:
        entry, inside, is_folder, ignore = waiting.pop()
        if is_folder:
            yield from _look_into(entry.path, f"{inside}/", ignore, rules, waiting)
        else:
            yield Entry(entry.path, inside, _why_not(entry))


def _look_into(
    folder: str, inside: str, ignore: Ignore, rules: Rules, waiting: list[_Waiting]
) -> Iterator[Entry]:
    """Puts what is in a folder on the stack; gives the folder itself where that cannot be."""
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
    kept = []
    for entry in entries:
        is_folder = entry.is_dir(follow_symlinks=False)
        if not ignore.specs or not ignore.is_ignored(entry.path, is_folder):
            kept.append(_Waiting(entry, inside + entry.name, is_folder, ignore))
    # A slash after folders makes the order that of whole paths: "a.txt" comes before "a/b".
    waiting += sorted(kept, key=lambda w: os.fsencode(w.inside) + b"/" * w.folder, reverse=True)


def _why_not(entry: os.DirEntry) -> UnreadableInput | None:
    if entry.is_symlink():
        return NotText(f"'{entry.path}' is not read", "it is a link, and those are not followed")
    if not entry.is_file(follow_symlinks=False):
        return NotText(f"'{entry.path}' is not read", NO_FILE)
    return None
