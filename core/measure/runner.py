"""The runner of `niah` and `eval`: it reads a document and asks questions about it.

A case is written to a file, ingested into a library that is deleted afterwards, and asked, with the
same calls as for any other document. This module also says what results depend on, for the journal.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from longctx.core.ask.answer import Answer
from longctx.core.ask.gather import Passage
from longctx.core.ask.session import Session
from longctx.core.engine.choice import Setup
from longctx.core.engine.setup import Engine
from longctx.core.ingest.ingest import ingest
from longctx.core.ingest.ingested import Ingested
from longctx.core.ingest.job import Progress
from longctx.core.measure.case import Case, CaseQuestion, Span, is_named
from longctx.core.measure.journal import Record
from longctx.core.profile.sampling import Sampling
from longctx.core.retrieve import gather_by

LIBRARY, FILE = "library", "document.txt"


@dataclass(frozen=True)
class How:
    """How questions are asked, in addition to the setup.

    Attributes:
        gather: tokens to gather; None: the method's default.
        decode: decode policy; None: the setup's.
        max_new_tokens: limit for an answer; None: the profile's.
        gather_by: gather source; None: the default.

    Raises:
        UsageError: there is no such gather source.
    """

    gather: int | None = None
    decode: str | None = None
    max_new_tokens: int | None = None
    gather_by: str | None = None

    def __post_init__(self) -> None:
        if self.gather_by is not None:
            gather_by.check(self.gather_by)


@dataclass(frozen=True)
class Asked:
    """One question and its answer.

    Attributes:
        kind, question, answers: the query's.
        answer: what the model said.
        gathered: share of the query's spans that are within a passage; None: it has no spans.
        tokens: counts: document, gathered, question, answer, dropped.
        timings: seconds, as in `ask --json`.
        tokens_per_s: decoding speed after the first token; None: there was no second token.
    """

    kind: str
    question: str
    answers: tuple[str, ...]
    answer: str
    gathered: float | None
    tokens: dict[str, int]
    timings: dict[str, float]
    tokens_per_s: float | None = None


@contextmanager
def opened(
    case: Case,
    setup: Setup,
    gathers_by: Sequence[str | None],
    on_progress: Callable[[Progress], None] = lambda progress: None,
) -> Iterator[tuple[Ingested, Session]]:
    """Ingests a case's text and opens it; file and library are deleted at the end.

    Args:
        case: what to read.
        setup: model, method and device.
        gathers_by: the gather sources that it will be asked by; None: the usual one. Passages get
            vectors if one of them uses these.
        on_progress: called while the text is read.

    Raises:
        LongctxError: as `ingest` and `Session` do.
    """
    vectors = any(gather_by.vectors(name or gather_by.USUAL) != "unused" for name in gathers_by)
    with TemporaryDirectory(prefix="longctx-eval-") as folder:
        file, library = Path(folder) / FILE, Path(folder) / LIBRARY
        file.write_bytes(case.text.encode())
        done = ingest(library, [str(file)], setup, on_progress=on_progress, vectors=vectors)
        # A method with two ways to ask names neither; the document knows its default.
        asking = setup if setup.keep_kv else replace(setup, method=None)
        with Session(library, done.name, asking) as session:
            yield done, session


def ask(session: Session, query: CaseQuestion, how: How) -> Asked:
    """Asks an open document one question.

    Raises:
        KeyboardInterrupt: Ctrl-C during the answer; a partial answer is not scored.
        LongctxError: as `Session.ask`.
    """
    sampling = Sampling(max_new_tokens=how.max_new_tokens)
    answer: Answer = session.ask(
        query.question, how.gather, sampling, decode=how.decode, gather_by=how.gather_by
    )
    if answer.interrupted:
        raise KeyboardInterrupt
    return Asked(
        kind=query.kind,
        question=query.question,
        answers=query.answers,
        answer=answer.answer,
        gathered=gathered(query.spans, answer.passages),
        tokens=answer.tokens,
        timings=answer.timings,
        tokens_per_s=answer.tokens_per_s,
    )


def gathered(spans: tuple[Span, ...], passages: list[Passage]) -> float | None:
    """The share of spans that are within one passage; None if there are no spans."""
    if not spans:
        return None
    return sum(any(_holds(passage, span) for passage in passages) for span in spans) / len(spans)


def _holds(passage: Passage, span: Span) -> bool:
    if not is_named(passage.source, span.source):
        return False
    return passage.start <= span.start and span.end <= passage.end


# --- what results depend on: a different model or prompt makes a different run ---


def of_model(engine: Engine) -> Record:
    """Model and weights, profile with prompt and sampling, device and number format."""
    return {
        "model": engine.files.name,
        "weights": engine.files.fingerprint().weights,
        "profile": asdict(engine.profile),
        **engine.recorded(),
    }


def of_asking(engine: Engine, how: How) -> Record:
    """Method, its options, and how questions are asked."""
    return {
        "method": engine.method_name,
        "options": asdict(engine.options),
        "decode": how.decode or str(engine.decoding),
        "gather": how.gather,
        "gather_by": how.gather_by,
    }
