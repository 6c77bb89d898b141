"""Whether a source is what was read of it, wherever a document says that it was."""

import hashlib
import os
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from longctx.core.store import sameness
from longctx.core.store.manifest import Origin, SourceRecord
from longctx.core.store.sameness import Now, begins_with, changed_sources, compare

pytestmark = pytest.mark.usefixtures("never_waits")
TEXT = b"the keeper wrote"


def told(
    path: Path | str, text: bytes = TEXT, mtime_ns: int | None = 0, whole=True
) -> SourceRecord:
    """A source as a manifest tells it."""
    sha256, undecodable = hashlib.sha256(text).hexdigest(), 0 if whole else None
    name, tokens = f"<{path}>", 3
    return SourceRecord(
        name, str(path), len(text), mtime_ns, sha256, "utf-8", undecodable, 0, tokens, 0
    )


def unpacked(path: Path | str, file: bytes = b"") -> SourceRecord:
    """A source that was made from a file of this content."""
    origin = Origin(len(file), hashlib.sha256(file).hexdigest(), "a/b", None)
    return replace(told(path), origin=origin)


@pytest.fixture
def book(tmp_path: Path) -> Path:
    file = tmp_path / "book.txt"
    file.write_bytes(TEXT)
    return file


def test_what_is_no_file_is_not_opened(no_file, is_opened):
    for known in (told(no_file), told(no_file, b""), unpacked(no_file), unpacked(no_file, b"x")):
        assert changed_sources([known]) == []
        assert compare(known, no_file) is compare(known, no_file, True) is Now.REPLACED
        for text in (b"", TEXT):
            with pytest.raises(OSError, match="it is a pipe, a socket or a device"):
                begins_with(no_file, len(text), hashlib.sha256(text).hexdigest())
    assert not is_opened(no_file)


@pytest.mark.parametrize("make", [told, lambda path, text=TEXT, *a: unpacked(path, text)])
def test_a_file_that_was_written_to(book, make):
    assert changed_sources([make(book)]) == []  # the same content
    assert changed_sources([make(book, b"another!" * 2)]) == [f"<{book}>"]  # of the same size
    assert changed_sources([make(book, b"x")]) == [f"<{book}>"]
    book.unlink()
    assert changed_sources([make(book, b"x")]) == []


@pytest.mark.parametrize(
    ("text", "whole", "grows"),
    [
        (TEXT, Now.SAME, Now.SAME),
        (TEXT[:5], Now.REPLACED, Now.GROWN),
        (b"X" + TEXT[1:], Now.REPLACED, Now.REPLACED),
        (TEXT + b"X", Now.REPLACED, Now.REPLACED),
    ],
)
def test_what_a_file_is_now(book, text, whole, grows):
    assert compare(told(book, text), book) is whole
    assert compare(told(book, text), book, may_grow=True) is grows
    same_time = told(book, text, book.stat().st_mtime_ns)
    assert compare(same_time, book, may_grow=True) is grows  # its bytes are looked at
    assert compare(same_time, book) is (Now.SAME if len(text) == len(TEXT) else Now.REPLACED)
    book.unlink()
    assert compare(told(book, text), book) is Now.GONE


def test_a_question_opens_nothing_without_need(book, monkeypatch):
    def opened(path):
        raise AssertionError(path)

    monkeypatch.setattr(sameness, "open_regular", opened)
    mtime = book.stat().st_mtime_ns
    assert changed_sources([told(book, b"another!" * 2, mtime)]) == []
    assert changed_sources([told(book, b"x", mtime), told(book, b"x")]) == [f"<{book}>"] * 2
    assert changed_sources([told(book, b"x", whole=False)]) == []


def test_a_question_reads_no_more_than_it_may(tmp_path, monkeypatch):
    monkeypatch.setattr(sameness, "COMPARED", 2 * len(TEXT))
    files = [tmp_path / name for name in "abc"]
    for file in files:
        file.write_bytes(TEXT)
    # Of one archive there may be many sources; it is read once, and counts once.
    known = [unpacked(files[0], TEXT)] * 5 + [told(file) for file in files[1:]]
    assert changed_sources(known) == [f"<{files[2]}>"]


@pytest.mark.parametrize(
    "path", ["//host/share/b", "\\\\host\\share\\b", "book.txt", "", "a\0b", "\ud800", "x" * 9999]
)
def test_places_that_are_not_looked_at(book, path, monkeypatch):
    monkeypatch.chdir(book.parent)
    looked = []
    monkeypatch.setattr(sameness.os, "stat", lambda path, **_: looked.append(path))
    assert changed_sources([told(path, b"x"), replace(told(book), path=None)]) == []
    assert looked == []


@pytest.mark.parametrize("path", ["/a\0b", "/\ud800", "/" + "x" * 9999, "/dev/null/x"])
def test_paths_that_no_file_has(book, path):
    assert changed_sources([told(path), told(book, b"x")]) == [f"<{book}>"]


def test_a_disk_that_does_not_answer_is_not_waited_for(book, monkeypatch):
    answer, stat = threading.Event(), os.stat
    dead = str(book.with_name("dead"))

    def look(path, **options):
        if path == dead:
            answer.wait()
        return stat(path, **options)

    monkeypatch.setattr(sameness.os, "stat", look)
    known = [told(book, b"x"), told(dead), told(book, b"y")]
    assert changed_sources(known, silence=0.2) == [f"<{book}>"]
    answer.set()
