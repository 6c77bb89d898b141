"""Strings found in documents as they stand, beside a search through all the text."""

# ruff: noqa: RUF001

import random
import re

import pytest
from word_documents import bytes_text, write_texts

from longctx.core.passages.matching import ExactString
from longctx.core.retrieve import exact
from longctx.core.retrieve.exact import bytes_of, occurrences
from longctx.core.retrieve.lexical import PassageIndex
from longctx.core.retrieve.ranked import by_words
from longctx.core.store.library import Library
from longctx.core.tokens.normal_form import folded


@pytest.fixture
def library(tmp_path):
    return Library.open(tmp_path / "library", create=True)


def found_in(documents, wanted: str, indexed: bool = True) -> list[tuple[int, int, str]]:
    """(document, source, text) of each occurrence as it is given."""
    index = PassageIndex(*documents)
    ranked, string = by_words(index, wanted), ExactString(wanted)
    given = occurrences(documents, ranked, index if indexed else None, string)
    return [
        (o.document, o.source, documents[o.document].text(o.source, o.start, o.end).decode())
        for o in given
    ]


def test_every_occurrence_is_found_once_wherever_passages_begin(library):
    drawn = random.Random(5)
    words = ["the", "old", "map", "of", "Mirrel", "maps", "é", "x", "the old map of Mirrel"]
    text = " ".join(drawn.choice(words) for _ in range(3000))
    document = write_texts(library, text)
    for wanted in ["old map", "map of mirrel", "the old map of Mirrel", "maps", "the the", "é é x"]:
        expected = re.findall(rf"(?<!\w)(?={wanted}(?!\w))", text, re.IGNORECASE)
        for indexed in (True, False):
            found = found_in([document], wanted, indexed)
            assert {text.lower() for _, _, text in found} == {wanted.lower()}
            # "the" is not counted: then the first of what overlaps is given.
            assert len(found) == len(expected) or wanted in ("the the", "é é x")
    assert found_in([document], "map of the sea") == []


def test_those_in_the_best_passages_come_first(library):
    far = " ".join(["word"] * 1500)
    document = write_texts(library, f"old map {far} old map, old map {far} Old  Map map old old")
    texts = [text for _, _, text in found_in([document], "old map")]
    assert texts == ["Old  Map", "old map", "old map", "old map"]


def test_a_string_without_words_is_found_in_the_order_of_the_text(library, monkeypatch):
    documents = [
        write_texts(library, "in C++ and c++", "C+ or", name="a"),
        write_texts(library, "C++", name="b"),
    ]
    assert found_in(documents, "C++") == [(0, 0, "C++"), (0, 0, "c++"), (1, 0, "C++")]
    monkeypatch.setattr(exact, "MOST_SCANNED", 2)
    assert found_in(documents, "C++") == [(0, 0, "C++"), (0, 0, "c++")]


LONG = "the old map of Mirrel shows where an island was charted"


def test_only_passages_before_all_words_of_a_long_string_are_read(library, monkeypatch):
    looked: list[int] = []
    within = exact._within
    monkeypatch.setattr(exact, "_within", lambda *given: looked.append(given[0]) or within(*given))
    beginnings = ["the old map of Mirrel shows where no island was"] * 9
    documents = [write_texts(library, text, name=f"d{n}") for n, text in enumerate(beginnings)]
    documents += [write_texts(library, f"old {LONG}", name="last")]
    assert found_in(documents, LONG) == [(9, 0, LONG)]
    assert len(looked) == 1
    assert found_in(documents[:9], LONG) == []
    assert len(looked) == 1


@pytest.mark.parametrize("encoding", ["utf-8", "cp1252", "utf-16-le"])
@pytest.mark.parametrize("spaces", [1, 500])
def test_a_long_string_may_have_much_white_space(library, monkeypatch, encoding, spaces):
    monkeypatch.setattr(exact, "_FEW", -1)  # all its words are looked for
    wanted = "the old €€€€ map of Mirrel shows where €€€€ island charted"
    text = f"{'a word ' * 100}{wanted.replace('island', ' ' * spaces + 'island')} {'word ' * 100}"
    document = bytes_text(library, text.encode(encoding), len(" ".encode(encoding)), encoding)
    index, string = PassageIndex(document), ExactString(wanted)
    given = [
        [*occurrences([document], by_words(index, wanted), some, string)] for some in (index, None)
    ]
    assert given[0] == given[1]
    assert len(given[0]) == 1


@pytest.mark.parametrize("wanted", ["".join(map(chr, range(0x4E00, 0x4E1E))), "=" * 150 + " sum"])
def test_the_beginning_may_be_of_many_tokens(library, wanted):
    text = f".{'word ' * 30}".join([wanted] * 8)  # begins at many places of a passage
    document = bytes_text(library, text.encode(), 1)
    assert found_in([document], wanted) == [(0, 0, wanted)] * 8


CASES = [
    ("a mission of masses", "a miſſion of maſſes"),
    ("the miſſal", "THE MISSAL"),
    ("ISTANBUL", "İstanbul"),
    ("to ırmak", "to irmak"),
    ("diyarbakir", "DİYARBAKIR"),
    ("İrlandalılar", "ırlandalilar"),
    ("5 \u00b5mol", "5 \u03bcmol"),
    ("6 \u03bcmol", "6 \u00b5mol"),
    ("οδοσ", "ΟΔΟΣ"),
    ("ὁ λόγοσ ἦν", "ὁ λόγος ἦν"),
    ("\ufb05ump", "\ufb06ump"),
    ("of STRASSE", "of Straße"),
    ("naïve file", "nai\u0308ve \ufb01le"),
    ("full width", "ＦＵＬＬ　ｗｉｄｔｈ"),
    ("soft hyphen", "so\u00adft hyph\u00aden"),
    ("ガギ at", "ｶﾞｷﾞ at"),
    ("TEL no", "℡ no"),
    ("maxPoolSize", "MAXPOOLSIZE"),
]


