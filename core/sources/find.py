"""From what a user names to sources: files, folders, patterns, archives and standard input.

Only archives are opened, to list their members. Sources come in the order in which they were
named; in a folder, by the bytes of their paths; in an archive, in its own order.
"""

import glob
import os
import re
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

from longctx.core.common import pasting
from longctx.core.common.errors import UnreadableInput, UsageError
from longctx.core.common.regular_files import NO_FILE, is_regular
from longctx.core.sources import formats
from longctx.core.sources.detect import NotText
from longctx.core.sources.extra import require
from longctx.core.sources.limits import DEPTH, too_deep
from longctx.core.sources.naming import heading, kind_of, layers, needs
from longctx.core.sources.reader import Source
from longctx.core.sources.remote import Level, ParsedFile, Remote, members
from longctx.core.sources.rules import Rules
from longctx.core.sources.walk import walk

USUAL = Rules()
_ADDRESS = re.compile(r"(?:https?|ftp)://", re.IGNORECASE)
NONE: Mapping[str, str] = MappingProxyType({})


def open_sources(
    paths: Sequence[str], rules: Rules = USUAL, passing: Mapping[str, str] = NONE
) -> list[Source]:
    """The sources of a command, in order; those known to be unreadable are marked as refused.

    Args:
        paths: files, folders, patterns; "-" is standard input.
        rules: which files in folders and archives are read, and how.
        passing: by path, what a file that will not stay is called.

    Raises:
        UsageError: see `check`.
        UnreadableInput: a folder holds nothing to read.
    """
    check(paths, rules, passing)
    sources: list[Source] = []
    for path in paths:
        if path in passing:
            found = of_file(passing[path], Path(path), False, rules)
            sources += (replace(source, passing=True) for source in found)
        else:
            sources += _sources(path, rules)
    return sources


def check(paths: Sequence[str], rules: Rules = USUAL, passing: Mapping[str, str] = NONE) -> None:
    """Refuses invalid paths without opening anything.

    Raises:
        UsageError: a path does not exist, is a device, or needs a missing library; a pattern
            matches nothing; or standard input is named twice.
    """
    if list(paths).count("-") > 1:
        raise UsageError("cannot read '-' twice", "standard input ends once", "Name it once.")
    for path in paths:
        if path in passing:
            _check_one(path, rules, passing[path])
            continue
        names = [] if path == "-" else _named(path)
        for name in names:
            # Anything else that a pattern matches is skipped.
            if names == [path] or is_regular(name):
                _check_one(name, rules, name)


def _check_one(path: str, rules: Rules, called: str) -> None:
    if os.path.isdir(path):
        return
    mode = os.stat(path).st_mode
    if stat.S_ISBLK(mode) or (stat.S_ISCHR(mode) and not path.startswith(("/dev/fd", "/dev/std"))):
        raise UsageError(f"cannot read '{called}'", "it is a device", "Name a file.")
    stem, how = layers(called)
    form = "" if rules.raw or kind_of(stem) else formats.of(stem)
    needed = [*map(needs, how), formats.load(form).needs if form else ""]
    for library in needed:
        require(library, called, UsageError)


def _named(path: str) -> list[str]:
    """The files and folders that a path or pattern names.

    Raises:
        UsageError: none exist.
    """
    if os.path.exists(path):  # unlike Path.exists, never raises
        return [path]
    found = []
    if glob.has_magic(path) and "\0" not in path:
        found = sorted(glob.iglob(path, recursive=True), key=os.fsencode)
        found = [name for name in found if os.path.exists(name)]
    if not found:
        why = "no file fits the pattern" if glob.has_magic(path) else "no such file"
        remedy = "Check the path."
        if _ADDRESS.match(path):
            why = "it is an address, and longctx fetches nothing"
            remedy = f"Download it with `curl -LO {pasting.word(path, 'URL')}`, and read that file."
        raise UsageError(f"cannot read '{path}'", why, remedy)
    return found


def _sources(path: str, rules: Rules) -> Iterator[Source]:
    if path == "-":
        yield Source("stdin", None)
        return
    names = _named(path)
    is_pattern = names != [path]
    if is_pattern and "**" in path:  # it matches folders as well as everything in them
        names = [name for name in names if not os.path.isdir(name)] or names
    for name in names:
        if os.path.isdir(name):
            yield from _in_folder(name, rules)
        elif is_pattern and not is_regular(name):
            refused = NotText(f"cannot read '{name}'", NO_FILE)
            yield Source(name, Path(name), refused=refused, found=True)
        else:
            yield from of_file(name, Path(name), is_pattern, rules)


def _in_folder(folder: str, rules: Rules) -> Iterator[Source]:
    prefix = folder.rstrip("/").removeprefix("./")
    prefix = "" if prefix in ("", ".") and not folder.startswith("/") else f"{prefix}/"
    found = False
    for entry in walk(folder, rules):
        found, name = True, prefix + entry.inside
        if entry.refused:
            error = type(entry.refused)(
                f"cannot read '{name}'", entry.refused.why, entry.refused.remedy
            )
            yield Source(name, Path(entry.path), refused=error, found=True)
        else:
            yield from of_file(name, Path(entry.path), True, rules)
    if not found:
        raise UnreadableInput(
            f"nothing to read in '{folder}'",
            "it has no files, or all are hidden or ignored",
            "Name files, or add --hidden or --no-ignore.",
        )


def of_file(name: str, path: Path, found: bool, rules: Rules) -> Iterator[Source]:
    """The source for a file, or the sources inside it.

    Args:
        name: as it is cited.
        path: the file.
        found: it was found, not named by the user.
        rules: which files are read, and how.
    """
    stem, how = layers(name)
    kind = kind_of(stem)
    form = "" if rules.raw or kind else formats.of(stem)
    header = heading(name) if found else ""
    if not (kind or how or form) or not path.is_file():
        yield Source(name, path, found=found, header=header)
        return
    try:
        file = ParsedFile(path, name, rules)
        if len(how) + bool(kind) > DEPTH:
            raise too_deep(name)
        if kind:
            yield from _members(file, Level(0, name, kind, tuple(how)))
        else:
            made = Remote(file, name, tuple(how), form)
            yield Source(name, path, made=made, found=found, header=header)
    except OSError as error:
        why = error.strerror or str(error)
        refused = UnreadableInput(f"cannot read '{name}'", why, "Check it and its permissions.")
        yield Source(name, path, refused=refused, found=found)
    except UnreadableInput as error:
        yield Source(name, path, refused=error, found=found)


def _members(file: ParsedFile, outer: Level) -> list[Source]:
    """The sources in an archive."""
    found = []
    for member in members(file, outer):
        cited, part, refused = member.cited, member.part, member.refused
        if refused:
            found.append(Source(cited, file.path, refused=refused, found=True, part=part))
            continue
        made = Remote(file, cited, member.how, member.format, member)
        header = heading(cited)
        found.append(Source(cited, file.path, made=made, found=True, header=header, part=part))
    return found
