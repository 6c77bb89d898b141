"""How many questions the reader answers: first, among its three likeliest, and what it refuses.

    python docs/evaluation/pointed.py LIBRARY tolstoy=tolstoy.questions.jsonl networkx=...

Documents of a library are asked as `ask` asks them, by the reader. An answer is right if it has an
accepted one in it, as whole words. A question without accepted answers is one that the text does
not answer: right is `found` "no". Prints Markdown, with 95% intervals; `--out` keeps every answer.
"""

import argparse
import json
import time
from pathlib import Path
from typing import Any

from longctx import Library
from longctx.core.measure.eval.qa_questions import read_items
from longctx.core.measure.eval.text_match import contained, exact_match
from longctx.core.measure.intervals import wilson

FIRST = 3  # answers that are looked at
COLUMNS = ("answered", "exactly", "one of three", "refused", "answered where none is")


def share(hits: int, total: int) -> str:
    """A count with its interval."""
    if not total:
        return "-"
    low, high = wilson(hits, total)
    return f"{hits} of {total} ({low:.0%} to {high:.0%})"


def asked(library: Library, name: str, file: Path) -> list[dict[str, Any]]:
    """Every answer to a file of questions, with what is right of it."""
    found = []
    with library.document(name) as document:
        for item in read_items(file):
            began = time.perf_counter()
            answer = document.ask(item.question, answer_by="point")
            said = [answer.answer, *(one.quote.text for one in answer.also_possible)][:FIRST]
            right = [contained(tuple(item.answers), text) > 0 for text in said]
            found.append(
                {
                    "document": name,
                    "question": item.question,
                    "answers": list(item.answers),
                    "said": said,
                    "likely": answer.likely,
                    "found": answer.found,
                    "answered": right[0],
                    "exactly": exact_match(tuple(item.answers), said[0]) > 0,
                    "one of three": any(right),
                    "seconds": round(time.perf_counter() - began, 3),
                }
            )
    return found


def row(name: str, answers: list[dict[str, Any]]) -> str:
    """A row of the table."""
    there = [one for one in answers if one["answers"]]
    absent = [one for one in answers if not one["answers"]]
    counts = [share(sum(one[what] for one in there), len(there)) for what in COLUMNS[:3]]
    counts.append(share(sum(one["found"] == "no" for one in there), len(there)))
    counts.append(share(sum(one["found"] != "no" for one in absent), len(absent)))
    seconds = sorted(one["seconds"] for one in answers)
    return f"| {name} | {' | '.join(counts)} | {seconds[len(seconds) // 2]:.2f} |"


def main() -> None:
    """Asks and prints."""
    parser = argparse.ArgumentParser()
    parser.add_argument("library", type=Path)
    parser.add_argument("sets", nargs="+", help="DOCUMENT=QUESTIONS")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    every: list[dict[str, Any]] = []
    print(f"| document | {' | '.join(COLUMNS)} | seconds, median |")
    print("|---" * (len(COLUMNS) + 2) + "|")
    with Library(given.library) as library:
        for word in given.sets:
            name, _, file = word.partition("=")
            answers = asked(library, name, Path(file))
            every += answers
            print(row(f"{name}, {Path(file).stem}", answers), flush=True)
    print(row("**all**", every))
    if given.out:
        given.out.write_text("".join(f"{json.dumps(one)}\n" for one in every), "utf-8")


if __name__ == "__main__":
    main()
