"""Lines around a place in a source, and all lines of one."""

import pytest
from word_documents import bytes_text

from longctx.core.passages import near_lines
from longctx.core.passages.near_lines import around, context, lines_of
from longctx.core.store.library import Library

TEXT = "zero\none é\n\nthree\r\nfour\n看守人 five\nsix"


@pytest.fixture
def document_of(tmp_path):
    """A document of these bytes, with a token for every one."""

    def make(data: bytes, encoding: str = "utf-8"):
        library = Library.open(tmp_path / "library", create=True)
        return bytes_text(library, data, 1, encoding)

    return make


def told(lines: list[tuple[int, str]]) -> list[str]:
    return [text for _, text in lines]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16-le", "gb18030"])
def test_context_is_the_lines_beside_a_line(document_of, encoding):
    document = document_of(TEXT.encode(encoding), encoding)
    start = len(TEXT[: TEXT.index("three")].encode(encoding))
    end = start + len("three".encode(encoding))
    before, behind = context(document, 0, start, end, 2)
    assert told(before) == ["one é", ""]
    assert told(behind) == ["four", "看守人 five"]
    for place, text in [*before, *behind]:
        assert TEXT.encode(encoding)[place:].decode(encoding).startswith(text)
    before, behind = context(document, 0, start, end, 99)
    assert told(before) == ["zero", "one é", ""]
    assert told(behind) == ["four", "看守人 five", "six"]
    assert context(document, 0, start, end, 0) == ([], [])


def test_a_line_that_was_not_read_whole_is_no_context(document_of, monkeypatch):
    monkeypatch.setattr(near_lines, "_MOST", 10)
    document = document_of(b"a line that is long\nshort\nhere\n")
    assert told(context(document, 0, 26, 30, 5)[0]) == ["short"]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16-be", "gb18030"])
def test_what_stands_beside_a_passage_is_whole_characters(document_of, encoding):
    document = document_of(TEXT.encode(encoding), encoding)
    for place in range(len(TEXT)):
        start = len(TEXT[:place].encode(encoding))
        for side in range(12):
            snippet = around(document, 0, start, start, side)
            assert snippet.text in TEXT or snippet.text[:-1] in TEXT  # its end may cut one
            assert snippet.start <= start


@pytest.mark.parametrize("piece", [3, 7, 16, 1000])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-16-le"])
def test_all_lines_are_given_in_order_and_long_ones_in_parts(
    document_of, monkeypatch, piece, encoding
):
    monkeypatch.setattr(near_lines, "_PIECE", piece * 2)
    document = document_of(TEXT.encode(encoding), encoding)
    found = [(s.byte(low), s.text[low:high]) for s, (low, high) in lines_of(document, 0)]
    for place, text in found:
        assert TEXT.encode(encoding)[place:].decode(encoding).startswith(text)
    assert "".join(text for _, text in found) == TEXT.replace("\n", "")
    if piece == 1000:
        assert [text for _, text in found] == TEXT.split("\n")
