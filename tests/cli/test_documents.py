"""`list`, `show`, `rename`, `rm`, `profiles` and `doctor`."""

import json
import os
import re
import shutil
import tomllib
from pathlib import Path

import pytest
from small_documents import begin

from longctx.cli import doctor, render
from longctx.cli.text import size
from longctx.core.common import distribution
from longctx.core.common.errors import LongctxError
from longctx.core.store.library import Library

ROOT = Path(__file__).parents[2]


def test_list(longctx, library, model_folder):
    result = longctx("list")
    assert result.exit_code == 0
    total = sum(path.stat().st_size for path in (library / "documents/book").glob("*-*"))
    assert result.stderr.startswith(f"1 document, {size(total)}, ")
    assert re.search(r" times the text \(.*\bcache .*\btext \d+ B\) in '", result.stderr)
    head, row = result.stdout.splitlines()
    assert head.split() == ["name", "tokens", "text", "method", "model", "status", "saved", "state"]
    assert row.startswith("book ")
    assert re.search(r"complete, default +\d{4}-\d\d-\d\d \d\d:\d\d ", row)
    assert str(model_folder) in row


def test_list_json(longctx, shelf, library):
    result = longctx("list", "--json")
    assert result.stdout.count("\n") == 1
    values = json.loads(result.stdout)
    assert values.keys() == {
        *("schema_version", "path", "bytes", "state_bytes", "parts", "documents")
    }
    (book,) = values["documents"]
    assert {"name", "tokens", "bytes", "method", "model", "status"} <= book.keys()
    assert (book["name"], book["status"], book["method"]) == ("book", "complete", "reform")
    assert book["bytes"] == (shelf.parent / "book.txt").stat().st_size
    assert (values["path"], values["state_bytes"]) == (str(library), book["state_bytes"])
    assert sum(book["parts"].values()) == book["state_bytes"]
    assert book["parts"].keys() == {"text", "tokens", "words", "embeddings", "cache"}
    assert (values["parts"], values["bytes"]) == (book["parts"], book["bytes"])


def test_the_date_and_the_default_are_those_of_the_last_reading(longctx, library):
    shutil.copytree(library / "documents/book", library / "documents/older")
    os.utime(library / "documents/older/manifest.json", (86_400, 86_400))
    begin(Library.open(library), "begun")
    told = json.loads(longctx("list", "--json").stdout)["documents"]
    assert [(d["name"], d["default"]) for d in told] == [
        *(("book", True), ("older", False), ("begun", False))
    ]
    assert told[1]["saved"] == "1970-01-02T00:00:00+00:00"
    assert longctx("list").stdout.count("default") == 1
    shown = json.loads(longctx("show", "older", "--json").stdout)
    assert shown.items() >= told[1].items()
    assert "default" in longctx("show", "book").stdout
    assert " times the text (" in longctx("show", "older").stdout


def test_readings_that_were_stopped_say_how_far_they_came(longctx, library):
    begin(Library.open(library), "begun", b"four")
    result = longctx("list")
    assert result.stderr.startswith("2 documents, ")
    assert "reading (2 tokens so far)" in result.stdout
    assert "reading (2 tokens so far)" in longctx("show", "begun").stdout
    values = json.loads(longctx("list", "--json").stdout)
    assert [d["status"] for d in values["documents"]] == ["complete", "reading"]
    assert values["state_bytes"] == sum(d["state_bytes"] for d in values["documents"])


def test_an_empty_library(longctx, tmp_path):
    Library.open(tmp_path / "library", create=True)
    assert longctx("list").stderr.startswith("0 documents, 0 B in ")


def test_documents_that_are_not_whole_are_listed(longctx, library):
    (library / "documents/broken").mkdir()
    (library / "documents/broken/manifest.json").write_text("{")
    status = {
        d["name"]: d["status"] for d in json.loads(longctx("list", "--json").stdout)["documents"]
    }
    assert status == {"book": "complete", "broken": "damaged"}
    assert "damaged" in longctx("list").stdout
    assert "manifest.json" in longctx("show", "broken").stdout
    assert longctx("rm", "broken", "--yes").exit_code == 0


@pytest.mark.usefixtures("library")
def test_show(longctx, shelf):
    result = longctx("show", "book")
    assert result.exit_code == 0
    assert f"{shelf.parent}/book.txt" in result.stdout
    values = json.loads(longctx("show", "book", "--json").stdout)
    assert (values["schema_version"], values["name"]) == (1, "book")
    assert values["sources"][0]["encoding"] == "utf-8"
    assert values["options"]["chunk"] == 32
    assert sum(file["bytes"] for file in values["files"]) == values["state_bytes"]


@pytest.mark.parametrize("command", ["show", "rm"])
@pytest.mark.usefixtures("library")
def test_unknown_documents(longctx, command):
    for name, code in [("none", 10), ("../book", 10)]:
        result = longctx(command, name)
        assert (result.exit_code, result.stdout) == (code, "")
        assert name in result.stderr


@pytest.mark.parametrize("command", [("list",), ("show", "x"), ("rm", "x"), ("find", "x")])
def test_no_library(longctx, command, tmp_path):
    result = longctx(*command)
    assert result.exit_code == 10
    assert str(tmp_path / "library") in result.stderr


def test_rename(longctx, library):
    result = longctx("rename", "book", "novel")
    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr == "renamed book to novel\n"
    assert [path.name for path in (library / "documents").iterdir()] == ["novel"]
    for args, code in [
        (("book", "x"), 10),
        (("novel", "../x"), 2),
        (("novel", "novel"), 2),
    ]:
        assert longctx("rename", *args).exit_code == code
    with Library.open(library).reading("novel"):
        result = longctx("rename", "novel", "book")
    assert result.exit_code == 11
    assert "is being read by process" in result.stderr


