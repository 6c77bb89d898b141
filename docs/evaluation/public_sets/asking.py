"""Asks a set's questions, or searches with them; each result is kept at once."""

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from longctx.core.measure.journal import Journal
from public_sets.installation import Installation, python_of
from public_sets.items import PublicSet, Question, Record
from public_sets.members import laid_out

SOURCES = "sources"  # folder next to the library, with a numbered folder for each document


@dataclass(frozen=True)
class Run:
    """How a set is asked.

    Attributes:
        system: what the run is called in the table.
        way: `ask` or `find`.
        model: arguments of `longctx.Model`.
        options: of `ask` or `find`, for every question.
        together: all documents of the set are searched for every question.
        seconds: after so many no further question begins; None: no limit.
    """

    system: str
    way: str
    model: Record
    options: Record
    together: bool = False
    seconds: float | None = None


def ask_all(
    found: PublicSet,
    questions: Sequence[Question],
    run: Run,
    longctx: Path | None,
    library: Path,
    out: Path,
) -> int:
    """Asks what an earlier run has not; how many questions are left.

    Args:
        found: the set.
        questions: those to ask.
        run: how.
        longctx: the installation; see `python_of`.
        library: folder of the documents.
        out: folder of the results; see `longctx.core.measure.journal`.

    Raises:
        LongctxError: the folder has results of other settings, or cannot be written.
        Refused: longctx ended with an error.
        FileNotFoundError: there is no such installation.
    """
    ends = None if run.seconds is None else time.monotonic() + run.seconds
    python_of(longctx)  # before anything is written
    paths = laid_out(found.documents, library / SOURCES)
    with Installation(longctx, library / "library", run.model) as installed:
        settings: Record = {"set": found.name, "digest": found.digest, "system": run.system}
        settings |= {"way": run.way, "version": installed.version, "code": installed.code}
        settings |= {"model": run.model, "options": run.options, "together": run.together}
        with Journal(out, settings) as journal:
            missing = [question for question in questions if journal.get(question.name) is None]
            _Asking(installed, journal, run, paths, len(missing), ends).every(missing)
            return sum(journal.get(question.name) is None for question in questions)


class _Asking:
    def __init__(
        self,
        installed: Installation,
        journal: Journal,
        run: Run,
        paths: dict[str, list[Path]],
        total: int,
        ends: float | None,
    ):
        self._installed, self._journal, self._run = installed, journal, run
        self._paths, self._total, self._ends = paths, total, ends
        self._done, self._shown = 0, 0.0
        self._names: dict[str, str] = {}  # of documents in the library

    def every(self, questions: Sequence[Question]) -> None:
        """Asks all, a document after another, until the time is up."""
        if self._run.together and questions and not all(map(self._read, self._paths)):
            return
        for document, some in groupby(questions, key=lambda question: question.document):
            for question in some:
                if not self._read(document):
                    return
                self._journal.put(question.name, self._one(question))
                self._done += 1
                self._show(f"{self._done} of {self._total}, {document}")

    def _is_late(self) -> bool:
        return self._ends is not None and time.monotonic() > self._ends

    def _read(self, document: str) -> bool:
        """Reads a document, unless it was; False: the time is up."""
        if self._is_late():
            print("  the time is up; the same command goes on", file=sys.stderr)
            return False
        if document not in self._names:
            self._show(f"reading {document}")
            self._names[document] = self._installed.ingest(self._paths[document])["name"]
        return True

    def _one(self, question: Question) -> Record:
        run = self._run
        documents = [*self._names.values()] if run.together else [self._names[question.document]]
        ways: dict[str, Callable[..., Record]] = {
            "ask": self._installed.ask,
            "find": self._installed.find,
        }
        return kept(ways[run.way](documents, question.text, **run.options))

    def _show(self, text: str) -> None:
        """A line at a terminal; elsewhere one every 30 seconds."""
        if sys.stderr.isatty():
            print(f"\r  {text:<78.78}", end="", file=sys.stderr, flush=True)
        elif time.monotonic() > self._shown + 30:
            self._shown = time.monotonic()
            print(f"  {text}", file=sys.stderr, flush=True)


def kept(reply: Record) -> Record:
    """What is kept of an object of `ask --json` or `find --json`: no text of a document.

    `passages` has for each the document, source, first and last byte, the place, and the place of
    the line that matches with its bytes, best first.
    """
    record: Record = {"passages": [*map(_spot, reply["passages"])], "found": reply["found"]}
    record["timings"], record["tokens"] = reply["timings"], reply["tokens"]
    if "answer" in reply:
        record |= {"answer": reply["answer"], "stop": reply["stop"]}
        record |= {key: reply["state"].get(key) for key in ("answer_model", "device")}
        record["sentence"] = (reply.get("sentence") or {}).get("text", "")
    return record


def _spot(passage: Record) -> Record:
    match = passage.get("match") or {}
    spot = {key: passage[key] for key in ("document", "start", "end", "place")}
    spot["source"] = _relative(passage["source"])
    if match:
        spot["match"] = [match["start"], match["end"], match["place"]]
    return spot


def _relative(source: str) -> str:
    """A source's name in the set: without the folder in which it was laid out."""
    return source.rpartition(f"/{SOURCES}/")[2].split("/", 1)[-1]
