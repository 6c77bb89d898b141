"""`verify`, `gc`, `export` and `import`."""

import io
import json
import sys
from types import SimpleNamespace

import pytest
from small_documents import begin, files_of, flip, forge

from longctx.cli import progress, render
from longctx.cli.text import size
from longctx.core.store.library import Library
from longctx.core.store.locks import Locks


@pytest.fixture
def clock(monkeypatch) -> SimpleNamespace:
    """A clock for the progress that goes on by a second at every look."""
    clock = SimpleNamespace(now=0.0, step=1.0)

    def monotonic() -> float:
        clock.now += clock.step
        return clock.now

    monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=monotonic))
    return clock


def bytes_of(library, name="book") -> int:
    return sum(map(len, files_of(library / "documents" / name).values()))


# --- verify ---


def test_verify(longctx, library):
    begin(Library.open(library), "begun")
    result = longctx("verify")
    assert (result.exit_code, result.stderr) == (0, "")
    book, begun = result.stdout.splitlines()
    assert book == f"book: ok, {size(bytes_of(library))}"
    assert begun.startswith("begun (unfinished): ok, ")
    assert longctx("verify", "book").stdout == book + "\n"


def test_verify_json(longctx, library):
    flip(begin(Library.open(library), "begun") / "text-00000.00000.gz", 11)
    result = longctx("verify", "--json")
    assert (result.exit_code, result.stderr) == (13, "")
    values = json.loads(result.stdout)
    assert values["schema_version"] == 1
    book, begun = values["documents"]
    assert book == {
        "name": "book",
        "unfinished": False,
        "status": "ok",
        "bytes": bytes_of(library),
        "error": None,
    }
    assert (begun["status"], begun["bytes"], begun["unfinished"]) == ("damaged", 0, True)
    assert "text-00000.00000.gz" in begun["error"]


def test_damage_is_13_and_locked_is_11_and_all_are_told(longctx, library):
    begin(Library.open(library), "begun")
    with Locks(library).exclusive("unfinished/begun"):
        result = longctx("verify")
        assert result.exit_code == 11
        assert [line.split(": ")[1].split(",")[0] for line in result.stdout.splitlines()] == [
            "ok",
            "locked",
        ]
        assert "'begun' is being written by process" in result.stdout
        flip(library / "documents/book/memory-00000.safetensors", 100)
        result = longctx("verify")
    assert result.exit_code == 13
    assert "book: damaged: '" in result.stdout
    assert "memory-00000.safetensors" in result.stdout
    assert "begun (unfinished): locked: " in result.stdout


def test_verify_of_nothing(longctx, tmp_path):
    assert longctx("verify").exit_code == 10
    Library.open(tmp_path / "library", create=True)
    result = longctx("verify")
    assert (result.exit_code, result.stdout, result.stderr) == (0, "", "no documents\n")
    assert longctx("verify", "none").exit_code == 10
    assert longctx("verify", "../book").exit_code == 10


# --- progress ---


@pytest.mark.usefixtures("library")
def test_progress_is_told_after_two_seconds_and_then_seldom(longctx, clock):
    clock.step = 0.001
    assert longctx("verify").stderr == ""
    clock.step = 1.0
    lines = longctx("verify").stderr.splitlines()
    assert len(lines) == 1
    assert "B of " in lines[0]
    assert "B/s, " in lines[0]
    assert lines[0].endswith(" s left")
    clock.step = 40.0
    assert len(longctx("verify").stderr.splitlines()) > 3


