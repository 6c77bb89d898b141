"""`upgrade`, and titles in any script wherever a document is named."""

import json

import pytest
from small_documents import as_format_2, flip

from longctx.core.store.library import Library

TITLE, NAME = "Война и мир", "document-f83d61d9"


@pytest.fixture
def old(library):
    """The shelf's library as an older longctx would have left it."""
    as_format_2(library / "documents" / "book")
    (library / "library.json").write_bytes(b'{\n "format": 2\n}\n')
    return library


@pytest.fixture
def titled(longctx, library):
    """Its only document is called by a title."""
    assert longctx("rename", "book", TITLE).exit_code == 0
    return library


def test_upgrade_tells_of_each_document(longctx, old):
    result = longctx("upgrade")
    assert result.exit_code == 0
    assert result.stdout.startswith("book: upgraded from format 2, ")
    assert longctx("upgrade", "book").stdout.startswith("book: current, ")
    assert "format 3" in longctx("show", "book").stdout
    assert longctx("verify").stdout.startswith("book: ok")


def test_upgrade_json(longctx, old):
    values = json.loads(longctx("upgrade", "--json").stdout)
    [book] = values["documents"]
    assert (book["name"], book["title"], book["status"]) == ("book", "book", "upgraded")
    assert (book["format"], book["error"]) == (2, None)
    assert book["bytes"] == json.loads(longctx("show", "book", "--json").stdout)["state_bytes"]


def test_upgrade_of_nothing(longctx, tmp_path):
    Library.open(tmp_path / "library", create=True)
    assert longctx("upgrade").stderr == "no documents\n"
    assert longctx("upgrade", "none").exit_code == 10


def test_upgrade_leaves_with_what_is_worst(longctx, old):
    with Library.open(old).reading("book"):
        result = longctx("upgrade")
        assert (result.exit_code, result.stdout.split(":")[1]) == (11, " locked")
    flip(old / "documents" / "book" / "text-00000.gz", 12)
    result = longctx("upgrade")
    assert (result.exit_code, result.stdout.split(":")[1]) == (13, " damaged")


def test_an_old_document_is_asked_as_it_is(longctx, old, model_options):
    assert longctx("find", "news", *model_options).exit_code == 0
    assert json.loads(longctx("show", "book", "--json").stdout)["format"] == 2


def test_a_damaged_index_is_told_by_verify_and_written_by_upgrade(longctx, library, model_options):
    flip(library / "documents" / "book" / "words-00000.safetensors", 100)
    result = longctx("verify")
    assert result.exit_code == 13
    assert "words-00000.safetensors" in result.stdout
    assert longctx("find", "news", *model_options).exit_code == 0
    assert longctx("upgrade").stdout.startswith("book: upgraded")
    assert longctx("verify").exit_code == 0


def test_a_damaged_index_is_not_exported(longctx, library, tmp_path):
    flip(library / "documents" / "book" / "words-00000.safetensors", 100)
    file = tmp_path / "out.longctx"
    assert "left out" in longctx("export", "book", file).stderr
    assert longctx("import", file, "--name", "copy").exit_code == 0
    assert longctx("verify", "copy").exit_code == 0
    assert longctx("upgrade", "copy").stdout.startswith("copy: upgraded")


# --- titles ---


def test_a_document_is_renamed_to_a_title_and_back(longctx, titled):
    [listed] = json.loads(longctx("list", "--json").stdout)["documents"]
    assert (listed["name"], listed["title"]) == (NAME, TITLE)
    head, row = longctx("list").stdout.splitlines()
    assert head.split()[:2] == ["name", "title"]
    assert TITLE in row
    shown = longctx("show", TITLE)
    assert NAME in shown.stdout
    assert TITLE in shown.stdout
    result = longctx("rename", TITLE, "book")
    assert result.exit_code == 0
    [listed] = json.loads(longctx("list", "--json").stdout)["documents"]
    assert (listed["name"], listed["title"]) == ("book", "book")
    assert "title" not in longctx("list").stdout


def test_a_title_may_change_and_the_name_stay(longctx, library):
    assert longctx("rename", "book", "naïve book").exit_code == 0
    assert [p.name for p in (library / "documents").iterdir()] == ["naive-book"]
    assert longctx("rename", "naive-book", "naïve-book").exit_code == 0
    assert longctx("show", "naïve-book").exit_code == 0
    assert longctx("rename", "naive-book", "naïve-book").exit_code == 2


