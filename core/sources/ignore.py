"""Which files Git would ignore: `.gitignore` files in and above a folder, and the repository's own.

The deepest file with a matching pattern decides, by its last matching pattern. Everything in an
ignored folder is ignored, whatever other patterns say. The parsing process reads patterns and
matches paths (`patterns.py`).
"""

import os
from dataclasses import dataclass, field

from longctx.core.common.regular_files import open_regular
from longctx.core.sources import parser
from longctx.core.sources.limits import PATHS_PER_SECOND, PER_SECOND
from longctx.core.sources.parser import Allowed

IGNORE = ".gitignore"
MOST = 1 << 20  # bytes read of such a file
BATCH = 1000  # paths matched per request


@dataclass
class Spec:
    """A file of patterns.

    Attributes:
        data: its bytes.
        number: its number in the parsing process.
        told: `parser.known` when the process learned it.
    """

    data: bytes
    number: int = field(default_factory=parser.new_number)
    told: int = -1

    def tell(self, allowed: Allowed) -> None:
        """Makes sure that the parsing process knows it."""
        if self.told != parser.known():
            told = {"do": "learn", "name": allowed.name, "patterns": self.number}
            parser.ask(told, self.data, allowed=allowed)
            self.told = parser.known()


@dataclass(frozen=True)
class Ignore:
    """The patterns that apply in a folder.

    Args:
        specs: patterns, and the length of their folder's path (as `ignored` gets it); the deepest
            last.
    """

    specs: tuple[tuple[int, Spec], ...] = ()

    def ignored(self, paths: list[str], allowed: Allowed) -> list[bool]:
        """Which paths are ignored; they are absolute, with slashes, folders ending in one.

        Raises:
            GivenUp: matching takes too long.
        """
        if not self.specs:
            return [False] * len(paths)
        found: list[bool] = []
        for first in range(0, len(paths), BATCH):
            some = paths[first : first + BATCH]
            for _, spec in self.specs:
                spec.tell(allowed)
            those = [(start, spec.number) for start, spec in reversed(self.specs)]
            told = {"do": "ignored", "name": allowed.name, "patterns": those, "paths": some}
            _, said = parser.ask(told, allowed=allowed)
            allowed.worked += len(some) * PER_SECOND // PATHS_PER_SECOND
            found += [bool(each) for each in said[: len(some)].ljust(len(some), b"\0")]
        return found

    def within(self, folder: str) -> "Ignore":
        """The patterns for a subfolder that has a `.gitignore`."""
        spec = _spec(os.path.join(folder, IGNORE))
        return Ignore((*self.specs, (len(folder) + 1, spec))) if spec else self


def above(folder: str) -> Ignore:
    """The patterns of the repository around an absolute path, without the folder's own file."""
    folders = [folder]
    while not os.path.lexists(os.path.join(folders[-1], ".git")):
        parent = os.path.dirname(folders[-1])
        if parent == folders[-1]:
            return Ignore()  # not in a repository
        folders.append(parent)
    top = folders[-1]
    own = _spec(os.path.join(top, ".git", "info", "exclude"))
    start = len(top.rstrip("/")) + 1
    ignore = Ignore(((start, own),)) if own else Ignore()
    for each in reversed(folders[1:]):
        ignore = ignore.within(each.rstrip("/"))
    return ignore


def _spec(path: str) -> Spec | None:
    """The patterns of a file; None if there are none."""
    try:
        if not os.path.isfile(path) or os.path.islink(path):
            return None
        with open_regular(path) as file:
            data = file.read(MOST)
    except OSError:
        return None
    lines = (line.strip() for line in data.splitlines())
    return Spec(data) if any(line and not line.startswith(b"#") for line in lines) else None
