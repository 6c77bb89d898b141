"""Whatever is printed is clean, and no text is read as markup."""

import json

import pytest

from longctx.cli import render
from longctx.core.ask.gather import Passage

EVIL = "\x1b[31m[bold]x[/bold]\x07\u202e\x9b\udcff\x7f"
SHOWN = "[bold]x[/bold]\ufffd"


@pytest.mark.parametrize("name", ["line", "note", "stream", "prompt"])
def test_plain_text(capsys, name):
    getattr(render, name)(EVIL)
    captured = capsys.readouterr()
    to_stdout = name in ("line", "stream")
    assert (captured.out, captured.err)[not to_stdout].rstrip("\n") == SHOWN
    assert (captured.out, captured.err)[to_stdout] == ""


def test_passages(capsys):
    passage = Passage("d", EVIL, 1, "1", 0, 9, 0.5, EVIL, "7", f"{EVIL}\r\n {'y' * 300}")
    render.passages([passage], scores=True)
    text = capsys.readouterr().out
    assert text.startswith(f"{SHOWN}:7: 0.500  {SHOWN} yyy")
    assert text.endswith("y…\n")
    assert len(text) < 300


def test_tables_and_facts(capsys):
    render.table(["text", "n"], [[EVIL, "1"]], right=("n",))
    render.facts([(EVIL, f"{EVIL}\n{EVIL}")])
    lines = capsys.readouterr().out.splitlines()
    indent = " " * len(SHOWN)
    assert [line.rstrip() for line in lines[1:]] == [
        f"{SHOWN}  1",
        f"{SHOWN}  {SHOWN}",
        f"{indent}  {SHOWN}",
    ]
    assert lines[0].split() == ["text", "n"]


def test_json_keeps_the_text_and_shows_nothing_of_it(capsys):
    render.print_json({"text": EVIL})
    text = capsys.readouterr().out
    assert text.isascii()
    assert text.rstrip("\n").isprintable()
    assert json.loads(text) == {"schema_version": 1, "text": EVIL}
