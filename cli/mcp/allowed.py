"""The folders that a client may have read: those named when the server began, and no others."""

import glob
import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path

from longctx.core.common.errors import UsageError

STARTED = "Start the server with `longctx mcp --allow FOLDER`."


class Allowed:
    """What may be read from, with every link followed.

    Args:
        folders: as the user named them.

    Raises:
        UsageError: one of them is no folder.
    """

    def __init__(self, folders: Sequence[Path] = ()):
        self.folders = tuple(_folder(folder) for folder in folders)

    def __bool__(self) -> bool:
        return bool(self.folders)

    def paths(self, named: Sequence[str]) -> list[str]:
        """The files and folders to read, with no link left in them, so that none is followed later.

        Those in the working folder are relative to it, as they are cited.

        Args:
            named: paths and patterns; a relative one that the working folder lacks is looked for in
                the allowed folders.

        Raises:
            UsageError: one is outside every allowed folder, does not exist, or is neither a file
                nor a folder; or there is none.
        """
        if not self.folders:
            raise UsageError("nothing can be read", "no folder was allowed", STARTED)
        found = [place for path in named for place in self._places(path)]
        if not found:
            raise UsageError("there is nothing to read", "", "Name files or folders.")
        return [os.path.relpath(place) if _is_here(place) else place for place in found]

    def _places(self, path: str) -> Iterator[str]:
        if path == "-" or "\0" in path or not path:
            raise UsageError(f"cannot read {path!r}", "it is no path", "Name a file or folder.")
        for name in self._named(os.path.expanduser(path)):
            place = self._inside(name)
            mode = os.stat(place).st_mode
            if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
                why = "it is neither a file nor a folder"
                raise UsageError(f"cannot read '{path}'", why, "Name another one.")
            yield place

    def _named(self, path: str) -> list[str]:
        """What a path or pattern names; says nothing of what is outside, not even if it exists."""
        homes = [os.getcwd(), *self.folders]
        for home in homes:
            name = os.path.join(home, path)
            if os.path.lexists(name):
                return [name]
            if glob.has_magic(path) and (found := self._matches(path, home)):
                return found
        outside = not any(_is_in(os.path.realpath(os.path.join(h, path)), self) for h in homes)
        if outside:
            raise self._refused(path)
        raise UsageError(f"cannot read '{path}'", "no such file", "Check the path.")

    def _matches(self, pattern: str, home: str) -> list[str]:
        """The allowed files that a pattern fits, in the order of their names' bytes.

        With `**`, folders too: what is in them fits as well, so they are left out.
        """
        found = (
            os.path.join(home, name)
            for name in sorted(glob.iglob(pattern, root_dir=home, recursive=True), key=os.fsencode)
        )
        kept = [name for name in found if _is_in(os.path.realpath(name), self)]
        files = [name for name in kept if os.path.isfile(name)]
        return files if "**" in pattern else files or kept

    def _inside(self, name: str) -> str:
        place = os.path.realpath(name)
        if not _is_in(place, self):
            raise self._refused(name)
        if not os.path.exists(place):
            raise UsageError(f"cannot read '{name}'", "it is a link to nothing", "Check the path.")
        return place

    def _refused(self, path: str) -> UsageError:
        listed = ", ".join(f"'{folder}'" for folder in self.folders)
        why = f"it is not in {listed}"
        return UsageError(f"cannot read '{path}'", why, f"Name what is there. {STARTED}")


def _folder(named: Path) -> str:
    place = os.path.realpath(named.expanduser())
    if not os.path.isdir(place):
        why = "it is not a folder" if os.path.exists(place) else "no such folder"
        raise UsageError(f"cannot allow '{named}'", why, "Name a folder that exists.")
    return place


def _is_in(place: str, allowed: Allowed) -> bool:
    """Whether a path without links is an allowed folder, or in one."""
    return any(os.path.commonpath([place, folder]) == folder for folder in allowed.folders)


def _is_here(place: str) -> bool:
    here = os.path.realpath(os.getcwd())
    return os.path.commonpath([place, here]) == here
