"""What stands beside the text of Microsoft's formats: comments, text of charts, page margins.

Of a chart its titles, the names of its series and its categories are read, where they are words;
its numbers are those of a table that is read anyway.
"""

import html
import re
from typing import NamedTuple

from longctx.core.sources.office import events

COMMENT = "comment: "  # before the text of one
# What a program writes before a thread for older ones, which do not know threads.
_FOR_OLDER = re.compile(r"^\[Threaded comment\].*?Comment:\s*", re.S)
_MARGINS = re.compile(
    rb"<(?:\w+:)?((?:odd|even|first)(?:Header|Footer))(?:\s[^>]*)?>([^<]*)<", re.S
)
# Of a margin: "&C" for its middle part, fields such as the page's number, and forms.
_CODES = re.compile(
    r'&(?:"[^"]*"|K(?:[0-9A-Fa-f]{6}|[0-9A-Fa-f]{2}[+-]\d{3})|\d{1,3}|(?P<part>[LCR])|(?P<and>&)|.)'
)
_WORDS = {"c:strCache", "c:strLit", "c:multiLvlStrCache"}


class CellComment(NamedTuple):
    """A comment on a cell, counted from 1."""

    row: int
    column: int
    text: str


def chart(xml: bytes) -> str:
    """Titles of a chart, a line each; then its series and categories in one, apart by tabs."""
    titles: list[str] = []
    labels: list[str] = []
    within: list[str] = []  # the elements that are open
    for kind, name, _ in events(xml):
        if kind == "end":
            within.pop()
        elif kind == "start":
            within.append(name)
            if name == "c:title":
                titles.append("")
            elif name == "a:p" and "c:title" in within:
                titles[-1] += " "
            elif name == "c:v":
                labels.append("")
        elif within[-1] == "a:t" and "c:title" in within:
            titles[-1] += name
        elif within[-1] == "c:v" and _WORDS & {*within} and {"c:tx", "c:cat"} & {*within}:
            labels[-1] += name
    lines = [*map(_plain, titles), "\t".join(filter(None, dict.fromkeys(map(_plain, labels))))]
    return "".join(f"{line}\n" for line in dict.fromkeys(filter(None, lines)))


def slide_comments(xml: bytes) -> str:
    """The comments on a slide, a line each; of a thread every answer."""
    found: list[str] = []
    within: list[str] = []
    for kind, name, _ in events(xml):
        if kind == "end":
            within.pop()
        elif kind == "start":
            within.append(name)
            if name in ("p:text", "a:p"):
                found.append("")
        elif within[-1] in ("p:text", "a:t") and found:
            found[-1] += name
    return "".join(f"{COMMENT}{text}\n" for text in map(_plain, found) if text)


def cell_comments(xml: bytes) -> list[CellComment]:
    """The comments on the cells of a sheet, in order of the file; of a thread every answer."""
    found: list[CellComment] = []
    within: list[str] = []
    for kind, name, told in events(xml):
        local = name.rpartition(":")[2]
        if kind == "end":
            within.pop()
        elif kind == "start":
            within.append(local)
            if local in ("comment", "threadedComment"):
                found.append(CellComment(*_cell(told.get("ref", "")), ""))
        elif within[-1] in ("t", "text") and found and "rPh" not in within:
            found[-1] = found[-1]._replace(text=found[-1].text + name)
    told = (each._replace(text=_plain(_FOR_OLDER.sub("", each.text))) for each in found)
    return [each for each in told if each.text]


def margins(xml: bytes) -> str:
    """Headers and footers of a sheet, a line each, from the end of its XML; equal ones once."""
    found = dict.fromkeys(_margin(text) for _, text in _MARGINS.findall(xml))
    return "".join(f"{line}\n" for line in found if line)


def _margin(text: bytes) -> str:
    """The words of a header or footer, its parts apart by tabs, without what is filled in."""
    plain = html.unescape(text.decode("utf-8", "replace"))
    words = _CODES.sub(
        lambda code: "\t" if code["part"] else "&" if code["and"] else "",
        plain,
    )
    return "\t".join(part for part in map(_plain, words.split("\t")) if any(map(str.isalpha, part)))


def _plain(text: str) -> str:
    return " ".join(text.split())


def _cell(name: str) -> tuple[int, int]:
    """Row and column of a cell such as B7; 0 and 0 if it is no such name."""
    match = re.fullmatch(r"([A-Z]{1,3})([1-9][0-9]{0,6})", name)
    if not match:
        return 0, 0
    column = 0
    for letter in match[1]:
        column = column * 26 + ord(letter) - ord("A") + 1
    return int(match[2]), column
