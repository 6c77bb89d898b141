"""The tables of a word index: what is in them, that each can be made alone, and damage."""

import os
from collections import Counter
from itertools import pairwise

import cutting_transcription as transcription
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from small_documents import flip
from small_passages import small_passages
from small_words import put_words, store_words
from word_documents import bytes_text, tokens_text, write_texts

from longctx.core.common.errors import StateMismatch
from longctx.core.passages import cutting
from longctx.core.retrieve import lexical, word_tables
from longctx.core.retrieve.word_tables import count_tables, read_table
from longctx.core.store.confined import Confined
from longctx.core.store.document import Document
from longctx.core.store.library import Library
from longctx.core.store.word_files import unchanged_tables
from longctx.core.tokens.terms import terms

TYPES = {
    "terms": "uint8",
    "heads": "int32",
    "passages": "int32",
    "counts": "uint8",
    "lengths": "int32",
    "sources": "int32",
    "tokens": "int64",
    "bytes": "int64",
}
ENCODINGS = ("utf-8", "utf-16-le", "utf-32-be", "gb18030", "cp932")
TEXT = "The boats, боты 灯塔 and keepers; 𐐀bc watched boat after boat — " * 9
PIECES = [
    *("word ", "Boats came. ", "灯塔。", "船が来た。", "\n", "\n\n", "# Map\n", "  ", "a,b,1\n"),
    *("def f():\n", "x" * 40, "y1=2;" * 20, "Mr. No! ", "、", "\r\n", "1. "),
]


@pytest.fixture
def library(tmp_path, monkeypatch) -> Library:
    monkeypatch.setattr(os, "fsync", lambda handle: None)
    return Library.open(tmp_path / "library", create=True)


@pytest.fixture
def small(monkeypatch) -> None:
    """Passages of 4 tokens, and tables of 16."""
    small_passages(monkeypatch, 4, 16)


def counted(tables: list) -> list[Counter]:
    """The stems of each passage, and that every number fits the others."""
    found = []
    for table in tables:
        assert {name: tensor.dtype.name for name, tensor in table.items()} == TYPES
        terms = bytes(table["terms"]).decode().split("\n")[:-1]
        assert terms == sorted(set(terms), key=str.encode)
        passages = [Counter() for _ in table["sources"]]
        for term, (low, high) in zip(terms, pairwise(table["heads"].tolist()), strict=True):
            posted = table["passages"][low:high].tolist()
            assert posted == sorted(set(posted)) != []
            for passage, count in zip(posted, table["counts"][low:high].tolist(), strict=True):
                passages[passage][term] = count
        assert [sum(passage.values()) for passage in passages] == table["lengths"].tolist()
        found += passages
    return found


def begun(data: bytes, encoding: str, starts: list[int], language: str) -> list[Counter]:
    """The stems of the words that begin in each passage's bytes."""
    text = data.decode(encoding)
    passages = [Counter() for _ in starts]
    places = [0]
    for character in text:
        places.append(places[-1] + len(character.encode(encoding)))
    word = (0, 0)  # the longest one so far, whose parts count where it begins
    for start, end, stem in terms(text, language):
        word = word if end <= word[1] else (start, end)
        passages[np.searchsorted(starts, places[word[0]], side="right") - 1][stem] += 1
    return passages


def require_transcribed(document: Document, tables: list, file: int, shift: int) -> None:
    """Passages are those of the transcription: of all tokens, once, of one source each."""
    own = [[*zip(t["sources"].tolist(), t["tokens"].tolist(), strict=True)] for t in tables]
    assert own == transcription.tables(document, file, shift, cutting.SIZES)
    sources = document.manifest.sources
    every = [token for table in own for _, token in table]
    assert every == sorted(set(every))
    assert {source.first_token for source in sources if source.tokens} <= set(every)
    assert max(np.diff([*every, document.manifest.tokens])) <= cutting.SIZES.whole
    for source, token in (each for table in own for each in table):
        assert 0 <= token - sources[source].first_token < sources[source].tokens


