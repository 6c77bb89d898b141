"""Names in any script wherever a document is named."""

import json
import shutil

import pytest

from longctx.core.store.confined import Confined
from longctx.core.store.naming import folder_of
from longctx.core.store.places import write_title

TITLE, FOLDER = "Война и мир", "document-f83d61d9"


@pytest.fixture
def titled(longctx, library):
    """Its only document is called by a title."""
    assert longctx("rename", "book", TITLE).exit_code == 0
    return library


def test_a_document_is_renamed_to_any_name_and_back(longctx, titled):
    [listed] = json.loads(longctx("list", "--json").stdout)["documents"]
    assert (listed["name"], listed["title"]) == (TITLE, TITLE)
    assert longctx("list").stdout.splitlines()[1].startswith(TITLE)
    assert f"folder     {FOLDER}" in longctx("show", TITLE).stdout
    result = longctx("rename", TITLE, "book")
    assert result.exit_code == 0
    [listed] = json.loads(longctx("list", "--json").stdout)["documents"]
    assert (listed["name"], listed["title"]) == ("book", "book")
    assert "folder" not in longctx("show", "book").stdout


def test_a_name_that_is_there_is_refused(longctx, library):
    assert longctx("rename", "book", "naïve book").exit_code == 0
    [folder] = [p.name for p in (library / "documents").iterdir()]
    assert folder.startswith("naive-book-")
    assert longctx("rename", "naïve book", "Naïve Book").exit_code == 0
    assert longctx("show", "Naïve Book").exit_code == 0
    assert longctx("rename", "Naïve Book", "Naïve Book").exit_code == 2


@pytest.mark.parametrize("command", ["ask", "find"])
def test_doc_takes_a_name_in_any_script(longctx, titled, model_options, command):
    result = longctx(command, "news", "--doc", TITLE, *model_options)
    assert result.exit_code == 0, result.stderr
    result = longctx(command, "news", *model_options)
    assert f"document: {TITLE} (the latest)" in result.stderr
    assert longctx(command, "news", "--doc", "Анна", *model_options).exit_code == 10


def test_what_an_older_version_named_is_found(longctx, library):
    """It dropped accents from folders, kept capitals, and two documents could have one title."""
    shutil.copytree(library / "documents/book", library / "documents/Resume")
    write_title(Confined(library) / "documents" / "Resume", "Résumé")
    shutil.copytree(library / "documents/book", library / "documents/Book")
    names = [each["name"] for each in json.loads(longctx("list", "--json").stdout)["documents"]]
    assert sorted(names) == ["Book", "Résumé", "book"]
    for name in ("Book", "Résumé", "Resume", "book"):
        assert longctx("show", name).exit_code == 0
    source = library.parent / "Book.txt"
    source.write_text("the keeper\n")
    result = longctx("ingest", source, "--model", "tiny")
    assert (result.exit_code, "the document 'Book' exists" in result.stderr) == (2, True)
    result = longctx("ingest", source, "--model", "tiny", "--name", "Résumé", "--replace")
    assert result.stdout.startswith("Résumé: complete")
    assert len([*(library / "documents").iterdir()]) == 3
    result = longctx("ingest", source, "--model", "tiny", "--name", "resume")
    assert result.stdout.startswith("resume: complete")


def test_two_names_alike_are_told_apart_by_folder(longctx, titled, model_options):
    shutil.copytree(titled / "documents" / FOLDER, titled / "documents/other")
    result = longctx("find", "news", "--doc", TITLE, *model_options)
    assert result.exit_code == 2
    assert f"{FOLDER}, other" in result.stderr
    assert longctx("find", "news", "--doc", "other", *model_options).exit_code == 0
    found = longctx("find", "news", "--doc", "other", "--doc", "other", *model_options, "--json")
    assert json.loads(found.stdout)["documents"] == [TITLE]
    found = longctx("find", "news", "--all", *model_options, "--json")
    assert len(json.loads(found.stdout)["documents"]) == 2
    assert longctx("rm", "--yes", TITLE).exit_code == 2
    assert longctx("rm", "--yes", "other").exit_code == 0
    assert "there is no terminal" in longctx("rm", TITLE).stderr
    assert longctx("rm", "--yes", TITLE).exit_code == 0


