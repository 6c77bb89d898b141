"""Runs tasks over lengths: every case is read and asked, and what was finished before is not."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import product
from typing import Any

from longctx.core.ask.session import Session
from longctx.core.engine.setup import Engine, Setup, weights_stay
from longctx.core.ingest.ingest import Ingested, Progress
from longctx.core.measure.case import Case, Task
from longctx.core.measure.journal import Journal, Record
from longctx.core.measure.runner import How, ask, of_asking, of_model, opened


@dataclass(frozen=True)
class Wanted:
    """What is run.

    Attributes:
        tasks: one after another.
        lengths: tokens of a document, at most.
        samples: of each task at each length; fewer where a task has no more.
        seed: decides all documents and questions.
    """

    tasks: Sequence[Task]
    lengths: Sequence[int]
    samples: int
    seed: int


@dataclass(frozen=True)
class Telling:
    """Whom to tell how far it has come.

    Attributes:
        case: called with a case's name, and how many are finished of how many, before it is read.
        progress: called while it is read.
        kept: called before all, with how many cases an earlier run has finished.
    """

    case: Callable[[str, int, int], None] = lambda name, done, total: None
    progress: Callable[[Progress], None] = lambda progress: None
    kept: Callable[[int], None] = lambda kept: None


def settings(engine: Engine, how: How, wanted: Wanted, **more: Any) -> Record:
    """What decides the result of a sample, for a journal.

    Tasks, lengths and samples are not in it: a run may add to those of another.

    Args:
        engine: as `prepare` gave it.
        how: questions are asked.
        wanted: of which the seed counts.
        **more: what documents are made of, as JSON.
    """
    return {**of_model(engine), **of_asking(engine, how), "seed": wanted.seed, **more}


def run(
    wanted: Wanted,
    engine: Engine,
    setup: Setup,
    how: How,
    journal: Journal,
    telling: Telling | None = None,
) -> Iterator[Record]:
    """Asks what is wanted, shorter documents first.

    Args:
        wanted: tasks and lengths.
        engine: of the setup, for its tokenizer.
        setup: model, method and device.
        how: to ask; each task says how long an answer may be.
        journal: keeps what is finished, and has what was before.
        telling: whom to tell.

    Yields:
        One record a sample: task, length, sample, question, answers, answer, score, gathered,
        tokens, timings, tokens_per_s, and seconds of reading.

    Raises:
        UsageError: a length too short for a task; before anything is read.
        KeyboardInterrupt: Ctrl-C; finished samples are in the journal.
        LongctxError: as `ingest` and `Session` do.
    """
    telling = telling or Telling()
    tokenizer = engine.files.tokenizer
    lengths = sorted({*wanted.lengths})
    for task in wanted.tasks:  # the shortest first: what is too short is known at once
        next(task.make(tokenizer, lengths[0], 1, wanted.seed), None)
    names = [name for place in product(wanted.tasks, lengths) for name in _names(*place, wanted)]
    done = sum(journal.get(name) is not None for name in names)
    telling.kept(done)
    with weights_stay():
        for length, task in product(lengths, wanted.tasks):
            limited = replace(how, max_new_tokens=task.max_new_tokens)
            for name, case in _cases(task, length, wanted, tokenizer, journal):
                if case is not None:
                    telling.case(name, done, len(names))
                    found = _asked(case, task, setup, limited, telling.progress)
                    journal.put(name, {"task": task.name, "length": length, "sample": name} | found)
                    done += 1
                yield journal.get(name) or {}


def _names(task: Task, length: int, wanted: Wanted) -> list[str]:
    """Of all cases that a task has at a length, where it has so many."""
    return [f"{task.name}/{length}/{number}" for number in range(wanted.samples)]


def _cases(
    task: Task, length: int, wanted: Wanted, tokenizer: Any, journal: Journal
) -> Iterator[tuple[str, Case | None]]:
    """Names and cases; None for one that is finished. Nothing is made where all are."""
    names = _names(task, length, wanted)
    if all(journal.get(name) for name in names):
        yield from ((name, None) for name in names)
        return
    for case in task.make(tokenizer, length, wanted.samples, wanted.seed):
        yield case.name, None if journal.get(case.name) else case


def _asked(
    case: Case, task: Task, setup: Setup, how: How, on_progress: Callable[[Progress], None]
) -> Record:
    (query,) = case.queries
    done: Ingested
    session: Session
    with opened(case, setup, on_progress) as (done, session):
        asked = ask(session, query, how)
    record = asdict(asked) | {"score": task.score(query.answers, asked.answer)}
    del record["kind"]
    return record | {"timings": {"ingest_s": round(done.seconds, 3), **asked.timings}}
