"""EPUB: its chapters in reading order, those that cannot be read among them."""

import io
import zipfile

import pytest
from sample_files import epub, read, zipped

from longctx.core.common.errors import UnreadableInput
from longctx.core.sources import limits
from longctx.core.sources.detect import NotText


def members(book: bytes) -> dict[str, bytes]:
    """The files in a book."""
    with zipfile.ZipFile(io.BytesIO(book)) as opened:
        return {name: opened.read(name) for name in opened.namelist()}


def test_epub_is_cited_by_chapter_in_reading_order(opened):
    chapters = ("<html><body><h1>One</h1><p>a</p></body></html>", "<p/>", "<p>caf&#233;</p>")
    source = opened("a.epub", epub(*chapters))
    assert read(source)[1] == [("One\n\na\n\n", 1), ("café\n\n", 3)]


def test_encrypted_chapters_are_told(opened):
    uri = '<CipherReference URI="OEBPS/text/c%200.xhtml"/>'
    source = opened("a.epub", epub("<p>a", "<p>b", **{"META-INF/encryption.xml": uri}))
    assert read(source)[0] == "b\n\n"
    assert "chapter 1 is encrypted" in source.lost[0]


DAMAGED = {
    "crc": (b"<p>the keeper</p>", b"<p>the KEEPER</p>", "CRC"),
    "empty": (b"", b"", "it is empty"),
    "binary": (b"\0\1\2\3" * 9, b"", "it is binary"),
    "no encoding": (bytes(range(1, 256)) * 20, b"", "encoding is not known"),
}


@pytest.mark.parametrize("kind", DAMAGED)
def test_a_damaged_chapter_is_told_and_the_others_are_read(opened, kind):
    data, damage, why = DAMAGED[kind]
    chapters = {f"OEBPS/text/c {n}.xhtml": page for n, page in enumerate([b"<p>a", data, b"<p>c"])}
    book = zipped({**members(epub("", "", "")), **chapters}, zipfile.ZIP_STORED)
    source = opened("a.epub", book.replace(data, damage) if damage else book)
    assert read(source)[1] == [("a\n\n", 1), ("c\n\n", 3)]
    (told,) = source.lost
    assert told.startswith(f"'{source.name}': chapter 2 cannot be read: ")
    assert why in told


def test_a_damaged_list_of_what_is_encrypted_does_not_matter(opened):
    source = opened("a.epub", epub("<p>a", **{"META-INF/encryption.xml": "\0"}))
    assert read(source)[1] == [("a\n\n", 1)]


def test_malformed_chapters_are_read_as_far_as_they_go(opened):
    source = opened("a.epub", epub("<p>a <b>b</p></i><![x[ & <p c", "<p>d"))
    assert [number for _, number in read(source)[1]] == [1, 2]
    assert source.lost == []


def test_a_chapter_that_is_not_there_is_told(opened):
    files = members(epub("<p>a", "<p>b"))
    del files["OEBPS/text/c 0.xhtml"]
    source = opened("a.epub", zipped(files))
    assert read(source)[1] == [("b\n\n", 2)]
    assert "chapter 1 ('OEBPS/text/c 0.xhtml') is missing" in source.lost[0]


def test_a_chapter_whose_link_is_none_is_told(opened):
    files = members(epub("<p>a", "<p>b"))
    files["OEBPS/b.opf"] = files["OEBPS/b.opf"].replace(b"text/c%200.xhtml", b"http://[bad")
    source = opened("a.epub", zipped(files))
    assert read(source)[1] == [("b\n\n", 2)]
    assert "chapter 1" in source.lost[0]


def test_a_book_of_which_nothing_can_be_read_is_refused(opened):
    uris = "".join(f'<CipherReference URI="OEBPS/text/c%20{n}.xhtml"/>' for n in range(2))
    data = epub("<p>a", "<p>b", **{"META-INF/encryption.xml": uris})
    with pytest.raises(UnreadableInput, match=r"none of its 2 chapters.*chapter 1 is encrypted"):
        read(opened("a.epub", data))
    with pytest.raises(UnreadableInput, match=r"none of its 1 chapters.*it is binary"):
        read(opened("a.epub", epub("\0\1\2\3")))
    with pytest.raises(NotText, match="it is empty"):  # but nothing is lost
        read(opened("a.epub", epub("<p/>")))


def test_a_book_that_holds_too_much_is_refused_as_a_whole(opened):
    source = opened("a.epub", epub("<p>a", "<p>" + "b" * 9000), max_unpacked=5000)
    with pytest.raises(limits.TooMuch, match="it holds over"):
        read(source)
