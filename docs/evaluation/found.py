"""How well `found` tells questions about a document from questions about others.

    python docs/evaluation/found.py LIBRARY DOCUMENT=QUESTIONS ... --same tolstoy,anna-karenina

Each question is asked of its own document, and of each other one but those that `--same` says
overlap; whole, and cut to 50,000 and 500,000 tokens (around the answer, or at a place drawn from a
fixed seed). Thresholds that the other sets of questions give are tried on each set. A document
without a file of questions (`war-and-peace=`) is only one of the others. Prints Markdown.
"""

import argparse
import random
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from longctx.core.measure.eval.qa_places import place
from longctx.core.measure.eval.qa_questions import read_items
from longctx.core.retrieve.evidence import LITTLE, MUCH
from longctx.core.retrieve.lexical import PassageIndex
from longctx.core.store.library import Library

CUTS = (50_000, 500_000, None)  # tokens
NEVER = 0.6  # of the 2% quantile of answerable questions: a margin for documents of another kind


@dataclass(frozen=True)
class Asked:
    """A question of a set, asked of a document that has the answer or has not."""

    questions: str
    cut: int | None
    answerable: bool
    share: float


def area(asked: list[Asked]) -> float:
    """Area under the curve: how often an answerable question has the higher share."""
    yes, no = (np.array([a.share for a in asked if a.answerable == own]) for own in (True, False))
    wins = (yes[:, None] > no).mean() + (yes[:, None] == no).mean() / 2
    return float(wins) if len(yes) and len(no) else float("nan")


def cut_passages(index: PassageIndex, cut: int | None, centre: int) -> tuple[int, int]:
    """The passages of so many tokens around one."""
    tokens, total = index.passages.tokens, int(index.passages.first_tokens[-1])
    if cut is None or cut >= total:
        return 0, len(tokens)
    first = max(0, min(centre - cut // 2, total - cut))
    return tuple(np.searchsorted(tokens, [first, first + cut]).tolist())


def ask_all(library: Library, sets: dict[str, list[Path]], same: set[str]) -> list[Asked]:
    """Every question of every document that is its own, or none of `same` with it."""
    documents = {name: library.document(name) for name in sets}
    indexes = {name: PassageIndex(document) for name, document in documents.items()}
    found = []
    for name, files in sets.items():
        items = [item for file in files for item in read_items(file)]
        placed = place(items, documents[name]) if items else []
        for number, one in enumerate(placed):
            draw = random.Random(f"{name} {number}")
            for other, index in indexes.items():
                if other != name and {name, other} <= same:
                    continue
                own = other == name
                total = int(index.passages.first_tokens[-1])
                centre = int(one.tokens[0][0]) if own and one.tokens else draw.randrange(total)
                for cut in CUTS:
                    within = cut_passages(index, cut, centre)
                    share = index.shared(one.item.question, within=within)
                    found.append(Asked(name, cut, own, -1.0 if share is None else share))
    return found


def told(asked: list[Asked], answerable: bool, little: float, much: float) -> str:
    """Shares of questions that are told no, unsure and yes."""
    shares = np.array([a.share for a in asked if a.answerable == answerable])
    if not len(shares):
        return "| | | "
    no, yes = (shares < little).mean(), (shares >= much).mean()
    return f"| {no:.1%} | {1 - no - yes:.1%} | {yes:.1%} "


def main() -> None:
    """Reads, asks and prints."""
    parser = argparse.ArgumentParser()
    parser.add_argument("library", type=Path)
    parser.add_argument("sets", nargs="+", help="DOCUMENT=QUESTIONS, or further QUESTIONS of it")
    parser.add_argument("--same", default="", help="documents that overlap, with commas")
    given = parser.parse_args()
    sets: dict[str, list[Path]] = {}
    for word in given.sets:
        name, equals, file = word.partition("=")
        files = sets.setdefault(name, []) if equals else sets[next(reversed(sets))]
        files += [Path(file if equals else word)] if (file or not equals) else []
    asked = ask_all(Library.open(given.library), sets, set(given.same.split(",")))

    print("| asked of | area | answerable: no | unsure | yes | others: no | unsure | yes |")
    print("|---|---|---|---|---|---|---|---|")
    for cut in CUTS:
        some = [a for a in asked if a.cut == cut]
        name = "whole documents" if cut is None else f"{cut:,} tokens"
        both = "".join(told(some, own, LITTLE, MUCH) for own in (True, False))
        print(f"| {name} | {area(some):.3f} {both}|")
    said = [a for a in asked if a.share < LITTLE]
    right = sum(not a.answerable for a in said)
    print(f"\n`no` was said {len(said)} times, {right} of them rightly.\n")
    print("| left out | no under | answerable: no | others: no |\n|---|---|---|---|")
    for name, files in sets.items():
        rest = [a.share for a in asked if a.answerable and a.questions != name]
        if not files or not rest:
            continue
        limit = NEVER * float(np.quantile(rest, 0.02))
        own = [a for a in asked if a.questions == name]
        rates = [
            np.mean([a.share < limit for a in own if a.answerable == which] or [np.nan])
            for which in (True, False)
        ]
        print(f"| {name} | {limit:.3f} | {rates[0]:.1%} | {rates[1]:.1%} |")


if __name__ == "__main__":
    main()
