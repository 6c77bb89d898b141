"""Questions about ingested documents: gather recall and right answers.

For each gather source, one scoring gives a question's tokens at every budget. Answers are those of
`Session.ask`. `qa_questions.py` reads files of questions, `qa_places.py` finds where their answers
are, and `text_match.py` compares answers.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

from longctx.core.ask.session import Session
from longctx.core.common.errors import LongctxError, StateMismatch, UsageError
from longctx.core.measure.eval.qa_places import LINE, PLACE, TEXT, PlacedQuestion
from longctx.core.measure.eval.text_match import contained, exact_match, f1
from longctx.core.measure.intervals import wilson
from longctx.core.measure.journal import Journal, Record, Tell
from longctx.core.measure.runner import How, ask, of_model
from longctx.core.retrieve import gather_by

SCHEMA_VERSION = 2
BUDGETS = (1024, 2048, 4096, 8192)
SCORERS = {"exact_match": exact_match, "f1": f1, "contained": contained}
RECALL = "recall"
EVERY = ("all",)  # gather sources


@dataclass(frozen=True)
class QuestionTest:
    """What is measured.

    Attributes:
        gather_by: gather sources; None: the one by which `ask` gathers; EVERY: all that fit the
            document.
        budgets: tokens to gather, for recall.
        answers: also ask, and compare the answers.
        answer_gather: tokens to gather for an answer; None: the method's default.
    """

    gather_by: tuple[str, ...] | None = None
    budgets: tuple[int, ...] = BUDGETS
    answers: bool = True
    answer_gather: int | None = None


@dataclass(frozen=True)
class Rate:
    """A mean of values from 0 to 1.

    Attributes:
        gather_by: gather source.
        what: `recall`, or a scorer of answers.
        budget: tokens gathered; None: the method's default.
        total: number of questions.
        rate: the mean.
        low, high: its 95% interval.
    """

    gather_by: str
    what: str
    budget: int | None
    total: int
    rate: float
    low: float
    high: float


@dataclass(frozen=True)
class QuestionReport:
    """Results on one document.

    Attributes:
        document, tokens: its name and size.
        files: files of the questions.
        settings: options, document and model.
        counted: how many questions are counted by `place`, `line` and `text`; and how many of the
            last have their answer nowhere in the document (`absent`).
        left_out: gather sources that do not fit the document, and why.
        rates: recall by source and budget, then scores of answers by source.
        trials: each question's place, `recall` by source and budget, `rank` by source (the
            smallest budget that gathers it), and `answers` by source.
    """

    document: str
    tokens: int
    files: tuple[str, ...]
    settings: Record
    counted: dict[str, int]
    left_out: dict[str, str]
    rates: list[Rate]
    trials: list[Record]


def as_dict(reports: Sequence[QuestionReport]) -> dict[str, Any]:
    """The JSON object of `eval qa`: each document, and all of them together."""
    return {
        "schema_version": SCHEMA_VERSION,
        "eval": "qa",
        "documents": [asdict(report) for report in reports],
        "sum": {
            "questions": sum(len(report.trials) for report in reports),
            "rates": [asdict(rate) for rate in summed(reports)],
        },
    }


def summed(reports: Sequence[QuestionReport]) -> list[Rate]:
    """Rates over the questions of all documents, for the gather sources common to all."""
    gathered = [{rate.gather_by for rate in report.rates} for report in reports]
    trials = [trial for report in reports for trial in report.trials]
    first = reports[0].settings
    names = [*dict.fromkeys(rate.gather_by for rate in reports[0].rates)]
    by = tuple(name for name in names if all(name in one for one in gathered))
    answers = any(rate.what != RECALL for rate in reports[0].rates)
    wanted = QuestionTest(by, tuple(first["budgets"]), answers, first["answer_gather"])
    return [*_rates(trials, by, wanted)]


def run(
    session: Session,
    placed: list[PlacedQuestion],
    wanted: QuestionTest,
    folder: Path | None = None,
    tell: Tell = lambda *told: None,
) -> QuestionReport:
    """Scores and asks every question about one document.

    Args:
        session: the open document.
        placed: questions with the places of their answers.
        wanted: what is measured.
        folder: where results are kept, so that a stopped run can resume; None: nowhere.
        tell: called with the progress.

    Raises:
        UsageError: impossible budgets, unknown names, or a folder of another run.
        LongctxError: no gather source fits the document.
        KeyboardInterrupt: Ctrl-C, also during an answer.
    """
    _require(wanted)
    settings = _settings(session, placed, wanted)
    with Journal(folder, settings) as journal:
        sources, left_out = _sources(session, placed, wanted, journal)
        for by in sources:
            make = partial(_recall, session, by, wanted.budgets)
            pieces = {_recall_name(by, n): partial(make, one) for n, one in enumerate(placed, 1)}
            journal.complete(f"gathering by {by}", "questions", pieces, tell)
        for by in sources if wanted.answers else ():
            make = partial(_answer, session, by, wanted.answer_gather)
            pieces = {_answer_name(by, n): partial(make, one) for n, one in enumerate(placed, 1)}
            journal.complete(f"answering from what {by} gathers", "questions", pieces, tell)
        trials = [_trial(journal, n, one, sources, wanted) for n, one in enumerate(placed, 1)]
    manifest, files = session.document.manifest, dict.fromkeys(one.item.file for one in placed)
    rates, counted = [*_rates(trials, sources, wanted)], _counted(placed)
    parts = (settings, counted, left_out, rates, trials)
    return QuestionReport(manifest.name, manifest.tokens, tuple(files), *parts)


def _require(wanted: QuestionTest) -> None:
    if wanted.gather_by == () or not wanted.budgets or min(wanted.budgets) < 1:
        why = "each question needs something to gather by, and budgets of a token or more"
        raise UsageError("cannot measure recall", why, "Correct --gather-by or --gather.")
    if wanted.gather_by != EVERY:
        for name in wanted.gather_by or ():
            gather_by.check(name)


def _sources(
    session: Session, placed: list[PlacedQuestion], wanted: QuestionTest, journal: Journal
) -> tuple[tuple[str, ...], dict[str, str]]:
    """Gather sources, and why others are left out, as the first question shows.

    Where none is named and the one of `ask` does not fit, the first that does is taken.

    Raises:
        StateMismatch: the state is damaged.
        LongctxError: no gather source fits.
    """
    if wanted.gather_by not in (None, EVERY):
        return wanted.gather_by, {}
    known = gather_by.names()
    if wanted.gather_by is None:
        known = list(dict.fromkeys([session.gathers_by, *known]))
    failed: dict[str, LongctxError] = {}
    found: list[str] = []
    for name in known:
        try:
            if journal.get(_recall_name(name, 1)) is None:
                session.gathered(placed[0].query.question, name, wanted.budgets[:1])
            found.append(name)
        except StateMismatch:
            raise
        except LongctxError as error:
            failed[name] = error
        if found and wanted.gather_by is None:
            break
    if not found:
        raise next(iter(failed.values()))
    return tuple(found), {name: str(error) for name, error in failed.items()}


def _settings(session: Session, placed: list[PlacedQuestion], wanted: QuestionTest) -> Record:
    """What results depend on; later runs may change the gather sources."""
    manifest, engine = session.document.manifest, session.engine
    asked = [
        (one.item.question, one.item.answers, one.counted, one.tokens, one.query.spans)
        for one in placed
    ]
    other = {} if engine.answerer is None else {"answerer": of_model(engine.answerer)}
    if session.server is not None and wanted.answers:
        other = {"server": {"to": session.server.url, "model": model_there(session)}}
    return {
        "eval": "qa",
        "schema": SCHEMA_VERSION,
        "document": manifest.name,
        "sources": [source.sha256 for source in manifest.sources],
        "questions": sha256(repr(asked).encode()).hexdigest(),
        "budgets": [*wanted.budgets],
        "answer_gather": wanted.answer_gather,
        "decode": str(engine.answering.decoding),
        "method": manifest.method,
        "asked_with": engine.asked_with,
        "options": manifest.options,
        **of_model(engine),
        **other,
    }


def model_there(session: Session) -> str | None:
    """The model of another server that answers, where it is named."""
    return None if session.server is None else session.server.model


def _recall_name(by: str, number: int) -> str:
    return f"recall/{by}/{number}"


def _answer_name(by: str, number: int) -> str:
    return f"answer/{by}/{number}"


def _counted(placed: list[PlacedQuestion]) -> dict[str, int]:
    ways = Counter(one.counted for one in placed)
    absent = sum(not one.tokens for one in placed)
    return {**{way: ways[way] for way in (PLACE, LINE, TEXT)}, "absent": absent}


def _recall(session: Session, by: str, budgets: tuple[int, ...], one: PlacedQuestion) -> Record:
    chosen = session.gathered(one.query.question, by, budgets)
    hits = map(one.is_among, chosen)
    return {str(budget): hit for budget, hit in zip(budgets, hits, strict=True)}


def _answer(session: Session, by: str, gather: int | None, one: PlacedQuestion) -> Record:
    asked = asdict(ask(session, one.query, How(gather, gather_by=by)))
    scores = {name: score(one.query.answers, asked["answer"]) for name, score in SCORERS.items()}
    share = asked["gathered"]  # of all places with the answer, though one is enough
    kept = {key: asked[key] for key in ("answer", "tokens", "timings")}
    return {**kept, "gathered": None if share is None else float(share > 0), **scores}


def _trial(
    journal: Journal, number: int, one: PlacedQuestion, sources: Sequence[str], wanted: QuestionTest
) -> Record:
    recall = {by: journal.get(_recall_name(by, number)) or {} for by in sources}
    asked = {by: journal.get(_answer_name(by, number)) for by in sources}
    span = one.query.spans[0] if one.query.spans else None
    return {
        "file": one.item.file,
        "number": one.item.number,
        "question": one.item.question,
        "accepted": [*one.item.answers],
        "counted": one.counted,
        "places": len(one.tokens),
        "source": span and span.source,
        "byte_offset": span and span.start,
        "token": one.tokens[0][0] if one.tokens else None,
        "recall": recall,
        "rank": {by: _rank(hits) for by, hits in recall.items()},
        "answers": asked if wanted.answers else {},
    }


def _rank(hits: Record) -> int | None:
    """The smallest budget that gathers the answer; None if none does."""
    return min((int(budget) for budget, hit in hits.items() if hit), default=None)


def _rates(trials: list[Record], sources: Sequence[str], wanted: QuestionTest) -> Iterator[Rate]:
    for by in sources:
        for budget in wanted.budgets:
            hits = [trial["recall"][by][str(budget)] for trial in trials]
            yield _rate(by, RECALL, budget, hits)
    for by in sources if wanted.answers else ():
        for name in SCORERS:
            scores = [trial["answers"][by][name] for trial in trials]
            yield _rate(by, name, wanted.answer_gather, scores)


def _rate(by: str, what: str, budget: int | None, values: list[float]) -> Rate:
    low, high = wilson(sum(values), len(values))
    mean = sum(values) / len(values)
    return Rate(by, what, budget, len(values), round(mean, 4), round(low, 4), round(high, 4))
