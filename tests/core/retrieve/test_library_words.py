"""The word index of a library: it finds what `PassageIndex` finds in the documents opened."""

import json
import random
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest
from small_documents import flip
from word_documents import write_texts

from longctx.core.common.errors import StateMismatch
from longctx.core.retrieve import library_words
from longctx.core.retrieve.lexical import LATEST, PassageIndex
from longctx.core.retrieve.library_words import LibraryWords
from longctx.core.retrieve.passage_table import Passages
from longctx.core.retrieve.ranked import NEIGHBOURS
from longctx.core.store.library import Library
from longctx.core.store.locks import Locks

WORDS = [f"w{one}{two}" for one in "abcd" for two in "efgh"]
QUESTIONS = ["wae", "wbf wcg wbf", "wde seldom", "nothing here", "whh wah"]


@pytest.fixture
def library(tmp_path, monkeypatch) -> Library:
    monkeypatch.setattr("os.fsync", lambda handle: None)
    return Library.open(tmp_path / "library", create=True)


def put(library: Library, name: str, seed: int, sources: int = 1) -> None:
    chance = random.Random(seed)
    texts = [" ".join(chance.choices(WORDS, k=chance.randint(1, 300))) for _ in range(sources)]
    write_texts(library, *texts, name=name)


def require_same(library: Library, words: LibraryWords) -> None:
    """The index says what the documents say, whatever order it has them in."""
    documents = [library.document(facts.folder) for facts in words.documents]
    opened = PassageIndex(*documents)
    names = [field.name for field in fields(Passages)]
    for name in names:
        assert np.array_equal(getattr(words.passages, name), getattr(opened.passages, name)), name
    for question in QUESTIONS:
        for count in (0, NEIGHBOURS):
            ranges = opened.passages.around(count)
            scores = words.scores_in(question, ranges)
            assert np.array_equal(scores, opened.scores_in(question, ranges))
        assert words.word_weights(question) == opened.word_weights(question)
        assert words.shared(question) == opened.shared(question)


def scores_of(words: LibraryWords, question: str) -> np.ndarray:
    return words.scores_in(question, words.passages.alone())


def files_of(library: Library) -> list[str]:
    return sorted(path.name for path in (library.path / "index").glob("segment-*"))


def listed(library: Library) -> list[dict]:
    text = (library.path / "index" / "segments.json").read_text()
    return json.loads(text.partition("\n")[2])


@pytest.fixture
def read(monkeypatch) -> list[str]:
    """The folders of documents that are opened to be indexed."""
    seen: list[str] = []
    opened = Library.opened

    def recording(self, folder, *given):
        seen.append(folder)
        return opened(self, folder, *given)

    monkeypatch.setattr(Library, "opened", recording)
    return seen


def test_it_finds_what_is_found_in_the_documents(library, read):
    for number in range(5):
        put(library, f"d{number}", number, sources=1 + number % 3)
    require_same(library, LibraryWords(library, library.facts()))
    assert read == [f"d{number}" for number in range(5)]
    require_same(library, LibraryWords(library, library.facts()))
    assert len(read) == 5


def test_documents_come_change_and_go(library, read):
    chance = random.Random(0)
    for step in range(40):
        names = library.names()
        if names and chance.random() < 0.3:
            library.remove(chance.choice(names))
        else:
            put(library, f"d{chance.randrange(30)}", step)
        if facts := library.facts():
            read.clear()
            words = LibraryWords(library, facts)
            assert len(read) <= 1
            assert {each.folder for each in words.documents} == {each.folder for each in facts}
            require_same(library, words)
    covered = [document[0] for segment in listed(library) for document in segment["documents"]]
    assert len(covered) <= 2 * len(library.names())
    assert len(files_of(library)) == len(listed(library)) < 2 * library_words.ALIKE


def test_of_eight_segments_one_is_made(library):
    for number in range(library_words.ALIKE):
        put(library, f"d{number}", 1)  # of one size
        assert len(files_of(library)) == number
        LibraryWords(library, library.facts())
    assert len(files_of(library)) == 1
    require_same(library, LibraryWords(library, library.facts()))


def test_a_segment_is_no_larger_than_memory_allows(library, monkeypatch):
    for number in range(6):
        put(library, f"d{number}", number)
    monkeypatch.setattr(library_words, "MOST", 1)
    require_same(library, LibraryWords(library, library.facts()))
    assert len(files_of(library)) == 6


