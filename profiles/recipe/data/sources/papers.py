"""Documents that were written for longctx, with their questions: articles, and papers of all sorts.

A file has one document after another:

    === article
    its text, any lines
    ---q
    ? A question => its answer || some words of the sentence or line that tells it
"""

import argparse
import random
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from longctx.core.passages.sentences import sentences
from longctx.profiles.recipe.data.asked import AskedDocument, Question, write
from longctx.profiles.recipe.data.corpus import read_text
from longctx.profiles.recipe.data.sources import written
from longctx.profiles.recipe.data.sources.renaming import renamed

DOCUMENT = re.compile(r"(?m)^=== (.+)\n((?s:.*?))\n---q\n((?:\?.*\n?|\s*\n)*)")
QUESTION = re.compile(r"\? (.+?) => (.+?) \|\| (.+)")


def documents(text: str) -> Iterator[tuple[AskedDocument, int]]:
    """The documents of a file, and how many questions of each have no place in it.

    An article's kind is `article`, that of everything else `paper`.
    """
    for match in DOCUMENT.finditer(text):
        kind, told = ("article" if match[1] == "article" else "paper"), match[2].strip("\n")
        flat = re.sub(r"(?<!\n)\n(?!\n)", " ", told)
        bounds = [written.lines(told), sentences(flat)]
        asked = [QUESTION.fullmatch(line.strip()) for line in match[3].splitlines() if line.strip()]
        placed = [
            Question(one[1], one[2], (written.whole(place, bounds),))
            for one in asked
            if one and (place := written.place(flat, one[3], one[2]))
        ]
        yield AskedDocument(kind, told, tuple(placed)), len(asked) - len(placed)


def main() -> None:
    """Command line; see the module."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", type=Path, nargs="+", help="files of documents (also .xz)")
    parser.add_argument("--copies", type=int, default=0, help="with other names and numbers")
    parser.add_argument("--out", type=Path, required=True, help="JSON lines (.jsonl.xz)")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    rng = random.Random(given.seed)
    found = [pair for path in given.files for pair in documents(read_text(path))]
    made, lost = [one for one, _ in found], sum(count for _, count in found)
    asked = sum(len(one.questions) for one in made)
    print(f"{len(made):,} documents, {asked:,} questions; {lost:,} not placed", file=sys.stderr)
    copies = [renamed(one, rng) for _ in range(given.copies) for one in made]
    write(given.out, [*made, *copies])


if __name__ == "__main__":
    main()
