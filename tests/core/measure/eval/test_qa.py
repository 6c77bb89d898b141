"""Questions on a document: recall at budgets, what is left out, answers, and going on."""

import json

import pytest

from longctx.core.ask.session import Session
from longctx.core.common.errors import LongctxError, StateMismatch, UsageError
from longctx.core.measure.eval import qa
from longctx.core.measure.eval.qa import EVERY, QuestionTest, as_dict, run, summed
from longctx.core.measure.eval.qa_places import place
from longctx.core.measure.eval.qa_questions import read_items
from longctx.core.retrieve import gather_by

METHOD = ("method",)


@pytest.fixture
def session(letters_session):
    """The letters, open."""
    return letters_session


@pytest.fixture
def found(session, questions, letter_lines):
    """Runs on the three questions, or on others."""

    def call(wanted: QuestionTest, folder=None, lines=letter_lines):
        placed = place(read_items(questions(*lines)), session.document)
        return run(session, placed, wanted, folder)

    return call


def test_recall_is_what_find_gives_and_answers_are_what_ask_gives(session, found):
    report = found(QuestionTest(METHOD, budgets=(20, 60, 10**6)))
    for trial in report.trials:
        for budget, hit in trial["recall"]["method"].items():
            runs = session.find(trial["question"], int(budget), "method").passages
            at = trial["byte_offset"]
            holds = [p for p in runs if p.source == trial["source"] and p.start <= at < p.end]
            assert hit == bool(holds)
        answer = session.ask(trial["question"], gather_by="method").answer
        assert trial["answers"]["method"]["answer"] == answer
    rates = {(rate.what, rate.budget): rate for rate in report.rates}
    assert rates["recall", 10**6].rate == 1
    hits = [trial["recall"]["method"]["60"] for trial in report.trials]
    assert rates["recall", 60].rate == round(sum(hits) / 3, 4)
    assert rates["recall", 60].low <= rates["recall", 60].rate <= rates["recall", 60].high
    assert {what for what, _ in rates} == {"recall", "exact_match", "f1", "contained"}
    assert json.loads(json.dumps(as_dict([report])))["documents"][0]["trials"] == report.trials


def test_answers_are_judged_by_what_was_said(found, monkeypatch):
    real = qa.ask

    def say(session, query, how):
        from dataclasses import replace

        return replace(real(session, query, how), answer="The Ёлка, dawn")

    monkeypatch.setattr(qa, "ask", say)
    trials = found(QuestionTest(METHOD, budgets=(20,))).trials
    judged = [trial["answers"]["method"] for trial in trials]
    assert [one["contained"] for one in judged] == [1, 1, 0]
    assert [one["exact_match"] for one in judged] == [0, 0, 0]
    assert [round(one["f1"], 2) for one in judged] == [0.67, 0.67, 0]


def test_a_second_run_asks_nothing_again(session, found, monkeypatch, tmp_path):
    asked, scored = [], []
    ask, gathered = Session.ask, Session.gathered
    monkeypatch.setattr(Session, "ask", lambda s, *a, **k: asked.append(a) or ask(s, *a, **k))
    monkeypatch.setattr(Session, "gathered", lambda *a: scored.append(a) or gathered(*a))
    wanted = QuestionTest(METHOD, budgets=(20, 40, 60))
    first = found(wanted, tmp_path / "out")
    assert (len(asked), len(scored)) == (3, 3)  # once for all budgets
    results = tmp_path / "out" / "results.jsonl"
    kept = results.read_text("utf-8").splitlines(keepends=True)
    results.write_text("".join(kept[:4]), "utf-8")  # two answers are lost
    again = found(wanted, tmp_path / "out")
    assert (len(asked), len(scored)) == (5, 3)

    def untimed(report):
        for trial in report.trials:
            trial["answers"]["method"].pop("timings")
        return report.trials, report.rates

    assert untimed(again) == untimed(first)
    with pytest.raises(UsageError, match="budgets was"):
        found(QuestionTest(METHOD, budgets=(20,)), tmp_path / "out")
    assert len(found(QuestionTest(METHOD, budgets=(20,), answers=False)).rates) == 1