@given(
    st.lists(st.lists(st.sampled_from(PIECES), max_size=30).map("".join), min_size=1, max_size=3),
    st.sampled_from(ENCODINGS),
    st.integers(1, 6),
    st.sampled_from([(32, 8), (33, 16), (64, 5)]),
    st.integers(0, 200),
)
@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_passages_and_words_are_those_of_the_transcription(
    library, texts, encoding, size, run, same
):
    """Also those of a table alone; and of a longer text the tables that its index keeps."""
    file, shift = run
    with pytest.MonkeyPatch.context() as patch:
        small_passages(patch, 8, file, shift)
        document = encoded(library, texts, encoding, size)
        tables = list(word_tables.word_tables(document))
        assert len(tables) == count_tables(document.manifest)
        if document.manifest.tokens:
            require_transcribed(document, tables, file, shift)
        found, language = counted(tables), document.manifest.language
        for number, text in enumerate(texts):
            own = [t["bytes"][t["sources"] == number] for t in tables]
            words = [found.pop(0) for _ in range(sum(map(len, own)))]
            starts = np.concatenate([np.empty(0, int), *own]).tolist()
            assert words == (
                begun(text.encode(encoding), encoding, starts, language) if text else []
            )
        for number, table in enumerate(tables):
            alone = next(word_tables.word_tables(document, number))
            assert all(np.array_equal(alone[name], table[name]) for name in TYPES)
        tokens = min(same, document.manifest.tokens)
        kept = len(unchanged_tables(document, tokens))
        other = encoded(
            library, [*texts[:-1], shared(texts, size, tokens) + "12. x"], encoding, size
        )
        others = list(word_tables.word_tables(other))
        for number in range(kept):
            assert all(np.array_equal(others[number][name], tables[number][name]) for name in TYPES)


def encoded(library: Library, texts: list[str], encoding: str, size: int) -> Document:
    """A document with a token for every `size` characters, or two for each if `size` is 6."""
    made = []
    for text in texts:
        places = [0]
        for character in text:
            places.append(places[-1] + len(character.encode(encoding)))
        starts = places[:-1:size] if size < 6 else sorted([*places[:-1], *places[:-1]])
        made.append((text.encode(encoding), starts))
    return tokens_text(library, *made, encoding=encoding, words=word_tables.word_tables)


