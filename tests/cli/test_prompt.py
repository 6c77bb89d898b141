"""The prompt that `ask` opens: its commands one by one, and all of it at a real terminal."""

import json
import os
import re
import shlex
import shutil
import stat

import pytest
from terminal import CTRL_C, CTRL_D, UP, at_terminal

from longctx.cli import render
from longctx.cli.history import MOST
from longctx.cli.prompt_completion import Completer

pytestmark = pytest.mark.usefixtures("library")
QUESTION = "who wrote of the boat?"
NO_TERMINALS = pytest.mark.skipif(os.name == "nt", reason="Windows has no pseudo-terminals")
PROMPT = r"\n\? $"


@pytest.fixture
def conversing(longctx, model_options, models_loaded_once, monkeypatch):
    """f(lines, *options): the result of `ask`, with these lines typed."""

    def run(lines: list[str], *options: object):
        typed = iter(lines)

        def type_next(prompt: str = "") -> str:
            for words in typed:
                return words
            raise EOFError

        monkeypatch.setattr(render, "can_ask", lambda: True)
        monkeypatch.setattr("builtins.input", type_next)
        return longctx("ask", *model_options, *options)

    return run


def values(result) -> list[dict]:
    """The JSON objects of a result."""
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_a_banner_says_what_is_asked_and_by_which_model(conversing, library, model_folder):
    manifest = json.loads((library / "documents/book/manifest.json").read_bytes())
    result = conversing([])
    banner = f"book: {manifest['tokens']:,} tokens, read by {model_folder}\n"
    assert result.stderr.startswith("document: book (the latest)\n" + banner)
    assert (result.exit_code, result.stdout) == (0, "")
    assert banner not in conversing([], "-q").stderr
    shutil.copytree(library / "documents/book", library / "documents/copy")
    told = conversing([], "--all").stderr
    assert f"book, copy: {2 * manifest['tokens']:,} tokens, read by" in told


@pytest.mark.parametrize("word", ["exit", "quit", "/quit", "/exit", "Quit", " exit "])
def test_words_that_end_it(conversing, word):
    (told,) = values(conversing([QUESTION, word, "what news?"], "--json"))
    assert told["question"] == QUESTION


def test_a_question_that_refers_to_the_one_before_is_asked_with_it(conversing):
    lines = [QUESTION, "what news?", "when did he come?", "what of the salt and the rain?"]
    result = conversing(lines, "--json")
    continued = [[each["question"] for each in told["continues"]] for told in values(result)]
    assert continued == [[], [QUESTION], [QUESTION, "what news?"], []]
    assert result.stderr.count("(after ") == 2
    assert '(after "what news?")' in result.stderr


def test_any_question_can_be_put_behind_the_one_before(conversing):
    lines = ["/continue", f"/continue {QUESTION}", QUESTION, "/continue of the salt and the rain?"]
    result = conversing(lines, "--json")
    assert [len(told["continues"]) for told in values(result)] == [0, 1]
    assert result.stderr.count("there is no question before") == 2


def test_help_lists_every_command_there_is(conversing):
    told = conversing(["/help", "/nonsense", "/etc/passwd has which keeper?"], "-q").stderr
    for command in ("/help", "/doc", "/find", "/sources", "/continue", "/quit"):
        assert command in told
    assert "error: there is no command '/nonsense'. /help lists them." in told
    assert "command '/etc" not in told


def test_find_shows_what_the_command_shows(conversing, longctx, model_options):
    shown = longctx("find", "salt and rain", *model_options).stdout
    assert shown
    assert conversing(["/find salt and rain"]).stdout == shown
    assert "no words to look for" in conversing(["/find"]).stderr
    (told,) = values(conversing(["/find salt"], "--json"))
    assert told["passages"]


def test_sources_shows_all_passages_of_the_last_answer_and_switches_them(conversing):
    shown = conversing([QUESTION, "/sources"], "--no-sources").stdout
    more = conversing([QUESTION, "/sources off", QUESTION, "/sources on", QUESTION]).stdout
    assert shown.count("book.txt:") >= 1
    assert shown.split("book.txt:")[0].count("\n\n") == 1  # the answer alone, then the passages
    whole, _ = more.split("\n", 1)
    assert more.count(f"{whole}\n") == 3
    assert more.count(': "') == 2  # the sentence that answers
    told = conversing(["/sources", "/sources here"]).stderr
    assert "there is no answer yet" in told
    assert "cannot take 'here'" in told


