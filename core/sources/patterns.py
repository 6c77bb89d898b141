"""`.gitignore` patterns as Git reads them, in time that grows only with pattern and path.

Every pattern becomes one regular expression that never tries two ways for the same thing: what
stands between two `**`, or two `*` of a name, has a fixed length, so the first place where it fits
is as good as any, and is not given up again (atomic groups). Knows nothing of files.
"""

import re
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

LONGEST = 4096  # characters of a pattern; no path on a disk is longer
_ANY = "(?:[^/]++/)*"  # folders
_FOLDER = "(?P<folder>/)"  # what matches is a folder that the path is, or is in


@dataclass(frozen=True)
class Pattern:
    """A line of a `.gitignore`.

    Attributes:
        ignores: what it fits is left out; else it is read.
        path: fits a path with slashes, one at the end of a folder's.
    """

    ignores: bool
    path: re.Pattern[str]


def patterns(lines: Iterable[str]) -> tuple[Pattern, ...]:
    """The patterns of lines, the last first; those that make no sense are left out, as in Git."""
    with warnings.catch_warnings():
        # Of signs that a later Python may read in another way; patterns are not our users' code.
        warnings.simplefilter("ignore", FutureWarning)
        return tuple(_patterns(lines))[::-1]


def said_of(path: str, those: Iterable[Pattern]) -> bool | None:
    """Whether the first patterns that fit a path ignore it; None: they say nothing of it.

    One that fits the path itself counts more than one that fits a folder that it is in.
    """
    said = None
    for pattern in those:
        if found := pattern.path.match(path):
            if not found["folder"]:
                return pattern.ignores
            said = pattern.ignores if said is None else said
    return said


def _patterns(lines: Iterable[str]) -> Iterator[Pattern]:
    for line in lines:
        line = line if line.endswith("\\ ") else line.rstrip()
        if not line or line[0] == "#" or line == "/" or len(line) > LONGEST:
            continue
        try:
            path = _path(line.removeprefix("!"))
            yield Pattern(line[0] != "!", re.compile(path, re.DOTALL))
        except (ValueError, re.error, OverflowError):
            continue


def _path(pattern: str) -> str:
    """The expression of a pattern; ValueError where it is none."""
    names = pattern.split("/")
    if not names[0]:
        del names[0]
    elif len(names) == 1 or (len(names) == 2 and not names[1]):
        names.insert(0, "**")  # it fits at any depth
    if names and names[-1] == "**" and len(names) > 1:
        names.append("*")  # what is inside, and not the folder itself
    folders_only = bool(names) and not names[-1]
    names = names[:-1] if folders_only else names
    if not names or "" in names:
        raise ValueError("no path has an empty name in it")
    runs = _runs(names)
    *before, last = ["/".join(map(_name, run)) for run in runs]
    first = f"{before[0]}/" if before and before[0] else ""
    between = "".join(f"(?>{_ANY}?{run}/)" for run in before[1:])
    end = _FOLDER if folders_only else rf"(?:{_FOLDER}|\Z)"
    return rf"{first}{between}{_ANY if before else ''}{last or '[^/]+'}{end}"


def _runs(names: list[str]) -> list[list[str]]:
    """What stands before, between and after each `**`; the first is empty behind none."""
    runs: list[list[str]] = [[]]
    for name in names:
        if name != "**":
            runs[-1].append(name)
        elif len(runs) == 1 or runs[-1]:  # two of them in a row are one
            runs.append([])
    return runs


def _name(name: str) -> str:
    """The expression of the name of a file or folder with `*`, `?`, `[...]` and `\\`."""
    if name == "*":
        return "[^/]+"
    parts, held = [], ""
    signs = iter(_signs(name))
    for sign in signs:
        if sign != "*":
            held += sign
        else:
            parts, held = [*parts, held], ""
    first, *between = [*parts, held]
    if not between:
        return first
    *between, last = between
    return first + "".join(f"(?>[^/]*?{part})" for part in between if part) + f"[^/]*{last}"


def _signs(name: str) -> Iterator[str]:
    """Expressions of one character each, and `*`; ValueError where one does not end."""
    at = 0
    while at < len(name):
        sign, at = name[at], at + 1
        if sign == "*":
            yield sign
        elif sign == "?":
            yield "[^/]"
        elif sign == "\\":
            if at == len(name):
                raise ValueError("nothing follows the backslash")
            yield re.escape(name[at])
            at += 1
        elif sign == "[":
            end = name.index("]", at + (name[at : at + 1] in ("!", "^")) + 1)
            no = name[at] in "!^"
            inside = name[at + no : end].replace("\\", "\\\\")
            yield f"(?!/)[{'^' * no}{inside}]"
            at = end + 1
        else:
            yield re.escape(sign)
