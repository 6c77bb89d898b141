"""What of a text a query means, and the line of a passage that is shown."""

import pytest

from longctx.core.passages.line_filter import LineFilter
from longctx.core.passages.matching import LONG, ExactString, Query, best_piece, pieces, shown

WEIGHTS = {"boat": 2.0, "keeper": 3.0, "rain": 1.0}


def lines(text: str, low: int = 0, high: int | None = None, whole: bool = True) -> list[str]:
    found = pieces(text, low, len(text) if high is None else high, whole)
    return [text[piece.start : piece.end] for piece in found]


def best(query: Query, text: str) -> str | None:
    piece = best_piece(query, text, pieces(text, 0, len(text)))
    return None if piece is None else text[piece.start : piece.end]


@pytest.mark.parametrize(
    ("wanted", "text", "found"),
    [
        ("customer 53831", "a Customer\n  53831, b", ["Customer\n  53831"]),
        ("C++", "c++ and C++. not C+", ["c++", "C++"]),
        ("E-4401", "e-4401 E-44011 xE-4401", ["e-4401"]),
        ("a.b", "axb a.b", ["a.b"]),
        (" the  map ", "The map, the\tmaps", ["The map"]),
        ("看守", "灯塔的看守人", ["看守"]),
        ("map", "地map图 mapx", ["map"]),
        ("$%", "x$%y", ["$%"]),
        ("strasse", "Straße, STRASSE, Straßen", ["Straße", "STRASSE"]),
        ("file", "ﬁle fi\u00adle", ["ﬁle", "fi\u00adle"]),
        ("s", "ß s", ["s"]),
        ("cafe", "cafe\u0301 cafe", ["cafe"]),
        ("서울", "서울에서", ["서울"]),
    ],
)
def test_an_exact_string_is_found_as_it_stands_but_for_case_and_space(wanted, text, found):
    assert [text[low:high] for low, high in ExactString(wanted).spans(text)] == found


def test_strings_are_the_whole_query_and_what_is_in_quotes():
    def strings(text: str) -> list[str]:
        return [string.text for string in Query(text).strings]

    assert strings('who has "the map" or “the key”?') == [
        'who has "the map" or “the key”?',
        "the map",
        "the key",
    ]
    assert strings("map") == ["map"]
    assert strings("  ") == strings('""  ')[1:] == []
    assert strings("word " * 5000) == []
    assert len(strings(" ".join(f'"q{n}"' for n in range(99)))) == 8


def test_lines_are_whole_and_others_are_sentences():
    text = "first line\n\n  second one  \nthird"
    assert lines(text) == ["first line", "second one", "third"]
    assert lines(text, 13, 25) == ["second one"]
    assert lines("One is. Two goes. Three", 8, 17) == ["Two goes."]  # no more than is asked for
    long = "The boat came. " * 30
    assert lines(f"a\n{long}\nb", 2, 2 + 30) == ["The boat came.", "The boat came."]
    assert lines("of a line\nnext", whole=False, low=3) == ["a line", "next"]
    assert lines(" \n\n") == []


def test_the_line_with_the_heaviest_words_is_shown():
    query = Query("keeper boat rain", WEIGHTS)
    text = "rain, a boat\nthe keepers\nrain, rain and then boats\nno"
    assert best(query, text) == "rain, a boat"  # as heavy as the two behind it
    assert best(query, "rain\nthe keeper of the boat\nboat, rain") == "the keeper of the boat"
    assert best(query, "none of it") is None


def test_of_equal_lines_that_one_has_more_words_in_order():
    query = Query("keeper boat", WEIGHTS)
    assert best(query, "boat keeper\nkeeper's boat\nboat, keeper") == "keeper's boat"


def test_an_exact_string_outweighs_words():
    query = Query('keeper boat rain "in the rain"', WEIGHTS)
    assert best(query, "keeper boat rain\nwe sat in the rain") == "we sat in the rain"


@pytest.mark.parametrize(
    ("languages", "text", "marked"),
    [
        (("en",), "of maxPoolSize and a pool", ["Pool", "pool"]),
        (("en",), "snake_boats", ["boats"]),
        (("de", "en"), "Boote und boats", ["boats"]),
        (("en",), "灯塔的", ["灯塔"]),
    ],
)
def test_what_of_an_identifier_matches_is_marked(languages, text, marked):
    query = Query("", {"pool": 1.0, "boat": 1.0, "灯塔": 2.0}, languages=languages)
    assert [text[low:high] for low, high in query.marked(text)] == marked


def test_what_is_marked_does_not_overlap():
    query = Query('boats "the boats"', WEIGHTS, LineFilter("s a|z*"))
    text = "The boats are here. A boat"
    assert [text[low:high] for low, high in query.marked(text)] == ["The boats a", "boat"]


def test_a_short_line_is_shown_whole_and_a_long_one_around_its_words():
    assert shown("short", []) == (0, 5)
    text = "alpha " * 100 + "keeper " + "omega " * 100
    low, high = shown(text, [(600, 606)])
    assert low < 600 < 606 < high
    assert high - low <= LONG
    assert text[low - 1] == " "
    assert text[low:high].split()[0] == "alpha"
    assert text[low:high].split()[-1] == "omega"
    assert shown(text, []) == (0, 299)


def test_the_heaviest_words_of_a_long_line_are_shown():
    text = "boat " + "x " * 400 + "keeper " + "y " * 400
    place = text.index("keeper")
    low, high = shown(text, [(0, 4), (place, place + 6)], [1.0, 3.0])
    assert "keeper" in text[low:high]
    assert shown("z" * 1000, [(990, 995)]) == (700, 1000)
