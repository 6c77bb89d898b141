"""Searches that longctx is compared with: BM25S, and sentence encoders from their data files."""

import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from longctx.core.measure.journal import Journal
from public_sets.items import PublicSet, Question, Record
from public_sets.passages import Piece, pieces
from public_sets.rule import content

if TYPE_CHECKING:
    import numpy as np

Search = Callable[[str], "np.ndarray"]  # from a question to a score for each passage
Index = Callable[[Sequence[str]], Search]  # from passages to what searches them


def ranked(
    found: PublicSet,
    questions: Sequence[Question],
    system: str,
    index: Index,
    out: Path,
    k: int,
    together: bool = False,
    seconds: float | None = None,
) -> int:
    """Ranks the passages for each question that an earlier run has not; how many are left.

    Args:
        found: the set.
        questions: those to search for.
        system: its name in the table.
        index: makes what searches.
        out: folder of the results.
        k: passages kept of each ranking.
        together: all documents of the set are searched for every question.
        seconds: after so many no further question begins; None: no limit.

    Raises:
        LongctxError: as `asking.ask_all`.
    """
    ends = None if seconds is None else time.monotonic() + seconds
    settings = {"set": found.name, "digest": found.digest, "system": system, "way": "rank"}
    with Journal(out, {**settings, "k": k, "together": together}) as journal:
        known: dict[str, tuple[list[Piece], Search]] = {}
        for question in questions:
            if ends is not None and time.monotonic() > ends:
                break
            if journal.get(question.name) is not None:
                continue
            key = "" if together else question.document
            if key not in known:
                print(f"  {key or 'all documents'}", file=sys.stderr, flush=True)
                known.clear()
                documents = [*found.documents] if together else [question.document]
                some = [piece for document in documents for piece in pieces(found, document)]
                known[key] = some, index([piece.text for piece in some])
            some, search = known[key]
            journal.put(question.name, _best(some, search(question.text), k))
        return sum(journal.get(question.name) is None for question in questions)


def _best(some: list[Piece], scores: "np.ndarray", k: int) -> Record:
    best = (-scores).argsort(kind="stable")[:k]
    return {"passages": [some[number].spot() for number in best.tolist()]}


def bm25s(texts: Sequence[str]) -> Search:
    """BM25 of the package `bm25s` with its usual parameters, over stems."""
    from bm25s import BM25

    index = BM25()
    index.index([content(text) or [""] for text in texts], show_progress=False)
    return lambda question: index.get_scores(content(question) or [""])
