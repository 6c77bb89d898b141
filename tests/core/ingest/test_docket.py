"""What several readers have to do: the order, what is tried again, and the count of all."""

from collections.abc import Callable

import pytest

from longctx.core.common.errors import Locked, UnreadableInput
from longctx.core.engine.choice import Setup
from longctx.core.ingest import docket as module
from longctx.core.ingest.docket import KILLS, PATIENCE, Docket
from longctx.core.ingest.ingested import Ingested
from longctx.core.ingest.job import Job, Observer, Progress
from longctx.core.ingest.many import Each, Failed

SIZES = {"a": 10, "b": 40, "c": 20}


@pytest.fixture
def docket(tmp_path, monkeypatch) -> Callable[..., Docket]:
    """f(retry, observer): a docket of three files of these sizes; its clock stands still."""
    monkeypatch.chdir(tmp_path)
    for name, size in SIZES.items():
        (tmp_path / name).write_text("x" * size)
    job = Job(tmp_path / "library", [*SIZES], Setup())
    return lambda retry=0, observer=Observer(): Docket(job, retry, observer, Each())  # noqa: B008


@pytest.fixture
def clock(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    return now


def test_the_largest_comes_first_and_what_lost_its_reader_next(docket):
    work = docket()
    assert [work.next(), work.next()] == ["b", "c"]
    work.died("b", "exit -9")
    assert [work.next(), work.next(), work.next()] == ["b", "a", None]
    assert len(work) == 0


def test_a_file_over_which_readers_die_fails_alone(docket):
    work = docket()
    for _ in range(KILLS):
        assert work.next() == "b"
        work.died("b", "exit -9")
    assert [work.next(), work.next(), work.next()] == ["c", "a", None]
    [failed] = work.result.failed
    assert failed == Failed("b", 1, "the process that read it ended 3 times (exit -9)")


def test_what_failed_is_tried_again_after_the_others(docket):
    work = docket(retry=1)
    failed = Failed("b", UnreadableInput.exit_code, "no text")
    assert work.next() == "b"
    work.done("b", failed)
    assert work.result.failed == []
    assert [work.next(), work.next(), work.next()] == ["c", "a", "b"]
    work.done("b", failed)
    assert (work.next(), work.result.failed) == (None, [failed])


def test_what_another_command_reads_is_waited_for(docket, clock):
    work, locked = docket(), Failed("b", Locked.exit_code, "'b' is being written")
    assert work.next() == "b"
    work.done("b", locked)
    assert [work.next(), work.next(), work.next()] == ["c", "a", None]
    assert len(work) == 1  # it is to come
    clock[0] = module.PAUSE
    assert work.next() == "b"
    clock[0] = PATIENCE
    work.done("b", locked)
    assert (len(work), work.result.failed) == (0, [locked])


def test_the_progress_of_all_is_added_up(docket):
    told = []
    observer = Observer(progress=lambda progress, document: told.append(progress.overall))
    work = docket(observer=observer)
    work.heard("b", Progress(40, 10, 20, 12, 0, 1000))  # of 12 tokens half were read now
    work.heard("c", Progress(20, 0, 10, 4, 0, 1000))
    at = told[-1]
    assert (at.documents, at.of, at.total, at.processed, at.cache) == (0, 3, 70, 30, 10)
    assert (at.tokens, at.time_ms >= 1000) == (10, True)
    assert at.left_s == pytest.approx(at.time_ms / 1000 * (70 - 30) / (30 - 10))
    work.done("b", Ingested("b", "complete", 24, 5, 1.0))
    work.done("a", Ingested("a", "unchanged", 5, 5, 0.0))  # which took no reading
    work.heard("c", Progress(20, 0, 20, 8, 0, 2000))
    at = told[-1]
    assert (at.documents, at.processed, at.cache, at.left_s) == (2, 70, 20, 0.0)