@pytest.fixture
def reordered(library):
    """Its document has a name that older versions allowed: it looks like `uv`."""
    write_title(Confined(library / "documents" / "book"), "u\u202ev")
    return library


def test_a_stored_name_is_shown_with_what_cannot_be_seen(longctx, reordered, model_options):
    assert longctx("list").stdout.splitlines()[1].startswith(r"u\u202ev ")
    assert r"name       u\u202ev" in longctx("show", r"u\u202ev").stdout
    assert json.loads(longctx("list", "--json").stdout)["documents"][0]["name"] == r"u\u202ev"
    result = longctx("show", "uv")
    assert result.exit_code == 10
    assert r"the nearest name is 'u\u202ev'" in result.stderr
    for name in ("u\u202ev", r"u\u202ev", "book"):
        result = longctx("find", "news", "--doc", name, *model_options, "--json")
        assert json.loads(result.stdout)["documents"] == [r"u\u202ev"]
    assert r"no document 'x\u202e'" in longctx("show", "x\u202e").stderr


def test_such_a_name_can_be_changed_and_removed(longctx, reordered):
    assert longctx("rename", "u\u202ev", "uv").stderr == "renamed u\\u202ev to uv\n"
    write_title(Confined(reordered / "documents" / "uv"), "u\u202ev")
    assert longctx("rm", "--yes", r"u\u202ev").stderr == "deleted u\\u202ev\n"


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("u\u202ev", "character 2 is U+202E (RIGHT-TO-LEFT OVERRIDE), which cannot be seen"),
        ("é" * 128, "it has 256 bytes in UTF-8, of 255 at most"),
    ],
)
def test_every_command_refuses_such_a_name_alike(longctx, library, tmp_path, name, why):
    file, text = tmp_path / "x.longctx", tmp_path / "x.txt"
    text.write_text("the keeper wrote of rain\n")
    longctx("export", "book", file)
    said = set()
    for command in (
        ("rename", "book", name),
        ("import", file, "--name", name),
        ("ingest", text, "--name", name),
        ("ingest", text, "--dry-run", "--name", name),
        ("ask", "rain?", "--text", text, "--keep", name),
    ):
        result = longctx(*command)
        assert result.exit_code == 2
        said.add(result.stderr.splitlines()[-1])
    [one] = said
    assert f"cannot be the name of a document: {why}. Choose another name" in one
    for command in ("show", "rm", "verify", "find rain --doc", "ask rain? --doc"):
        result = longctx(*command.split(), name)
        assert result.exit_code == 10
        assert "no document 'u\\u202ev' in" in result.stderr or f"'{name[:60]}...'" in result.stderr


def test_import_gives_another_name(longctx, titled, tmp_path):
    file = tmp_path / "x.longctx"
    longctx("export", TITLE, file)
    for name in ("plain", "Мир", "Plain"):
        assert longctx("import", file, "--name", name).exit_code == 0
    assert longctx("import", file).stdout.startswith("x: imported")
    found = {each["name"] for each in json.loads(longctx("list", "--json").stdout)["documents"]}
    assert found == {TITLE, "plain", "Plain", "Мир", "x"}
    assert longctx("verify").exit_code == 0


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("日本語.txt", "日本語"),
        ("Mo\u0308bel.txt", "Möbel"),
        ("CON.txt", "CON"),
        ("War.txt", "War"),
    ],
)
def test_a_document_is_called_after_its_file_in_any_script(longctx, tmp_path, file, name):
    (tmp_path / file).write_text("the keeper wrote of rain\n" * 3)
    result = longctx("ingest", tmp_path / file, "--model", "tiny", "--json")
    assert json.loads(result.stdout)["name"] == name
    again = longctx("ingest", tmp_path / file, "--model", "tiny")
    assert again.stdout.startswith(f"{name}: unchanged")
    [folder] = (tmp_path / "library/documents").iterdir()
    assert folder.name == folder_of(name)
    found = longctx("find", "rain", "--doc", name, "--gather-by", "bm25", "--json")
    assert json.loads(found.stdout)["documents"] == [name]