@pytest.mark.parametrize(("before", "behind"), [("", f" {LONG}"), (f"{LONG} and also ", "")])
def test_letters_that_differ_in_case_alone_are_the_same(library, monkeypatch, before, behind):
    monkeypatch.setattr(exact, "_FEW", -1)  # all its words are looked for
    texts = [f"{before}{has}{behind}" for _, has in CASES]
    document = write_texts(library, *(f"{'word ' * 100}{text}{' word' * 100}" for text in texts))
    for number, (wanted, _) in enumerate(CASES):
        for indexed in (True, False):
            found = found_in([document], f"{before}{wanted}{behind}", indexed)
            assert found == [(0, number, texts[number])]


SAME = [
    ("s", "sSſ"),
    ("k", "kK\u212a"),
    ("i", "iIİı"),
    ("σ", "σςΣ"),
    ("é", "é é É É"),
    ("ss", "ß ẞ SS"),
]


def test_a_string_is_found_in_any_case_and_form_and_within_no_longer_word(library, monkeypatch):
    """Words drawn letter by letter, in documents of two languages, with and without the index."""
    monkeypatch.setattr(exact, "_FEW", -1)  # all its words are looked for
    drawn = random.Random(3)
    forms = {plain: some.split() if " " in some else [*some] for plain, some in SAME}
    endings = ["", "s", "ing", "ization", "edly", "ungen", "heiten"]
    strings, texts = [], []
    for _ in range(60):
        letters = drawn.choices([*forms, *"abelmnty7_"], k=drawn.randint(3, 8))
        letters += drawn.choice(endings)
        strings.append("".join(letters))
        texts.append(
            "".join(drawn.choice(forms.get(each, [each, each.upper()])) for each in letters)
        )
    filler = {"en": "what was on the other side of it ", "de": "was auf der anderen Seite war "}
    documents = [
        write_texts(library, *(f"{some * 9}{each}. {some * 9}" for each in texts), name=language)
        for language, some in filler.items()
    ]
    assert [document.manifest.language for document in documents] == [*filler]
    for string, text in zip(strings, texts, strict=True):
        for indexed in (True, False):
            found = {found for _, _, found in found_in(documents, string, indexed)}
            assert text in found, (string, text)
            assert {folded(each) for each in found} == {folded(string)}


@pytest.mark.parametrize("indexed", [True, False])
@pytest.mark.parametrize("spaces", [20, 40, 70, 130, 900])
def test_the_first_words_may_have_much_white_space(library, spaces, indexed):
    wanted, gap = "old map of Mirrel", " " * spaces
    texts = [f"old{gap}map of Mirrel", f"old map{gap}of Mirrel", f"old{gap}map of{gap}Mirrel"]
    if spaces > 500:  # more than an occurrence may have
        texts.pop()
    text = "".join(f"{'a word ' * n}{each}{' word' * 40}. " for n in (24, 35, 57) for each in texts)
    document = bytes_text(library, text.encode(), 1)
    assert len(found_in([document], wanted, indexed)) == 3 * len(texts)


def test_white_space_does_not_widen_the_search_of_other_texts(library, monkeypatch):
    monkeypatch.setattr(exact, "_FEW", -1)  # all its words are looked for
    looked: list[int] = []
    within = exact._within
    monkeypatch.setattr(exact, "_within", lambda *given: looked.append(given[0]) or within(*given))
    document = write_texts(library, f"old {'other words of some prose ' * 120} map", "old    map")
    assert found_in([document], "old map") == [(0, 1, "old    map")]
    assert len(looked) == 1


@pytest.mark.parametrize("piece", [5, 16, 100])
def test_what_goes_over_parts_that_are_read_is_found_once(library, monkeypatch, piece):
    monkeypatch.setattr(exact, "_PIECE", piece)
    text = "é is it é is  it, is it and is\n\nit"
    document = write_texts(library, text)
    assert [t for _, _, t in found_in([document], "is it")] == [
        "is it",
        "is  it",
        "is it",
        "is\n\nit",
    ]


@pytest.mark.parametrize("encoding", ["utf-16-le", "gb18030"])
def test_other_encodings(library, encoding):
    text = " ".join(["слово"] * 200 + ["старая карта", "的看守人"] + ["слово"] * 200)
    document = write_texts(library, text, encoding=encoding)
    index = PassageIndex(document)
    for wanted in ("Старая карта", "看守人"):
        string = ExactString(wanted)
        (found,) = occurrences([document], by_words(index, wanted), index, string)
        own = document.text(0, found.start, found.end).decode(encoding)
        assert own.lower() == wanted.lower()


def test_passages_and_their_bytes(library):
    documents = [
        write_texts(library, " ".join(["abc"] * 300), "w", "x y", name="a"),
        write_texts(library, "z", name="b"),
    ]
    passages = PassageIndex(*documents).passages
    assert passages.starts.tolist() == [0, 511, 0, 0, 0]
    assert bytes_of(documents, passages, 0, 0) == (0, 511)
    assert bytes_of(documents, passages, 0, 1) == (0, 1199)
    assert bytes_of(documents, passages, 1, 1) == (511, 1199)
    assert bytes_of(documents, passages, 3, 3) == (0, 3)
    assert bytes_of(documents, passages, 4, 4) == (0, 1)