def test_rm_needs_a_terminal_or_yes(longctx, library):
    result = longctx("rm", "book")
    assert result.exit_code == 2
    assert "--yes" in result.stderr
    assert (library / "documents/book").exists()
    assert longctx("rm", "book", "--yes").exit_code == 0
    assert not (library / "documents/book").exists()
    assert longctx("rm", "book", "--yes").exit_code == 10


def test_rm_of_several_removes_all_or_none(longctx, library, monkeypatch):
    for name in ("a", "b"):
        shutil.copytree(library / "documents/book", library / "documents" / name)
    result = longctx("rm", "a", "none", "b", "--yes")
    assert (result.exit_code, len(list((library / "documents").iterdir()))) == (10, 3)
    assert "no document 'none'" in result.stderr
    with Library.open(library).reading("b"):
        assert longctx("rm", "a", "b", "--yes").exit_code == 11
    assert len(list((library / "documents").iterdir())) == 3
    monkeypatch.setattr(render, "can_ask", lambda: True)
    result = longctx("rm", "a", "b", "a", input="y\n")
    assert "Delete 2 documents 'a', 'b'? [y/N]" in result.stderr
    assert result.stderr.endswith("deleted a\ndeleted b\n")
    assert [path.name for path in (library / "documents").iterdir()] == ["book"]


@pytest.mark.parametrize(
    ("typed", "code"), [("y\n", 0), ("Yes\n", 0), ("\n", 1), ("no\n", 1), ("", 1)]
)
def test_rm_asks_at_a_terminal(longctx, library, monkeypatch, typed, code):
    monkeypatch.setattr(render, "can_ask", lambda: True)
    result = longctx("rm", "book", input=typed)
    assert (result.exit_code, result.stdout) == (code, "")
    assert "Delete document 'book'? [y/N]" in result.stderr
    assert (library / "documents/book").exists() == bool(code)


@pytest.mark.usefixtures("library")
def test_a_document_that_is_being_written_is_locked(longctx, library):
    header = {key: {} for key in ("recorded", "options", "profile")}
    model = dict.fromkeys(("name", "config", "tokenizer", "weights"), "")
    with Library.open(library).writer("new", {**header, "model": model, "method": "full"}):
        result = longctx("rm", "new", "--yes")
    assert result.exit_code == 11
    assert "'new'" in result.stderr


def test_profiles(longctx):
    result = longctx("profiles")
    assert result.exit_code == 0
    assert [line.split()[0] for line in result.stdout.splitlines()[1:2]] == ["tiny"]
    known = json.loads(longctx("profiles", "--json").stdout)["profiles"]
    assert len(known) == len(result.stdout.splitlines()) - 1
    assert known[0]["methods"]["reform"]["heads"]


def test_doctor(longctx, tmp_path):
    result = longctx("doctor", "--json")
    assert (result.exit_code, result.stderr) == (0, "")
    values = json.loads(result.stdout)
    assert values["bundled_model"]["works"]
    assert values["warnings"] == []
    assert values["library"]["path"] == str(tmp_path / "library")
    assert (values["library"]["exists"], values["library"]["writable"]) == (False, True)
    assert values["devices"][0]["device"] == "cpu"
    assert values["auto"]["dtype"] in ("bf16", "fp32")
    assert not (tmp_path / "library").exists()
    text = longctx("doctor").stdout
    assert "self-check passed" in text
    assert values["versions"]["torch"] in text


def test_doctor_says_what_brings_each_missing_extra(longctx, monkeypatch):
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    users = {extra: needs for extra, needs in project["optional-dependencies"].items()}
    dev = users.pop("dev")
    assert [need for needs in users.values() for need in needs if need not in dev] == []
    named = {extra: [re.match(r"[\w.-]+", need)[0] for need in users[extra]] for extra in users}
    assert {extra: distribution.extras()[extra] for extra in doctor.EXTRAS} == named
    here = {"zstandard", "openpyxl", "striprtf", "gguf"}
    monkeypatch.setattr(doctor, "version", lambda package: "1.0" if package in here else None)
    result = longctx("doctor", "--json")
    assert result.exit_code == 0
    values = {told.pop("extra"): told for told in json.loads(result.stdout)["extras"]}
    assert values["documents"]["missing"] == ["pypdfium2", "python-oxmsg"]
    assert values["documents"]["command"] == "pip install pypdfium2 python-oxmsg"
    assert (values["gguf"]["missing"], values["gguf"]["command"]) == ([], None)
    text = longctx("doctor").stdout
    assert re.search(
        r"^documents +without pypdfium2, python-oxmsg, for .*: pip install pypdfium2 python-oxmsg$",
        text,
        re.M,
    )
    assert re.search(r"^gguf +installed, for ", text, re.M)


def test_doctor_names_what_is_wrong(longctx, monkeypatch, tmp_path):
    def refuse(*args: object) -> None:
        raise LongctxError("cannot run this model exactly")

    monkeypatch.setattr("longctx.core.model.load.load_decoder", refuse)
    monkeypatch.setenv("LONGCTX_LIBRARY", str(tmp_path / "config.toml"))
    result = longctx("doctor")
    assert result.exit_code == 1
    assert "cannot run this model exactly" in result.stdout
    assert "cannot be written" in result.stdout
