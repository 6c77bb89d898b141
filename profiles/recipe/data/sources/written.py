"""Questions that were written for longctx, with stretches of the books, code or logs they are on.

A line of their file has four fields with tabs between: the source (the opening words of a book, or
a path within a package), some words of the evidence, the question, and the answer as the source has
it. Each stretch has more of its source on either side than was asked about.
"""

import argparse
import random
import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from longctx.core.passages.sentences import sentences
from longctx.profiles.recipe.data.asked import AskedDocument, Question, Span, write
from longctx.profiles.recipe.data.corpus import read_text
from longctx.profiles.recipe.data.sources.books import WIDTH, books, wrapped
from longctx.profiles.recipe.data.sources.context import moved
from longctx.profiles.recipe.data.sources.renaming import renamed

OPENING = 12  # words of a book by which it is known
SIDE = 5000  # characters of the source on either side
FAR = 2 * SIDE + 1000  # characters between two questions of different stretches
NEAR = 900  # characters between the evidence's words and the answer
LINED = ("code", "log")  # how the kinds end whose sentences are lines


@dataclass(frozen=True)
class Written:
    """A question as it stands in the file."""

    source: str
    evidence: str
    question: str
    answer: str


def read_written(path: Path) -> dict[str, list[Written]]:
    """The questions of a file by their sources."""
    found: dict[str, list[Written]] = defaultdict(list)
    for line in read_text(path).splitlines():
        one = Written(*line.split("\t"))
        found[one.source].append(one)
    return found


def opening(text: str) -> str:
    """The words that a book is known by."""
    return " ".join(text[:1000].split()[:OPENING])


def sources_of(paths: Iterable[Path]) -> Iterator[tuple[str, str]]:
    """The sources that files and folders have: their names, and their texts."""
    for path in paths:
        if path.is_dir():
            for file in sorted(path.rglob("*.py")):
                yield str(file.relative_to(path.parent)), read_text(file)
        elif path.suffix == ".py":
            yield path.name, read_text(path)
        else:
            for book in books(path):
                yield opening(book), re.sub(r"[^\S\n]+", " ", book)


def documents(source: str, asked: list[Written], kind: str) -> Iterator[AskedDocument]:
    """The stretches of a source that are asked about.

    Args:
        source: its text.
        asked: the questions; those whose words it has not are left out.
        kind: of the documents; in code, sentences are lines.
    """
    by_line = kind.endswith(LINED)
    # A sentence of prose may be on several lines; a space in place of a newline keeps every place.
    flat = source if by_line else re.sub(r"(?<!\n)\n(?!\n)", " ", source)
    placed = sorted(
        ((span, one) for one in asked if (span := place(flat, one.evidence, one.answer))),
        key=lambda pair: pair[0],
    )
    while placed:
        count = next(
            (n for n in range(1, len(placed)) if placed[n][0][0] - placed[n - 1][0][1] > FAR),
            len(placed),
        )
        taken, placed = placed[:count], placed[count:]
        low = source.rfind("\n", 0, max(0, taken[0][0][0] - SIDE)) + 1
        end = source.find("\n", taken[-1][0][1] + SIDE)
        text = source[low : end if end > 0 else len(source)]
        bounds = lines(text) if by_line else sentences(flat[low : low + len(text)])
        questions = tuple(
            Question(one.question, one.answer, (whole(moved(span, -low), [bounds]),))
            for span, one in taken
        )
        yield AskedDocument(kind, text, questions)


def place(text: str, evidence: str, answer: str) -> Span | None:
    """From some words of the evidence to the answer nearest to them; None if either is missing."""
    words = _pattern(evidence).search(text)
    if not words:
        return None
    low = max(0, words.start() - NEAR)
    answers = [*_pattern(answer).finditer(text, low, words.end() + NEAR)]
    if not answers:
        return None
    middle = (words.start() + words.end()) / 2
    nearest = min(answers, key=lambda match: abs((match.start() + match.end()) / 2 - middle))
    return min(words.start(), nearest.start()), max(words.end(), nearest.end())


def _pattern(text: str) -> re.Pattern:
    return re.compile(r"\s+".join(map(re.escape, text.split())))


def lines(text: str) -> list[Span]:
    """Where a text's lines are, but for empty ones."""
    return [match.span() for match in re.finditer(r"[^\n]+", text)]


def whole(span: Span, cuts: list[list[Span]]) -> Span:
    """The whole sentences, or lines, that a span touches: of several cuts, the shortest."""
    found = []
    for bounds in cuts:
        touched = [one for one in bounds if one[0] < span[1] and span[0] < one[1]]
        found.append((touched[0][0], touched[-1][1]))
    return min(found, key=lambda one: one[1] - one[0])


def main() -> None:
    """Command line; see the module."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("questions", type=Path, help="tab-separated lines")
    parser.add_argument("sources", type=Path, nargs="+", help="book files, packages, modules")
    parser.add_argument(
        "--kind",
        required=True,
        help="of the documents; if it ends in -code or -log, by lines",
    )
    parser.add_argument("--copies", type=int, default=0, help="with other names and numbers")
    parser.add_argument("--out", type=Path, required=True, help="JSON lines (.jsonl.xz)")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    rng, asked = random.Random(given.seed), read_written(given.questions)
    made = [*_made(asked, given.sources, given.kind, given.copies, rng)]
    count = sum(len(one.questions) for one in made) // (1 + given.copies)
    print(f"{count:,} of {sum(map(len, asked.values())):,} questions placed", file=sys.stderr)
    write(given.out, made)


def _made(
    asked: Mapping[str, list[Written]],
    paths: list[Path],
    kind: str,
    copies: int,
    rng: random.Random,
) -> Iterator[AskedDocument]:
    """The documents, then their copies: a search must not have to tell one from the other."""
    found = [
        one
        for name, text in sources_of(paths)
        for one in documents(text, asked.get(name, []), kind)
    ]
    for again in range(1 + copies):
        for one in found:
            own = renamed(one, rng) if again else one
            wrap = not kind.endswith(LINED) and rng.random() < 0.5
            text = wrapped(own.text, rng.randint(*WIDTH)) if wrap else own.text
            yield AskedDocument(kind, text, own.questions)


if __name__ == "__main__":
    main()
