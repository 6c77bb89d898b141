"""Gather recall and answers over real documents: REFORM, BM25 and both, at the same token budgets.

A question counts as gathered when the byte offset of its answer lies in a passage; as answered when
the answer holds one of the accepted strings as whole words. What is gathered by are the sources of
`ask --gather-by` (`pip install 'longctx[bm25]'`); answers are those of the usual one.

    longctx ingest $LONGCTX_EVAL/tolstoy.txt
    python docs/evaluation/recall.py --doc tolstoy --questions $LONGCTX_EVAL/tolstoy.questions.jsonl
"""

import argparse
import json
import re
from pathlib import Path

import torch

from longctx.cli.settings import library_path
from longctx.core.gather import top_tokens
from longctx.core.memory import Scores
from longctx.core.session import Session
from longctx.core.setup import Setup

BUDGETS = (1024, 2048, 4096, 8192)
SOURCES = {"reform": "method", "bm25": "bm25", "hybrid": "hybrid"}  # name here: of --gather-by


def token_at(session: Session, where: dict) -> int:
    """The token that holds a byte of a source, named by its whole path or the end of it."""
    document = session.document
    name = where.get("path") or where["doc"]
    sources = document.manifest.sources
    (number,) = [i for i, source in enumerate(sources) if source.name.endswith(name)]
    first, count = sources[number].first_token, sources[number].tokens
    starts = document.take("tokens", torch.arange(first, first + count))["starts"]
    return first + int(torch.searchsorted(starts, where["byte_offset"], right=True)) - 1


def gathered(scores: Scores, token: int) -> dict[int, bool]:
    """Whether a token is gathered by these scores, by budget."""
    return {b: token in top_tokens(scores, b, len(scores.raw), (0, 0)) for b in BUDGETS}


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
    trials = []
    for line in options.questions.read_text("utf-8").splitlines():
        item = json.loads(line)
        token = token_at(session, item["where"])
        scores = {
            name: session.score(item["question"], gather_by=by) for name, by in SOURCES.items()
        }
        answer = "" if options.no_answers else ask(session, item["question"])
        trials.append(
            {
                "question": item["question"],
                **{name: gathered(found, token) for name, found in scores.items()},
                "best_score": float(scores["reform"].raw.max()),
                "answer": answer,
                "right": is_right(answer, item["answers"]),
            }
        )
    total = session.document.manifest.tokens
    print(f"{options.doc}: {total:,} tokens, {len(trials)} questions")
    for source in SOURCES:
        print(f"  {source:7s}", {b: sum(trial[source][b] for trial in trials) for b in BUDGETS})
    print(f"  answered {sum(trial['right'] for trial in trials)}")
    if options.json:
        options.json.write_text(json.dumps(trials, indent=1), "utf-8")


if __name__ == "__main__":
    main()
