"""Which files Git would ignore: `.gitignore` files in and above a folder, and the repository's own.

The deepest file that says anything of a path decides, and in it the last pattern. What is in an
ignored folder is ignored, whatever patterns say of it. Patterns are read, and compared with paths,
by the program that parses (`patterns.py`).
"""

import os
from dataclasses import dataclass, field

from longctx.core.common.regular_files import open_regular
from longctx.core.sources import parser
from longctx.core.sources.limits import PATHS_PER_SECOND, PER_SECOND
from longctx.core.sources.parser import Allowed

IGNORE = ".gitignore"
MOST = 1 << 20  # bytes of such a file that are read
BATCH = 1000  # paths that are compared at once


@dataclass
class Spec:
    """A file of patterns.

    Attributes:
        data: its bytes.
        number: that it has for the program that parses.
        told: `parser.known` when the program was told of it.
    """

    data: bytes
    number: int = field(default_factory=parser.new_number)
    told: int = -1

    def tell(self, allowed: Allowed) -> None:
        """Has the program know it."""
        if self.told != parser.known():
            told = {"do": "learn", "name": allowed.name, "patterns": self.number}
            parser.ask(told, self.data, allowed=allowed)
            self.told = parser.known()


@dataclass(frozen=True)
class Ignore:
    """The patterns that hold in a folder.

    Args:
        specs: patterns, and the length of the path (as `ignored` gets it) of the folder that they
            are of; the deepest last.
    """

    specs: tuple[tuple[int, Spec], ...] = ()

    def ignored(self, paths: list[str], allowed: Allowed) -> list[bool]:
        """Which paths, absolute and with slashes, at the ends of folders too, are left out.

        Raises:
            GivenUp: that takes too long.
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
        """What holds in a folder that is in this one and has a `.gitignore`."""
        spec = _spec(os.path.join(folder, IGNORE))
        return Ignore((*self.specs, (len(folder) + 1, spec))) if spec else self


def above(folder: str) -> Ignore:
    """What holds in an absolute path, without its own file: that of the repository it is in."""
    folders = [folder]
    while not os.path.lexists(os.path.join(folders[-1], ".git")):
        parent = os.path.dirname(folders[-1])
        if parent == folders[-1]:
            return Ignore()  # no repository
        folders.append(parent)
    top = folders[-1]
    own = _spec(os.path.join(top, ".git", "info", "exclude"))
    start = len(top.rstrip("/")) + 1
    ignore = Ignore(((start, own),)) if own else Ignore()
    for each in reversed(folders[1:]):
        ignore = ignore.within(each.rstrip("/"))
    return ignore


def _spec(path: str) -> Spec | None:
    """The patterns of a file; None where there are none."""
    try:
        if not os.path.isfile(path) or os.path.islink(path):
            return None
        with open_regular(path) as file:
            data = file.read(MOST)
    except OSError:
        return None
    lines = (line.strip() for line in data.splitlines())
    return Spec(data) if any(line and not line.startswith(b"#") for line in lines) else None
