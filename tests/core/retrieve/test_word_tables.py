"""The tables of a word index: what is in them, that each can be made alone, and damage."""

import os
from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_documents import flip
from small_words import put_words, store_words
from word_documents import bytes_text, write_texts

from longctx.core.common.errors import StateMismatch
from longctx.core.retrieve import lexical, unit_table, word_tables
from longctx.core.retrieve.unit_table import Units
from longctx.core.retrieve.word_tables import count_tables, read_table
from longctx.core.store.confined import Confined
from longctx.core.store.document import Document
from longctx.core.store.library import Library
from longctx.core.tokens.stems import stems

TYPES = {
    "terms": "uint8",
    "heads": "int32",
    "units": "int32",
    "counts": "uint8",
    "lengths": "int32",
    "sources": "int32",
    "tokens": "int64",
    "bytes": "int64",
}
ENCODINGS = ("utf-8", "utf-16-le", "utf-32-be", "gb18030")
TEXT = "The boats, боты 灯塔 and keepers; 𐐀bc watched boat after boat — " * 9


@pytest.fixture
def library(tmp_path) -> Library:
    return Library.open(tmp_path / "library", create=True)


@pytest.fixture
def small(monkeypatch) -> None:
    """Units of 4 tokens, and tables of 16."""
    monkeypatch.setattr(unit_table, "UNIT", 4)
    monkeypatch.setattr(word_tables, "FILE_TOKENS", 16)


def counted(tables: list) -> list[Counter]:
    """The stems of each unit, and that every number fits the others."""
    found = []
    for table in tables:
        assert {name: tensor.dtype.name for name, tensor in table.items()} == TYPES
        terms = bytes(table["terms"]).decode().split("\n")[:-1]
        assert terms == sorted(set(terms), key=str.encode)
        units = [Counter() for _ in table["sources"]]
        for term, (low, high) in zip(terms, pairwise(table["heads"].tolist()), strict=True):
            posted = table["units"][low:high].tolist()
            assert posted == sorted(set(posted)) != []
            for unit, count in zip(posted, table["counts"][low:high].tolist(), strict=True):
                units[unit][term] = count
        assert [sum(unit.values()) for unit in units] == table["lengths"].tolist()
        found += units
    return found


