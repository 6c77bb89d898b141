"""A document answers from its words before the model has read it: beside real processes."""

import json
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from preloaded import PIPE, Process

FACT = "The lighthouse at Skerry Point was kept by Ingrid Halvorsen from 1871 to 1902."
LINES = [f"line {i}: the keeper wrote that boat {i * 7919 % 1000} came home" for i in range(40)]
TEXT = "\n".join([*LINES[:20], "", FACT, "", *LINES[20:]])
QUESTION = "Who kept the lighthouse at Skerry Point?"
HOLD = """
import time
from pathlib import Path
from longctx.core.ingest import draft
from longctx.core.model.adapter import Decoder
draft.LEAST = 0
read, count = Decoder.read, 0
def held(self, *args):
    global count
    count += 1
    if count == {chunk}:
        Path({there!r}).touch()
        while Path({there!r}).exists():
            time.sleep(0.02)
    return read(self, *args)
Decoder.read = held
"""


@pytest.fixture(autouse=True)
def own_settings(monkeypatch) -> None:
    """The reader answers; and these short documents get drafts in this process too."""
    monkeypatch.delenv("LONGCTX_ANSWER_MODEL")
    monkeypatch.setattr("longctx.core.ingest.draft.LEAST", 0)


@pytest.fixture
def book(tmp_path) -> Path:
    path = tmp_path / "book.txt"
    path.write_text(TEXT)
    return path


@pytest.fixture
def library(tmp_path) -> Path:
    return tmp_path / "library"


@pytest.fixture
def ingest(book, model_options) -> list[str]:
    return ["ingest", str(book), *model_options, "--threads", "1", "--checkpoint", "1"]


@pytest.fixture
def held(tmp_path, ingest) -> Callable:
    """A process that reads the book and waits before a chunk, while a context lasts."""
    there = tmp_path / "there"

    @contextmanager
    def reading(chunk: int) -> Iterator[Process]:
        before = HOLD.format(there=str(there), chunk=chunk)
        with Process(ingest, stdout=PIPE, stderr=PIPE, text=True, before=before) as process:
            while not there.exists():
                assert process.poll() is None, process.stderr.read()
                time.sleep(0.02)
            try:
                yield process
            finally:
                there.unlink(missing_ok=True)
                if process.poll() is None:
                    process.communicate(timeout=120)

    return reading


@pytest.fixture
def stopped(held) -> Callable[..., int]:
    """Ends the reading of the book before a chunk, by a signal; gives the exit code."""

    def stop(number: signal.Signals, chunk: int = 9) -> int:
        with held(chunk) as process:
            process.send_signal(number)
            process.communicate(timeout=120)
        return process.returncode

    return stop


def files(library: Path) -> dict[str, bytes]:
    """All documents, byte for byte, but for what each says of its reading."""
    folder = library / "documents"
    found = [path for path in folder.rglob("*") if path.is_file()]
    return {str(p.relative_to(folder)): p.read_bytes() for p in found if p.suffix != ".json"}


def state(longctx, *words: object) -> dict:
    done = longctx(*words, "--json")
    assert done.exit_code == 0, done.stderr
    return json.loads(done.stdout)["state"]


def test_it_answers_while_another_process_reads(longctx, held, ingest, library, tmp_path):
    with held(1) as process:
        answer = longctx("ask", QUESTION, "--doc", "book")
        assert answer.exit_code == 0, answer.stderr
        assert answer.stdout.startswith("Ingrid Halvorsen\n")
        assert "book: words only, encoding is at 0%\n" in answer.stderr
        [only] = state(longctx, "ask", QUESTION)["words_only"]
        assert (only["name"], only["encoded"], only["running"]) == ("book", 0, True)
        assert FACT in longctx("find", "lighthouse").stdout
        assert "draft (0% encoded), default" in longctx("list").stdout
        assert longctx("show", "book").exit_code == 0
        assert longctx("gc").exit_code == 0
        assert longctx(*ingest).exit_code == 11
        assert longctx("rm", "book", "--yes").exit_code == 11
    assert process.returncode == 0
    whole = state(longctx, "ask", QUESTION)
    assert (whole["status"], whole["words_only"]) == ("complete", [])
    assert not [*(library / "drafts").iterdir()]
    other = tmp_path / "other"
    assert longctx(*ingest, "--library", other).exit_code == 0
    assert files(other) == files(library)


