"""Damaged documents under `--all`: each is left out with one line, and the others are asked."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from small_passages import small_passages

from longctx.core.engine.choice import Setup
from longctx.core.ingest.ingest import ingest

QUESTION = "news of salt for the keeper, and a boat that came home"
NAMES = ("book", "letter", "third")


@pytest.fixture(autouse=True)
def small_cuts(monkeypatch):
    small_passages(monkeypatch, 8)


@pytest.fixture(scope="module")
def three(model_folder, tmp_path_factory) -> Path:
    """A library of three documents; to be copied."""
    folder = tmp_path_factory.mktemp("three")
    setup = Setup(model=str(model_folder), profile=str(model_folder / "profile.yaml"))
    with pytest.MonkeyPatch.context() as patch:
        small_passages(patch, 8)
        for number, name in enumerate(NAMES):
            text = f"news of rain {number}, and salt for the keeper of the boat\n" * 9
            (folder / f"{name}.txt").write_text(text)
            ingest(folder / "library", [str(folder / f"{name}.txt")], setup)
    return folder / "library"


@pytest.fixture
def library(three, tmp_path) -> Path:
    return shutil.copytree(three, tmp_path / "library")


@pytest.fixture
def asking(library, longctx, model_options):
    by = ["--gather-by", "maxsim"]  # it reads all that is kept
    return lambda command, *args, **more: longctx(command, *by, *args, *model_options, **more)


def flipped(folder: Path, group: str) -> None:
    """Turns a bit in the last byte of the group's first file, which its header does not reach."""
    path = sorted(folder.glob(f"{group}-*"))[0]
    content = bytearray(path.read_bytes())
    content[-9] ^= 1
    path.write_bytes(content)


def lost(folder: Path, group: str) -> None:
    sorted(folder.glob(f"{group}-*"))[0].unlink()


def cut(folder: Path, group: str) -> None:
    path = sorted(folder.glob(f"{group}-*"))[0]
    path.write_bytes(path.read_bytes()[:-1])


def unreadable(folder: Path, group: str) -> None:
    (folder / "manifest.json").write_text('{"format": ')


HURT = [
    *(("find", flipped, group) for group in ("tokens", "embeddings", "text", "memory", "lines")),
    *(("find", lost, group) for group in ("tokens", "text", "memory")),
    *(("ask", flipped, group) for group in ("embeddings", "text")),
    *(("ask", lost, "embeddings"), ("ask", cut, "tokens"), ("ask", unreadable, "manifest")),
]


@pytest.mark.parametrize(("command", "hurt", "group"), HURT)
def test_a_damaged_document_is_left_out_and_the_others_are_asked(
    asking, library, command, hurt, group
):
    name = "book"  # the first: its profile is the session's, and its files are read ahead
    hurt(library / "documents" / name, group)
    by = ["--gather-by", "hybrid"] if group in ("text", "lines") else []
    result = asking(command, QUESTION, "--all", "--json", *by)
    assert result.exit_code == 0, result.output
    (line,) = result.stderr.splitlines()
    assert line.startswith(f"{name} is left out: it ")
    assert group in line
    values = json.loads(result.stdout)
    assert values["documents"] == [other for other in NAMES if other != name]
    assert {passage["document"] for passage in values["passages"]} <= {*values["documents"]}
    assert [skipped["name"] for skipped in values["state"]["skipped"]] == [name]
    assert line == f"{name} is left out: it {values['state']['skipped'][0]['why']}"


@pytest.mark.parametrize(
    ("hurt", "group"), [(flipped, "text"), (flipped, "tokens"), (lost, "text")]
)
def test_so_is_one_in_a_search_by_words(asking, library, hurt, group):
    folder = library / "documents/letter"
    for words in folder.glob("words-*"):
        words.unlink()  # so that they are counted again, from text and tokens
    hurt(folder, group)
    result = asking("find", QUESTION, "--all", "--gather-by", "bm25", "--json")
    assert result.exit_code == 0, result.output
    (line,) = result.stderr.splitlines()
    assert line.startswith("letter is left out: it cannot be read: ")
    assert group in line
    values = json.loads(result.stdout)
    assert values["documents"] == ["book", "third"]
    assert [skipped["name"] for skipped in values["state"]["skipped"]] == ["letter"]


def test_damage_that_document_selection_meets(asking, library):
    flipped(library / "documents/book", "tokens")
    result = asking("find", QUESTION, "--all", "--max-docs", 1, "--json")
    assert result.exit_code == 0, result.output
    values = json.loads(result.stdout)
    assert values["documents"] in (["letter"], ["third"])
    assert values["state"]["left_out"] == 1  # which could have been asked
    assert result.stderr.count("book is left out: it cannot be read: ") == 1


def test_text_is_the_answer_alone(asking, library):
    whole = asking("ask", QUESTION, "--doc", "letter", "--doc", "third", "--gather-by", "method")
    assert whole.exit_code == 0, whole.output
    flipped(library / "documents/book", "text")  # which no gathering by this rule reads
    result = asking("ask", QUESTION, "--all", "--gather-by", "method")
    assert result.exit_code == 0, result.output
    assert result.stdout == whole.stdout
    (line,) = {*result.stderr.splitlines()} - {*whole.stderr.splitlines()}
    assert line.startswith("book is left out: it cannot be read: ")


def test_each_line_is_told_once_over_many_questions(asking, library):
    flipped(library / "documents/letter", "embeddings")
    result = asking("ask", "-", "--all", input=f"{QUESTION}\nwho?\n")
    assert result.exit_code == 0, result.output
    told = [json.loads(line) for line in result.stdout.splitlines()]
    assert [one["documents"] for one in told] == [["book", "third"]] * 2
    assert result.stderr.count("left out") == 1


@pytest.mark.parametrize("command", ["ask", "find"])
def test_a_named_one_is_an_error_and_so_is_nothing_left(asking, library, command):
    which = [part for name in NAMES for part in ("--doc", name)]
    flipped(library / "documents/letter", "embeddings")
    result = asking(command, QUESTION, *which)
    assert (result.exit_code, result.stdout) == (13, "")
    assert "documents/letter/embeddings-00000.safetensors' is damaged" in result.stderr
    for name in ("book", "third"):
        hurt: Callable[[Path, str], None] = lost if name == "book" else flipped
        hurt(library / "documents" / name, "embeddings")
    result = asking(command, QUESTION, "--all")
    assert (result.exit_code, result.stdout) == (10, "")
    assert result.stderr.count(" is left out: it cannot be read: ") == 3
    assert "longctx verify" in result.stderr


def test_short_documents_that_are_read_again(asking, library, tmp_path, model_folder, monkeypatch):
    """Their tokens are read through the model before anything is asked of them."""
    setup = Setup(model=str(model_folder), profile=str(model_folder / "profile.yaml"))
    monkeypatch.chdir(tmp_path)
    Path("brief.txt").write_text("rain")
    ingest(library, ["brief.txt"], setup)
    assert not [*(library / "documents/brief").glob("embeddings-*")]
    flipped(library / "documents/brief", "tokens")
    result = asking("find", QUESTION, "--all", "--json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["documents"] == [*NAMES]
    (line,) = result.stderr.splitlines()
    assert line.startswith("brief is left out: it cannot be read: ")
