"""`ask` and `find` of several documents: which are meant, what is printed, what is refused."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from small_documents import begin, forge
from small_passages import small_passages

from longctx.cli import render
from longctx.core.engine.choice import Setup
from longctx.core.ingest.ingest import ingest
from longctx.core.store.library import Library

SAMPLES = Path(__file__).parents[2] / "samples"
QUESTION = "who wrote of the boat?"
PLACE = re.compile(r"(\w+): .*?(\w+)\.txt:\d+: ")
ASKED_STATE = {"answer_model", "read"}
EXTRA_STATE = {"asked", "left_out", "not_asked", "skipped"}
USUAL_STATE = {
    *("without_vectors", "words_only", "counted_again"),
    *("reused_tokens", "status", "changed_sources", "checked_bytes", "method", "gathered_by"),
    *("model", "device", "dtype"),
}


@pytest.fixture(autouse=True)
def small_cuts(monkeypatch):
    small_passages(monkeypatch, 64)


@pytest.fixture(scope="session")
def two_shelf(shelf, model_folder, tmp_path_factory) -> Path:
    """A library with the documents "book" and "letter"; not to be changed."""
    folder = tmp_path_factory.mktemp("two")
    setup = Setup(model=str(model_folder), profile=str(model_folder / "profile.yaml"))
    (folder / "letter.txt").write_text("news of rain, and salt for the keeper\n" * 9)
    (folder / "book.txt").write_bytes((shelf.parent / "book.txt").read_bytes())
    with pytest.MonkeyPatch.context() as patch:
        small_passages(patch, 64)
        for name in ("book", "letter"):
            ingest(folder / "library", [str(folder / f"{name}.txt")], setup)
    return folder / "library"


@pytest.fixture
def library(two_shelf, tmp_path) -> Path:
    import shutil

    return shutil.copytree(two_shelf, tmp_path / "library")


@pytest.fixture
def asking(library, longctx, model_options):
    """Runs `ask` or `find` with the random model."""
    return lambda command, *args, **more: longctx(command, *args, *model_options, **more)


BOTH = ["--doc", "letter", "--doc", "book"]


@pytest.mark.parametrize("command", ["ask", "find"])
@pytest.mark.parametrize(("which", "names"), [(BOTH, "letter book"), (["--all"], "book letter")])
def test_passages_are_told_with_their_documents(asking, command, which, names):
    words = "news of salt for the keeper, and a boat that came home"
    most = {"ask": ["--gather", 200], "find": ["-k", 40]}
    result = asking(command, words, *most[command], *which)
    assert (result.exit_code, result.stderr) == (0, ""), result.output
    told = [found for line in result.stdout.splitlines() if (found := PLACE.match(line))]
    shown = {match[1] for match in told}
    assert shown == {"book", "letter"} if command == "find" else shown
    assert all(match[1] == match[2] for match in told)
    values = json.loads(asking(command, QUESTION, "--json", *which).stdout)
    assert values["documents"] == names.split()


def test_a_report_and_a_log_tell_of_all_of_them(asking, tmp_path):
    report, log = tmp_path / "run.json", tmp_path / "run.log"
    result = asking("find", QUESTION, "--json", *BOTH, "--report", report, "--log-file", log)
    told = json.loads(report.read_text("ascii"))
    assert told["result"] == json.loads(result.stdout)
    assert told["arguments"]["docs"] == ["letter", "book"]
    assert told["facts"]["documents"] == {
        "count": 2,
        "tokens": told["result"]["tokens"]["document"],
        "at_once": 16,
    }
    assert {"open_s", "load_model_s"} <= told["timings"].keys()
    opened = re.findall(r"document (\w+): opened, \d+ tokens$", log.read_text("utf-8"), re.M)
    assert opened == ["letter", "book"]


def test_json_says_of_each_document_what_was_asked(asking):
    values = json.loads(asking("ask", QUESTION, "--json", *BOTH).stdout)
    one = json.loads(asking("ask", QUESTION, "--json", "--doc", "book").stdout)
    assert values.keys() == one.keys()
    assert values["passages"][0].keys() == one["passages"][0].keys()
    assert one["state"].keys() == USUAL_STATE | ASKED_STATE
    assert values["state"].keys() == USUAL_STATE | ASKED_STATE | EXTRA_STATE
    asked = values["state"]["asked"]
    assert [part["name"] for part in asked] == values["documents"] == ["letter", "book"]
    assert sum(part["gathered"] for part in asked) == values["tokens"]["gathered"]
    assert sum(part["tokens"] for part in asked) == values["tokens"]["document"]
    assert (values["state"]["left_out"], values["state"]["skipped"]) == (0, [])


def test_one_document_is_asked_as_ever(asking, library):
    once = asking("find", QUESTION, "--doc", "letter").stdout
    assert asking("find", QUESTION, "--doc", "letter", "--doc", "letter").stdout == once
    assert not PLACE.match(once)
    Library.open(library).remove("book")
    assert asking("find", QUESTION, "--all").stdout == once


def test_documents_are_settings_too(asking, monkeypatch, tmp_path):
    def names(*args: object) -> list[str]:
        return json.loads(asking("find", QUESTION, "--json", *args).stdout)["documents"]

    monkeypatch.setenv("LONGCTX_DOC", "letter book")
    assert names() == ["letter", "book"]
    assert names("--doc", "book") == ["book"]
    assert names("--all") == ["book", "letter"]
    monkeypatch.delenv("LONGCTX_DOC")
    (tmp_path / "config.toml").write_text('doc = "letter book"\n')
    assert names() == ["letter", "book"]
    (tmp_path / "config.toml").write_text('doc = "letter"\nmax-docs = 3\n')
    assert names() == ["letter"]


def test_more_documents_than_are_asked_are_told(asking):
    result = asking("find", "salt for the keeper", "--all", "--max-docs", 1)
    assert result.exit_code == 0
    told = re.search(r"^1 document asked, 1 left out: (letter|book)$", result.stderr, re.M)
    assert told
    assert f"{told[1]}.txt" not in result.stdout
    told = json.loads(asking("find", "salt", "--all", "--max-docs", 1, "--json").stdout)
    assert (len(told["documents"]), told["state"]["left_out"]) == (1, 1)


def test_what_cannot_be_asked_is_named_and_the_others_are_asked(asking, library):
    begin(Library.open(library), "begun", b"four")
    result = asking("find", QUESTION, "--all", "--json")
    assert result.exit_code == 0
    assert result.stderr == "begun is left out: it is not finished: its first 2 tokens were read\n"
    values = json.loads(result.stdout)
    assert [skipped["name"] for skipped in values["state"]["skipped"]] == ["begun"]


@pytest.mark.parametrize(
    ("args", "code", "said"),
    [
        (["--doc", "book", "--doc", "none"], 10, "'none'"),
        (["--doc", "book", "--doc", "../x"], 10, "'../x'"),
        (["--doc", "book", "--all"], 2, "both --doc and --all"),
        (["--all", "--max-docs", "0"], 2, "--max-docs"),
        (["--all", "--library", "none"], 10, "no library"),
    ],
)
def test_mistakes(asking, args, code, said):
    for command in ("ask", "find"):
        result = asking(command, QUESTION, *args)
        assert (result.exit_code, result.stdout) == (code, "")
        assert said in result.stderr


def test_documents_of_two_models_are_refused_if_named_and_left_out_of_all(asking, library):
    forge(library / "documents/letter", lambda data: data["model"].update(config="0" * 64))
    result = asking("ask", QUESTION, *BOTH)
    assert (result.exit_code, result.stdout) == (13, "")
    assert "another config" in result.stderr
    result = asking("find", QUESTION, "--all", "--json")
    assert result.exit_code == 0
    assert json.loads(result.stdout)["documents"] == ["book"]
    assert re.search(r"^letter is left out: it was read with the model .*config", result.stderr)


def test_what_can_only_be_asked_alone_is_left_out_of_all(asking, longctx, library, model_options):
    source = library.parent / "recalled.txt"
    source.write_text("news of salt came home with the keeper\n" * 9)
    read = longctx("ingest", source, *model_options, "--method", "streaming")
    assert read.exit_code == 0, read.output
    named = asking("ask", QUESTION, "--doc", "book", "--doc", "recalled")
    assert (named.exit_code, named.stdout) == (2, "")
    result = asking("ask", QUESTION, "--all", "--json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["documents"] == ["book", "letter"]
    assert re.search(r"^recalled is left out: it can only be asked alone", result.stderr, re.M)


def test_many_questions_and_a_conversation(asking, monkeypatch):
    lines = asking(
        "ask", "-", *BOTH, input="who?\nwhat news did the keeper bring?\n"
    ).stdout.splitlines()
    values = [json.loads(line) for line in lines]
    assert [value["documents"] for value in values] == [["letter", "book"]] * 2
    monkeypatch.setattr(render, "can_ask", lambda: True)
    typed = iter(["who?", "what news did the keeper bring?"])

    def type_next(prompt: str = "") -> str:
        for words in typed:
            return words
        raise EOFError

    monkeypatch.setattr("builtins.input", type_next)
    told = asking("ask", "--json", *BOTH).stdout.splitlines()
    assert [json.loads(line)["answer"] for line in told] == [value["answer"] for value in values]


def test_an_answer_stands_in_the_second_document(longctx, tmp_path):
    """With the bundled model, whose answer to this question is right."""
    lines = (SAMPLES / "harbour-book.md").read_text("utf-8").splitlines(keepends=True)
    place = next(number for number, line in enumerate(lines) if "padlock is 58204" in line)
    (tmp_path / "journal.md").write_text("".join(lines[place - 12 : place + 12]))
    letters = (SAMPLES / "letters.md").read_text("utf-8").splitlines(keepends=True)
    (tmp_path / "letters.md").write_text("".join(letters[:24]))
    cpu = ["--device", "cpu", "--threads", 1]
    for name in ("letters", "journal"):
        assert longctx("ingest", tmp_path / f"{name}.md", *cpu).exit_code == 0
    question = "What is the code of the oil-store padlock?"
    which = ["--doc", "letters", "--doc", "journal"]
    result = longctx(
        "ask", question, *which, "--gather", 600, "--max-new-tokens", 12, "--json", *cpu
    )
    values = json.loads(result.stdout)
    assert "58204" in values["answer"]
    assert values["passages"][0]["document"] == "journal"
    assert "58204" in values["passages"][0]["text"]


LISTING = """
import os, sys
opened = []
def see(event, args):
    # The store opens every file by its name alone, from the folder that holds it.
    if event == "open" and isinstance(args[0], str) and not args[2] & os.O_DIRECTORY:
        opened.extend([args[0]] if "/" not in args[0] else [])
