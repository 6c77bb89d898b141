"""What a person sees of a reading that was stopped, and of files that changed since."""

import json
import re
import signal

import pytest
from in_chunks import fail, in_chunk

TEXT = (
    "the keeper wrote in his book that a boat came home at dawn with salt and news of rain\n" * 20
)
pytestmark = pytest.mark.usefixtures("models_loaded_once")


@pytest.fixture
def book(tmp_path):
    path = tmp_path / "book.txt"
    path.write_text(TEXT)
    return path


@pytest.fixture
def ingest(longctx, model_options, book):
    return lambda *options: longctx("ingest", book, *model_options, *options)


@pytest.fixture
def stopped(ingest):
    """After seven chunks of 32 tokens, with a checkpoint after every one."""
    with pytest.MonkeyPatch.context() as patch:
        in_chunk(patch, 8, lambda: fail(KeyboardInterrupt()))
        return ingest("--checkpoint", "1")


def test_ctrl_c_says_what_is_kept(stopped, longctx):
    assert (stopped.exit_code, stopped.stdout) == (130, "")
    assert stopped.stderr == (
        "error: interrupted. 223 tokens are kept; the same command goes on from there.\n"
    )
    [document] = json.loads(longctx("list", "--json").stdout)["documents"]
    assert (document["status"], document["tokens"]) == ("reading", 223)
    assert "reading (223 tokens so far)" in longctx("list").stdout
    assert "reading (223 tokens so far)" in longctx("show", "book").stdout


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_what_was_read_is_saved_when_it_is_stopped(ingest, longctx, handlers, number, code):
    """Ctrl-C or `kill` in the third chunk, long before a checkpoint is due."""
    with pytest.MonkeyPatch.context() as patch:
        in_chunk(patch, 3, lambda: signal.raise_signal(number), after=True)
        stopped = ingest()
    assert (stopped.exit_code, stopped.stdout) == (code, "")
    said = re.fullmatch(
        r"error: (interrupted|terminated)\. (\d+) tokens are kept; the same command goes on from "
        r"there\.\n",
        stopped.stderr,
    )
    assert said
    assert int(said[2]) in (63, 95)  # a slow chunk is not waited for
    assert f"reading ({said[2]} tokens so far)" in longctx("list").stdout
    assert f"{said[2]} of them from an earlier run" in ingest().stdout


@pytest.mark.usefixtures("handlers")
def test_in_the_first_chunk_nothing_is_kept_or_listed(ingest, longctx):
    with pytest.MonkeyPatch.context() as patch:
        in_chunk(patch, 1, lambda: signal.raise_signal(signal.SIGINT), after=True)
        result = ingest()
    assert result.stderr == "error: interrupted. The same command starts it again.\n"
    assert json.loads(longctx("list", "--json").stdout)["documents"] == []


def test_a_reading_that_fails_is_not_listed(ingest, longctx, book):
    book.write_bytes(b"")
    assert ingest().exit_code == 3
    assert json.loads(longctx("list", "--json").stdout)["documents"] == []
    assert json.loads(longctx("gc", "--json").stdout)["removed"] == []


@pytest.mark.usefixtures("stopped")
def test_before_it_is_known_what_is_kept_nothing_is_said_of_it(ingest, monkeypatch):
    def stop(*args: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("longctx.core.ingest.ingest.SourceReading", stop)
    assert ingest().stderr == "error: interrupted. The same command goes on with it.\n"


def test_the_same_command_goes_on(stopped, ingest):
    done = ingest()
    assert re.fullmatch(
        r"book: complete, \d+ tokens, state .*, 223 of them from an earlier run, .*\n", done.stdout
    )
    assert ingest("--json").exit_code == 0


def test_a_part_is_asked_only_when_that_is_wanted(stopped, longctx):
    for command in ("ask", "find"):
        refused = longctx(command, "boat?", "--doc", "book")
        assert refused.exit_code == 10
        assert "stopped after 223 tokens" in refused.stderr
        assert "--partial" in refused.stderr
        answered = longctx(command, "boat?", "--doc", "book", "--partial", "--json")
        assert answered.exit_code == 0
        assert answered.stderr == "book is not finished: only its first 223 tokens count\n"
        state = json.loads(answered.stdout)["state"]
        assert (state["status"], state["reused_tokens"]) == ("reading", 223)


@pytest.mark.usefixtures("stopped")
def test_what_is_advised_of_a_part_works_for_every_command(longctx, tmp_path):
    for line in (("rename", "book", "novel"), ("export", "book", tmp_path / "x")):
        refused = longctx(*line)
        assert refused.exit_code == 10
        said = "Run the same ingest command again; until then, `ask --partial` asks what was read."
        assert said in " ".join(refused.stderr.split())


def test_what_was_begun_from_something_else_is_refused(stopped, ingest, book):
    book.write_text(TEXT.upper())
    refused = ingest()
    assert refused.exit_code == 2
    assert "begun from something else (223 tokens)" in refused.stderr
    assert ingest("--replace").exit_code == 0


def test_a_source_that_changed_since_is_one_line(ingest, longctx, book):
    assert ingest().exit_code == 0
    book.write_text(TEXT.upper())
    asked = longctx("find", "boat", "--doc", "book")
    assert asked.exit_code == 0
    assert asked.stderr == f"{book} has changed since it was read; answers are from what was read\n"
    told = json.loads(longctx("find", "boat", "--json").stdout)
    assert told["state"]["changed_sources"] == [str(book)]


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        (("--checkpoint", "5q"), 2, "'--checkpoint': '5q' is neither tokens nor seconds"),
        (("--max-size", "12"), 1, "no room in the library"),
        (("--max-size", "1 lot"), 2, "'--max-size': '1 lot' is no size in bytes"),
    ],
)
def test_limits(ingest, longctx, options, code, said):
    result = ingest(*options)
    assert result.exit_code == code
    assert said in result.stderr
    if code == 1:
        assert json.loads(longctx("list", "--json").stdout)["documents"] == []
