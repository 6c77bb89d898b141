"""Annual reports of TAT-QA: a table, laid out as text, and its paragraphs, as documents.

Keeps the questions whose answer is one stretch of the text; leaves out arithmetic, counts and
answers of several stretches. Each table is laid out in several ways, each a document of its own.
"""

import argparse
import json
import lzma
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from longctx.profiles.recipe.data.asked import AskedDocument, Question, Span, write
from longctx.profiles.recipe.data.made.grids import Grid, Row, Style, laid_out
from longctx.profiles.recipe.data.sources.context import moved
from longctx.profiles.recipe.data.sources.evidence import located, stems

KIND = "report"
HEADS = 3  # heading rows at most
NEAR = 700  # characters from the heading rows to a row's end, within which both are evidence


def grid_of(cells: Sequence[Sequence[str]]) -> Grid:
    """The table with its heading rows: those before the first row that has a label and figures."""
    cells = [[" ".join(cell.split()) for cell in row] for row in cells]
    depth = 0
    for row in cells[:HEADS]:
        if row[0] and any(figures(cell) for cell in row[1:]):
            break
        depth += 1
    depth = min(depth, len(cells) - 1)
    return Grid(cells[:depth], [Row(row[0], row[1:]) for row in cells[depth:]])


def figures(cell: str) -> bool:
    """Whether a cell is a figure, and no year."""
    bare = cell.strip("$€£()% ")
    return bare.replace(",", "").replace(".", "").isdigit() and not (
        len(bare) == 4 and bare[:2] in ("19", "20")
    )


def document(record: Mapping[str, Any], style: Style, rng: random.Random) -> AskedDocument:
    """A table and its paragraphs with their questions, the table before, between or behind."""
    laid = laid_out(grid_of(record["table"]["table"]), style, rng)
    parts = [
        one["text"].strip() for one in sorted(record["paragraphs"], key=lambda one: one["order"])
    ]
    place = rng.randint(0, len(parts))
    text, start, spans = "", 0, {}
    for at in range(len(parts) + 1):
        if at == place:
            start = len(text)
            text += laid.text + "\n\n"
        if at < len(parts):
            spans[at + 1] = (len(text), len(text) + len(parts[at]))
            text += parts[at] + "\n\n"
    text = text.rstrip() + "\n"
    head = moved(laid.head, start) if laid.head else None
    rows = [moved(span, start) for span in laid.rows]
    cells = [[(moved(span, start) if span else None) for span in row] for row in laid.cells]
    asked = (question(one, text, head, rows, cells, spans) for one in record["questions"])
    return AskedDocument(KIND, text, tuple(one for one in asked if one))


def question(
    one: Mapping[str, Any],
    text: str,
    head: Span | None,
    rows: Sequence[Span],
    cells: Sequence[Sequence[Span | None]],
    paragraphs: Mapping[int, Span],
) -> Question | None:
    """A question whose answer is one stretch of the text; None if it is not, or not clearly."""
    answer = one["answer"]
    if one["answer_type"] != "span" or not isinstance(answer, list) or len(answer) != 1:
        return None
    wanted, asked = str(answer[0]).strip(), " ".join(one["question"].split())
    if not wanted or wanted.lower() in asked.lower():
        return None
    if one["answer_from"] == "text":
        return in_paragraph(asked, wanted, text, one["rel_paragraphs"], paragraphs)
    if one["answer_from"] != "table":
        return None
    found = [
        (at, text[slice(*cell)])
        for at, row in enumerate(cells)
        for cell in row
        if cell and bare(text[slice(*cell)]) == bare(wanted)
    ]
    best = max((overlap(asked, text[slice(*rows[at])]) for at, _ in found), default=0)
    fitting = [pair for pair in found if overlap(asked, text[slice(*rows[pair[0]])]) == best]
    if len(fitting) != 1:
        return None
    at, said = fitting[0]
    row = rows[at]
    if text[slice(*row)].count(said) != 1:
        return None
    near = head and row[1] - head[0] <= NEAR and said not in text[slice(*head)]
    return Question(asked, said, (head, row) if near and head else (row,))


def in_paragraph(
    asked: str, wanted: str, text: str, related: Iterable[str], paragraphs: Mapping[int, Span]
) -> Question | None:
    """A question that one of its paragraphs answers."""
    for number in related:
        start, end = paragraphs.get(int(number), (0, 0))
        if place := located(text[start:end], wanted, asked):
            return Question(asked, place[0], (moved(place[1], start),))
    return None


def bare(text: str) -> str:
    """A figure without currency, blanks and percent sign."""
    return "".join(sign for sign in text.lower() if not sign.isspace() and sign not in "$€£%")


def overlap(asked: str, row: str) -> int:
    """How many words a question and a row share."""
    return len(stems(asked) & stems(row))


def documents(
    records: Iterable[Mapping[str, Any]], copies: int, seed: int
) -> Iterator[AskedDocument]:
    """Each record in some layouts; without those that have no question left."""
    rng = random.Random(seed)
    for record in records:
        for _ in range(copies):
            made = document(record, Style.drawn(rng), rng)
            if made.questions:
                yield made


def main() -> None:
    """Command line; see the module."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("records", type=Path, help="JSON of TAT-QA (also .xz)")
    parser.add_argument("--out", type=Path, required=True, help="JSON lines (also .xz)")
    parser.add_argument("--copies", type=int, default=3, help="layouts of each table")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    opened = lzma.open if given.records.suffix == ".xz" else open
    with opened(given.records, "rt", encoding="utf-8") as file:
        records = json.load(file)
    write(given.out, documents(records, given.copies, given.seed))


if __name__ == "__main__":
    main()