@pytest.mark.parametrize("command", ["ask", "find"])
def test_doc_takes_a_title(longctx, titled, model_options, command):
    result = longctx(command, "news", "--doc", TITLE, *model_options)
    assert result.exit_code == 0, result.stderr
    result = longctx(command, "news", *model_options)
    assert f"document: {NAME}, {TITLE} (the latest)" in result.stderr
    assert longctx(command, "news", "--doc", "Анна", *model_options).exit_code == 10


def test_two_titles_alike_are_told_apart_by_name(longctx, titled, tmp_path, model_options):
    file = tmp_path / "other.longctx"
    assert longctx("export", TITLE, file).exit_code == 0
    assert longctx("import", file).stdout.startswith(f"other ({TITLE}): imported")
    result = longctx("find", "news", "--doc", TITLE, *model_options)
    assert result.exit_code == 2
    assert f"{NAME}, other" in result.stderr
    assert longctx("find", "news", "--doc", "other", *model_options).exit_code == 0
    assert longctx("rm", TITLE).exit_code == 2
    assert longctx("rm", "--yes", TITLE).exit_code == 2
    assert longctx("rm", "--yes", "other").exit_code == 0
    assert "there is no terminal" in longctx("rm", TITLE).stderr
    assert longctx("rm", "--yes", TITLE).exit_code == 0


def test_import_gives_another_title(longctx, titled, tmp_path):
    file = tmp_path / "x.longctx"
    longctx("export", NAME, file)
    longctx("import", file, "--name", "plain")
    longctx("import", file, "--name", "Мир")
    found = {
        d["name"]: d["title"] for d in json.loads(longctx("list", "--json").stdout)["documents"]
    }
    assert found.pop(NAME) == TITLE
    assert found.pop("plain") == "plain"
    assert [*found.values()] == ["Мир"]
    assert longctx("verify").exit_code == 0


def test_import_of_an_old_archive_under_a_title(longctx, old, tmp_path):
    file = tmp_path / "Анна.longctx"
    longctx("export", "book", file)
    assert longctx("import", file).exit_code == 0
    shown = json.loads(longctx("show", "Анна", "--json").stdout)
    assert (shown["title"], shown["format"]) == ("Анна", 3)
    longctx("import", file, "--name", "plain")
    assert json.loads(longctx("show", "plain", "--json").stdout)["format"] == 2


def test_ingest_keeps_a_title(longctx, tmp_path, model_options):
    (tmp_path / "Каштанка.txt").write_text("the keeper wrote of rain\n" * 3)
    result = longctx("ingest", tmp_path / "Каштанка.txt", *model_options, "--json")
    done = json.loads(result.stdout)
    assert (done["title"], done["name"].startswith("document-")) == ("Каштанка", True)
    again = longctx("ingest", tmp_path / "Каштанка.txt", *model_options)
    assert again.stdout.startswith(f"{done['name']} (Каштанка): unchanged")
    result = longctx("ingest", tmp_path / "Каштанка.txt", *model_options, "--name", TITLE)
    assert result.stdout.startswith(f"{NAME} ({TITLE}): complete")
    (tmp_path / "more.txt").write_text("and of salt\n")
    result = longctx("ingest", tmp_path / "more.txt", "--append", TITLE)
    assert result.stdout.startswith(f"{NAME} ({TITLE}): complete")
    assert longctx("verify", TITLE).stdout.startswith(f"{NAME}: ok")
    planned = longctx("ingest", tmp_path / "more.txt", "--dry-run", "--name", TITLE, "--json")
    assert json.loads(planned.stdout)["name"] == NAME


def test_each_file_keeps_a_title(longctx, tmp_path, model_options):
    folder = tmp_path / "in"
    folder.mkdir()
    for name in ("Анна.txt", "Иван.txt", "plain.txt"):
        (folder / name).write_text("the keeper wrote of rain\n")
    result = longctx("ingest", folder, "--each", *model_options, "--json")
    assert result.exit_code == 0, result.stderr
    titles = {done["title"] for done in json.loads(result.stdout)["documents"]}
    assert titles == {"in/Анна.txt", "in/Иван.txt", "in-plain.txt"}
    assert longctx("show", "in/Анна.txt").exit_code == 0


@pytest.mark.parametrize("name", ["", "..", "a/b", "../a", "a\n", "x\0", "—"])
def test_what_can_be_neither_name_nor_title_is_refused(longctx, library, tmp_path, name):
    (tmp_path / "a.txt").write_text("rain")
    result = longctx("ingest", tmp_path / "a.txt", "--name", name)
    assert result.exit_code == 2
    assert "cannot be the name" in result.stderr
    assert longctx("rename", "book", name).exit_code == 2
    assert longctx("show", name).exit_code == 2
