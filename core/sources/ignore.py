"""Which files Git would ignore: `.gitignore` files in and above a folder, and the repository's own.

The deepest file that says anything of a path decides, and in it the last pattern. What is in an
ignored folder is ignored, whatever patterns say of it.
"""

import os
import re
import warnings
from collections.abc import Iterable
from dataclasses import dataclass

from pathspec import GitIgnoreSpec

from longctx.core.regular_files import open_regular

IGNORE = ".gitignore"
MOST = 1 << 20  # bytes of such a file that are read
STARS = 4  # in a name of a pattern; with each, trying it takes a power more of time


@dataclass(frozen=True)
class Ignore:
    """The patterns that hold in a folder.

    Args:
        specs: patterns, and the length of the path (as `is_ignored` gets it) of the folder that
            they are of; the deepest last.
    """

    specs: tuple[tuple[int, GitIgnoreSpec], ...] = ()

    def is_ignored(self, path: str, folder: bool) -> bool:
        """Whether a path, absolute and with slashes, is left out."""
        for start, spec in reversed(self.specs):
            said = spec.check_file(path[start:] + "/" * folder).include
            if said is not None:
                return said
        return False

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


def _spec(path: str) -> GitIgnoreSpec | None:
    """The patterns of a file; None where there are none."""
    try:
        if not os.path.isfile(path) or os.path.islink(path):
            return None
        with open_regular(path) as file:
            lines = file.read(MOST).decode("utf-8", "surrogateescape").splitlines()
    except OSError:
        return None
    spec = _parsed(lines)
    return spec if len(spec) else None


def _parsed(lines: Iterable[str]) -> GitIgnoreSpec:
    """Patterns; those that make no sense are left out, as Git does, and those of too many stars."""
    kept = []
    with warnings.catch_warnings():
        # Of signs that a later Python may read in another way; patterns are not our users' code.
        warnings.simplefilter("ignore", FutureWarning)
        for line in lines:
            if any(part.count("*") > STARS for part in line.split("/")):
                continue
            # What is inside, and not the folder itself; pathspec would take both.
            line = f"{line.rstrip()}/*" if line.rstrip().endswith("/**") else line
            try:
                GitIgnoreSpec.from_lines([line])
            except (ValueError, re.error):
                continue
            kept.append(line)
        return GitIgnoreSpec.from_lines(kept)
