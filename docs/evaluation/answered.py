"""How many questions on documents a model answers, from how much text; and how many are gathered.

    python docs/evaluation/answered.py $LONGCTX_EVAL docs/evaluation --readings 2/512,4/768,8/1280
    python docs/evaluation/answered.py samples --read-by tiny --library LIBRARY --out answers.json

Folders have documents (files, or folders of files) and files of questions, beside them or in their
folder `questions`: NAME.questions.jsonl and NAME.yaml belong to the document with the longest name
that theirs begins with. Each document is read once; a library that is kept is not read
again. A reading is the most passages and the most tokens, prefix included, that are put before the
model; without any, the profile's. Prints Markdown: answers that contain an accepted one, answers
that match exactly, sentences shown first that hold one, and gather recall. `--out` keeps every
answer.
"""

import argparse
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from longctx.core.ask.session import Session
from longctx.core.engine.choice import Setup
from longctx.core.engine.staying import weights_stay
from longctx.core.ingest.ingest import ingest
from longctx.core.measure.eval.qa_places import PlacedQuestion, place
from longctx.core.measure.eval.qa_questions import read_items
from longctx.core.measure.eval.text_match import contained, exact_match
from longctx.core.measure.intervals import wilson
from longctx.core.measure.markdown import table

HERE = Path(__file__).parent
HYBRID = "hybrid"
BUDGETS = (1024, 2048, 4096, 8192)  # tokens gathered, for recall
ENDINGS = (".questions.jsonl", ".yaml")
ALL = "all of them"

Row = dict[str, Any]


@dataclass(frozen=True)
class Reading:
    """What is put before the model at most; None: what the profile says."""

    passages: int | None = None
    tokens: int | None = None

    @classmethod
    def of(cls, text: str) -> "Reading":
        """From PASSAGES/TOKENS."""
        passages, _, tokens = text.partition("/")
        return cls(int(passages), int(tokens))

    def __str__(self) -> str:
        return f"{self.passages}/{self.tokens}" if self.passages else "the profile's"


def sheets(folders: list[Path]) -> dict[Path, list[Path]]:
    """The documents of folders with their files of questions; says what is left out."""
    places = [place for folder in folders for place in (folder, folder / "questions")]
    files = [file for each in places for end in ENDINGS for file in sorted(each.glob(f"*{end}"))]
    entries = [path for folder in folders for path in sorted(folder.iterdir())]
    documents = {path.stem: path for path in entries if _is_document(path)}
    found: dict[Path, list[Path]] = {}
    for name, file in {file.name: file for file in reversed(files)}.items():
        own = max((stem for stem in documents if name.startswith(stem)), key=len, default=None)
        if own is None:
            print(f"left out {file}: no document of its name", file=sys.stderr)
        else:
            found.setdefault(documents[own], []).append(file)
    return dict(sorted(found.items()))


def _is_document(path: Path) -> bool:
    other = path.name == "questions" or path.name.startswith(("_", "."))
    return not other and not path.name.endswith((*ENDINGS, ".py", ".jsonl"))


def asked(
    session: Session,
    placed: list[PlacedQuestion],
    readings: list[Reading],
    by: str | None = HYBRID,
) -> Iterator[Row]:
    """Every question: what was gathered at each budget, and what was answered from each reading.

    `by` is the gather source; None: as the document's method is asked.
    """
    for number, one in enumerate(placed, 1):
        words, accepted = one.query.question, one.query.answers
        row: Row = {"question": words, "accepted": accepted, "answers": {}}
        row["gathered"] = []
        if by:
            row["gathered"] = [*map(one.is_among, session.gathered(words, by, BUDGETS))]
        for reading in readings:
            told = session.ask(words, reading.tokens, gather_by=by, passages=reading.passages)
            shown = told.sentence.text if told.sentence else ""
            row["answers"][str(reading)] = {
                "answer": told.answer,
                "contained": contained(accepted, told.answer),
                "exact": exact_match(accepted, told.answer),
                "sentence": contained(accepted, shown),
            }
        print(f"\r  {number} of {len(placed)}", end="", file=sys.stderr, flush=True)
        yield row
    print(file=sys.stderr)


def measured(
    found: dict[Path, list[Path]], library: Path, options: argparse.Namespace
) -> Iterator[tuple[str, list[Row]]]:
    """Reads each document, unless it has been read, and asks all about it."""
    reader = options.read_by or options.model
    common = Setup(device=options.device, dtype=options.dtype, threads=options.threads)
    common = replace(common, method=options.method)
    by = None if options.method else HYBRID
    for document, files in found.items():
        print(f"{document.name}, read by {reader}", file=sys.stderr, flush=True)
        ingest(library, [str(document)], replace(common, model=reader), document.stem)
        answerer = options.model if options.model != reader else None
        setup = replace(common, answer_model=answerer)
        with Session(library, document.stem, setup) as session:
            items = [item for file in files for item in read_items(file)]
            placed = place(items, session.document)
            yield document.stem, [*asked(session, placed, options.readings, by)]


def report(rows: dict[str, list[Row]], readings: list[Reading]) -> str:
    """The tables."""
    whole = {**rows, ALL: [row for some in rows.values() for row in some]}
    answers = [
        [name, str(reading), *(_share(some, str(reading), what) for what in _WHAT)]
        for name, some in whole.items()
        for reading in readings
    ]
    recall = [[name, *_recall(some)] for name, some in whole.items() if some[0]["gathered"]]
    heads = ["document", "passages/tokens", "answered", "exactly", "sentence shown first"]
    budgets = [f"gathered in {budget:,}" for budget in BUDGETS]
    gathered = f"\n\n{table(['document', *budgets], recall)}" if recall else ""
    return f"{table(heads, answers)}{gathered}"


_WHAT = ("contained", "exact", "sentence")


def _share(rows: list[Row], reading: str, what: str) -> str:
    return _told([bool(row["answers"][reading][what]) for row in rows])


def _recall(rows: list[Row]) -> list[str]:
    return [_told([row["gathered"][number] for row in rows]) for number in range(len(BUDGETS))]


def _told(hits: list[bool]) -> str:
    low, high = wilson(sum(hits), len(hits))
    return f"{sum(hits)} of {len(hits)} ({low:.0%} to {high:.0%})"


def main() -> None:
    """Reads, asks, and prints."""
    options = _options()
    found = sheets(options.folders)
    with TemporaryDirectory(prefix="longctx-eval-") as folder, weights_stay():
        library = options.library or Path(folder)
        rows: dict[str, list[Row]] = {}
        for name, some in measured(found, library, options):
            rows[name] = some
            if options.out:
                options.out.write_text(json.dumps(rows, indent=1), "utf-8")
    print(report(rows, options.readings))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folders", type=Path, nargs="+", help="of documents and questions")
    parser.add_argument("--model", default="tiny", help="answers")
    parser.add_argument("--method", help="reads, and is asked in its own way, without a search")
    parser.add_argument("--read-by", help="model that reads; by default the same one")
    parser.add_argument(
        "--readings",
        type=lambda text: [*map(Reading.of, text.split(","))],
        default=[Reading()],
        help="PASSAGES/TOKENS,...; by default the profile's",
    )
    parser.add_argument("--library", type=Path, help="kept; by default one that is deleted")
    parser.add_argument("--out", type=Path, help="JSON file of every answer")
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda or cuda:N")
    parser.add_argument("--dtype", default="auto", help="auto, bf16, fp16 or fp32")
    parser.add_argument("--threads", type=int)
    return parser.parse_args()


if __name__ == "__main__":
    main()