def test_doc_asks_another_document_and_lists_them(conversing, library, longctx):
    longctx("rename", "book", "first")
    shutil.copytree(library / "documents/first", library / "documents/second")
    lines = [QUESTION, "/doc second", "what news?", "/doc first second", QUESTION, "/doc"]
    result = conversing([*lines, "/doc none", "/doc 'x", QUESTION], "--json", "--doc", "first")
    told = values(result)
    asked = [["first"], ["second"], ["first", "second"], ["first", "second"]]
    assert [each["documents"] for each in told] == asked
    assert told[1]["continues"] == []  # it was of another document
    assert re.findall(r"([* ]) (\w+): \d+ tokens$", result.stderr, re.M) == [
        ("*", "first"),
        ("*", "second"),
    ]
    assert "error: no document 'none'" in result.stderr
    assert 'error: cannot read "\'x"' in result.stderr
    assert len(re.findall(r"\? second: [\d,]+ tokens, read by", result.stderr, re.M)) == 1


def test_where_another_document_cannot_be_opened_the_one_before_is_asked_on(conversing, library):
    shutil.copytree(library / "documents/book", library / "documents/broken")
    shard = next((library / "documents/broken").glob("memory-*"))
    data = bytearray(shard.read_bytes())
    data[-1] ^= 1
    shard.write_bytes(data)
    result = conversing(["/doc broken", QUESTION], "--json", "--doc", "book")
    assert [told["documents"] for told in values(result)] == [["book"]]
    assert f"error: '{shard.name}" in result.stderr or shard.name in result.stderr


def test_nothing_of_a_prompt_without_a_terminal_is_kept(conversing, tmp_path):
    conversing([QUESTION])
    assert not (tmp_path / "state").exists()


# --- what Tab completes ---

SOME = ["book", "boat log", "it's", "日本語", "bad\x1bname", "two\nlines"]


@pytest.mark.parametrize(
    ("line", "whole"),
    [
        ("/f", ["/find "]),
        ("/", ["/continue ", "/doc ", "/find ", "/quit "]),
        ("/sources o", ["/sources on", "/sources off"]),
        ("/doc boo", ["/doc book"]),
        ("/doc bo", ["/doc 'boat log'", "/doc 'book'"]),
        ("/doc book 日", ["/doc book 日本語"]),
        ("/doc 'boat log' bo", ["/doc 'boat log' 'boat log'", "/doc 'boat log' 'book'"]),
        ("/doc 'boat l", ["/doc 'boat log'"]),
        ("/doc boat\\ l", ["/doc 'boat log'"]),
        ('/doc "it', ["/doc 'it'\"'\"'s'"]),
        ("/doc x", []),
        ("/find bo", []),
        ("bo", []),
        ("", []),
    ],
)
def test_tab_completes_commands_and_the_names_behind_doc(line, whole):
    complete = Completer(["doc", "find", "quit", "continue"], lambda: SOME)
    assert complete.all_of(line) == whole
    assert [complete(line, number) for number in range(len(whole) + 1)] == [*whole, None]
    for told in whole if line.startswith("/doc ") else []:
        assert {*shlex.split(told)[1:]} <= {*SOME}


def test_where_names_cannot_be_listed_tab_offers_nothing():
    def fail() -> list[str]:
        raise OSError("gone")

    assert Completer(["doc"], fail)("/doc b", 0) is None


# --- at a terminal ---


def state(tmp_path) -> dict[str, str]:
    """The files of the state folder, all private."""
    folder = tmp_path / "state" / "longctx"
    if not folder.exists():
        return {}
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    files = [*folder.iterdir()]
    assert {stat.S_IMODE(file.stat().st_mode) for file in files} <= {0o600}
    return {file.name: file.read_text("utf-8") for file in files}


@NO_TERMINALS
def test_a_conversation_at_a_terminal(model_options, tmp_path):
    command = ["ask", "--doc", "book", *model_options]
    with at_terminal(*command) as terminal:
        assert "read by" in terminal.until(PROMPT)
        assert "book.txt:" in terminal.line(QUESTION)
        assert '(after "who wrote of the boat?")' in terminal.line("and when?")
        terminal.types(f"words that nobody asks{CTRL_C}")
        assert "Ctrl-C again" in terminal.until(PROMPT)
        assert "Anything else is a question" in terminal.line("/help")
        terminal.types(CTRL_C)
        assert "Ctrl-C again" in terminal.until(PROMPT)
        terminal.types(CTRL_C)
        assert terminal.ends() == 0
    assert "error" not in terminal.shown
    kept = state(tmp_path)
    assert kept["history"].splitlines() == [QUESTION, "and when?", "/help"]
    # The next one knows what was typed, and the last answer.
    with at_terminal(*command, "--continue") as terminal:
        terminal.until(PROMPT)
        terminal.types(f"{UP}{UP}")
        terminal.until(r"and when\?")
        assert '(after "and when?")' in terminal.line("")
        terminal.types(CTRL_D)
        assert terminal.ends() == 0
    assert state(tmp_path)["history"].splitlines() == [QUESTION, "and when?", "/help", "and when?"]


