"""Runs of tasks: what is asked, what is not asked again, and how results are counted."""

from contextlib import contextmanager
from types import SimpleNamespace

import pytest

from longctx.core.common.errors import UsageError
from longctx.core.engine.choice import Setup
from longctx.core.measure.case import Case, CaseQuestion, Task
from longctx.core.measure.eval import evaluation as runs
from longctx.core.measure.eval.evaluation import Evaluation, Watch, run
from longctx.core.measure.eval.summary import averages, cells
from longctx.core.measure.intervals import wilson
from longctx.core.measure.journal import Journal
from longctx.core.measure.runner import Asked, How

ENGINE = SimpleNamespace(files=SimpleNamespace(tokenizer=None))


def make(name: str, most: int = 100) -> Task:
    def cases(tokenizer, length, count, seed):
        if length < 10:
            raise UsageError("too short")
        for i in range(min(count, most)):
            yield Case(
                f"{name}/{length}/{i}", f"{seed} " * length, (CaseQuestion(name, "?", ("x",)),)
            )

    return Task(name, cases, lambda right, answer: float(answer == right[0]), 7)


@pytest.fixture
def asked(monkeypatch):
    """The names of what is asked, in order; the document's length is its answer's."""
    names = []

    @contextmanager
    def opened(case, setup, gathers_by, on_progress):
        names.append(case.name)
        yield SimpleNamespace(seconds=1.5), case

    def ask(case, query, how):
        assert how.max_new_tokens == 7
        if case.name == "b/20/1" and names.count(case.name) == 1:
            raise KeyboardInterrupt
        tokens = {"document": len(case.text.split())}
        return Asked(query.kind, "?", query.answers, "x", 0.5, tokens, {"total_s": 1.0})

    monkeypatch.setattr(runs, "opened", opened)
    monkeypatch.setattr(runs, "ask", ask)
    return names


def started(tasks, lengths, samples, journal, **more):
    wanted = Evaluation(tasks, lengths, samples, 0)
    return run(wanted, ENGINE, Setup(), How(gather=5), journal, **more)


def test_every_task_length_and_sample_is_asked_once(asked, tmp_path):
    told = []
    watch = Watch(lambda *case: told.append(case))
    with Journal(None, {}) as journal:
        tasks = [make("a"), make("c", most=1)]
        records = list(started(tasks, [30, 20, 30], 2, journal, watch=watch))
    assert asked == ["a/20/0", "a/20/1", "c/20/0", "a/30/0", "a/30/1", "c/30/0"]
    assert [record["sample"] for record in records] == asked
    assert told[0] == ("a/20/0", 0, 8, 0)
    assert records[0] == {
        "task": "a",
        "length": 20,
        "sample": "a/20/0",
        "question": "?",
        "answers": ["x"],
        "answer": "x",
        "gathered": 0.5,
        "score": 1.0,
        "tokens": {"document": 20},
        "timings": {"ingest_s": 1.5, "total_s": 1.0},
        "tokens_per_s": None,
    }


def test_a_stopped_run_goes_on_where_it_was(asked, tmp_path):
    tasks = [make("a"), make("b")]
    with Journal(tmp_path, {}) as journal, pytest.raises(KeyboardInterrupt):
        list(started(tasks, [20], 3, journal))
    before = [*asked]
    assert before == ["a/20/0", "a/20/1", "a/20/2", "b/20/0", "b/20/1"]
    with Journal(tmp_path, {}) as journal:
        records = list(started(tasks, [20], 3, journal))
    assert asked[len(before) :] == ["b/20/1", "b/20/2"]
    assert [record["sample"] for record in records] == [f"{t}/20/{i}" for t in "ab" for i in "012"]
    with Journal(tmp_path, {}) as journal:
        assert list(started(tasks, [20], 3, journal)) == records
        more = list(started([make("a")], [20, 25], 4, journal))
    assert asked[len(before) + 2 :] == ["a/20/3", *(f"a/25/{i}" for i in range(4))]
    assert len(more) == 8


def test_a_length_too_short_is_known_before_anything_is_read(asked):
    with Journal(None, {}) as journal, pytest.raises(UsageError, match="too short"):
        list(started([make("a")], [100, 9], 1, journal))
    assert asked == []


def record(task, length, score, gathered=None):
    tokens = {"document": length - 5}
    named = {"task": task, "length": length, "score": score}
    return {**named, "gathered": gathered, "tokens": tokens}


def test_cells_and_averages():
    records = [record("a", 100, 1.0, 0.5), record("a", 100, 0.0, 1.0), record("b", 100, 0.25)]
    found = cells([*records, record("a", 200, 1.0)])
    assert [(cell.task, cell.length, cell.samples) for cell in found] == [
        ("a", 100, 2),
        ("b", 100, 1),
        ("a", 200, 1),
    ]
    assert [cell.score for cell in found] == [0.5, 0.25, 1.0]
    assert [cell.gathered for cell in found] == [0.75, None, None]
    assert found[0].tokens == 95
    assert (found[0].low, found[0].high) == wilson(1, 2)
    assert (found[1].low, found[1].high) == wilson(0.25, 1)
    first, second = averages(found)
    assert (first.task, first.length, first.samples, first.score) == (None, 100, 3, 0.375)
    assert (second.length, second.score, second.samples) == (200, 1.0, 1)
    assert first.gathered == 0.75
