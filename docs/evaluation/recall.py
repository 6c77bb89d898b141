"""Gather recall and answers over real documents: REFORM beside BM25, at the same token budgets.

A question counts as gathered when the byte offset of its answer lies in a passage; as answered when
the answer holds one of the accepted strings as whole words. BM25 ranks passages of 128 tokens of
the same document (stemmed, English stop words; `pip install 'longctx[bm25]'`).

    longctx ingest $LONGCTX_EVAL/tolstoy.txt
    python docs/evaluation/recall.py --doc tolstoy --questions $LONGCTX_EVAL/tolstoy.questions.jsonl
"""

import argparse
import json
import re
from pathlib import Path

import bm25s
import Stemmer
import torch

from longctx.cli.settings import library_path
from longctx.core.gather import top_tokens
from longctx.core.session import Session
from longctx.core.setup import Setup

BUDGETS = (1024, 2048, 4096, 8192)
PASSAGE = 128  # tokens


def token_at(session: Session, where: dict) -> int:
    """The token that holds a byte of a source, named by its whole path or the end of it."""
    document = session.document
    name = where.get("path") or where["doc"]
    sources = document.manifest.sources
    (number,) = [i for i, source in enumerate(sources) if source.name.endswith(name)]
    first, count = sources[number].first_token, sources[number].tokens
    starts = document.take("tokens", torch.arange(first, first + count))["starts"]
    return first + int(torch.searchsorted(starts, where["byte_offset"], right=True)) - 1


class Bm25:
    """BM25 over the document's passages of 128 tokens."""

    def __init__(self, session: Session):
        document = session.document
        self._stemmer = Stemmer.Stemmer("english")
        self._spans = []
        for source in document.manifest.sources:
            end = source.first_token + source.tokens
            firsts = range(source.first_token, end, PASSAGE)
            self._spans += [(first, min(first + PASSAGE, end)) for first in firsts]
        texts = [
            document.text(*document.span(*span)).decode("utf-8", "replace") for span in self._spans
        ]
        self._index = bm25s.BM25()
        self._index.index(self._words(texts), show_progress=False)

    def rank(self, question: str, token: int) -> int:
        """How many passages come before the one that holds a token."""
        count = min(max(BUDGETS) // PASSAGE, len(self._spans))
        best = self._index.retrieve(self._words([question]), k=count, show_progress=False)[0][0]
        hits = [
            place for place, i in enumerate(best) if self._spans[i][0] <= token < self._spans[i][1]
        ]
        return hits[0] if hits else count

    def _words(self, texts: list[str]):
        return bm25s.tokenize(texts, stopwords="en", stemmer=self._stemmer, show_progress=False)


def is_right(answer: str, accepted: list[str]) -> bool:
    """Whether an answer holds an accepted string as whole words."""
    return any(re.search(rf"(?<!\w){re.escape(x)}(?!\w)", answer, re.IGNORECASE) for x in accepted)


def ask(session: Session, question: str) -> str:
    """The answer's text; Ctrl-C ends the whole run, not the answer alone."""
    answer = session.ask(question)
    if answer.interrupted:
        raise KeyboardInterrupt
    return answer.answer


def main() -> None:
    """Prints a table and, with --json, every trial."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--library", type=Path, default=None)
    parser.add_argument("--doc", required=True)
    parser.add_argument("--questions", type=Path, required=True)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--no-answers", action="store_true")
    options = parser.parse_args()
    session = Session(library_path(options.library), options.doc, Setup())
    bm25, total = Bm25(session), session.document.manifest.tokens
    trials = []
    for line in options.questions.read_text("utf-8").splitlines():
        item = json.loads(line)
        token = token_at(session, item["where"])
        scores = session.score(item["question"])
        chosen = {b: token in top_tokens(scores, b, total, (0, 0)) for b in BUDGETS}
        rank = bm25.rank(item["question"], token)
        answer = "" if options.no_answers else ask(session, item["question"])
        trials.append(
            {
                "question": item["question"],
                "reform": chosen,
                "bm25": {b: rank < b // PASSAGE for b in BUDGETS},
                "best_score": float(scores.raw.max()),
                "answer": answer,
                "right": is_right(answer, item["answers"]),
            }
        )
    print(f"{options.doc}: {total:,} tokens, {len(trials)} questions")
    for source in ("reform", "bm25"):
        print(f"  {source:7s}", {b: sum(trial[source][b] for trial in trials) for b in BUDGETS})
    print(f"  answered {sum(trial['right'] for trial in trials)}")
    if options.json:
        options.json.write_text(json.dumps(trials, indent=1), "utf-8")


if __name__ == "__main__":
    main()