sys.addaudithook(see)
from longctx.core.store import manifest
written, write = [], manifest.canonical_json
manifest.canonical_json = lambda value: written.append(1) or write(value)
from longctx.cli.main import app
try:
    app(["list", "--library", sys.argv[1]])
except SystemExit as done:
    assert not done.code, done.code
inside = [name for name in opened if name != "library.json"]
assert set(inside) <= {"manifest.json"}, set(inside)
heavy = {"torch", "numpy", "transformers", "rich.table"} & set(sys.modules)
print(len(inside), len(written), sorted(heavy), file=sys.stderr)
"""


def test_a_list_opens_one_file_of_each_document_and_writes_none_anew(library):
    for number in range(30):
        folder = library / "documents" / f"copy{number}"
        folder.mkdir()
        for file in (library / "documents/book").iterdir():
            (folder / file.name).hardlink_to(file)
    command = [sys.executable, "-P", "-c", LISTING, str(library)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=100)
    assert done.stdout.count("\n") == 33
    assert done.stderr.splitlines()[-1] == "32 0 []"


def test_the_docs_name_every_method_that_is_refused_beside_others():
    from longctx.core import methods
    from longctx.core.contracts.method import Recallable

    documented = (SAMPLES.parent / "docs" / "commands.md").read_text("utf-8")
    (listed,) = re.findall(r"attends to what it kept \((.*?)\) is refused", documented)
    refused = {n for n in methods.names() if issubclass(methods.load(n).Method, Recallable)}
    assert set(re.findall(r"`(\w+)`", listed)) == refused