@pytest.mark.parametrize("more", [["--answer-by", "decode"], ["--gather-by", "method"]])
def test_what_needs_the_encoding_says_how_far_it_is(longctx, held, stopped, more):
    with held(3) as process:
        refused = longctx("ask", QUESTION, *more)
        assert refused.exit_code == 11
        assert "the encoding of 'book' is not done" in refused.stderr
        assert f"process {process.pid}" in refused.stderr
    assert longctx("rm", "book", "--yes").exit_code == 0
    assert stopped(signal.SIGKILL) == -signal.SIGKILL
    refused = longctx("ask", QUESTION, *more)
    assert refused.exit_code == 10
    assert "it was interrupted" in refused.stderr
    assert "book.txt` goes on" in refused.stderr


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGKILL, -9)])
@pytest.mark.parametrize("chunk", [1, 9])
def test_after_it_was_stopped_it_answers_and_goes_on(
    longctx, stopped, ingest, library, tmp_path, number, code, chunk
):
    assert stopped(number, chunk) == code
    answer = longctx("ask", QUESTION)
    assert answer.stdout.startswith("Ingrid Halvorsen\n")
    assert "book: words only, encoding was interrupted at " in answer.stderr
    assert "book.txt` goes on\n" in answer.stderr
    assert longctx("verify").exit_code == 0
    [only] = state(longctx, "find", "lighthouse")["words_only"]
    assert (only["encoded"] > 0, only["running"]) == (chunk == 9, False)
    gone_on = longctx(*ingest, "--json")
    assert json.loads(gone_on.stdout)["reused_tokens"] == only["encoded"]
    other = tmp_path / "other"
    assert longctx(*ingest, "--library", other).exit_code == 0
    assert files(other) == files(library)
    assert not [*(library / "drafts").iterdir()]


def test_the_model_that_began_it_goes_on(longctx, stopped, book):
    """The command that is named has no --model."""
    stopped(signal.SIGKILL, 1)
    assert longctx("ingest", book).exit_code == 0
    assert json.loads(longctx("show", "book", "--json").stdout)["model"].endswith("random")


def test_it_is_renamed_when_it_is_complete_and_deleted_at_any_time(longctx, stopped, library):
    stopped(signal.SIGKILL)
    assert longctx("rename", "book", "novel").exit_code == 10
    assert longctx("rm", "book", "--yes").exit_code == 0
    assert json.loads(longctx("list", "--json").stdout)["documents"] == []
    assert not [*library.glob("*/book")]


def test_another_text_does_not_take_its_place(longctx, stopped, book, model_options, tmp_path):
    stopped(signal.SIGKILL, 1)
    other = tmp_path / "other.txt"
    other.write_text("\n".join(LINES))
    more = ["--name", "book", *model_options]
    refused = longctx("ingest", other, *more)
    assert refused.exit_code == 2
    assert "was begun from something else" in refused.stderr
    assert longctx("ask", QUESTION).stdout.startswith("Ingrid Halvorsen\n")
    assert longctx("ingest", other, *more, "--replace").exit_code == 0


def test_it_is_searched_beside_whole_documents(longctx, stopped, model_options, tmp_path):
    letter = tmp_path / "letter.txt"
    letter.write_text("\n".join(LINES))
    assert longctx("ingest", letter, *model_options).exit_code == 0
    stopped(signal.SIGKILL)
    found = longctx("ask", QUESTION, "--all", "--answer-by", "point", "--json")
    assert found.exit_code == 0, found.stderr
    values = json.loads(found.stdout)
    assert values["answer"] == "Ingrid Halvorsen"
    assert [only["name"] for only in values["state"]["words_only"]] == ["book"]
    decoded = longctx("ask", QUESTION, "--all", "--answer-by", "decode")
    assert decoded.exit_code == 0
    assert "book is left out" in decoded.stderr


def test_a_document_that_is_replaced_or_appended_to_stays_as_it_is(longctx, held, ingest, book):
    assert longctx(*ingest).exit_code == 0
    book.write_text(f"{TEXT}\nAnd then the keeper was Tobias Brandt.\n")
    ingest.insert(1, "--replace")
    with held(3) as process:
        assert state(longctx, "ask", QUESTION)["status"] == "complete"
        process.kill()
        process.communicate(timeout=120)
    assert state(longctx, "ask", QUESTION)["words_only"] == []


def test_a_stream_has_none(longctx, model_options, library):
    assert longctx("ingest", "-", "--name", "book", *model_options, input=TEXT).exit_code == 0
    assert not (library / "drafts").exists()
