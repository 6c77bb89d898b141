"""Text to quote from: every stretch is cited by its exact bytes."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from longctx.core.passages.boundaries import bounds
from longctx.core.passages.quotable import Excerpt, Quotable, evened

LETTERS = "ab7\u00e9\u044f\u00df .,-'\r\n\t$"
WIDE = "\u4e2d\u6587\U0001f600\u0301\u00a0"
ENCODINGS = {"utf-8": LETTERS + WIDE, "utf-16-le": LETTERS + WIDE, "gb18030": LETTERS + WIDE}
ENCODINGS |= {"cp1251": "ab7\u044f .,-'\r\n\t$", "cp932": "ab7\u4e2d\u6587\u3042 .,\r\n"}


def spans(text: Quotable):
    """Every stretch of the text: its bytes there, and where it is cited."""
    for begin in text.begins:
        for end in sorted(end for end in text.ends if end > begin):
            if b"\xff" not in text.data[begin:end]:
                yield text.data[begin:end].decode(), text.span(begin, end)


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_every_stretch_is_cited_to_the_byte(document_of, encoding):
    @settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(st.text(st.sampled_from(ENCODINGS[encoding]), min_size=1, max_size=24), st.data())
    def compare(words, drawn):
        data = words.encode(encoding)
        document = document_of(data, encoding)
        places = [len(words[:number].encode(encoding)) for number in range(len(words) + 1)]
        low = drawn.draw(st.integers(0, len(words) - 1))
        high = drawn.draw(st.integers(low + 1, len(words)))
        excerpt = Excerpt.of(document, 0, places[low], places[high])
        assert excerpt.text == words[low:high]
        begins, ends = bounds(words)
        cited = set()
        for stretch, span in spans(Quotable([excerpt])):
            assert data[span.start : span.end].decode(encoding) == span.text
            assert evened(span.text)[0] == stretch
            first, last = places.index(span.start), places.index(span.end)
            assert low <= first < last <= high
            assert begins[first]
            assert ends[last]
            cited.add((first, last))
        allowed = {
            (first, last)
            for first in range(low, high)
            for last in range(first + 1, high + 1)
            if begins[first] and ends[last]
        }
        assert cited <= allowed
        if encoding not in ("cp932", "gb18030"):  # what stands before cannot be read in these
            assert cited == allowed

    compare()


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_a_line_break_in_prose_counts_as_a_space(document_of, newline):
    source = f"the keeper{newline}  of the\tlight"
    document = document_of(source.encode(), "utf-8")
    text = Quotable([Excerpt.of(document, 0, 0, len(source))])
    found = {stretch: span for stretch, span in spans(text)}
    assert found["keeper of the light"].text == f"keeper{newline}  of the\tlight"
    assert (found["keeper of"].start, found["keeper of"].end) == (4, 14 + len(newline))


def test_a_passage_that_begins_in_a_number_does_not_let_it_be_cut(document_of):
    source = b"it was 7277776 there"
    document = document_of(source, "utf-8")
    for low, high, allowed in ((8, 20, "there"), (0, 13, "it was"), (7, 14, "7277776")):
        stretches = {one for one, _ in spans(Quotable([Excerpt.of(document, 0, low, high)]))}
        assert allowed in stretches
        assert not {one for one in stretches if "77" in one} - {"7277776"}


def test_passages_are_kept_apart_in_their_order(document_of):
    one, other = (
        document_of(b"a boat", "utf-8"),
        document_of("un caf\xe9".encode("cp1252"), "cp1252"),
    )
    text = Quotable([Excerpt.of(other, 0, 0, 7), Excerpt.of(one, 0, 2, 6)])
    assert text.data == "un caf\xe9".encode() + b"\xffboat\xff"
    found = dict(spans(text))
    assert {*found} == {"un", "caf\xe9", "un caf\xe9", "boat"}
    assert found["boat"].excerpt.document is one
    assert (found["caf\xe9"].start, found["caf\xe9"].end) == (3, 7)