def begun(data: bytes, encoding: str, starts: list[int]) -> list[Counter]:
    """The stems of the words that begin in each unit's bytes."""
    text = data.decode(encoding)
    units = [Counter() for _ in starts]
    for start, _, stem in stems(text):
        byte = len(text[:start].encode(encoding))
        units[np.searchsorted(starts, byte, side="right") - 1][stem] += 1
    return units


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("size", [1, 2, 3, 5, 11])
def test_a_word_is_of_the_unit_in_whose_bytes_it_begins(library, encoding, size):
    """Also where a unit's end cuts the word, or a character of it."""
    size *= 4 if encoding == "utf-32-be" else 2 if encoding == "utf-16-le" else 1
    if encoding == "gb18030":
        size = 9999  # a character's bytes may look like others there: cut nowhere
    data = TEXT.encode(encoding)
    document = bytes_text(library, data, size, encoding)
    tables = list(word_tables.word_tables(document))
    starts = np.concatenate([table["bytes"] for table in tables]).tolist()
    assert starts == [*range(0, len(data), 4 * size)]
    assert len(tables) == -(-len(data) // (16 * size))
    assert counted(tables) == begun(data, encoding, starts)


@pytest.mark.usefixtures("small")
def test_units_are_those_of_the_sources(library):
    texts = ["one two three four five", "", "six", "seven eight " * 20]
    document = write_texts(library, *texts)
    tables = list(word_tables.word_tables(document))
    units = Units.of(document.manifest)
    assert len(tables) == count_tables(units) == 3
    for key in ("sources", "tokens"):
        joined = np.concatenate([table[key] for table in tables])
        assert np.array_equal(joined, getattr(units, key))
    assert counted(tables)[:3] == [{"one": 1, "two": 1, "three": 1, "four": 1}, {"five": 1}, {}]
    for number, table in enumerate(tables):
        assert (table["tokens"] // 16 == number).all()


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("data", [TEXT.encode(), b"ab7" * 900, b"x" * 100 + b" " + b"y" * 3000])
@pytest.mark.parametrize("size", [1, 7])
def test_each_table_can_be_made_alone(library, data, size):
    document = bytes_text(library, data, size)
    tables = list(word_tables.word_tables(document))
    assert len(tables) > 5
    for number, table in enumerate(tables):
        alone = next(word_tables.word_tables(document, number))
        assert all(np.array_equal(alone[name], table[name]) for name in TYPES)
    assert not list(word_tables.word_tables(document, len(tables)))


@pytest.mark.usefixtures("small")
def test_tables_of_a_longer_document_begin_with_those_of_the_shorter(library):
    short = list(word_tables.word_tables(write_texts(library, TEXT)))
    longer = list(word_tables.word_tables(write_texts(library, TEXT + TEXT, TEXT)))
    for number, table in enumerate(short[:-1]):
        assert all(np.array_equal(longer[number][name], table[name]) for name in TYPES)


def test_letters_without_a_break_are_words_of_the_longest(library, monkeypatch):
    """Those of a run that began long before a table are counted from where it was looked for."""
    monkeypatch.setattr(unit_table, "UNIT", 4)
    monkeypatch.setattr(word_tables, "FILE_TOKENS", 64)
    monkeypatch.setattr(word_tables, "_BACK", 8)
    read = []
    document = bytes_text(library, b"7" * 30_000, 10)
    text = document.text
    document.text = lambda *given: read.append(given[2] - given[1]) or text(*given)
    tables = list(word_tables.word_tables(document))
    assert max(read) <= (64 + 8 * 4) * 10 + word_tables._AHEAD
    words = sum(int(table["lengths"].sum()) for table in tables)
    assert abs(words - 30_000 // 256) < len(tables)


def test_more_than_255_of_a_word_are_255(library):
    document = bytes_text(library, b"boat " * 300, 100)
    [table] = word_tables.word_tables(document)
    assert (table["counts"].tolist(), table["lengths"].tolist()) == ([255], [300])


def test_a_document_without_tokens_has_no_tables(library):
    document = write_texts(library)
    assert list(word_tables.word_tables(document)) == []
    assert count_tables(Units.of(document.manifest)) == 0


# --- what is stored ---


@pytest.fixture
def folder(library, small) -> "os.PathLike":
    """A document with two sources and four tables."""
    return write_texts(library, TEXT, "one " * 9).folder


def read(folder, number: int):
    document = Document(folder)
    return read_table(document, Units.of(document.manifest), number)


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
    "units-wider": replaced("units", lambda x: x[:, None]),
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
    "unit-below": setting("units", 0, -1),
    "unit-over": setting("units", -1, 4),
    "unit-twice": setting("units", slice(None), 0),
    "postings-short": replaced("units", lambda x: x[:-1]),
    "counts-short": replaced("counts", lambda x: x[:-1]),
    "counts-none": setting("counts", 0, 0),
    "words-below": setting("lengths", 1, -1),
    "lengths-short": replaced("lengths", lambda x: x[:-1]),
    "another-source": setting("sources", 0, 1),
    "no-such-source": setting("sources", 0, 99),
    "another-token": setting("tokens", 0, 5),
    "units-short": replaced("tokens", lambda x: x[:-1]),
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
        with pytest.raises(StateMismatch, match="units are not those"):
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
    scores = {word: index.window_scores(word) for word in ("boats", "кит боты", "watched 灯")}
    units = index.units
    assert all(np.isfinite(found).all() for found in scores.values())
    assert (units.starts >= 0).all()
    assert (units.starts <= document.manifest.sources[0].size).all()
    if index.damaged:
        assert all(np.array_equal(found, usual[word]) for word, found in scores.items())


@pytest.fixture(scope="module")
def stored_once(tmp_path_factory):
    """A document of four tables, these, and what its words score."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(unit_table, "UNIT", 4)
        patch.setattr(word_tables, "FILE_TOKENS", 16)
        library = Library.open(tmp_path_factory.mktemp("stored") / "library", create=True)
        folder = write_texts(library, TEXT).folder
        store_words(folder)
        document = Document(folder)
        tables = [document.words(number) for number in range(document.word_files)]
        index = lexical.PassageIndex(document)
        usual = {word: index.window_scores(word) for word in ("boats", "кит боты", "watched 灯")}
        assert usual["boats"].any()
        yield document, tables, usual
