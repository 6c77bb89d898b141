"""Passages of documents as resources: their addresses, and the lines at one.

    longctx://NAME                          what the document is, as JSON
    longctx://NAME/SOURCE?lines=12-40       lines of one of its texts, each with its number

Names are percent-encoded; a slash in SOURCE need not be.
"""

import re
from urllib.parse import quote

from longctx.core.common.errors import UsageError

SCHEME = "longctx"
OF_DOCUMENT = f"{SCHEME}://{{name}}"
OF_LINES = f"{SCHEME}://{{name}}/{{+source}}{{?lines}}"
MOST_LINES = 500  # of one read
MOST_CHARACTERS = 100_000
USUAL_LINES = 200  # of a source, where no lines are named
_LINES = re.compile(r"L?([0-9]{1,15})(?:-L?([0-9]{1,15}))?")


def of_document(name: str) -> str:
    """The address of a document."""
    return f"{SCHEME}://{quote(name, safe='')}"


def of_lines(name: str, source: str, first: int, last: int) -> str:
    """The address of lines [first, last] of a source, from 1."""
    lines = f"{first}" if first == last else f"{first}-{last}"
    return f"{of_document(name)}/{quote(source)}?lines={lines}"


def lines_named(text: str | None) -> tuple[int, int]:
    """The first and the last line that `lines=` names, from 1; no more than are read at once.

    Raises:
        UsageError: it does not say "12" or "12-40".
    """
    if text is None:
        return 1, USUAL_LINES
    found = _LINES.fullmatch(text)
    first, last = (int(number) for number in found.groups(found[1])) if found else (0, 0)
    if not 1 <= first <= last:
        raise UsageError(f"cannot read lines {text!r}", "", "Name them as lines=12 or lines=12-40.")
    return first, min(last, first + MOST_LINES - 1)


def numbered(lines: list[tuple[int, str]]) -> str:
    """Lines with their numbers, as many as are read at once; a line that is cut ends with "…"."""
    told, room = [], MOST_CHARACTERS
    for number, text in lines:
        cut = text if len(text) <= room else f"{text[:room]} …"
        told.append(f"{number}: {cut}\n")
        room -= len(told[-1])
        if room <= 0:
            break
    return "".join(told)
