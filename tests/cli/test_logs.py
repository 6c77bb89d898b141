"""Where the log goes, what is in it, and what never is."""

import logging
import re
import warnings

import pytest

from longctx.cli.logs import OneLine
from longctx.cli.text import escaped
from longctx.core.store.library import Library

HOSTILE = "a\nerror: forged\r\x1b[31mred\x1b]0;title\x07 \x9b1m \u202enews\u2066 \u2028 \udcff \x7f"
LINE = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} \d+ (debug|info|warning) [\w.]+: .+")


@pytest.mark.parametrize("args", [("-v", "list"), ("list", "-v"), ("list", "--verbose")])
def test_verbose_tells_what_is_done_on_stderr(longctx, library, args):
    result, plain = longctx(*args), longctx("list")
    assert re.search(r"^info: longctx\.cli\.program: longctx \d.*: list$", result.stderr, re.M)
    assert re.search(r"done after [\d.]+ s", result.stderr)
    assert result.stdout == plain.stdout
    assert "info:" not in plain.stderr


def test_twice_verbose_tells_more(longctx, library, monkeypatch):
    facts = Library.facts_and_latest

    def listed(self):
        logging.getLogger("longctx.core.store").debug("looks")
        return facts(self)

    monkeypatch.setattr(Library, "facts_and_latest", listed)
    assert "looks" not in longctx("list", "-v").stderr
    for args in (("list", "-vv"), ("-v", "-v", "list"), ("list", "-v", "--verbose")):
        assert "debug: longctx.core.store: looks\n" in longctx(*args).stderr


def test_the_log_file_has_everything_with_times_and_grows(longctx, library, tmp_path):
    file = tmp_path / "run.log"
    for _ in range(2):
        assert longctx("list", "--log-file", file).stderr == longctx("list").stderr
    lines = file.read_text("utf-8").splitlines()
    assert all(map(LINE.fullmatch, lines))
    assert sum("longctx.cli.program: longctx" in line for line in lines) == 2


def test_a_log_file_that_cannot_be_written_is_wrong_usage(longctx, library, tmp_path):
    result = longctx("list", "--log-file", tmp_path / "no" / "run.log")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "cannot write the log file" in result.stderr


def test_a_failure_is_logged_with_its_traceback_in_the_file(longctx, library, tmp_path):
    file = tmp_path / "run.log"
    assert longctx("show", "nothing", "--log-file", file).exit_code == 10
    lines = file.read_text("utf-8").splitlines()
    assert any("ended by NotFound" in line for line in lines)
    assert "  Traceback (most recent call last):" in lines
    assert all(line.startswith("  ") or LINE.fullmatch(line) for line in lines)


def test_a_record_is_one_line_whatever_is_in_it(longctx, library, tmp_path, monkeypatch):
    hostile = HOSTILE.replace("\udcff", "")  # pytest's processes cannot tell each other of it

    def open_logging(path):
        logging.getLogger("longctx.core").info("opening %s", hostile)
        raise ValueError(hostile)

    monkeypatch.setattr(Library, "open", open_logging)
    file = tmp_path / "run.log"
    result = longctx("list", "-vv", "--log-file", file)
    for text in (result.stderr, file.read_text("utf-8", errors="surrogateescape")):
        assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u202a-\u202e\u2066-\u2069]", text)
    assert r"a\nerror: forged\r\x1b[31mred" in file.read_text("utf-8")
    assert not re.search("^error: forged", result.stderr.split("internal error")[0], re.M)


def test_what_other_libraries_say_is_in_the_log_alone(longctx, library, monkeypatch):
    def open_loudly(path):
        logging.getLogger("other.library").warning("careful \x1b[31mhere")
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            warnings.warn("old \x1b[31mways", stacklevel=1)
        return opened(path)

    opened = Library.open
    monkeypatch.setattr(Library, "open", open_loudly)
    quiet, loud = longctx("list"), longctx("list", "-v")
    assert "careful" not in quiet.stderr + quiet.stdout
    assert "ways" not in quiet.stderr + quiet.stdout
    assert r"warning: other.library: careful \x1b[31mhere" in loud.stderr
    assert r"UserWarning: old \x1b[31mways" in loud.stderr


def test_nothing_is_left_behind(longctx, library, tmp_path):
    root, ours, shown = logging.getLogger(), logging.getLogger("longctx"), warnings.showwarning
    before = [*root.handlers], ours.level
    longctx("list", "-vv", "--log-file", tmp_path / "a.log", "--report", tmp_path / "a.json")
    longctx("list", "--bogus", "-v")
    assert ([*root.handlers], ours.level) == before
    assert warnings.showwarning is shown


def test_the_option_after_the_command_counts_most(longctx, library, tmp_path, monkeypatch):
    (tmp_path / "config.toml").write_text("verbose = 2\n[show]\nquiet = true\n")
    assert "info:" in longctx("list").stderr
    monkeypatch.setenv("LONGCTX_VERBOSE", "0")
    assert "info:" not in longctx("list").stderr
    assert "info:" in longctx("-v", "list").stderr
    assert "info:" in longctx("list", "-v").stderr


def test_no_text_of_a_document_question_or_answer_is_logged(
    longctx, model_options, models_loaded_once, tmp_path
):
    book, log = tmp_path / "b.txt", tmp_path / "run.log"
    book.write_text("the lighthouse secret is a whale of salt and rain\n" * 20)
    common = [*model_options, "--log-file", log]
    assert longctx("ingest", book, "--name", "b", *common).exit_code == 0
    asked = longctx("ask", "what is the harpoon?", "--doc", "b", "--json", *common)
    assert asked.exit_code == 0, asked.stderr
    told = log.read_text("utf-8")
    for word in ("lighthouse", "whale", "harpoon"):
        assert word not in told
    stages = "weights loaded", "sources read", "b opened with its model", "gathered", "answered"
    for stage in stages:
        assert stage in told


def test_a_traceback_cannot_forge_a_line():
    try:
        raise ValueError("x\n2026-01-01 info longctx: forged")
    except ValueError as error:
        failed = (ValueError, error, error.__traceback__)
    record = logging.LogRecord("longctx", logging.INFO, "f", 1, "m", (), failed)
    first, *others = OneLine("%(level)s %(name)s: %(message)s").format(record).splitlines()
    assert first == "info longctx: m"
    assert others
    assert all(line.startswith("  ") for line in others)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain é 日本 🙂", "plain é 日本 🙂"),
        ("a\tb\nc\r", r"a\tb\nc\r"),
        ("\x1b[31m\x9b\x7f\x00", r"\x1b[31m\x9b\x7f\x00"),
        ("\u202ex\u2069\u2028\ufeff", r"\u202ex\u2069\u2028\ufeff"),
        ("\udcff", r"\udcff"),
        ("\u0645\u200c\u062e", "\u0645\u200c\u062e"),
    ],
    ids=["plain", "white space", "control", "direction", "surrogate", "joiner"],
)
def test_what_steers_a_terminal_is_shown(text, shown):
    assert escaped(text) == shown