def test_ingest_keeps_a_name(longctx, tmp_path, model_options):
    (tmp_path / "Каштанка.txt").write_text("the keeper wrote of rain\n" * 3)
    result = longctx("ingest", tmp_path / "Каштанка.txt", *model_options, "--name", TITLE)
    assert result.stdout.startswith(f"{TITLE}: complete")
    (tmp_path / "more.txt").write_text("and of salt\n")
    result = longctx("ingest", tmp_path / "more.txt", "--append", TITLE)
    assert result.stdout.startswith(f"{TITLE}: complete")
    assert longctx("verify", TITLE).stdout.startswith(f"{TITLE}: ok")
    planned = longctx("ingest", tmp_path / "more.txt", "--dry-run", "--name", TITLE, "--json")
    assert json.loads(planned.stdout)["name"] == TITLE


def test_a_file_names_the_document_that_was_made_of_it(longctx, tmp_path, monkeypatch):
    folder = tmp_path / "docs"
    folder.mkdir()
    (folder / "report.html").write_text("<p>the keeper wrote of rain</p>")
    assert (
        longctx("ingest", folder / "report.html", "--model", "tiny", "--name", "r").exit_code == 0
    )
    monkeypatch.chdir(tmp_path)
    for named in ("docs/report.html", "./docs/../docs/report.html", folder / "report.html"):
        found = longctx("find", "rain", "--doc", named, "--gather-by", "bm25", "--json")
        assert json.loads(found.stdout)["documents"] == ["r"], found.stderr
    more = folder / "more.txt"
    more.write_text("and of salt\n")
    assert longctx("ingest", more, "--append", "docs/report.html").stdout.startswith("r: complete")
    assert longctx("show", "docs/more.txt").exit_code == 0
    other = longctx("ingest", more, "--model", "tiny", "--name", "other")
    assert other.exit_code == 0
    shared = longctx("show", "docs/more.txt")
    assert (shared.exit_code, "they are other, r" in shared.stderr) == (2, True)
    (folder / "reports.html").touch()
    missed = longctx("show", "docs/reports.html")
    assert (missed.exit_code, "no document 'docs/reports.html'" in missed.stderr) == (10, True)


def test_an_unknown_document_says_the_nearest(longctx, library):
    for number in range(9):
        shutil.copytree(library / "documents/book", library / f"documents/volume-{number}")
    told = longctx("show", "Boook").stderr
    assert "the nearest name is 'book'" in told
    assert "volume" not in told
    told = longctx("show", "日本語").stderr
    assert "nearest" not in told
    assert "`longctx list` shows what there is" in told


def test_each_file_keeps_its_name(longctx, tmp_path, model_options):
    folder = tmp_path / "in"
    folder.mkdir()
    for name in ("Анна.txt", "Иван.txt", "plain.txt"):
        (folder / name).write_text("the keeper wrote of rain\n")
    result = longctx("ingest", folder, "--each", *model_options, "--json")
    assert result.exit_code == 0, result.stderr
    titles = {done["title"] for done in json.loads(result.stdout.splitlines()[-1])["documents"]}
    assert titles == {"in/Анна.txt", "in/Иван.txt", "in-plain.txt"}
    assert longctx("show", "in/Анна.txt").exit_code == 0


@pytest.mark.parametrize("name", ["", "..", "a/b", "../a", "a\n", "x\0", "—"])
def test_what_can_be_no_name_is_refused(longctx, library, tmp_path, name):
    (tmp_path / "a.txt").write_text("rain")
    result = longctx("ingest", tmp_path / "a.txt", "--name", name)
    assert result.exit_code == 2
    assert "cannot be the name" in result.stderr
    assert longctx("rename", "book", name).exit_code == 2
    assert longctx("show", name).exit_code == 10