def shared(texts: list[str], size: int, tokens: int) -> str:
    """The text of the first tokens of a document, as far as it is of the last source."""
    each = [-(-len(text) // size) if size < 6 else 2 * len(text) for text in texts]
    rest = max(0, tokens - sum(each[:-1]))
    return texts[-1][: rest * size if size < 6 else rest // 2]


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("size", [1, 2, 3, 5, 11])
def test_a_word_is_of_the_passage_in_whose_bytes_it_begins(library, size):
    """Also where a passage's end cuts the word, or a character of it."""
    data = TEXT.encode()
    document = bytes_text(library, data, size)
    tables = list(word_tables.word_tables(document))
    starts = np.concatenate([table["bytes"] for table in tables]).tolist()
    assert len(tables) == -(-len(data) // (16 * size))
    assert counted(tables) == begun(data, "utf-8", starts, document.manifest.language)
    require_transcribed(document, tables, 16, 8)


@pytest.mark.usefixtures("small")
def test_passages_are_those_of_the_sources(library):
    texts = ["one two three four five six", "", "six", "seven eight " * 20]
    document = write_texts(library, *texts)
    tables = list(word_tables.word_tables(document))
    assert len(tables) == count_tables(document.manifest) == 3
    require_transcribed(document, tables, 16, 8)
    assert counted(tables)[:3] == [
        {"one": 1, "two": 1, "three": 1, "four": 1, "five": 1, "six": 1},
        {},
        {"six": 1},
    ]


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("data", [b"ab7" * 900, b"x" * 100 + b" " + b"y" * 3000])
@pytest.mark.parametrize("size", [1, 7])
def test_each_table_of_letters_without_a_break_can_be_made_alone(library, data, size):
    document = bytes_text(library, data, size)
    tables = list(word_tables.word_tables(document))
    assert len(tables) > 5
    for number, table in enumerate(tables):
        alone = next(word_tables.word_tables(document, number))
        assert all(np.array_equal(alone[name], table[name]) for name in TYPES)
    assert not list(word_tables.word_tables(document, len(tables)))


def test_a_text_of_many_tokens_without_an_end_of_a_line(library):
    """At the usual sizes; where the next run begins, cutting starts again 256 tokens later."""
    document = bytes_text(library, b"word " * 40_000, 1)
    tables = list(word_tables.word_tables(document))
    assert all(500 < len(table["tokens"]) < 540 for table in tables[:3])
    first = [int(table["tokens"][0]) for table in tables]
    assert first == [0, *(number * 65_536 + 256 for number in range(1, len(tables)))]
    every = np.concatenate([table["tokens"] for table in tables])
    assert 64 < np.diff(every).min() <= np.diff(every).max() <= 256
    data = b"word " * 13_107 + b"end. And " + b"word " * 3000
    tables = list(word_tables.word_tables(bytes_text(library, data, 1)))
    assert tables[1]["tokens"][0] == data.index(b" And") == 65_539


def test_letters_without_a_break_are_words_of_the_longest(library, monkeypatch):
    """Those of a run that began long before a table are counted from where it was looked for."""
    small_passages(monkeypatch, 4, 64)
    monkeypatch.setattr(word_tables, "_BACK", 8)
    read = []
    document = bytes_text(library, b"7" * 30_000, 10)
    text = document.text
    document.text = lambda *given: read.append(given[2] - given[1]) or text(*given)
    tables = list(word_tables.word_tables(document))
    most = 64 + 8 * 4 + 2 * word_tables._AROUND
    assert max(read) <= most * 10 + word_tables._AHEAD
    words = sum(int(table["lengths"].sum()) for table in tables)
    assert abs(words - 30_000 // 256) < len(tables)


def test_more_than_255_of_a_word_are_255(library):
    document = bytes_text(library, b"boat " * 300, 100)
    [table] = word_tables.word_tables(document)
    assert (table["counts"].tolist(), table["lengths"].tolist()) == ([255], [300])


def test_a_document_without_tokens_has_no_tables(library):
    document = write_texts(library)
    assert list(word_tables.word_tables(document)) == []
    assert count_tables(document.manifest) == 0


# --- what is stored ---


@pytest.fixture
def folder(library, small) -> "os.PathLike":
    """A document with two sources and four tables."""
    return write_texts(library, TEXT, "one " * 9).folder


def read(folder, number: int):
    return read_table(Document(folder), number)


def test_what_is_stored_is_what_was_made(folder):
    files = store_words(folder)
    document = Document(folder)
    assert document.word_files == len(files) > 3
    for number, table in enumerate(word_tables.word_tables(document)):
        stored = read(folder, number)
        assert stored.keys() == TYPES.keys()
        assert all(np.array_equal(stored[name], table[name]) for name in TYPES)
        assert {name: tensor.dtype.name for name, tensor in stored.items()} == TYPES
    with pytest.raises(StateMismatch, match="no file"):
        read(folder, len(files))


def setting(name: str, place, value):
    def change(table: dict) -> None:
        table[name] = table[name].copy()
        table[name][place] = value

    return change


def replaced(name: str, make):
    return lambda table: table.update({name: make(table[name])})


DAMAGE = {
    "terms-float": replaced("terms", lambda x: x.astype(np.float32)),
    "heads-long": replaced("heads", lambda x: x.astype(np.int64)),
    "passages-wider": replaced("passages", lambda x: x[:, None]),
    "no-lengths": lambda table: table.pop("lengths"),
    "another": lambda table: table.update(more=np.zeros(3, np.int32)),
    "no-utf-8": setting("terms", 0, 0xFF),
    "no-last-newline": setting("terms", -1, ord("x")),
    "no-terms": replaced("terms", lambda x: x[:0]),
    "no-heads": replaced("heads", lambda x: x[:0]),
    "a-newline-more": setting("terms", 0, ord("\n")),
    "heads-fall": setting("heads", 2, 0x7FFFFFFF),
    "heads-below": setting("heads", 1, -5),
    "heads-begin-late": setting("heads", 0, 1),
    "heads-end-early": setting("heads", -1, 3),
    "heads-end-late": setting("heads", -1, 1 << 30),
    "passage-below": setting("passages", 0, -1),
    "passage-over": setting("passages", -1, 9),
    "passage-twice": setting("passages", slice(None), 0),
    "postings-short": replaced("passages", lambda x: x[:-1]),
    "counts-short": replaced("counts", lambda x: x[:-1]),
    "counts-none": setting("counts", 0, 0),
    "words-below": setting("lengths", 1, -1),
    "lengths-short": replaced("lengths", lambda x: x[:-1]),
    "another-source": setting("sources", 0, 1),
    "no-such-source": setting("sources", 0, 99),
    "another-token": setting("tokens", 0, 5),
    "tokens-short": replaced("tokens", lambda x: x[:-1]),
    "bytes-short": replaced("bytes", lambda x: x[:-1]),
    "bytes-below": setting("bytes", 0, -1),
    "bytes-over": setting("bytes", -1, 1 << 40),
    "bytes-fall": setting("bytes", 1, 0),
}


@pytest.mark.parametrize("change", DAMAGE.values(), ids=DAMAGE)
def test_a_table_that_cannot_be_is_damage(folder, change):
    """Its checksum fits: somebody wrote it so."""
    store_words(folder, change, number=1)
    assert read(folder, 0)
    with pytest.raises(StateMismatch):
        read(folder, 1)
    assert read(folder, 2)
    Document(folder).verify()


def test_tables_in_another_order_are_damage(folder):
    first, second, *others = word_tables.word_tables(Document(folder))
    put_words(folder, [second, first, *others])
    for number in (0, 1):
        with pytest.raises(StateMismatch, match="not of its tokens"):
            read(folder, number)
    assert read(folder, 2)


@pytest.mark.parametrize("harm", ["missing", "cut", "longer", "flipped", "a-folder", "empty"])
def test_a_file_that_is_not_what_was_written_counts_as_absent(folder, harm):
    path = Confined.of(folder).path / store_words(folder)[1].file
    if harm in ("missing", "a-folder"):
        path.unlink()
    if harm == "a-folder":
        path.mkdir()
    if harm in ("cut", "longer", "empty"):
        size = path.stat().st_size
        os.truncate(path, {"cut": size - 1, "longer": size + 1, "empty": 0}[harm])
    if harm == "flipped":
        flip(path, -1)
    document = Document(folder)
    document.verify()
    assert document.checked_bytes > 0
    with pytest.raises(StateMismatch, match="words-00001"):
        read(folder, 1)
    assert read(folder, 0)


def scores_of(index: lexical.PassageIndex, words: str) -> np.ndarray:
    return index.scores_in(words, index.passages.alone())


@given(data=st.data())
@settings(max_examples=150, deadline=None)
def test_numbers_by_chance_are_damage_or_give_scores(stored_once, data):
    """Whatever stands in a table whose checksum fits: no crash, and no place outside the text."""
    document, tables, usual = stored_once
    table = {name: tensor.copy() for name, tensor in tables[1].items()}
    name = data.draw(st.sampled_from([*TYPES]))
    if len(table[name]) and data.draw(st.booleans()):
        place = data.draw(st.integers(0, len(table[name]) - 1))
        kind = np.iinfo(table[name].dtype)
        near = st.integers(max(kind.min, -3), min(kind.max, 70))
        table[name][place] = data.draw(st.one_of(near, st.integers(kind.min, kind.max)))
    else:
        table[name] = table[name][: data.draw(st.integers(0, len(table[name])))]
    document.words = lambda number: table if number == 1 else tables[number]
    index = lexical.PassageIndex(document)
    scores = {word: scores_of(index, word) for word in ("boats", "кит боты", "watched 灯")}
    passages = index.passages
    assert all(np.isfinite(found).all() for found in scores.values())
    assert (passages.starts >= 0).all()
    assert (passages.starts <= document.manifest.sources[0].size).all()
    if index.damaged:
        assert all(np.array_equal(found, usual[word]) for word, found in scores.items())


@pytest.fixture(scope="module")
def stored_once(tmp_path_factory):
    """A document of four tables, these, and what its words score."""
    with pytest.MonkeyPatch.context() as patch:
        small_passages(patch, 4, 16)
        library = Library.open(tmp_path_factory.mktemp("stored") / "library", create=True)
        folder = write_texts(library, TEXT).folder
        store_words(folder)
        document = Document(folder)
        tables = [document.words(number) for number in range(document.word_files)]
        index = lexical.PassageIndex(document)
        usual = {word: scores_of(index, word) for word in ("boats", "кит боты", "watched 灯")}
        assert usual["boats"].any()
        yield document, tables, usual