@NO_TERMINALS
def test_tab_at_a_terminal(model_options, library):
    shutil.copytree(library / "documents/book", library / "documents/letter")
    with at_terminal("ask", "--doc", "book", *model_options) as terminal:
        terminal.until(PROMPT)
        terminal.types("/he\t")
        assert terminal.until("/help ")
        terminal.types("\r")
        terminal.until(PROMPT)
        terminal.types("/do\tlet\t")
        assert terminal.until("/doc letter")
        terminal.types("\r")
        assert "letter: " in terminal.until(PROMPT)
        terminal.types(CTRL_D)
        assert terminal.ends() == 0
    assert "error" not in terminal.shown


@NO_TERMINALS
@pytest.mark.parametrize("how", ["json", "no history", "piped"])
def test_what_keeps_no_history(model_options, tmp_path, how):
    options = {"json": ["--json"], "no history": ["--no-history"], "piped": []}[how]
    with (tmp_path / "answers.txt").open("wb") as file:
        stdout = file if how == "piped" else None
        with at_terminal("ask", *options, *model_options, stdout=stdout) as terminal:
            terminal.until(r"\? $")
            terminal.types(f"{QUESTION}\r")
            terminal.until(r"\n[\s\S]*\? $")
            terminal.types("exit\r")
            assert terminal.ends() == 0
    assert "history" not in state(tmp_path)
    assert ("last-answer.json" in state(tmp_path)) == (how == "piped")


@NO_TERMINALS
def test_of_a_long_history_the_last_lines_stay_and_it_becomes_private(model_options, tmp_path):
    folder = tmp_path / "state" / "longctx"
    folder.mkdir(mode=0o700, parents=True)
    (folder / "history").write_text("".join(f"line {n}\n" for n in range(MOST + 5)), "utf-8")
    (folder / "history").chmod(0o644)
    with at_terminal("ask", *model_options) as terminal:
        terminal.until(PROMPT)
        terminal.types("/help\r")
        terminal.until(PROMPT)
        terminal.types(CTRL_D)
        assert terminal.ends() == 0
    lines = state(tmp_path)["history"].splitlines()
    assert (lines[0], lines[-1], len(lines)) == ("line 5", "/help", MOST + 1)


# --- --continue outside of the prompt ---


@NO_TERMINALS
def test_a_question_goes_on_from_the_one_before(model_options, tmp_path, longctx):
    with at_terminal("ask", QUESTION, "--doc", "book", *model_options) as terminal:
        assert terminal.ends() == 0
    told = json.loads(state(tmp_path)["last-answer.json"])
    assert (told["documents"], len(told["exchanges"])) == (["book"], 1)
    asked = ["ask", "-c", "when did he come?", *model_options]
    result = longctx(*asked, "--json")
    (value,) = values(result)
    assert value["continues"] == told["exchanges"]
    assert (value["question"], value["documents"]) == ("when did he come?", ["book"])
    assert result.stderr == f'(after "{QUESTION}")\n'  # not "the latest"
    refused = longctx(*asked, "--library", tmp_path / "other")
    assert refused.exit_code == 2
    assert "cannot ask the documents of the question before" in refused.stderr
    (tmp_path / "state/longctx/last-answer.json").write_text('{"library": 3}', "utf-8")
    refused = longctx(*asked)
    assert refused.exit_code == 2
    assert "it cannot be read" in refused.stderr


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["ask", "-c", "why?"], "none is kept"),
        (["ask", "-c", "-"], "cannot take --continue with many questions"),
        (["ask", "-c", "--questions", "q.txt"], "cannot take --continue with many questions"),
    ],
)
def test_what_cannot_go_on(longctx, monkeypatch, tmp_path, args, said):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "q.txt").write_text("why?\n", "utf-8")
    result = longctx(*args)
    assert (result.exit_code, result.stdout) == (2, "")
    assert said in result.stderr
    assert "Traceback" not in result.output
