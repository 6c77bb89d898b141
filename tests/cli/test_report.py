"""`--report`: what a run was and what came of it, also where it failed."""

import json
import os
import sys

import pytest

from longctx.cli.main import COMMANDS
from longctx.core.common.device import choose_dtype, dtype_name
from longctx.core.store.library import Library

KEYS = {
    *("schema_version", "command", "arguments", "version", "versions", "platform", "device"),
    *("model", "facts", "result", "timings", "notes", "warnings", "error", "exit_code"),
}


@pytest.fixture
def report(tmp_path):
    """Reads the report, of which there is nothing else in its folder."""
    folder = tmp_path / "reports"
    folder.mkdir()

    class Report:
        file = folder / "run.json"

        @staticmethod
        def read() -> dict:
            assert os.listdir(folder) == ["run.json"]
            text = Report.file.read_bytes()
            assert text.isascii()
            assert b"\x1b" not in text
            values = json.loads(text)
            assert values.keys() == KEYS
            return values

    return Report


@pytest.mark.parametrize("before", [True, False])
def test_the_result_is_that_of_json(longctx, library, report, before):
    option = ["--report", report.file]
    args = [*option, "list"] if before else ["list", *option]
    assert longctx(*args).exit_code == 0
    told = report.read()
    assert told["result"] == json.loads(longctx("list", "--json").stdout)
    assert (told["command"], told["exit_code"], told["error"]) == ("list", 0, None)
    assert told["arguments"]["json"] is False
    assert told["versions"]["python"] == sys.version.split()[0]
    assert told["version"] == told["versions"]["longctx"]
    assert any("in '" in note for note in told["notes"])


@pytest.mark.usefixtures("models_loaded_once")
def test_a_reading_and_its_questions(longctx, model_options, report, tmp_path):
    book = tmp_path / "book.txt"
    book.write_text("the keeper wrote that a boat came home\n" * 20)
    common = [*model_options, "--report", report.file]
    done = longctx("ingest", book, "--json", *common)
    told = report.read()
    assert told["result"] == json.loads(done.stdout)
    assert told["arguments"]["paths"] == [str(book)]
    assert told["device"]["dtype"] == dtype_name(choose_dtype("auto", "cpu"))
    assert told["model"]["type"] == "llama"
    assert {"total_s", "reading_s", "load_model_s"} <= told["timings"].keys()
    asked = longctx("ask", "who?", "--json", *common)
    told = report.read()
    assert told["result"] == json.loads(asked.stdout)
    assert told["timings"]["open_s"] > 0
    assert told["facts"]["document"]["name"] == "book"
    plain = longctx("ask", "who?", "--anyway", *common)
    assert report.read()["result"]["answer"] == json.loads(asked.stdout)["answer"]
    assert plain.stdout.startswith(json.loads(asked.stdout)["answer"])


@pytest.mark.usefixtures("models_loaded_once", "library")
def test_several_questions_are_a_list(longctx, report):
    result = longctx("ask", "-", "--report", report.file, input="who?\n" + "long " * 400 + "\n")
    told = report.read()
    assert told["result"]["answers"] == [json.loads(line) for line in result.stdout.splitlines()]
    assert "error" in told["result"]["answers"][1]
    assert told["exit_code"] == result.exit_code == 2


def test_a_run_that_fails(longctx, library, report):
    result = longctx("show", "nothing\x1b[31m", "--report", report.file, "--json")
    told = report.read()
    assert told["exit_code"] == result.exit_code == 10
    assert told["error"] == json.loads(result.stderr)["error"]
    assert told["result"] is None
    assert longctx("show", "nothing", "--report", report.file).exit_code == 10
    assert report.read()["error"]["code"] == 10


@pytest.mark.parametrize(
    "args", [("list", "--bogus"), ("lst",), ("list", "--library"), ("ask", "--gather", "x")]
)
def test_a_command_line_that_is_wrong(longctx, report, args):
    assert longctx("--report", report.file, *args).exit_code == 2
    assert report.read()["error"]["code"] == 2
    report.file.unlink()
    assert longctx(*args[:1], f"--report={report.file}", *args[1:]).exit_code == 2
    assert report.read()["exit_code"] == 2


@pytest.mark.parametrize(
    ("error", "code"), [(ValueError("odd \x1b"), 1), (KeyboardInterrupt(), 130), (OSError(5), 1)]
)
def test_errors_of_every_kind(longctx, library, report, monkeypatch, error, code):
    def fail(*args: object) -> None:
        raise error

    monkeypatch.setattr(Library, "open", fail)
    assert longctx("list", "--report", report.file).exit_code == code
    told = report.read()
    assert (told["exit_code"], told["error"]["code"]) == (code, code)


def test_an_older_report_gives_way_to_a_whole_one(longctx, library, report):
    report.file.write_text("old")
    assert longctx("list", "--report", report.file).exit_code == 0
    assert report.read()["exit_code"] == 0


def test_a_place_that_cannot_be_written_is_told_before_any_work(longctx, library, tmp_path):
    for place in (tmp_path / "no" / "run.json", tmp_path):
        result = longctx("list", "--report", place)
        assert (result.exit_code, result.stdout) == (2, "")
        assert "cannot write the report" in result.stderr


def test_a_report_that_cannot_be_written_at_the_end(longctx, library, report, monkeypatch):
    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    result = longctx("list", "--report", report.file)
    assert result.exit_code == 1
    assert "No space left on device" in result.stderr
    assert os.listdir(report.file.parent) == []


@pytest.mark.parametrize("name", [*COMMANDS])
def test_every_command_takes_the_options_of_every_command(longctx, name):
    inner = [*getattr(COMMANDS[name], "COMMANDS", {"": None})]
    for command in inner:
        args = [name, command] if command else [name]
        result = longctx(*args, "-v", "-q", "--debug", "--progress", "none", "--help")
        assert result.exit_code == 0
