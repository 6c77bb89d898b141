"""Threads that share a library: turns, streams that are closed, questions while a file is read."""

import threading
import time
from collections.abc import Callable, Iterator

import pytest

import longctx
from longctx.core.api.model import running
from longctx.core.model.files import ModelFiles

QUESTION = "What is the code of the oil-store padlock?"
LINES = (
    "The keeper of the lighthouse was called Aldous Crane.\n"
    "The code of the oil-store padlock is 58204.\n"
    "A boat brought salt and news of rain at dawn.\n"
)
ENDLESS = 400  # tokens, unless somebody ends it


@pytest.fixture(scope="module")
def bundled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[longctx.Library]:
    """A library of two documents with the bundled model."""
    folder = tmp_path_factory.mktemp("bundled")
    (folder / "notes.txt").write_text(LINES, "utf-8")
    (folder / "more.txt").write_text(LINES.replace("58204", "31977"), "utf-8")
    with (
        longctx.Model("tiny", answers="own", device="cpu", threads=1) as model,
        longctx.Library(folder / "library", model) as library,
    ):
        library.ingest(folder / "notes.txt")
        library.ingest(folder / "more.txt")
        yield library


@pytest.fixture
def endless(monkeypatch: pytest.MonkeyPatch) -> None:
    """The model never ends an answer by itself."""
    monkeypatch.setattr(ModelFiles, "eos_ids", lambda self: set())


def in_thread(work: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=work)
    thread.start()
    return thread


def test_a_stream_is_closed_by_another_thread(bundled, endless):
    notes = bundled["notes"]
    stream = notes.ask(QUESTION, stream=True, max_new_tokens=ENDLESS)
    begun, pieces = threading.Event(), []

    def take() -> None:
        for piece in stream:
            pieces.append(piece)
            begun.set()

    taker = in_thread(take)
    begun.wait()
    stream.close()
    taker.join()
    assert stream.answer.interrupted
    assert stream.answer.tokens["answer"] < ENDLESS
    assert "".join(pieces).strip() == stream.answer.answer
    assert notes.ask(QUESTION, max_new_tokens=6).answer.startswith("58204")


@pytest.mark.parametrize("how", ["dropped", "left", "closed at once"])
def test_a_stream_that_nobody_takes_ends(bundled, endless, how):
    before = threading.active_count()
    if how == "left":
        with bundled["notes"].ask(QUESTION, stream=True, max_new_tokens=ENDLESS) as stream:
            next(stream)
        assert stream.answer.tokens["answer"] < ENDLESS
    elif how == "dropped":
        stream = bundled["notes"].ask(QUESTION, stream=True, max_new_tokens=ENDLESS)
        next(stream)
        del stream
    else:
        bundled["notes"].ask(QUESTION, stream=True).close()
    answered = bundled["more"].ask(QUESTION, max_new_tokens=6)  # has its turn only then
    assert answered.answer.startswith("31977")
    while threading.active_count() > before:
        time.sleep(0.01)


def test_questions_of_several_threads_take_turns(bundled):
    names = ["notes", "more"] * 3
    answers = [""] * len(names)

    def ask(number: int) -> None:
        answers[number] = bundled[names[number]].ask(QUESTION).answer

    def stream(number: int) -> None:
        answers[number] = "".join(bundled[names[number]].ask(QUESTION, stream=True)).strip()

    threads = [
        in_thread(lambda number=number: (ask, stream)[number % 4 > 1](number))
        for number in range(len(names))
    ]
    for thread in threads:
        thread.join()
    assert answers == ["58204", "31977"] * 3


def test_a_question_is_answered_while_a_file_is_read(library, random_model, tmp_path):
    file, told, asking = tmp_path / "long.txt", [], []
    file.write_text("a boat came home with news of rain\n" * 40, "utf-8")
    waiting = running(random_model)._turns._waiting

    def on_progress(state: longctx.Progress) -> None:
        told.append(len(told))
        if len(told) == 2:
            asking.append(in_thread(lambda: told.append(library["book"].ask("who").answer)))
            while not waiting:
                time.sleep(0.01)
        if len(told) == 3:
            asking[0].join()

    library.ingest(file, on_progress=on_progress)
    assert told[:2] == [0, 1]
    assert isinstance(told[2], str)  # before the next chunk
    assert len(told) > 3


def test_a_stream_that_waits_for_its_turn_can_be_closed(library, random_model):
    with running(random_model).turn():
        stream = library["book"].ask("who came home", stream=True)
        stream.close()
        assert [*stream] == []
    assert stream.answer is None
    assert library["book"].ask("who came home").timings


def test_a_reading_ends_where_its_progress_says_so(library, tmp_path):
    file = tmp_path / "long.txt"
    file.write_text("a boat came home with news of rain\n" * 40, "utf-8")

    class Enough(Exception):
        pass

    def on_progress(state: longctx.Progress) -> None:
        if state.tokens > 100:
            raise Enough

    with pytest.raises(Enough):
        library.ingest(file, on_progress=on_progress)
    assert library.ingest(file).status == "complete"


def test_a_closed_model_is_loaded_again(library, random_model):
    first = library["book"].ask("who came home").answer
    random_model.close()
    assert not running(random_model)._weights.held
    assert library["book"].ask("who came home").answer == first


def test_only_so_many_documents_stay_open(library, random_model, monkeypatch):
    monkeypatch.setattr("longctx.core.api.running.OPEN", 1)
    library["book"].ask("who came home")
    library["notes"].ask("who came home")
    assert [*running(random_model)._held] == [library["notes"]]
    library["book"].ask("who came home")


def test_a_model_is_loaded_before_it_is_needed(model_folder):
    profile = str(model_folder / "profile.yaml")
    with longctx.Model(str(model_folder), profile=profile, device="cpu") as model:
        assert len(running(model.load())._weights.held) == 1
    assert "cpu" in repr(model)
    with pytest.raises(longctx.UsageError):
        longctx.Model(device="none").load()
