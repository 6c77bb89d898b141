"""Books as documents: stretches of their text, each with a few questions made by rules.

Half of the documents have their lines wrapped, the others a paragraph on a line. Of books in which
people talk, most often fiction, a larger share is taken. Knows nothing of what a book is about.
"""

import argparse
import random
import re
from collections.abc import Iterator
from pathlib import Path

from longctx.profiles.recipe.data.asked import AskedDocument, Question, write
from longctx.profiles.recipe.data.corpus import read_text
from longctx.profiles.recipe.data.sources.prose_questions import asked_of

SIZE = (10_000, 16_000)  # characters
WIDTH = (60, 80)
TALK = 0.2  # of the paragraphs begin with a quotation mark: the book is taken for fiction
QUOTES = "\"'\u201c\u2018"
OPENING = 3000  # characters in which a book's title stands
BETWEEN = "<|doc|>"  # the line between two books of a file


def books(path: Path) -> list[str]:
    """The books of a file."""
    return [book.strip() for book in re.split(rf"(?m)^{re.escape(BETWEEN)}$", read_text(path))]


def stretches(book: str, rng: random.Random) -> Iterator[str]:
    """Cuts a book into consecutive stretches at the ends of paragraphs.

    Each has `SIZE` characters, unless one paragraph has more; a rest that is too short is dropped.
    """
    held, size, wanted = [], 0, rng.randint(*SIZE)
    for paragraph in re.split(r"\n\s*\n", book):
        paragraph = re.sub(r"[^\S\n]+", " ", paragraph.strip())
        if size + len(paragraph) > wanted and size >= SIZE[0]:
            yield "\n\n".join(held)
            held, size, wanted = [], 0, rng.randint(*SIZE)
        held.append(paragraph)
        size += len(paragraph) + 2
    if size >= SIZE[0]:
        yield "\n\n".join(held)


def wrapped(text: str, width: int) -> str:
    """A text with newlines in place of spaces, so that lines have at most `width` characters.

    Every character stays where it is. A word longer than that keeps its line.
    """
    return re.sub(rf"(?m)(?=\S)(.{{1,{width}}}) (?=\S)", r"\1\n", text)


def talks(book: str) -> bool:
    """Whether many paragraphs of a book are said by somebody."""
    paragraphs = re.findall(r"(?m)^\S.{20,}$", book)
    said = sum(paragraph[0] in QUOTES for paragraph in paragraphs)
    return said > TALK * len(paragraphs)


def documents(book: str, share: float, rng: random.Random) -> Iterator[AskedDocument]:
    """Stretches of a book drawn at random, with their questions.

    Args:
        book: its text.
        share: of its stretches, or of half of them if the book does not talk.
        rng: draws the stretches, their sizes and how they are wrapped.
    """
    share = share if talks(book) else share / 2
    for stretch in stretches(book, rng):
        if rng.random() < share:
            questions: tuple[Question, ...] = asked_of(stretch, rng)
            wrap = rng.random() < 0.5
            text = wrapped(stretch, rng.randint(*WIDTH)) if wrap else stretch
            yield AskedDocument("book", text, questions)


def main() -> None:
    """Command line; see the module."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("books", type=Path, nargs="+", help="text files (also .xz), sorted")
    parser.add_argument("--out", type=Path, required=True, help="JSON lines (.jsonl.xz)")
    parser.add_argument("--share", type=float, default=0.4, help="of the stretches of fiction")
    parser.add_argument(
        "--held", type=int, default=4_000_000, help="characters at the end kept from training"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--leave-out", nargs="*", default=[], help="words at the start of books kept from training"
    )
    given = parser.parse_args()
    rng = random.Random(given.seed)
    texts = [books(path) for path in given.books]
    while texts[-1] and given.held > 0:
        given.held -= len(texts[-1].pop())
    used = (book for file in texts for book in file)
    used = (book for book in used if not any(words in book[:OPENING] for words in given.leave_out))
    made = [one for book in used for one in documents(book, given.share, rng)]
    write(given.out, made)


if __name__ == "__main__":
    main()
