"""Runs tasks at several lengths: reads and asks every case that no earlier run finished."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from hashlib import sha256
from itertools import product
from pathlib import Path
from typing import Any

from longctx.core.ask.session import Session
from longctx.core.common import file_limits
from longctx.core.common.errors import UsageError
from longctx.core.common.regular_files import read_regular
from longctx.core.engine.choice import Setup
from longctx.core.engine.setup import Engine
from longctx.core.engine.staying import weights_stay
from longctx.core.ingest.ingested import Ingested
from longctx.core.ingest.job import Progress
from longctx.core.measure.case import Case, Task
from longctx.core.measure.journal import Journal, Record
from longctx.core.measure.runner import How, ask, of_asking, of_model, opened


@dataclass(frozen=True)
class Evaluation:
    """What is measured.

    Attributes:
        tasks: tasks, in order.
        lengths: most tokens of a document.
        samples: samples per task and length; fewer if a task has no more.
        seed: seed of all documents and questions.
        suite: name of the tasks together.
        prose: the text that fills documents.
        files: other material for documents, by option or name.
    """

    tasks: Sequence[Task]
    lengths: Sequence[int]
    samples: int
    seed: int
    suite: str = ""
    prose: str = ""
    files: Mapping[str, Path] = field(default_factory=dict)


@dataclass(frozen=True)
class Watch:
    """Callbacks of a run.

    Attributes:
        case: called before a case is read, with its name, how many cases are finished, the total,
            and how many an earlier run finished.
        progress: called while it is read.
    """

    case: Callable[[str, int, int, int], None] = lambda name, done, total, kept: None
    progress: Callable[[Progress], None] = lambda progress: None


def settings(engine: Engine, how: How, wanted: Evaluation) -> Record:
    """What a result depends on, for the journal; runs may add tasks, lengths and samples."""
    prose = sha256(wanted.prose.encode()).hexdigest()
    told = {"seed": wanted.seed, "suite": wanted.suite, "prose": prose}
    return {**of_model(engine), **of_asking(engine, how), **told}


def require_files(journal: Journal, files: Mapping[str, Path]) -> None:
    """Refuses files that have changed since an earlier run in the same folder.

    Raises:
        UsageError: a file has changed.
        OSError: one cannot be read.
    """
    for name, path in files.items():
        data = read_regular(path.expanduser(), file_limits.DATA)
        record = {"digest": sha256(data).hexdigest()}
        if journal.get(f"file {name}") not in (None, record):
            raise UsageError(
                f"cannot go on with '{path}'",
                f"{name} had other content when the run began",
                "Give the same file, or another --out.",
            )
        journal.put(f"file {name}", record)


def run(
    wanted: Evaluation,
    engine: Engine,
    setup: Setup,
    how: How,
    journal: Journal,
    watch: Watch | None = None,
) -> Iterator[Record]:
    """Reads and asks all cases, shorter documents first.

    Args:
        wanted: tasks and lengths.
        engine: the setup's, for its tokenizer.
        setup: model, method and device.
        how: how to ask; each task says how long an answer may be.
        journal: keeps finished results.
        watch: called meanwhile.

    Yields:
        One record per sample: task, length, sample, question, answers, answer, score, gathered,
        tokens, timings, tokens_per_s, and seconds of reading.

    Raises:
        UsageError: too short a length for a task; before anything is read.
        KeyboardInterrupt: Ctrl-C; finished samples are in the journal.
        LongctxError: as `ingest` and `Session` do.
    """
    watch, tokenizer = watch or Watch(), engine.files.tokenizer
    lengths = sorted({*wanted.lengths})
    for task in wanted.tasks:  # shortest first: too short a length shows at once
        next(task.make(tokenizer, lengths[0], 1, wanted.seed), None)
    names = [name for place in product(wanted.tasks, lengths) for name in _names(*place, wanted)]
    done = kept = sum(journal.get(name) is not None for name in names)
    with weights_stay():
        for length, task in product(lengths, wanted.tasks):
            limited = replace(how, max_new_tokens=task.max_new_tokens)
            for name, case in _cases(task, length, wanted, tokenizer, journal):
                if case is not None:
                    watch.case(name, done, len(names), kept)
                    found = _asked(case, task, setup, limited, watch.progress)
                    journal.put(name, {"task": task.name, "length": length, "sample": name} | found)
                    done += 1
                yield journal.get(name) or {}


def _names(task: Task, length: int, wanted: Evaluation) -> list[str]:
    """Names of a task's cases at a length; the task may have fewer."""
    return [f"{task.name}/{length}/{number}" for number in range(wanted.samples)]


def _cases(
    task: Task, length: int, wanted: Evaluation, tokenizer: Any, journal: Journal
) -> Iterator[tuple[str, Case | None]]:
    """Names and cases; None for a finished case. If all are finished, none is made."""
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
    with opened(case, setup, [how.gather_by], on_progress) as (done, session):
        asked = ask(session, query, how)
    record = asdict(asked) | {"score": task.score(query.answers, asked.answer)}
    del record["kind"]
    return record | {"timings": {"ingest_s": round(done.seconds, 3), **asked.timings}}
