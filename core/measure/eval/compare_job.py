"""One method at one length, read and asked in each way, in a separate process.

    python -m longctx.core.measure.eval.compare_job < job.json

So the peak memory is this method's alone, and a crash ends nothing else. The job is one JSON object
on standard input; the process writes one message per line to standard output:

    {"reading": {...}}, {"asked": [ways done, ways in all]}        progress
    {"sample": {...}}      a case, asked in one way
    {"unfit": {...}}       a way that does not fit this task and method, and why
    {"failed": "..."}      why the job ends early
"""

import json
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

from longctx.core.ask.session import Session
from longctx.core.common.device import peak_memory, reset_peak_memory
from longctx.core.common.errors import LongctxError
from longctx.core.engine.choice import Setup
from longctx.core.engine.setup import prepare
from longctx.core.engine.staying import weights_stay
from longctx.core.ingest.ingested import Ingested
from longctx.core.ingest.job import Progress
from longctx.core.measure.case import Case, Task
from longctx.core.measure.eval import tasks
from longctx.core.measure.runner import Asked, How, ask, opened

Message = dict[str, Any]
Tell = Callable[[Message], None]


@dataclass(frozen=True)
class AskSettings:
    """How a document is asked.

    Attributes:
        gather_by: gather source.
        decode: decode policy, as `--decode` takes it.
    """

    gather_by: str
    decode: str


@dataclass(frozen=True)
class CaseJob:
    """One case of a task, and the ways to ask it."""

    task: str
    sample: int
    ways: tuple[AskSettings, ...]


@dataclass(frozen=True)
class CompareJob:
    """What a process does.

    Attributes:
        setup: model, method and device.
        length: tokens of every text.
        samples: questions per task; only the cases of `pieces` are read.
        seed: seed of the cases.
        pieces: the cases.
    """

    setup: Setup
    length: int
    samples: int
    seed: int
    pieces: tuple[CaseJob, ...]

    def to_json(self) -> str:
        """The JSON that `from_json` reads."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> "CompareJob":
        """A job that `to_json` wrote."""
        values = json.loads(text)
        pieces = [
            CaseJob(p["task"], p["sample"], tuple(AskSettings(**way) for way in p["ways"]))
            for p in values.pop("pieces")
        ]
        return cls(**values | {"setup": Setup(**values["setup"]), "pieces": tuple(pieces)})


def run(job: CompareJob, tell: Tell) -> None:
    """Reads each case once, and asks it in each way that it fits.

    Raises:
        LongctxError: no room for the model or the state, or the method cannot read this length.
    """
    tokenizer = prepare(job.setup).files.tokenizer
    unfit: set[tuple[str, AskSettings]] = set()
    for piece, task, case in _cases(job, tokenizer):
        ways = [way for way in piece.ways if (piece.task, way) not in unfit]
        if not ways:
            continue
        sources, report = [way.gather_by for way in ways], lambda now: tell(_reading(now))
        with opened(case, job.setup, sources, report) as (done, session):
            for number, way in enumerate(ways):
                tell({"asked": [number, len(ways)]})
                why = _ask_all(session, done, piece, task, case, way, tell)
                if why is not None:
                    unfit.add((piece.task, way))
                    tell({"unfit": {**asdict(way), "task": piece.task, "why": why}})


def _cases(job: CompareJob, tokenizer: Any) -> Iterator[tuple[CaseJob, Task, Case]]:
    for name in dict.fromkeys(piece.task for piece in job.pieces):
        task = tasks.find(name)
        pieces = {piece.sample: piece for piece in job.pieces if piece.task == name}
        cases = task.make(tokenizer, job.length, job.samples, job.seed)
        for number, case in enumerate(cases):
            if number in pieces:
                yield pieces[number], task, case
            if number >= max(pieces):
                break


def _reading(progress: Progress) -> Message:
    return {"reading": asdict(progress)}


def _ask_all(
    session: Session,
    done: Ingested,
    piece: CaseJob,
    task: Task,
    case: Case,
    way: AskSettings,
    tell: Tell,
) -> str | None:
    """Asks all questions of a case in one way, and reports the result.

    Returns:
        Why they cannot be asked this way; None if they were asked.

    Raises:
        LongctxError: the device has no more memory.
    """
    how = How(decode=way.decode, max_new_tokens=task.max_new_tokens, gather_by=way.gather_by)
    device = session.engine.device
    reset_peak_memory(device)
    try:
        asked = [ask(session, query, how) for query in case.queries]
    except LongctxError as error:
        if isinstance(error.__cause__, MemoryError | RuntimeError):
            raise
        return first_sentence(error)
    peaks = [peak for peak in (done.peak_memory, peak_memory(device)) if peak is not None]
    tell(
        {
            "sample": {
                **asdict(way),
                "task": piece.task,
                "sample": piece.sample,
                "case": case.name,
                "tokens": done.tokens,
                "read_s": done.seconds,
                "state_bytes": done.state_bytes,
                "peak_memory": max(peaks, default=None),
                "questions": [_judged(task, one) for one in asked],
            }
        }
    )
    reset_peak_memory(device)
    return None


def _judged(task: Task, asked: Asked) -> Message:
    return {**asdict(asked), "score": task.score(asked.answers, asked.answer)}


def first_sentence(error: LongctxError) -> str:
    """What failed and why, without the remedy."""
    return f"{error.what}: {error.why}" if error.why else error.what


def main() -> None:
    """Runs the job on standard input."""
    job = CompareJob.from_json(sys.stdin.read())
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as messages:
        os.dup2(2, 1)  # what libraries print must not mix with messages
        sys.stdout = sys.stderr

        def tell(message: Message) -> None:
            print(json.dumps(message), file=messages, flush=True)

        try:
            with weights_stay():
                run(job, tell)
        except LongctxError as error:
            tell({"failed": first_sentence(error)})


if __name__ == "__main__":
    main()
