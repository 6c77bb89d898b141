"""Folders, formats and archives from the command line to the citation."""

import gzip
import json
import os
import re
import sys

import pytest
from in_process import Here
from sample_files import (
    docx,
    epub,
    mail,
    ods,
    odt,
    paged,
    paragraph,
    pdf,
    pptx,
    put,
    tarred,
    xlsx,
    zipped,
)
from sample_messages import eml, msg

from longctx.core.sources import parser

WORDS = "the keeper wrote in his book that a boat came home at dawn"
TEXT = f"{WORDS}\n".encode() * 4
pytestmark = pytest.mark.usefixtures("models_loaded_once")


@pytest.fixture
def reading(longctx, model_options, tmp_path, monkeypatch):
    """Writes files and runs `ingest` with the random model, in the folder that they are in."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("os.fsync", lambda handle: None)

    def run(files: dict[str, bytes], *args: object):
        put(tmp_path, files)
        return longctx("ingest", *args, *model_options)

    return run


@pytest.fixture
def found(longctx, model_options):
    """All passages that `find` gives for a document, whole."""

    def run(name: str) -> list[dict]:
        more = ("--doc", name, "--gather", 10_000, "--json")
        result = longctx("find", "the keeper's book", *more, *model_options)
        assert result.exit_code == 0, result.output
        return json.loads(result.stdout)["passages"]

    return run


@pytest.fixture
def shown(longctx):
    """What `show` tells of a document."""
    return lambda name: json.loads(longctx("show", name, "--json").stdout)


def documents(longctx) -> list[str]:
    return [d["name"] for d in json.loads(longctx("list", "--json").stdout)["documents"]]


FILES = {
    "a.pdf": (pdf("The keeper", "A boat came"), "p. 1"),
    "a.epub": (epub("<p>The keeper", "<p>A boat"), "chapter 1"),
    "a.docx": (docx("<w:p/>" + paragraph("The keeper")), "paragraph 2"),
    "a.ipynb": (b'{"cells": [{"source": ""}, {"source": "the keeper"}]}', "cell 2"),
    "a.mbox": (mail("Keeper", "A boat came"), "message 1"),
    "a.html": (b"<html>\n<p>\nThe keeper", "3"),
    "a.jsonl": (b'\n{"a": "the keeper"}\n', "2"),
    "a.xlsx": (xlsx({"Keeper": []}), "Keeper"),
    "a.ods": (ods(Keeper="<table:table-row/>"), "Keeper"),
    "a.odt": (odt("<text:p/>", "<text:p>the keeper</text:p>"), "paragraph 2"),
    "a.pptx": (pptx("", "the keeper"), "slide 2"),
    "a.rtf": (rb"{\rtf1\par the keeper}", "paragraph 2"),
    "a.eml": (eml("Keeper", "A boat came"), "message 1"),
    "a.msg": (msg("Keeper", "A boat came"), "message 1"),
    "a.txt.gz": (gzip.compress(b"the keeper\n"), "1"),
    "a.zip": (zipped({"b/c.pdf": pdf("The keeper")}), "p. 1"),
    "a.tgz": (tarred({"b/c.txt": b"the keeper\n"}, "w:gz"), "1"),
}


@pytest.mark.parametrize("name", FILES)
def test_citations_point_into_the_original(reading, found, longctx, model_options, name):
    data, place = FILES[name]
    result = reading({name: data}, name, "--name", "doc")
    assert result.exit_code == 0, result.stderr
    first = min(found("doc"), key=lambda passage: passage["start"])
    source = {"a.zip": "a.zip/b/c.pdf", "a.tgz": "a.tgz/b/c.txt"}.get(name, name)
    assert (first["source"], first["place"], first["start"]) == (source, place, 0)
    assert "keeper" in first["text"].lower()
    answer = longctx("ask", "who wrote?", *model_options)
    assert re.search(rf"^{re.escape(source)}:{re.escape(place)}: ", answer.stdout, re.MULTILINE)


def test_a_later_page_is_cited_where_it_stands(reading, found, shown, tmp_path):
    reading({"a.pdf": pdf(*[f"{WORDS} {n}" for n in range(9)])}, "a.pdf")
    size = shown("a")["sources"][0]["size"]
    (first, *_) = found("a")
    assert first["start"] == 0
    from longctx.core.store.library import Library

    document = Library.open(tmp_path / "library").document("a")
    for number in range(9):
        at = document.text(0, 0, size).index(f"{WORDS} {number}".encode())
        assert document.place(0, at) == document.place(0, at + 9) == f"p. {number + 1}"


def test_parts_are_cited_by_their_names(reading, tmp_path):
    from longctx.core.store.library import Library

    costs = xlsx({"Two words": [["item"], ["Rent", 7]], "Other": [["Light", "x"]]})
    data = eml("Keeper", WORDS, {"a.pdf": pdf("First", "Second"), "c.txt": b"Third"})
    result = reading({"a.xlsx": costs, "b.eml": data}, "a.xlsx", "b.eml", "--name", "doc")
    assert result.exit_code == 0, result.stderr
    document = Library.open(tmp_path / "library").document("doc")
    places = {"Rent": (0, "'Two words'!A2"), "Light": (0, "Other!A1"), "[sheet: O": (0, "Other")}
    places |= {"Keeper": (1, "message 1"), "Second": (1, "message 1 / a.pdf:p. 2")}
    places |= {"Third": (1, "message 1 / c.txt"), "First": (1, "message 1 / a.pdf:p. 1")}
    for words, (source, place) in places.items():
        text = document.text(source, 0, document.manifest.sources[source].size)
        assert document.place(source, text.index(words.encode())) == place


def test_the_name_of_a_part_cannot_steer_the_terminal(reading, longctx, model_options):
    result = reading({"b.eml": eml("K", "x", {"\u202e.txt": TEXT})}, "b.eml")
    assert result.exit_code == 0, result.stderr
    shown = longctx("find", "the keeper's book", *model_options).stdout
    assert "message 1 / " in shown
    assert "\u202e" not in shown


def test_older_documents_in_a_folder_are_3_and_pictures_are_not(reading):
    files = {"top/a.md": TEXT, "top/old.doc": b"\0\1", "top/x.png": b"\x89PNG\0"}
    files |= {f"top/{name}/__init__.py": b"" for name in "bcd"}
    result = reading(files, "top")
    assert result.exit_code == 3
    assert re.findall(r"^skipped: cannot read '(.*?)'.*(Open it in .*)$", result.stderr, re.M) == [
        ("top/old.doc", "Open it in Word, Excel, PowerPoint or LibreOffice and save it as .docx.")
    ]
    told = re.findall("^left out: (.*)$", result.stderr, re.M)
    assert told[-1] == "3 files __init__.py, which are empty"
    assert [line.split("'")[1] for line in told[:-1]] == ["top/x.png"]


def test_a_folder_is_one_document(reading, found, shown):
    files = {"top/a.md": TEXT, "top/sub/b.py": TEXT, "top/x.png": b"\x89PNG\0", "top/e.py": b""}
    files |= {"top/.gitignore": b"*.log\n", "top/a.log": TEXT}
    result = reading(files, "top")
    assert result.exit_code == 0
    assert re.match(r"top: complete, \d+ tokens from 2 files, state ", result.stdout)
    assert re.findall(r"^left out: cannot read '(.*)': it is (\w+)", result.stderr, re.M) == [
        *[("top/e.py", "empty"), ("top/x.png", "binary")]
    ]
    assert [source["name"] for source in shown("top")["sources"]] == ["top/a.md", "top/sub/b.py"]
    assert {passage["source"] for passage in found("top")} == {"top/a.md", "top/sub/b.py"}
    whole = TEXT.decode().rstrip("\n")
    assert {(p["start"], p["end"]) for p in found("top")} == {(0, len(whole))}
    assert all(passage["text"] == whole for passage in found("top"))  # no header in it


def test_the_model_sees_where_each_file_begins(reading, model_folder, tmp_path):
    from tokenizers import Tokenizer

    from longctx.core.store.library import Library

    reading({"top/a.md": TEXT, "top/b.md": TEXT}, "top")
    document = Library.open(tmp_path / "library").document("top")
    ids = [i for _, rows in document.rows("tokens", ("ids",)) for i in rows["ids"].tolist()]
    read = Tokenizer.from_file(str(model_folder / "tokenizer.json")).decode(ids)
    text = TEXT.decode()
    assert read == f"\n==> top/a.md <==\n{text}\n==> top/b.md <==\n{text}"


def test_a_folder_again_is_unchanged_until_something_in_it_changes(reading, tmp_path):
    files = {"top/a.md": TEXT, "top/b.zip": zipped({"c": TEXT}), "top/x.png": b"\0"}
    assert reading(files, "top", "--no-units").exit_code == 0
    os.utime(tmp_path / "top/b.zip", (1, 1))  # touched only
    assert "top: unchanged" in reading({}, "top").stdout
    for change in ({"top/b.zip": zipped({"c": TEXT * 2})}, {"top/x.png": TEXT}, {"top/new": TEXT}):
        put(tmp_path, {**files, **change})
        result = reading({}, "top")
        assert (result.exit_code, "--replace" in result.stderr) == (2, True)
        (tmp_path / "top/new").unlink(missing_ok=True)


def test_what_could_not_be_read_of_a_folder_is_3(reading, shown, monkeypatch):
    monkeypatch.setattr("longctx.core.sources.made.MEASURED", 100)
    monkeypatch.setattr("longctx.core.sources.parser._answers", Here())
    cut = gzip.compress(b"".join(b"boat %d\n" % (n * 7919) for n in range(300)))[:-100]
    files = {"top/a.md": TEXT, "top/bad.pdf": b"%PDF", "top/cut.gz": cut}
    files |= {"top/x.zip": zipped({"../out": TEXT, "in": TEXT})}
    result = reading(files, "top")
    assert result.exit_code == 3
    assert re.findall(r"^skipped: cannot read '(.*?)'", result.stderr, re.M) == [
        *["top/bad.pdf", "top/x.zip/../out"]
    ]
    assert re.search(r"^lost: 'top/cut.gz': what follows [\d,]+ bytes is lost", result.stderr, re.M)
    names = [source["name"] for source in shown("top")["sources"]]
    assert names == ["top/a.md", "top/cut.gz", "top/x.zip/in"]
    values = json.loads(reading({}, "top", "--replace", "--json").stdout)
    assert (len(values["skipped"]), len(values["lost"]), values["left_out"]) == (2, 1, [])


def test_a_file_that_takes_too_much_is_one_line_and_the_others_are_read(reading, shown):
    files = {"top/a.md": TEXT, "top/b.pdf": paged(b"/F Do", b"/F Do /F Do"), "top/c.md": TEXT}
    result = reading(files, "top", "--max-parser-memory", "200MB")
    assert result.exit_code == 3
    (line,) = [line for line in result.stderr.splitlines() if "b.pdf" in line]
    assert line == (
        "skipped: cannot read 'top/b.pdf': parsing it took over 200.0 MB of memory. If that is "
        "right, allow more: --max-parser-memory."
    )
    assert [source["name"] for source in shown("top")["sources"]] == ["top/a.md", "top/c.md"]
    result = reading({}, "top/b.pdf", "--max-parser-memory", "200MB")
    assert (result.exit_code, result.stdout) == (3, "")
    assert "--max-parser-memory" in result.stderr


def test_what_parsing_may_take_is_a_setting(reading, monkeypatch):
    files = {"a.mbox": b"From x\nContent-Type: text/plain" + b';"' * 500_000 + b"\n\nhello\n"}
    monkeypatch.setenv("LONGCTX_MAX_PARSER_TIME", "1s")
    result = reading(files, "a.mbox")
    assert (result.exit_code, "over 1 seconds" in result.stderr) == (3, True)
    for option in ("--max-parser-time", "--max-parser-memory"):
        result = reading({}, "a.mbox", option, "much")
        assert (result.exit_code, f"'{option}': 'much' is no" in result.stderr) == (2, True)


def test_the_program_that_parses_ends_with_the_command(reading, monkeypatch):
    monkeypatch.setattr(parser, "_answers", own := parser.Parser())
    assert reading({"a.html": TEXT, "b.html": TEXT}, "a.html", "b.html").exit_code == 0
    assert (own.begun, own.pid) == (1, None)
    assert reading({"p.md": TEXT}, "p.md").exit_code == 0
    assert own.begun == 1


def test_a_hundred_problems_are_told_and_more_are_counted(reading):
    result = reading(
        {"x.zip": zipped({f"../{n}": TEXT for n in range(103)} | {"a": TEXT})}, "x.zip"
    )
    assert (result.exit_code, result.stderr.count("skipped: ")) == (3, 101)
    assert "skipped: 3 more (--json has all)" in result.stderr


def test_names_cannot_steer_the_terminal(reading, found):
    name = "\x1b[31mred\x07\u202e.txt"
    result = reading({f"top/{name}": TEXT, f"top/{name}.png": b"\0"}, "top")
    assert result.exit_code == 0
    assert not re.search(r"[\x07\x1b\u202e]", result.stdout + result.stderr)
    assert found("top")[0]["source"] == f"top/{name}"


def test_many_files_left_out_are_counted(reading):
    files = {f"top/{n:02}.bin": b"\0" for n in range(25)}
    result = reading({"top/a.md": TEXT, **files}, "top")
    assert result.stderr.count("left out:") == 11
    assert "left out: 15 more (--json has all)" in result.stderr


def test_a_missing_extra_is_told_at_once_or_for_the_file_in_a_folder(reading, monkeypatch):
    monkeypatch.setitem(sys.modules, "pypdfium2", None)
    result = reading({"top/a.pdf": pdf("x"), "top/b.md": TEXT}, "top/a.pdf")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "Run: pip install pypdfium2." in result.stderr
    result = reading({}, "top")
    assert result.exit_code == 3
    assert "top/a.pdf': that needs pypdfium2" in result.stderr


def test_dry_run_of_a_folder(reading, longctx):
    files = {"top/a.md": TEXT, "top/a.pdf": pdf(WORDS), "top/x.png": b"\0", "top/b.pdf": b"%PDF"}
    result = reading(files, "top", "--dry-run", "--json")
    assert result.exit_code == 3
    planned = json.loads(result.stdout)
    assert (planned["sources"], len(planned["skipped"]), len(planned["left_out"])) == (2, 1, 1)
    read = json.loads(reading({}, "top", "--json").stdout)
    assert (read["tokens"], read["bytes"]) == (planned["tokens"], planned["bytes"])


# --- append ---


def test_a_folder_and_a_converted_file_behind_a_folder(reading, longctx, shown, tmp_path):
    reading({"top/a.html": TEXT, "top/b.md": TEXT, "top/x.png": b"\0"}, "top", "--no-units")
    put(tmp_path, {"more/c.pdf": pdf(WORDS), "d.jsonl": b'{"a": "b"}\n', "e.html": TEXT})
    result = longctx("ingest", "--append", "top", "more", "d.jsonl", "e.html", "--raw")
    assert (result.exit_code, result.stderr.count("left out: ")) == (0, 1)
    assert re.match(r"top: complete, \d+ tokens from 5 files, ", result.stdout)
    marks = [source.get("origin") for source in shown("top")["sources"]]
    assert [bool(origin) for origin in marks] == [True, False, False, False, False]
    result = longctx("ingest", "--append", "top", "more/c.pdf")
    assert (result.exit_code, "not its last source" in result.stderr) == (2, True)


# --- each ---


def test_each_file_becomes_a_document(reading, longctx, found):
    files = {"top/a b.md": TEXT, "top/a-b.md": TEXT, "top/sub/c.txt": TEXT, "top/x.png": b"\0"}
    files |= {"top/bad.pdf": b"%PDF", "top/z.zip": zipped({"d.txt": TEXT})}
    result = reading(files, "top", "--each")
    assert result.exit_code == 3
    names = sorted(documents(longctx))
    mark = names[1].removeprefix("top-a-b.md-")
    assert names == ["top-a-b.md", f"top-a-b.md-{mark}", "top-sub-c.txt", "top-z.zip-d.txt"]
    assert re.fullmatch("[0-9a-f]{8}", mark)
    assert [line.split(":")[0] for line in result.stdout.splitlines()] == [
        *["top-a-b.md", f"top-a-b.md-{mark}", "top-sub-c.txt", "top-z.zip-d.txt"]
    ]
    assert "failed: cannot read 'top/bad.pdf'" in result.stderr
    assert "4 documents" in result.stderr
    assert "; 1 file failed\n" in result.stderr
    (passage,) = found("top-z.zip-d.txt")
    assert passage["source"] == "top/z.zip/d.txt"
    assert passage["text"] == TEXT.decode().rstrip("\n")


def of_all(result) -> dict:
    """The last of the lines, which is of all files; those before are of one each."""
    return json.loads(result.stdout.splitlines()[-1])


def test_each_again_as_json(reading):
    reading({"top/a.md": TEXT, "top/b.md": TEXT, "top/x.png": b"\0"}, "top", "--each")
    result = reading({"top/b.md": TEXT * 2, "top/c.md": TEXT}, "top/*", "--each", "--json")
    assert result.exit_code == 0  # named after the pattern: other documents
    assert [d["name"] for d in of_all(result)["documents"]] == ["a.md", "b.md", "c.md"]
    result = reading({}, "top", "--each", "--json")
    assert result.exit_code == 3
    values = of_all(result)
    assert [(d["name"], d["status"]) for d in values["documents"]] == [
        *[("top-a.md", "unchanged"), ("top-c.md", "complete")]
    ]
    assert [(f["source"], f["code"]) for f in values["failed"]] == [("top/b.md", 2)]
    assert len(values["left_out"]) == 1


def test_each_of_nothing_readable(reading):
    result = reading({"top/x.png": b"\0"}, "top", "--each")
    assert (result.exit_code, result.stdout) == (3, "")
    assert "x.png" in result.stderr


@pytest.mark.parametrize("other", [("--name", "x"), ("--dry-run",)])
def test_what_each_cannot_go_with(reading, other):
    result = reading({"top/a.md": TEXT}, "top", "--each", *other)
    assert result.exit_code == 2
    assert other[0] in result.stderr
