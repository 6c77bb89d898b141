"""How often the first passage of `find` has the answer, and how often the line that it prints.

    python docs/evaluation/found_lines.py LIBRARY tolstoy=tolstoy.questions.jsonl networkx=...
    python docs/evaluation/found_lines.py LIBRARY --names networkx=200

Of each question, the first `-k` passages are looked at. A passage is right if it has the place of
the answer; a line, if it holds an accepted answer, in any case; both, if it does so in a right
passage. The last column is of the right passage itself, wherever it is ranked. With `--names`, so
many names of functions, classes and constants that one line of the document's Python files defines
are drawn from a fixed seed and searched for; counted is whether the first line defines it. Prints
Markdown, with 95% intervals.
"""

import argparse
import ast
import random
from collections import Counter
from pathlib import Path

import numpy as np

from longctx.core.measure.eval.qa_places import PlacedQuestion, place
from longctx.core.measure.eval.qa_questions import read_items
from longctx.core.measure.intervals import wilson
from longctx.core.passages.matching import Query
from longctx.core.retrieve.finding import find_hits
from longctx.core.retrieve.hit import Hit
from longctx.core.retrieve.lexical import PassageIndex
from longctx.core.retrieve.ranked import Ranked, by_words
from longctx.core.store.document import Document
from longctx.core.store.library import Library

SEED = 0


def share(hits: float, total: int) -> str:
    """A count with its interval."""
    if not total:
        return "-"
    low, high = wilson(hits, total)
    return f"{hits:.0f} of {total} ({low:.0%} to {high:.0%})"


def spaced(text: str) -> str:
    """A text in lower case with single spaces."""
    return " ".join(text.lower().split())


class Searched:
    """A document that is searched by words alone."""

    def __init__(self, document: Document):
        self.document, self.index = document, PassageIndex(document)

    def hits(self, words: str, most: int, only: set[int] | None = None) -> list[Hit]:
        """The best hits; `only`: of these passages alone."""
        ranked = by_words(self.index, words)
        if only is not None:
            kept = np.isin(np.arange(len(ranked.scores)), list(only))
            scores = np.where(kept, ranked.scores, -np.inf)
            ranked = Ranked(ranked.passages, scores, kept.astype(np.float64), None)
        query = Query(words, self.index.word_weights(words), None, self.index.languages)
        return find_hits([self.document], ranked, query, most, self.index)

    def passages_of(self, question: PlacedQuestion) -> set[int]:
        """The passages in which the answer begins."""
        first = self.index.passages.tokens
        places = np.array([start for start, _ in question.tokens])
        return set((np.searchsorted(first, places, side="right") - 1).tolist())

    def passage(self, hit: Hit) -> int:
        """The number of the passage in which a hit begins."""
        return self.index.passages.containing(hit.document, hit.source, hit.start)


def asked(searched: Searched, questions: list[PlacedQuestion], most: int) -> list[list[bool]]:
    """Of each question: right passage, line, both, and the line of the right passage."""
    found = []
    for one in questions:
        answers = [spaced(answer) for answer in one.item.answers]

        def holds(hit: Hit, answers: list[str] = answers) -> bool:
            return any(answer in spaced(hit.match.text) for answer in answers)

        right = searched.passages_of(one)
        hits = searched.hits(one.item.question, most)
        own = searched.hits(one.item.question, 1, set(sorted(right)[:1]))
        there = [searched.passage(hit) in right for hit in hits]
        lines = [holds(hit) for hit in hits]
        both = any(a and b for a, b in zip(there, lines, strict=True))
        found.append([any(there), any(lines), both, any(map(holds, own))])
    return found


def defined(document: Document) -> dict[str, tuple[str, int]]:
    """Names that one line of the document's Python files defines: the source, and the line."""
    found: dict[str, list[tuple[str, int]]] = {}
    for number, source in enumerate(document.manifest.sources):
        if not source.name.endswith(".py"):
            continue
        tree = ast.parse(document.text(number, 0, source.size))
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef):
                found.setdefault(node.name, []).append((source.name, node.lineno))
        for node in tree.body:
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                found.setdefault(node.targets[0].id, []).append((source.name, node.lineno))
    return {name: places[0] for name, places in found.items() if len(places) == 1}


def named(searched: Searched, count: int) -> list[tuple[bool, bool]]:
    """Of names drawn: whether the first line defines it, by itself and in a question."""
    places = defined(searched.document)
    names = random.Random(SEED).sample(sorted(places), min(count, len(places)))
    sources = searched.document.manifest.sources
    found = []
    for name in names:
        each = []
        for words in (name, f"where is {name} defined"):
            first = searched.hits(words, 1)
            told = [(sources[hit.source].name, hit.match.line) for hit in first]
            each.append(told == [places[name]])
        found.append((each[0], each[1]))
    return found


def main() -> None:
    """Reads, searches and prints."""
    parser = argparse.ArgumentParser()
    parser.add_argument("library", type=Path)
    parser.add_argument("sets", nargs="*", help="DOCUMENT=QUESTIONS, or further QUESTIONS of it")
    parser.add_argument("-k", default=1, type=int, help="passages that count; by default 1")
    parser.add_argument("--names", default="", help="DOCUMENT=COUNT: names to draw")
    given = parser.parse_args()
    library = Library.open(given.library)
    if given.names:
        name, _, count = given.names.partition("=")
        found = named(Searched(library.document(name)), int(count))
        for label, one in zip(
            ("NAME", "where is NAME defined"), zip(*found, strict=True), strict=True
        ):
            print(f"| {label} | {share(sum(one), len(one))} |")
    print("\n| document | right passage | line | both | line of the right passage |")
    print("|---|---|---|---|---|")
    every: list[list[bool]] = []
    sets: dict[str, list[Path]] = {}
    for word in given.sets:
        name, equals, file = word.partition("=")
        files = sets.setdefault(name, []) if equals else sets[next(reversed(sets))]
        files.append(Path(file if equals else word))
    for name, files in sets.items():
        document = library.document(name)
        items = [item for file in files for item in read_items(file)]
        placed = [one for one in place(items, document) if one.tokens]
        found = asked(Searched(document), placed, given.k)
        every += found
        print(row(name, found))
    print(row("**all**", every))


def row(name: str, found: list[list[bool]]) -> str:
    """A row of the table."""
    counts = Counter(number for one in found for number, hit in enumerate(one) if hit)
    told = " | ".join(share(counts[number], len(found)) for number in range(4))
    return f"| {name} | {told} |"


if __name__ == "__main__":
    main()