def test_text_that_is_gathered_stands_in_a_passage_that_find_gives(session, found):
    answers = ["at dawn", "Zoë", "rain and salt\nnews"]
    lines = [{"question": f"the keeper {words}", "answer": words} for words in answers]
    lines += [{**lines[0], "where": {"path": "one.txt", "line": 4}}]
    lines += [{"question": "who?", "answer": "a wolf"}]
    budgets = (20, 60, 100)
    report = found(QuestionTest(METHOD, budgets, answers=False), lines=lines)
    assert report.counted == {"place": 0, "line": 1, "text": 4, "absent": 1}
    hits = []
    for trial in report.trials:
        for budget in budgets:
            passages = session.find(trial["question"], budget, "method").passages
            words = trial["accepted"][0].split()
            texts = [(p, " ".join(p.text.split())) for p in passages]
            holding = [p for p, text in texts if " ".join(words) in text]
            if trial["counted"] == "line":
                at = trial["byte_offset"]
                holding = [p for p in holding if p.start <= at < p.end]
            hits.append(trial["recall"]["method"][str(budget)])
            assert hits[-1] == bool(holding), (trial["question"], budget)
    assert {*hits} == {True, False}
    assert [trial["places"] for trial in report.trials] == [3, 1, 11, 1, 0]


def test_the_rank_is_the_smallest_budget_that_gathers(found):
    trials = found(QuestionTest(METHOD, (10**6, 20, 60), answers=False)).trials
    for trial in trials:
        hits = [int(budget) for budget, hit in trial["recall"]["method"].items() if hit]
        assert trial["rank"] == {"method": min(hits)}
    nowhere = [{"question": "who?", "answer": "a wolf"}]
    (trial,) = found(QuestionTest(METHOD, (20,), answers=False), lines=nowhere).trials
    assert trial["rank"] == {"method": None}


def test_all_gather_sources_are_measured_only_where_they_are_wanted(found):
    report = found(QuestionTest(budgets=(20,), answers=False))
    assert [rate.gather_by for rate in report.rates] == [gather_by.USUAL]
    report = found(QuestionTest(EVERY, (20, 60), answers=False))
    names = [name for name in gather_by.names() if name != "dense"]
    assert [*dict.fromkeys(rate.gather_by for rate in report.rates)] == names
    assert len(report.rates) == 2 * len(names)
    assert {*report.left_out} == {"dense"}  # the document has no vectors


def refusing(monkeypatch, error: LongctxError, *refused: str) -> None:
    """What is gathered by some names fails as a document does that has nothing for them."""
    gathered = Session.gathered

    def some(session, question, by, budgets):
        if by in refused:
            raise error
        return gathered(session, question, by, budgets)

    monkeypatch.setattr(Session, "gathered", some)


def test_what_cannot_be_gathered_by_is_left_out_unless_it_is_named(found, monkeypatch):
    refusing(monkeypatch, LongctxError("no embeddings"), "method", "hybrid")
    usual = found(QuestionTest(budgets=(20,), answers=False))
    assert (usual.left_out, usual.rates[0].gather_by) == ({"hybrid": "no embeddings"}, "bm25")
    report = found(QuestionTest(EVERY, (20,), answers=False))
    assert {"method", "hybrid"} <= {*report.left_out}
    assert report.left_out["hybrid"] == "no embeddings"
    assert "bm25" in {rate.gather_by for rate in report.rates}
    assert not {rate.gather_by for rate in report.rates} & {*report.left_out}
    with pytest.raises(LongctxError, match="no embeddings"):
        found(QuestionTest(("bm25", "hybrid"), (20,), answers=False))
    refusing(monkeypatch, LongctxError("no words"), "bm25", *gather_by.names())
    with pytest.raises(LongctxError, match="no words"):
        found(QuestionTest(budgets=(20,), answers=False))


def test_a_damaged_state_is_not_left_out(found, monkeypatch):
    refusing(monkeypatch, StateMismatch("damaged"), "hybrid")
    with pytest.raises(StateMismatch):
        found(QuestionTest(budgets=(20,), answers=False))


def test_the_sum_is_over_questions_and_over_what_all_documents_have(found, monkeypatch):
    wanted = QuestionTest(("method", "bm25"), (20, 60), answers=False)
    nowhere = [{"question": "the boat", "answer": "a wolf"}]
    reports = [found(wanted), found(wanted, lines=nowhere)]
    first, total = reports[0].rates, summed(reports)
    assert [(r.gather_by, r.budget) for r in total] == [(r.gather_by, r.budget) for r in first]
    for one, both in zip(first, total, strict=True):
        assert (one.total, both.total) == (3, 4)
        assert both.rate == round(one.rate * 3 / 4, 4)
    assert as_dict(reports)["sum"]["questions"] == 4
    other = found(QuestionTest(("bm25",), (20, 60), answers=False))
    assert {rate.gather_by for rate in summed([reports[0], other])} == {"bm25"}