def test_what_is_kept_of_words_does_not_grow_with_the_questions(library):
    """A server asks the same words of a library for as long as it runs."""
    write_texts(library, " ".join(f"word{number}" for number in range(3 * LATEST)))
    words = LibraryWords(library, library.facts())
    for number in range(3 * LATEST):
        assert scores_of(words, f"word{number} nowhere{number}").max() > 0
    assert 0 < len(words._found) <= LATEST


def test_some_of_the_documents(library, read):
    for number in range(6):
        put(library, f"d{number}", number)
    LibraryWords(library, library.facts())
    some = library.facts()[1:6:2]
    words = LibraryWords(library, some)
    assert [facts.folder for facts in words.documents] == ["d1", "d3", "d5"]
    require_same(library, words)
    LibraryWords(library, library.facts()[:1])
    read.clear()
    require_same(library, LibraryWords(library, library.facts()))
    assert not read  # what is not searched stays in the index


@pytest.mark.parametrize("damage", ["list", "gone", "cut", "byte", "all bytes"])
def test_what_is_damaged_is_read_again(library, read, damage):
    for number in range(4):
        put(library, f"d{number}", number)
    LibraryWords(library, library.facts())
    index = library.path / "index"
    [segment] = index.glob("segment-*")
    if damage == "list":
        (index / "segments.json").write_text("longctx 1 x\n[]")
    elif damage == "gone":
        segment.unlink()
    elif damage == "cut":
        segment.write_bytes(segment.read_bytes()[:-1])
    else:
        for place in range(100 if damage == "byte" else 0, segment.stat().st_size, 997):
            flip(segment, place)
    read.clear()
    require_same(library, LibraryWords(library, library.facts()))
    assert read[:4] == ["d0", "d1", "d2", "d3"]
    read.clear()
    require_same(library, LibraryWords(library, library.facts()))
    require_same(library, LibraryWords(library, library.facts()))
    assert len(files_of(library)) == 1


def test_damage_that_is_met_while_searching(library, monkeypatch):
    for number in range(4):
        put(library, f"d{number}", number)
    LibraryWords(library, library.facts())
    library.remove("d1")
    words = LibraryWords(library, library.facts())
    expected = scores_of(words, "wae wbf")
    again = LibraryWords(library, library.facts())
    [live] = again._live
    monkeypatch.setattr(live.segment, "find", _damaged)
    assert np.array_equal(scores_of(again, "wae wbf"), expected)
    require_same(library, again)
    assert listed(library) == []
    require_same(library, LibraryWords(library, library.facts()))


def _damaged(stem: str):
    raise StateMismatch("it is damaged")


def test_a_document_that_cannot_be_read_is_left_out(library):
    for number in range(3):
        put(library, f"d{number}", number)
    facts = library.facts()
    for path in (library.path / "documents" / "d1").glob("text-*"):
        path.write_bytes(b"")
    left: list[str] = []
    words = LibraryWords(library, facts, False, lambda each, error: left.append(each.folder))
    assert left == ["d1"]
    assert [each.folder for each in words.documents] == ["d0", "d2"]
    require_same(library, words)


def test_while_another_process_changes_the_index_nothing_is_written(library):
    put(library, "d0", 0)
    with Locks(library.path).exclusive("index/words"):
        require_same(library, LibraryWords(library, library.facts()))
    assert not files_of(library)


def test_a_library_that_cannot_be_written(library, monkeypatch):
    put(library, "d0", 0)

    def fails(*given):
        raise OSError(30, "read-only")

    monkeypatch.setattr("longctx.core.store.segments.write_arrays", fails)
    require_same(library, LibraryWords(library, library.facts()))
    assert not files_of(library)


def test_a_file_that_no_list_names_is_deleted(library):
    put(library, "d0", 0)
    LibraryWords(library, library.facts())
    left = library.path / "index" / "segment-00077.safetensors"
    Path(left).write_bytes(b"of a killed process")
    put(library, "d1", 1)
    LibraryWords(library, library.facts())
    assert not left.exists()


def test_nothing_to_search(library):
    words = LibraryWords(library, [])
    assert not len(words.passages)
    assert scores_of(words, "wae").tolist() == []
