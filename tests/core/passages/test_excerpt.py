"""Excerpts of sources: whole lines around a place, marks in characters, reading on and back."""

import random

import pytest
from word_documents import bytes_text, write_texts

from longctx.core.passages.excerpt import MOST, Excerpt, excerpt
from longctx.core.store.library import Library

LINES = [f"line {i}, Ömers {'x' * (i * 13 % 37)} 🌊 end" for i in range(1, 60)]
TEXT = "\n".join(LINES)


@pytest.fixture
def library(tmp_path):
    return Library.open(tmp_path / "library", create=True)


def texts(found: Excerpt) -> list[str]:
    return [line.text for line in found.lines]


def joined(parts: list[Excerpt]) -> list[str]:
    """The lines of excerpts one after another; what goes on a line is put behind it."""
    lines: list[str] = []
    for part in parts:
        for line in part.lines:
            if line.begins or not lines:
                lines.append(line.text)
            else:
                lines[-1] += line.text
    return lines


def test_whole_lines_around_a_place(library):
    document = write_texts(library, TEXT)
    start = len(TEXT[: TEXT.index("line 30,")].encode())
    found = excerpt(document, 0, (start, start + 4), 100, 150)
    numbers = [line.number for line in found.lines]
    assert texts(found) == LINES[numbers[0] - 1 : numbers[-1]]
    assert numbers[0] < 30 < numbers[-1]
    assert all(line.begins for line in found.lines)
    assert [line.place for line in found.lines] == [str(number) for number in numbers]
    for line in found.lines:
        size = len(line.text.encode())
        assert document.text(0, line.start, line.start + size).decode() == line.text


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16-le", "utf-32-be", "gb18030"])
def test_reading_on_and_back_gives_the_whole_text_once(library, encoding):
    document = write_texts(library, TEXT, encoding=encoding)
    size, draw = document.manifest.sources[0].size, random.Random(0)
    begin = excerpt(document, 0, (size // 2, size // 2), 200, 200)
    parts = [begin]
    while parts[-1].end < size:
        at = parts[-1].end
        parts.append(excerpt(document, 0, (at, at), 0, draw.randrange(100, 600)))
        assert parts[-1].start == at < parts[-1].end
    while parts[0].start > 0:
        at = parts[0].start
        parts.insert(0, excerpt(document, 0, (at, at), draw.randrange(100, 600), 0))
        assert parts[0].start < at == parts[0].end
    assert joined(parts) == LINES


def test_a_line_longer_than_all_that_is_read_is_given_in_parts(library):
    text = "é" * 3000 + "\nshort\n" + "z" * 3000
    document = write_texts(library, text)
    size, parts, at = document.manifest.sources[0].size, [], 0
    while at < size:
        parts.append(excerpt(document, 0, (at, at), 0, 1001))
        at = parts[-1].end
    assert joined(parts) == text.split("\n")
    assert [line.begins for line in parts[1].lines] == [False]
    back = excerpt(document, 0, (size, size), 1000, 0)
    assert (texts(back), back.lines[0].begins) == (["z" * 1000], False)


def test_marks_are_in_characters_of_their_lines(library):
    document = write_texts(library, TEXT)
    start = len(TEXT[: TEXT.index("Ömer", 300)].encode())
    end = start + len(TEXT[TEXT.index("Ömer", 300) :][:70].encode())
    found = excerpt(document, 0, (start, end), 0, 200, [(start, end), (5, 5), (0, 3)])
    marked = [line.text[a:b] for line in found.lines for a, b in line.marks]
    assert "\n".join(marked) == TEXT[TEXT.index("Ömer", 300) :][:70]
    inner = excerpt(document, 0, (start, end), 50, 200, [], [(start, (7, 9)), (10**9, (0, 1))])
    (told,) = [line.text[a:b] for line in inner.lines for a, b in line.marks]
    assert told == TEXT[TEXT.index("Ömer", 300) :][7:9]


def test_ends_of_lines_of_windows_are_left_out(library):
    document = write_texts(library, "one\r\ntwo\r\n\r\nthree\r")
    found = excerpt(document, 0, (0, 0), 0, 100, [(0, 12)])
    assert texts(found) == ["one", "two", "", "three"]
    assert [line.marks for line in found.lines] == [((0, 3),), ((0, 3),), (), ()]


@pytest.mark.parametrize("place", [(-5, -1), (10**9, 10**9 + 5), (7, 3)])
def test_places_that_are_not_there_are_cut(library, place):
    document = write_texts(library, TEXT)
    found = excerpt(document, 0, place, 10, 10)
    assert 0 <= found.start <= found.end <= document.manifest.sources[0].size


def test_no_more_is_read_than_the_most(library):
    document = bytes_text(library, b"a" * (4 * MOST), 5)
    found = excerpt(document, 0, (0, 10**12), 10**12, 10**12)
    assert found.end - found.start <= 2 * MOST


def test_nothing_of_an_empty_source(library):
    document = write_texts(library, "", "x")
    assert excerpt(document, 0, (0, 5), 50, 50).lines == ()
