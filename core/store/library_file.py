"""`library.json`, which makes a folder a library and says its format.

A library is made where there is nothing else, with the rights that its owner wants.
"""

import json
import os
import stat
from pathlib import Path

from longctx.core.common.errors import LongctxError, NotFound, StateMismatch, UsageError
from longctx.core.store.confined import Confined
from longctx.core.store.durable import TEMPORARY, make_folder, storing, write_text
from longctx.core.store.manifest import FORMAT, canonical_json
from longctx.core.store.shards import damaged

_MARK_BYTES = 1 << 12  # limit for library.json
_FORMATS = (2, 3, FORMAT)  # whose folders are the same; of older ones no document is read


class LibraryFile:
    """The `library.json` of a folder, which may not be there yet."""

    def __init__(self, path: Path):
        self.path = path
        self._root = Confined(path)
        self._mark = self._root / "library.json"

    def require(self, create: bool = False, shared: bool = False) -> None:
        """Checks that there is one of a format of ours; see `Library.open`."""
        if not self._is_library():
            self._make(create, shared)
        self._check_mark()

    def _make(self, create: bool, shared: bool) -> None:
        """Make the library; if another process does so meanwhile, that one is used."""
        if self._is_something_else():
            if self._is_library():  # since we looked: a library's mark comes first
                return
            raise UsageError(
                f"'{self.path}' is not a longctx library",
                "it holds other things and no library.json",
                "Name an empty or new folder, or a library, with --library",
            )
        if not create:
            raise NotFound(
                f"no library at '{self.path}'",
                remedy="Run `longctx ingest` to make one, or name another with --library",
            )
        try:
            with storing(self.path):
                self._make_folder(shared)
            write_text(self._root, self._mark.name, canonical_json({"format": FORMAT}))
        except LongctxError as error:
            raced = isinstance(error.__cause__, FileExistsError | PermissionError | None)
            if not (raced and self._is_library()):
                raise

    def _make_folder(self, shared: bool) -> None:
        """Make the library's folder. An empty one becomes private, unless it is shared.

        A folder that its owner gave to a group (setgid), or another user's, stays as it is.
        """
        if not self.path.exists():
            make_folder(self.path, 0o777 & ~_umask() if shared else 0o700)
            return
        status = self.path.stat()
        mine = not hasattr(os, "geteuid") or status.st_uid == os.geteuid()
        if mine and not shared and not status.st_mode & stat.S_ISGID:
            self.path.chmod(0o700)

    def _is_library(self) -> bool:
        try:
            return self._mark.is_file()
        except OSError as exc:
            raise LongctxError(
                f"cannot open the library '{self.path}'",
                exc.strerror,
                "Name another with --library",
            ) from exc

    def _is_something_else(self) -> bool:
        try:  # one check: between two, another process may make the folder
            return any(not path.name.startswith(TEMPORARY) for path in self.path.iterdir())
        except FileNotFoundError:
            return False
        except NotADirectoryError:  # it, or its parent, is a file
            return self.path.exists()

    def _check_mark(self) -> None:
        try:
            found = json.loads(self._mark.read_bytes(_MARK_BYTES))
        except (OSError, ValueError) as exc:
            raise damaged(self._mark, str(exc)) from exc
        if found not in [{"format": number} for number in _FORMATS]:
            raise StateMismatch(
                f"the library '{self.path}' is {found}",
                f"this longctx uses format {FORMAT}",
                "Name another folder with --library",
            )


def _umask() -> int:
    """The rights that the process removes from new files."""
    umask = os.umask(0o077)
    os.umask(umask)
    return umask
