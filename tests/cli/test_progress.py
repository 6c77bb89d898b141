"""The forms of progress, for every command that has any, and quiet mode."""

import json
import re
import sys
from types import SimpleNamespace

import pytest

from longctx.cli import grids, progress, run
from longctx.cli.progress_lines import EVERY_MS, Lines, every
from longctx.cli.run import Form, Run
from longctx.core.ingest.job import Progress

FIELDS = {"schema_version", "progress", "what", "unit", "total", "cache", "processed", "time_ms"}


def lines_of(text: str) -> list[dict]:
    """The objects of progress among what stands on standard error."""
    objects = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
    assert all(line.keys() >= FIELDS for line in objects)
    return objects


@pytest.fixture
def book(tmp_path):
    path = tmp_path / "book.txt"
    path.write_text("the keeper wrote that a boat came home\n" * 40)
    return path


@pytest.mark.usefixtures("models_loaded_once")
def test_a_reading(longctx, model_options, book):
    ingest = ("ingest", book, "--name", "a", *model_options, "--replace")
    told = lines_of(longctx(*ingest, "--progress", "json").stderr)
    assert {(line["progress"], line["what"], line["unit"]) for line in told} == {
        ("ingest", "reading", "bytes")
    }
    size = book.stat().st_size
    assert (told[0]["processed"], told[-1]["processed"]) == (0, size)
    assert {(line["total"], line["cache"]) for line in told} == {(size, 0)}
    assert [line["time_ms"] for line in told] == sorted(line["time_ms"] for line in told)
    assert told[-1]["tokens"] > 0


@pytest.mark.usefixtures("models_loaded_once")
def test_what_is_asked_for_comes_and_nothing_else(longctx, model_options, book, monkeypatch):
    monkeypatch.setattr(progress, "PLAIN_EVERY_MS", -1)
    ingest = ["ingest", book, "--name", "a", *model_options, "--replace"]
    plain = longctx(*ingest)
    assert "tokens/s" in plain.stderr
    silent = longctx(*ingest, "--progress", "none")
    assert silent.stderr == ""
    assert silent.stdout.split(",")[:3] == plain.stdout.split(",")[:3]
    quiet = longctx(*ingest, "-q")
    assert (quiet.stderr, quiet.exit_code) == ("", 0)
    assert lines_of(longctx("-q", *ingest, "--progress", "json").stderr)


@pytest.mark.usefixtures("library", "models_loaded_once")
def test_quiet_shows_the_result_and_errors_alone(longctx):
    quiet, usual = longctx("list", "--quiet"), longctx("list")
    assert quiet.stdout == usual.stdout
    assert (quiet.stderr, bool(usual.stderr)) == ("", True)
    asked = longctx("ask", "who?", "-q")
    assert asked.stdout
    assert asked.stderr == ""
    failed = longctx("show", "nothing", "-q")
    assert failed.stderr == longctx("show", "nothing").stderr != ""


@pytest.mark.usefixtures("library")
def test_a_check(longctx):
    told = lines_of(longctx("verify", "--progress", "json").stderr)
    assert {line["progress"] for line in told} == {"verify"}
    assert told[-1]["processed"] == told[-1]["total"] > 0


def test_needles(capsys):
    run.start(Run(progress=Form.JSON, command="niah"))
    with grids.live_grid("depth", ["1k"], ["0%"]) as grid:
        grid.tell("loading the model")
        grid.read("haystack 1", Progress(10, 0, 10, 3, 0, 40))
        grid.asked("haystack 1", 1, 2)
        grid.asked("haystack 1", 2, 2)
    run.start(Run())
    told = lines_of(capsys.readouterr().err)
    assert [(line["unit"], line["processed"], line["total"]) for line in told] == [
        ("bytes", 10, 10),
        ("questions", 1, 2),
        ("questions", 2, 2),
    ]
    assert {line["progress"] for line in told} == {"niah"}


def test_other_long_runs(capsys, monkeypatch):
    from longctx.cli.eval.pace import Pace

    run.start(Run(progress=Form.JSON, command="eval qa"))
    pace = Pace()
    for done in range(3):
        pace.tell("asking", done, 2, "questions")
    progress.step("reading 16k", 3, 4, "measurements")
    told = lines_of(capsys.readouterr().err)
    counts = [(line["what"], line["processed"], line["total"]) for line in told]
    assert counts == [("asking", 0, 2), ("asking", 2, 2), ("reading 16k", 3, 4)]
    run.start(Run(progress=Form.NONE))
    pace.tell("other", 1, 2, "questions")
    progress.step("reading")
    assert capsys.readouterr().err == ""
    run.start(Run())


