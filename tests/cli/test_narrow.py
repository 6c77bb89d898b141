"""A terminal of 40 columns: what progress says, and tables whose words stay whole."""

import os
import re

import pytest
from terminal import at_terminal

from longctx.cli import render

pytestmark = pytest.mark.skipif(os.name == "nt", reason="Windows has no pseudo-terminals")
COLUMNS = 40


@pytest.fixture(autouse=True)
def narrow(monkeypatch):
    monkeypatch.setenv("COLUMNS", str(COLUMNS))


def test_progress_has_the_share_and_the_time_left(model_options, tmp_path):
    book = tmp_path / "a-book-with-a-long-name.txt"
    book.write_text("the keeper wrote that a boat came home\n" * 400)
    with at_terminal("ingest", book, *model_options, term="xterm") as terminal:
        assert terminal.ends() == 0
    drawn = re.findall(r"[\u2501\u2578\u257a ]+ *(\d+%, [\d:.]+(?: s)? left)", terminal.shown)
    assert drawn[-1] == "100%, 0.0 s left"


@pytest.mark.usefixtures("library")
def test_a_list_breaks_no_word(longctx):
    renamed = longctx("rename", "book", "thelighthousekeepersjournal")
    assert renamed.exit_code == 0, renamed.output
    with at_terminal("list", term="xterm") as terminal:
        assert terminal.ends() == 0
    lines = terminal.shown.splitlines()
    table = lines[: next(n for n, line in enumerate(lines) if line.startswith("1 document"))]
    assert all(len(line) <= COLUMNS for line in table)
    told = " ".join(terminal.shown.split())
    assert "name thelighthousekeepersjournal" in told
    assert "tokens" in told
    assert re.search(r"status +complete, default", told)


@pytest.mark.usefixtures("library")
def test_so_does_a_table_of_profiles():
    with at_terminal("profiles", term="xterm") as terminal:
        assert terminal.ends() == 0
    assert all(len(line) <= COLUMNS for line in terminal.shown.splitlines())
    assert {"tiny", "description"} <= {*terminal.shown.split()}


@pytest.mark.parametrize("width", [20, 26, 28, 32, 40, 200])
def test_no_word_is_cut_at_any_width(width, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    cells = [["lighthouse", "the keeper of it wrote", "1,234"], ["b", "", "12"]]
    render.table(["name", "title", "tokens"], cells, right=["tokens"])
    shown = re.sub(r"\x1b\[[\d;]*m", "", capsys.readouterr().out)
    assert all(len(line.rstrip()) <= width for line in shown.splitlines())
    words = "name title tokens lighthouse the keeper of it wrote 1,234 b 12"
    for word in words.split(" "):
        assert re.search(rf"(?<!\S){word}(?!\S)", shown), word
