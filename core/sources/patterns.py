"""`.gitignore` patterns as Git reads them, in time that grows only with pattern and path length.

Every pattern becomes one regular expression that never backtracks: what stands between two `**`, or
two `*` of a name, has a fixed length, so the first match is as good as any, and is kept (atomic
groups). Knows nothing of files.
"""

import re
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

LONGEST = 4096  # characters of a pattern; no path on a disk is longer
_ANY = "(?:[^/]++/)*"  # folders
_FOLDER = "(?P<folder>/)"  # the match is a folder: the path itself, or one that it is in


@dataclass(frozen=True)
class Pattern:
    """A line of a `.gitignore`.

    Attributes:
        ignores: matches are ignored; else they are read.
        path: matches a path with slashes; a folder's ends in one.
    """

    ignores: bool
    path: re.Pattern[str]


def patterns(lines: Iterable[str]) -> tuple[Pattern, ...]:
    """The patterns of lines, the last first; invalid ones are left out, as in Git."""
    with warnings.catch_warnings():
        # Warns of characters that a later Python may read otherwise; patterns are not users' code.
        warnings.simplefilter("ignore", FutureWarning)
        return tuple(_patterns(lines))[::-1]


def said_of(path: str, those: Iterable[Pattern]) -> bool | None:
    """Whether the first matching pattern ignores a path; None if no pattern matches.

    A pattern that matches the path itself outranks one that matches a folder around it.
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
    """The expression of a pattern; ValueError if it is invalid."""
    names = pattern.split("/")
    if not names[0]:
        del names[0]
    elif len(names) == 1 or (len(names) == 2 and not names[1]):
        names.insert(0, "**")  # it matches at any depth
    if names and names[-1] == "**" and len(names) > 1:
        names.append("*")  # the contents, not the folder itself
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
    """The runs of names before, between and after each `**`; the first may be empty."""
    runs: list[list[str]] = [[]]
    for name in names:
        if name != "**":
            runs[-1].append(name)
        elif len(runs) == 1 or runs[-1]:  # two in a row count as one
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
    """Expressions of one character each, and `*`; ValueError if one is unterminated."""
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
