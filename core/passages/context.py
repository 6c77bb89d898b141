"""What a passage needs from before it: the head of its table and the heading above it.

A row far below its table's head says neither which years nor which columns its figures belong to.
Knows no documents.
"""

import re
from collections import Counter

REACH = 4000  # characters before the passage in which is looked
LONGEST = 240  # characters of the context
LONGEST_CELL = 30  # characters, on average, of a table with separators

_YEARS = re.compile(r"(?:19|20)\d\d\b\D{1,40}?\b(?:19|20)\d\d\b(?:\D{1,40}?\b(?:19|20)\d\d\b)*")
_FIGURE = re.compile(r"\(?[-$\u20ac\u00a3]?\d[\d,.]*\d\)?%?|\d")
_UNITS = re.compile(
    r"\(?\b(?:amounts |dollars |figures )?in (?:thousands|millions|billions)\b[^\n]{0,60}", re.I
)
_MARKED = re.compile(r"#{1,6}[ \t]+(\S.*)")
_NUMBERED = re.compile(
    r"(?:Item|Note|Section|Chapter|Part|Appendix)\s+[\dIVXA-Z]+|\d{1,2}(?:\.\d{1,2})*\.?\s+[A-Z]"
)
_HEADING_SIZE = 90  # characters


def context(before: str, passage: str) -> str:
    """The lines before a passage that say what it is about.

    Args:
        before: the text that ends where the passage begins.
        passage: its text.

    Returns:
        A few lines of at most LONGEST characters together: a heading, then a table's units and
        head; empty where there are none.
    """
    near = before[-REACH:]
    parts = [_heading(near)]
    if is_table(passage):
        parts += _table_head(before, near, passage)
    own = passage[:LONGEST]
    kept = [part for part in dict.fromkeys(parts) if part and part not in own]
    return "\n".join(kept)[:LONGEST]


def is_table(passage: str) -> bool:
    """Whether a passage is mostly figures in rows."""
    lines = [line for line in passage.split("\n") if line.strip()]
    figures = sum(bool(_FIGURE.search(line)) for line in lines)
    many = len(_FIGURE.findall(passage)) >= max(4, len(passage.split()) // 5)
    rows = many and figures >= len(lines) / 3
    return len(lines) >= 2 and (rows or bool(_separator(passage)))


def _table_head(before: str, near: str, passage: str) -> list[str]:
    """Its units, and the line of its years or of its columns' names."""
    found = []
    units = [*_UNITS.finditer(near)]
    if units:
        found.append(units[-1][0].strip())
    years = [*_YEARS.finditer(near)]
    if years:
        start = near.rfind("\n", 0, years[-1].start()) + 1
        above = near[:start].rstrip("\n").rpartition("\n")[2]
        lead = above.strip() if 0 < len(above.strip()) < 60 and not _FIGURE.search(above) else ""
        line = " ".join(near[start : years[-1].end()].split())
        found.append(f"{lead} {line}".strip()[-120:])
        return found
    mark = _separator(passage)
    if mark:
        head = _first_row(before, mark)
        found.append(head[:160])
    return found


def _separator(passage: str) -> str:
    """What stands between the cells of most rows, if anything does."""
    rows = [line for line in passage.split("\n") if line.strip()]
    for mark in ("|", "\t", ";", ","):
        counts = Counter(row.count(mark) for row in rows)
        usual, alike = counts.most_common(1)[0] if counts else (0, 0)
        short = len(passage) < LONGEST_CELL * (usual + 1) * len(rows)
        if usual >= 2 and alike >= max(2, len(rows) * 0.6) and short:
            return mark
    return ""


def _first_row(before: str, mark: str) -> str:
    """The first row of the table that goes on where the text ends."""
    first = ""
    end = len(before)
    while end > 0:
        start = before.rfind("\n", 0, end - 1) + 1
        line = before[start:end].strip()
        if line.count(mark) < 2:
            break
        first, end = line, start
    return first


def _heading(near: str) -> str:
    """The nearest line above that stands alone as headings do."""
    lines = near.split("\n")
    for at in range(len(lines) - 1, -1, -1):
        line = lines[at].strip()
        if marked := _MARKED.match(line):
            return marked[1][:_HEADING_SIZE]
        if not 2 < len(line) <= _HEADING_SIZE or line[-1] in ".,;:!?\"'|":
            continue
        alone = at > 0 and not lines[at - 1].strip()
        if _NUMBERED.match(line) and (alone or line.istitle()):
            return line
        worded = sum(word[:1].isupper() for word in line.split() if word[:1].isalpha())
        if alone and worded >= max(1, len(line.split()) * 0.6) and not _FIGURE.search(line):
            return line
    return ""
