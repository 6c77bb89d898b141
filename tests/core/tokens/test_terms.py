"""Terms and where they stand, beside the rule written out by hand."""

# ruff: noqa: RUF001

import unicodedata
from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from terms_by_hand import of_text

from longctx.core.tokens.names import LONGEST
from longctx.core.tokens.normal_form import composed, folded
from longctx.core.tokens.terms import (
    counted,
    cut,
    has_break,
    most_terms,
    query_terms,
    query_words,
    split,
    string_words,
    terms,
    words,
)

TEXTS = st.text("abzTheHT-_ 7é\n灯塔かщ́\u00ad.,ﬁ서울ท็ßİ\u0307ıｶﾞ½", max_size=60)
ANY = st.text(max_size=30)


def counts_of(texts: list[str], language: str = "") -> list[Counter]:
    """The terms as they are counted."""
    found, own = counted(texts, language), [Counter() for _ in texts]
    names = {number: term for term, number in found.vocab.items()}
    for text, number in zip(found.texts.tolist(), found.ids.tolist(), strict=True):
        own[text][names[number]] += 1
    return own


def test_terms_have_their_places_and_stems():
    text = "The Keepers of maxPoolSize are watching  灯塔の!"
    assert [(text[start:end], term) for start, end, term in terms(text, "en")] == [
        ("Keepers", "keeper"),
        ("maxPoolSize", "maxpools"),
        ("max", "max"),
        ("Pool", "pool"),
        ("Size", "size"),
        ("watching", "watch"),
        ("灯塔", "灯塔"),
        ("塔の", "塔の"),
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("getHTTPServerURLs", "gethttpserverurl get http server url"),
        ("__init__ snake_case _", "init snake_cas snake case"),
        ("h264 UTF8 x_1", "h264 264 utf8 utf 8 x_1 1"),
        ("QX-7731-B", "qx 7731 b"),
        ("nx.shortest_path", "nx shortest_path shortest path"),
        ("iPhone DVDs IDs", "iphon phone dvds id"),
        ("GrößeMax ГлавнаяСтраница", "grössemax grösse max главнаястраница главная страница"),
        ("1,234,567 and 1,234.56", "1234567 1 234 567 1234 1 234 56"),
        ("1\u202f234 1'234 12,3456 1.234", "1234 1 234 1234 1 234 12 3456 1 234"),
        ("2024-01-31 12:30:59 10.0.0.1", "2024 01 31 12 30 59 10 0 0 1"),
        ("STRASSE Straße straſſe", "strass strass strass"),
        ("ﬁne ＦＵＬＬ soft\u00adhyphen \u2460 \u2474 \u00bd", "fine full softhyphen 1 1 1 2"),
        ("İstanbul ISTANBUL ıstanbul ΟΔΟΣ οδος", "istanbul istanbul istanbul οδοσ οδοσ"),
        ("nai\u0308ve na\u00efve ١٢٣", "naïv naïv 123"),
        ("日本語 語 ｶﾞｷﾞ 3月", "日本 本語 語 ガギ 3 月"),
        ("서울에서 ที่นี่ก", "서울 울에 에서 ที่นี่ นี่ก"),
        ("it is ?! \ud800", ""),
    ],
)
def test_words_identifiers_and_numbers(text, expected):
    assert [term.text for term in terms(text)] == expected.split()


@pytest.mark.parametrize(
    ("language", "text", "expected"),
    [
        ("de", "Die Häuser kosten 1.234,5 Euro", ["haus", "kost", "1234", "1", "234", "5", "euro"]),
        ("fr", "Les maisons coûtent 1 234", ["maison", "coûtent", "1", "234"]),
        ("ru", "В домах горели огни", ["дом", "горел", "огн"]),
        ("cs", "Domy a lodě", ["domy", "lodě"]),  # without a stemmer
        ("th", "the boats", ["boats"]),
    ],
)
def test_stems_and_function_words_are_those_of_the_language(language, text, expected):
    assert [term.text for term in terms(text, language)] == expected


@given(st.one_of(TEXTS, ANY), st.sampled_from(["", "de", "tr", "cs"]))
@example("é́ _İ_7 灯boats BOATS 1.234.567,8 1,234", "de")
@example("5㏂ ㋀a½b ﷺ ⑴x ｶﾞ각 ำก น้ำ", "")
def test_terms_are_those_of_the_rule_and_are_what_is_counted(text, language):
    expected = Counter(of_text(text, language))
    assert Counter(term.text for term in terms(text, language)) == expected
    assert counts_of([text, "", text], language) == [expected, Counter(), expected]


