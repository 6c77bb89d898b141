"""Questions on a document that was read before: is the place gathered, and are the answers right?

A document token counts as gathered where it is among the best at a budget: a question is scored
once for each thing that is gathered by, and the scores are cut at every budget. Answers are those
of `Session.ask`. How questions come from a file is known to `qa_questions.py`, and what makes an
answer right to `text_match.py`.
"""

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

from longctx.core import scoring
from longctx.core.errors import LongctxError, UsageError
from longctx.core.eval.asking import How, ask
from longctx.core.eval.intervals import wilson
from longctx.core.eval.journal import Journal, Record
from longctx.core.eval.qa_questions import Placed
from longctx.core.eval.run_settings import of_model
from longctx.core.eval.text_match import contained, exact_match, f1
from longctx.core.gather import top_tokens
from longctx.core.memory import Scores
from longctx.core.scoring import METHOD
from longctx.core.session import Session

SCHEMA_VERSION = 1
BUDGETS = (1024, 2048, 4096, 8192)
SCORERS = {"exact_match": exact_match, "f1": f1, "contained": contained}


@dataclass(frozen=True)
class Wanted:
    """What is measured.

    Attributes:
        gather_by: what is gathered by, one after another.
        budgets: tokens that are gathered, for recall.
        answers: also ask, and judge the answers.
        answer_gather: tokens to gather for an answer; None: the method's number.
    """

    gather_by: tuple[str, ...] = (METHOD,)
    budgets: tuple[int, ...] = BUDGETS
    answers: bool = True
    answer_gather: int | None = None


