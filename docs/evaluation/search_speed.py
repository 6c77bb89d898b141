"""What a search costs on a CPU: the published rule, late interaction, words, and all together.

    python docs/evaluation/search_speed.py LIBRARY DOCUMENT [--threads N] [--runs N]

The sources take turns, so that all meet the same machine; what is told is the median of each, and
its ratio to the published rule's. Reading the question through the model is in all but words'.
"""

import argparse
import time
from pathlib import Path
from statistics import median

from longctx.core.ask.session import Session
from longctx.core.engine.choice import Setup

QUERIES = (
    "Where did they meet again after so many years?",
    "the name of the horse that won the race",
    "Who paid the debt, and how much was it in all?",
    "default number of iterations",
)
SOURCES = ("method", "maxsim", "bm25", "hybrid")


def main() -> None:
    """Times and prints."""
    parser = argparse.ArgumentParser()
    parser.add_argument("library", type=Path)
    parser.add_argument("document")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--gather", type=int, default=2048)
    given = parser.parse_args()
    spent: dict[str, list[float]] = {name: [] for name in SOURCES}
    with Session(given.library, given.document, Setup(threads=given.threads)) as session:
        for run in range(given.runs + 1):
            for query in QUERIES:
                for name in SOURCES:
                    begun = time.perf_counter()
                    session.gathered(query, name, [given.gather])
                    if run:  # the first round is not counted
                        spent[name].append(time.perf_counter() - begun)
        print(f"{session.document.manifest.tokens:,} tokens, {given.threads} threads")
    base = median(spent["method"])
    for name, seconds in spent.items():
        print(f"{name:8} {median(seconds):.3f} s, {median(seconds) / base:.2f} of method")


if __name__ == "__main__":
    main()