@given(st.one_of(TEXTS, ANY))
def test_places_are_exact(text):
    """What stands at a term's place has that term, whatever the characters before and after it.

    Of a character that stands for several, such as the one for "LTD", a term may be a part.
    """
    of_several = any(len(composed(character)) > 1 for character in text)
    for start, end, term in terms(text):
        assert 0 <= start < end <= len(text)
        assert of_several or term in [found.text for found in terms(text[start:end])]
    begins = [start for start, _, _ in terms(text)]
    assert begins == sorted(begins)


@given(st.one_of(TEXTS, ANY))
def test_words_are_the_same_whatever_the_case_and_the_form(text):
    found = [word.text for word in words(text)]
    for other in (text.lower(), text.upper(), folded(text), *_forms(text)):
        assert [word.text for word in words(other)] == found


def _forms(text: str) -> list[str]:
    return [unicodedata.normalize(form, text) for form in ("NFC", "NFD", "NFKC", "NFKD")]


@given(TEXTS)
def test_a_document_has_what_is_looked_up_of_a_string(text):
    form = folded(text)
    for language in ("", "de"):
        known = {term.text for term in terms(text, language)}
        for start, alternatives in string_words(form, ("", "de")):
            assert known & {*alternatives}
            assert 0 <= start < len(form)
    assert len(terms(text)) <= most_terms(form)


@given(TEXTS, st.lists(st.integers(0, 60), max_size=6))
def test_texts_between_cuts_have_the_words_that_begin_in_them(text, places):
    places = sorted(place for place in places if place <= len(text))
    cuts = [0]
    for place in places:
        cuts.append(cut(text, place, cuts[-1]))
    cuts.append(len(text))
    pieces = [[word.text for word in words(piece)] for piece in split(text, cuts)]
    begun = [
        [word.text for word in words(text) if low <= word.start < high]
        for low, high in pairwise([*cuts[:-1], len(text) + 1])
    ]
    assert pieces == begun
    assert all(found >= place for found, place in zip(cuts[1:], places, strict=False))


def test_letters_without_end_are_cut_into_words_of_the_longest():
    text = "7" * (3 * LONGEST + 1) + " 7"
    assert [end - start for start, end, _ in terms(text)] == [LONGEST] * 3 + [1, 1]
    assert cut(text, 1) == LONGEST
    assert cut(text, LONGEST) == LONGEST
    assert cut(text, LONGEST + 1, LONGEST) == 2 * LONGEST
    assert cut(text, 3 * LONGEST, 3 * LONGEST) == 3 * LONGEST
    assert cut(text, len(text)) == len(text)
    assert cut("かか\u3099か", 2) == 3  # not before what belongs to a character
    assert split("今日は晴れ", [0, 2, 4, 5]) == ["今日は", "は晴れ", ""]


@pytest.mark.parametrize(
    ("text", "found"),
    [("ab7", False), ("a b", True), ("灯", True), ("", False), ("a\u0301", False)],
)
def test_breaks_are_what_is_no_letter_of_a_longer_word(text, found):
    assert has_break(text) is found


@pytest.mark.parametrize(
    ("question", "language", "expected"),
    [
        ("What is the maxPoolSize of boats?", "en", "maxpools max pool size boat"),
        ("Where did it happen?", "", "happen"),
        ("Wo stehen die Häuser?", "de", "steh haus"),
        ("Where is the Haus of the keeper?", "de", "haus keep"),  # asked in English
        ("Was kostet das?", "de", "kost"),
        ("Who is it?", "en", ""),
        ("over 1,234 boats", "en", "1234 boat"),
        ("über 1.234 Boote", "de", "1234 boot"),
        ("1.234 boats", "en", "1 234 boat"),
        ("boat boats", "en", "boat boat"),
    ],
)
def test_a_question_is_searched_for_without_words_that_say_nothing(question, language, expected):
    assert query_terms(question, language) == expected.split()


def test_a_question_of_several_languages_has_the_stems_of_each():
    found = query_words("Houses and Häuser?", ("en", "de", "en"))
    assert found == [("hous",), ("häuser", "haus")]
    assert query_words("die boats", ("en", "de")) == [("die",), ("boat",)]
