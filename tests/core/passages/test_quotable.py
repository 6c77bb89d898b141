"""Passages to quote from: each character is known by its byte in the source."""

import pytest

from longctx.core.passages.quotable import Excerpt

TEXTS = {
    "utf-8": "a\u00e9\u4e2d \U0001f600\r\n7b",
    "utf-16-le": "a\u00e9\u4e2d \U0001f600\r\n7b",
    "gb18030": "a\u00e9\u4e2d \U0001f600\r\n7b",
    "cp1251": "a\u044f .,-'\r\n\t$",
    "cp932": "ab7\u4e2d\u6587\u3042 .,\r\n",
}


@pytest.mark.parametrize("encoding", TEXTS)
def test_an_excerpt_is_its_passage_to_the_byte(document_of, encoding):
    text = TEXTS[encoding]
    document = document_of(text.encode(encoding), encoding)
    places = [len(text[:count].encode(encoding)) for count in range(len(text) + 1)]
    for low in range(len(text)):
        for high in range(low + 1, len(text) + 1):
            excerpt = Excerpt.of(document, 0, places[low], places[high])
            snippet = excerpt.snippet
            assert snippet.text[excerpt.low :] == text[low:high]
            found = [snippet.byte(excerpt.low + count) for count in range(high - low + 1)]
            assert found == places[low : high + 1]