@pytest.mark.usefixtures("clock")
def test_progress_at_a_terminal_is_a_bar_that_makes_room_for_lines(monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    terminal = Terminal()
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stderr", terminal)
    with progress.ByteProgress() as shown:
        for _ in range(2):
            for done in (100, 200, 300, 400):
                shown.tell(done, 1000)
            shown.hide()
            assert terminal.getvalue().endswith("\x1b[2K")  # the bar's line is cleared
    written = terminal.getvalue()
    assert "0.4/1.0 kB" in written
    assert "B/s, " in written


# --- gc ---


def test_gc(longctx, library):
    (library / "documents/book/.tmp-x").write_bytes(b"1234")
    would = longctx("gc", "--dry-run")
    assert would.exit_code == 0
    assert would.stdout == "documents/book/.tmp-x: 4 B\n"
    assert would.stderr == "1 to remove, 4 B\n"
    assert (library / "documents/book/.tmp-x").exists()
    done = longctx("gc")
    assert (done.exit_code, done.stdout) == (0, would.stdout)
    assert done.stderr == "1 removed, 4 B\n"
    assert not (library / "documents/book/.tmp-x").exists()
    again = longctx("gc")
    assert (again.exit_code, again.stdout, again.stderr) == (0, "", "0 removed, 0 B\n")
    assert longctx("verify").exit_code == 0


def test_gc_json_and_what_is_left_alone(longctx, library):
    (library / "documents/book/.tmp-x").write_bytes(b"1234")
    (library / "unfinished/begun").mkdir(parents=True)
    with Locks(library).shared("documents/book"):
        result = longctx("gc", "--json")
        text = longctx("gc")
    values = json.loads(result.stdout)
    (kept,) = values.pop("kept")
    assert values == {
        "schema_version": 1,
        "dry_run": False,
        "bytes": 0,
        "removed": [{"path": "unfinished/begun", "bytes": 0}],
    }
    assert kept["path"] == "documents/book"
    assert "is being read by process" in kept["why"]
    assert text.stderr.startswith("left alone: documents/book: 'book' is being read by process")
    assert (library / "documents/book/.tmp-x").exists()


def test_file_names_cannot_steer_the_terminal(longctx, library):
    (library / "documents/book/\x1b[31mred\n\x9b").touch()
    result = longctx("gc", "--dry-run")
    assert "red" in result.stdout
    assert "\x1b" not in result.stdout
    assert "\x9b" not in result.stdout


# --- export and import ---


def test_export_and_import(longctx, library, tmp_path):
    file = tmp_path / "novel.longctx"
    done = longctx("export", "book", file)
    assert (done.exit_code, done.stdout) == (0, "")
    assert done.stderr == f"book: {size(file.stat().st_size)} written to {file}\n"
    result = longctx("import", file)
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.startswith("novel: imported, ")
    assert files_of(library / "documents/novel") == files_of(library / "documents/book")
    again = longctx("import", file, "--name", "third", "--json")
    values = json.loads(again.stdout)
    assert (values["name"], values["status"]) == ("third", "complete")
    assert longctx("find", "rain", "--doc", "third").exit_code == 0


@pytest.mark.usefixtures("library")
def test_through_a_pipe(longctx, tmp_path):
    out = longctx("export", "book", "-")
    assert out.exit_code == 0
    assert "written to standard output" in out.stderr
    data = out.stdout_bytes
    file = tmp_path / "book.longctx"
    longctx("export", "book", file)
    assert file.read_bytes() == data
    result = longctx("import", "-", input=data)
    assert result.exit_code == 2
    assert "--name" in result.stderr
    result = longctx("import", "-", "--name", "piped", input=data)
    assert (result.exit_code, result.stderr) == (0, "")
    result = longctx("import", "-", "--name", "short", input=data[:-600])
    assert result.exit_code == 13
    assert "cannot import 'standard input': it is cut off" in result.stderr


def test_nothing_is_replaced_without_a_word(longctx, library, tmp_path):
    file = tmp_path / "book.longctx"
    file.write_bytes(b"mine")
    result = longctx("export", "book", file)
    assert result.exit_code == 2
    assert "--replace" in result.stderr
    assert file.read_bytes() == b"mine"
    assert longctx("export", "book", file, "--replace").exit_code == 0
    before = files_of(library / "documents/book")
    result = longctx("import", file)
    assert result.exit_code == 2
    assert "--replace to put the new one there." in result.stderr
    assert "--append" not in result.stderr
    assert longctx("import", file, "--replace").exit_code == 0
    assert files_of(library / "documents/book") == before


@pytest.mark.usefixtures("library")
def test_no_terminal_gets_bytes_or_is_read(longctx, monkeypatch):
    monkeypatch.setattr(render, "can_ask", lambda: True)
    result = longctx("import", "-", "--name", "x")
    assert result.exit_code == 2
    assert "terminal" in result.stderr
    monkeypatch.setattr("longctx.cli.standard_output.sys", SimpleNamespace(stdout=sys.__stdout__))
    monkeypatch.setattr(sys.__stdout__, "isatty", lambda: True, raising=False)
    result = longctx("export", "book", "-")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "terminal" in result.stderr


def test_wrong_files_and_sizes(longctx, library, tmp_path):
    file = tmp_path / "book.longctx"
    assert longctx("import", file).exit_code == 2
    assert longctx("import", tmp_path).exit_code == 2
    file.write_bytes(b"no tar" * 200)
    result = longctx("import", file, "--name", "x")
    assert result.exit_code == 13
    assert str(file) in result.stderr
    assert longctx("export", "none", file).exit_code == 10
    result = longctx("export", "book", tmp_path / "none/book.longctx")
    assert (result.exit_code, "--replace" in result.stderr) == (2, False)
    assert "Make it first, or name another file." in result.stderr
    longctx("export", "book", file, "--replace")
    assert longctx("import", file, "--name", "x", "--max-size", "some").exit_code == 2
    result = longctx("import", file, "--name", "x", "--max-size", "5kB")
    assert result.exit_code == 1
    assert "left of --max-size (5,000 bytes; the library has " in result.stderr
    assert "Give a larger --max-size" in result.stderr
    assert longctx("import", file, "--name", "../x").exit_code == 2
    file.rename(tmp_path / "a book & more.longctx")
    assert longctx("import", tmp_path / "a book & more.longctx").exit_code == 0
    assert longctx("show", "a book & more").exit_code == 0
    assert [*library.glob("documents/a-book-more-*")]
    file = tmp_path / "a book & more.longctx"
    assert longctx("import", file, "--name", "x", "--max-size", "1GB").exit_code == 0


def test_an_export_of_damage_leaves_no_file(longctx, library, tmp_path):
    flip(library / "documents/book/tokens-00000.safetensors", 300)
    result = longctx("export", "book", tmp_path / "book.longctx")
    assert result.exit_code == 13
    assert "tokens-00000.safetensors" in result.stderr
    assert not list(tmp_path.glob("*.longctx")) + list(tmp_path.glob(".tmp-*"))


def test_ctrl_c_leaves_nothing(longctx, library, tmp_path, monkeypatch):
    file = tmp_path / "novel.longctx"
    longctx("export", "book", file)

    def interrupt(*args: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(progress.ByteProgress, "tell", interrupt)
    assert longctx("import", file).exit_code == 130
    assert longctx("export", "book", tmp_path / "other.longctx").exit_code == 130
    assert [path.name for path in (library / "documents").iterdir()] == ["book"]
    assert not list((library / "unfinished").iterdir())
    assert not (tmp_path / "other.longctx").exists()


def test_a_damaged_index_is_named_by_verify(longctx, library, model_options):
    flip(library / "documents" / "book" / "words-00000.safetensors", 100)
    result = longctx("verify")
    assert result.exit_code == 13
    assert "words-00000.safetensors" in result.stdout
    assert longctx("find", "news", *model_options).exit_code == 0


def test_a_damaged_index_is_not_exported(longctx, library, tmp_path):
    flip(library / "documents" / "book" / "words-00000.safetensors", 100)
    file = tmp_path / "out.longctx"
    assert "left out" in longctx("export", "book", file).stderr
    assert longctx("import", file, "--name", "copy").exit_code == 0
    assert longctx("verify", "copy").exit_code == 0


def test_an_earlier_format_is_refused_until_it_is_ingested_again(longctx, library, tmp_path):
    longctx("export", "book", tmp_path / "new.longctx")
    (library / "library.json").write_bytes(b'{\n "format": 3\n}\n')
    forge(
        library / "documents" / "book", lambda data: (data.pop("language"), data.update(format=3))
    )
    old = (tmp_path / "new.longctx").read_bytes().replace(b'"format": 4', b'"format": 3')
    (tmp_path / "old.longctx").write_bytes(old)
    result = longctx("import", tmp_path / "old.longctx", "--name", "other")
    assert (result.exit_code, "has format 3" in result.stderr) == (13, True)
    result = longctx("verify")
    assert (result.exit_code, "has format 3" in result.stdout) == (13, True)
    assert "longctx ingest" in result.stdout
    (tmp_path / "book.txt").write_text("the keeper wrote of rain\n")
    again = longctx(
        "ingest", tmp_path / "book.txt", "--model", "tiny", "--name", "book", "--replace"
    )
    assert again.exit_code == 0, again.stderr
    assert json.loads(longctx("show", "book", "--json").stdout)["language"] == "en"