def test_the_first_the_last_and_five_a_second():
    written = []
    with Lines("reading", "bytes", written.append) as told:
        for number in range(11):
            told.tell(None, 0, number, number * EVERY_MS // 4, tokens=number)
    assert [line["processed"] for line in written] == [0, 4, 8, 10]
    written.clear()
    with Lines("reading", "bytes", written.append) as told:
        told.tell(2, 0, 1, 0)
        told.tell(2, 0, 2, 1)
    assert [line["processed"] for line in written] == [1, 2]


def test_what_begins_anew_is_told_like_the_first():
    written = []
    with Lines("reading", "bytes", written.append) as told:
        for document in ("a", "b"):
            for number in range(6):
                told.tell(None, 0, number, 1 + number * EVERY_MS // 4, document=document)
    assert [(line["document"], line["processed"]) for line in written] == [
        *[("a", 0), ("a", 4), ("a", 5), ("b", 0), ("b", 4), ("b", 5)]
    ]


def test_another_document_is_told_also_where_the_time_does_not_go_back():
    written = []
    steps = [("a", 0), ("a", 150), ("b", 180), ("b", 190)]
    with Lines("reading", "bytes", written.append) as told:
        for document, time_ms in steps:
            told.tell(None, 0, time_ms, time_ms, document=document)
    assert [(line["document"], line["time_ms"]) for line in written] == steps


def test_plain_lines_add_up_the_times_of_documents():
    told = []
    tell = every(300, lambda state, document: told.append(document))
    for document, time_ms in [("a", 0), ("a", 150), ("b", 180), ("b", 190)]:
        tell(SimpleNamespace(time_ms=time_ms, overall=None), document)
    assert told == ["b"]


def test_plain_lines_come_as_often_whatever_begins_anew():
    told = []
    tell = every(30, lambda state, document: told.append((document, state.time_ms)))
    for document in ("a", "b", "c"):
        for time_ms in (0, 10, 20, 40):
            tell(SimpleNamespace(time_ms=time_ms, overall=None), document)
    assert told == [("a", 40), ("b", 40), ("c", 40)]
    for document in ("d", "e", "f", "g"):  # none of which takes long enough by itself
        for time_ms in (0, 10):
            tell(SimpleNamespace(time_ms=time_ms, overall=None), document)
    assert told[3:] == [("f", 10)]


@pytest.mark.usefixtures("models_loaded_once")
def test_each_document_is_named(longctx, model_options, book, monkeypatch):
    (book.parent / "other.txt").write_text("salt and news of rain\n" * 30)
    files = [book, book.parent / "other.txt"]
    each = ["ingest", *files, "--each", *model_options, "--replace"]
    told = lines_of(longctx(*each, "--progress", "json").stderr)
    for file in files:
        own = [line for line in told if line["document"] == file.name]
        assert (own[0]["processed"], own[-1]["processed"]) == (0, file.stat().st_size)
    monkeypatch.setattr(progress, "PLAIN_EVERY_MS", -1)
    plain = longctx(*each[:-1], "--library", book.parent / "new").stderr
    lines = [line for line in plain.splitlines() if ": " in line]
    assert [line for line in lines if re.fullmatch(r"0 of 2 documents, .*: book\.txt", line)]
    assert [line for line in lines if re.fullmatch(r"1 of 2 documents, .*: other\.txt", line)]
    of_all = [line["overall"] for line in told]
    assert (of_all[0]["documents"], of_all[-1]["documents"], of_all[-1]["of"]) == (0, 1, 2)
    assert of_all[-1]["processed"] == of_all[-1]["total"] == sum(f.stat().st_size for f in files)


def test_plain_lines_of_many_go_by_the_time_of_all():
    told = []
    tell = every(30, lambda state, document: told.append((document, state.overall.time_ms)))
    for document, time_ms in [("a", 10), ("b", 29), ("a", 31), ("b", 40), ("c", 61)]:
        tell(SimpleNamespace(time_ms=0, overall=SimpleNamespace(time_ms=time_ms)), document)
    assert told == [("a", 31), ("c", 61)]


@pytest.mark.usefixtures("models_loaded_once")
def test_one_document_is_not_named(longctx, model_options, book):
    told = lines_of(longctx("ingest", book, *model_options, "--progress", "json").stderr)
    assert told
    assert not any("document" in line for line in told)


class Terminal:
    """A standard error that somebody looks at."""

    def __init__(self):
        self.text = ""

    def write(self, text: str) -> int:
        self.text += text
        return len(text)

    def flush(self) -> None: ...

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("environment", "drawn"),
    [({"TERM": "xterm"}, True), ({"TERM": "dumb"}, False), ({"TERM": "xterm", "NO_COLOR": "1"}, 1)],
)
def test_a_terminal_gets_what_it_can_show(monkeypatch, environment, drawn):
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with progress.reading() as tell, progress.status("waiting"):
        tell(Progress(10, 0, 5, 3, 0, 31_000))
    assert ("\x1b" in terminal.text) == bool(drawn)
    assert "3 tokens" in terminal.text
    colours = [part for part in terminal.text.split("\x1b[")[1:] if part.split("m")[0].isdigit()]
    assert not (colours and "NO_COLOR" in environment)


@pytest.mark.parametrize("form", [Form.NONE, Form.JSON])
def test_nothing_is_drawn_where_another_form_is_wanted(monkeypatch, form):
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    run.start(Run(progress=form))
    with progress.status("waiting"), grids.live_grid("depth", ["1k"], ["0%"]) as grid:
        grid.read("x", Progress(10, 0, 5, 3, 0, 31_000))
    run.start(Run())
    assert "\x1b" not in terminal.text
