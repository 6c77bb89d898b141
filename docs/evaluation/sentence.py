"""How often the sentence that `ask` shows first holds an accepted answer, beside the answer itself.

    longctx ask --questions QUESTIONS --doc NAME > ANSWERS.jsonl
    python docs/evaluation/sentence.py QUESTIONS=ANSWERS.jsonl ...

Prints both counts over all files, with 95% intervals.
"""

import json
import sys
from pathlib import Path

from longctx.core.measure.eval.qa_questions import read_items
from longctx.core.measure.eval.text_match import contained
from longctx.core.measure.intervals import wilson


def counted(questions: Path, answers: Path) -> list[tuple[float, float]]:
    """Of each question: whether its answer, and its sentence, contain an accepted answer."""
    accepted = {item.question: item.answers for item in read_items(questions)}
    given = [json.loads(line) for line in answers.read_text("utf-8").splitlines()]
    return [
        (
            contained(accepted[one["question"]], one["answer"]),
            contained(accepted[one["question"]], (one["sentence"] or {"text": ""})["text"]),
        )
        for one in given
    ]


def main() -> None:
    """Counts all files that are named."""
    pairs = [argument.split("=", 1) for argument in sys.argv[1:]]
    if not pairs:
        sys.exit(__doc__)
    found = [one for pair in pairs for one in counted(*map(Path, pair))]
    for name, hits in zip(("answered", "sentence"), zip(*found, strict=True), strict=True):
        low, high = wilson(sum(hits), len(hits))
        print(f"{name}: {sum(hits):.0f} of {len(hits)} ({low:.0%} to {high:.0%})")


if __name__ == "__main__":
    main()