@dataclass(frozen=True)
class Rate:
    """A mean of values from 0 to 1.

    Attributes:
        gather_by: what was gathered by.
        what: `recall`, or a scorer of answers.
        budget: tokens gathered; None: the method's number.
        total: questions.
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
class Report:
    """What a run found.

    Attributes:
        document, tokens: its name and size.
        settings: what was asked for, and of what.
        rates: recall by source and budget, then scores of answers by source.
        trials: one for each question: its line, words and place, `recall` by source and budget,
            `best_score` by source, and `answers` by source.
    """

    document: str
    tokens: int
    settings: Record
    rates: list[Rate]
    trials: list[Record]

    def as_dict(self) -> dict[str, Any]:
        """The JSON object of `eval qa`."""
        return {"schema_version": SCHEMA_VERSION, "eval": "qa", **asdict(self)}


def run(
    session: Session,
    placed: list[Placed],
    wanted: Wanted,
    folder: Path | None = None,
    on_done: Callable[[str, int, int, int], None] = lambda what, done, total, kept: None,
) -> Report:
    """Scores and asks every question.

    Args:
        session: the open document.
        placed: questions with the places of their answers.
        wanted: what is measured.
        folder: where finished pieces are kept, for a run that goes on; None: nowhere.
        on_done: told what is done, how many questions of how many, and how many of them were
            done in an earlier run; the first time that it begins.

    Raises:
        UsageError: budgets or names that cannot be, or a folder of another run.
        LongctxError: the document keeps nothing to search by.
        KeyboardInterrupt: Ctrl-C, also while an answer came.
    """
    _require(wanted)
    settings = _settings(session, placed, wanted)
    with Journal(folder, settings) as journal:
        for by in wanted.gather_by:
            pieces = {
                _recall_name(by, one): partial(_recall, session, one, by, wanted.budgets)
                for one in placed
            }
            journal.complete(pieces, partial(on_done, f"gathering by {by}"))
        for by in wanted.gather_by if wanted.answers else ():
            pieces = {
                _answer_name(by, one): partial(_answer, session, one, by, wanted) for one in placed
            }
            journal.complete(pieces, partial(on_done, f"answering from what {by} gathers"))
        trials = [_trial(journal, one, wanted) for one in placed]
    manifest = session.document.manifest
    return Report(manifest.name, manifest.tokens, settings, [*_rates(trials, wanted)], trials)


def _require(wanted: Wanted) -> None:
    if not wanted.gather_by or not wanted.budgets or min(wanted.budgets) < 1:
        why = "each question needs something to gather by, and budgets of a token or more"
        raise UsageError("cannot measure recall", why, "Correct --gather-by or --gather.")
    for name in wanted.gather_by:
        scoring.require(name)


def _settings(session: Session, placed: list[Placed], wanted: Wanted) -> Record:
    """What decides the results; what is gathered by may change from run to run."""
    manifest, engine = session.document.manifest, session.engine
    return {
        "eval": "qa",
        "document": manifest.name,
        "sources": [source.sha256 for source in manifest.sources],
        "questions": sha256(repr([one.item for one in placed]).encode()).hexdigest(),
        "budgets": [*wanted.budgets],
        "answer_gather": wanted.answer_gather,
        "decode": str(engine.decoding),
        "method": manifest.method,
        "asked_with": engine.asked_with,
        "options": manifest.options,
        **of_model(engine),
    }


def _recall_name(by: str, one: Placed) -> str:
    return f"recall/{by}/{one.item.line}"


def _answer_name(by: str, one: Placed) -> str:
    return f"answer/{by}/{one.item.line}"


def _recall(session: Session, one: Placed, by: str, budgets: tuple[int, ...]) -> Record:
    scores = session.score(one.query.question, gather_by=by)
    manifest = session.document.manifest
    if len(scores.raw) != manifest.tokens:
        raise LongctxError(
            f"cannot search document {manifest.name!r}",
            f"its method {manifest.method!r} scores no tokens",
            "Ingest it with --method reform.",
        )
    hits = {str(budget): is_gathered(scores, one.token, budget) for budget in budgets}
    return {"gathered": hits, "best_score": round(float(scores.raw.max()), 6)}


def is_gathered(scores: Scores, token: int, budget: int) -> bool:
    """Whether a token is among those that `find` would give at a budget.

    Args:
        scores: of all N tokens. Where a question attends to what was kept, tokens that it did not
            attend to are ranked under their own scores, and no budget gathers them.
        token: its index.
        budget: tokens that are gathered.
    """
    attended = int((scores.pooled >= scores.raw).sum())
    return token in top_tokens(scores, min(budget, attended), len(scores.raw), (0, 0))


def _answer(session: Session, one: Placed, by: str, wanted: Wanted) -> Record:
    how = How(wanted.answer_gather, gather_by=by)
    asked = asdict(ask(session, one.query, how))
    scores = {name: score(one.query.answers, asked["answer"]) for name, score in SCORERS.items()}
    return {key: asked[key] for key in ("answer", "gathered", "tokens", "timings")} | scores


def _trial(journal: Journal, one: Placed, wanted: Wanted) -> Record:
    found = {by: journal.get(_recall_name(by, one)) or {} for by in wanted.gather_by}
    asked = {by: journal.get(_answer_name(by, one)) for by in wanted.gather_by}
    span = one.query.spans[0]
    return {
        "line": one.item.line,
        "question": one.item.question,
        "accepted": list(one.item.answers),
        "source": span.source,
        "byte_offset": span.start,
        "token": one.token,
        "recall": {by: values["gathered"] for by, values in found.items()},
        "best_score": {by: values["best_score"] for by, values in found.items()},
        "answers": asked if wanted.answers else {},
    }


def _rates(trials: list[Record], wanted: Wanted) -> Iterator[Rate]:
    for by in wanted.gather_by:
        for budget in wanted.budgets:
            hits = [trial["recall"][by][str(budget)] for trial in trials]
            yield _rate(by, "recall", budget, hits)
    for by in wanted.gather_by if wanted.answers else ():
        for name in SCORERS:
            scores = [trial["answers"][by][name] for trial in trials]
            yield _rate(by, name, wanted.answer_gather, scores)


def _rate(by: str, what: str, budget: int | None, values: list[float]) -> Rate:
    low, high = wilson(sum(values), len(values))
    mean = sum(values) / len(values)
    return Rate(by, what, budget, len(values), round(mean, 4), round(low, 4), round(high, 4))
