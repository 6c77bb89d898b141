"""A piece of a source as text, and the byte of each of its characters."""

import random

import pytest

from longctx.core.passages.snippet import Snippet


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16-le", "gb18030", "cp1251"])
def test_every_character_has_its_byte(document_of, encoding):
    text = "Маяк a-b\nдым " + ("" if encoding == "cp1251" else "看守 \U0001f600 é")
    data = text.encode(encoding)
    snippet = Snippet.of(document_of(data, encoding), 0, 0, len(data))
    assert snippet.text == text
    for number in range(len(text) + 1):
        byte = len(text[:number].encode(encoding))
        assert snippet.byte(number) == byte
        assert snippet.containing(byte) == snippet.since(byte) == number


def test_one_that_begins_in_a_character_has_it_whole(document_of):
    data = "aé看\U0001f600b".encode()
    document = document_of(data, "utf-8")
    for start in range(len(data) + 1):
        snippet = Snippet.of(document, 0, start, len(data))
        assert snippet.text == data[snippet.start :].decode()
        assert start - 3 <= snippet.start <= start


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16-be", "gb18030", "cp932", "big5"])
def test_what_cannot_be_decoded_has_its_places_too(document_of, encoding):
    drawn = random.Random(3)
    data = bytes(drawn.choice([*range(256), 97, 0xE2, 0x80, 0xD8, 0]) for _ in range(300))
    document = document_of(data, encoding)
    for start in range(0, 300, 7):
        snippet = Snippet.of(document, 0, start, min(300, start + 20))
        assert snippet.text == snippet.raw.decode(encoding, "replace")
        assert len(snippet.places) == len(snippet.text) + 1
        assert sorted(snippet.places.tolist()) == snippet.places.tolist()
        assert snippet.places[-1] == min(300, start + 20)
