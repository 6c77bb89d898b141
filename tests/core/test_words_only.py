"""The best windows by words, and that finding them needs no model library."""

import subprocess
import sys

import pytest
from small_words import store_words
from word_documents import write_texts

from longctx.core import unit_table
from longctx.core.lexical import PassageIndex
from longctx.core.store.library import Library
from longctx.core.words_only import Hit, best_windows

LINES = [f"line {i} the keeper wrote\nthat boat {i} came\n" for i in range(200)]
LINES[77] = "and zeppelins\n"
LINES[150] = "one zeppelin, two zeppelins\n"


@pytest.fixture
def library(tmp_path) -> Library:
    return Library.open(tmp_path / "library", create=True)


def search(documents: tuple, words: str, most: int = 10) -> list[Hit]:
    return best_windows(documents, PassageIndex(*documents), words, most)


def test_hits_are_windows_with_their_places(library, monkeypatch):
    monkeypatch.setattr(unit_table, "UNIT", 3)
    texts = (
        ["a b c d e f g h boat", "boat and boat"],
        ["one two three four boats six sev"],
    )
    documents = tuple(write_texts(library, *some, name=f"d{i}") for i, some in enumerate(texts))
    hits = search(documents, "the boat")
    scores = [hit.score for hit in hits]
    assert scores == sorted(scores, reverse=True)
    assert min(scores) > 0
    places = [(h.document, h.source, h.token, h.tokens, h.start, h.end) for h in hits]
    assert places[0] == (0, 1, 9, 3, 0, 13)
    assert set(places[1:]) == {(0, 0, 3, 6, 5, 20), (1, 0, 3, 4, 13, 32), (1, 0, 0, 3, 0, 13)}
    said = [documents[h.document].text(h.source, h.start, h.end).decode() for h in hits]
    whole = [" d e f g h boat", " four boats six sev", "boat and boat"]
    assert sorted(said) == [*whole, "one two three"]  # the last is what another has left


def test_of_windows_that_share_a_unit_the_better_one_is_given_whole(library, monkeypatch):
    monkeypatch.setattr(unit_table, "UNIT", 2)
    document = write_texts(library, "aa bb rain boat boat boat gg hh ii jj kk boat")
    hits = search((document,), "boat")
    found = [(hit.token, hit.tokens) for hit in hits]
    assert (found[0], found[2:]) == ((2, 4), [(0, 2), (8, 4)])
    assert found[1] == (6, 2)  # of the window with two boats, one more than the last
    assert search((document,), "boat", 1) == hits[:1]
    assert search((document,), "boat", 0) == []


def test_tokens_come_in_the_order_of_their_scores(library):
    document = write_texts(library, "".join(LINES), "boats " * 300, "keeper")
    index = PassageIndex(document)
    words = "the keeper and boat 13, 57 or 170"
    scores = index.scores(words).pooled
    hits = best_windows((document,), index, words, 1000)
    tokens = [token for hit in hits for token in range(hit.token, hit.token + hit.tokens)]
    assert sorted(tokens) == scores.nonzero()[:, 0].tolist()
    told = [float(scores[token]) for token in tokens]
    assert told == sorted(told, reverse=True)
    assert all(scores[hit.token] == hit.score for hit in hits)


def test_equal_windows_come_in_order(library):
    document = write_texts(library, *["some boat"] * 5, *["rain"] * 9)
    assert [hit.source for hit in search((document,), "boat", 3)] == [0, 1, 2]


@pytest.mark.parametrize("words", ["whale", "the", "?", "", "x", "кит", "鯨"])
def test_without_a_word_in_common_nothing_is_found(library, words):
    assert search((write_texts(library, *LINES[:9]),), words) == []
    assert search((write_texts(library),), words) == []


ALONE = """
import sys
from pathlib import Path
from longctx.core.lexical import PassageIndex
from longctx.core.store.library import Library
from longctx.core.words_only import best_windows

document = Library.open(Path(sys.argv[1])).document("book")
index = PassageIndex(document)
first, second = best_windows((document,), index, "the Zeppelin", 2)
text = document.text(first.source, first.start, first.end)
within = text.index(b"zeppelin")
print(document.place(first.source, first.start + within), document.span(0, 2))
print(index.damaged, index.word_weights("zeppelin"), index.stems("Zeppelins"))
print(sorted({"torch", "transformers", "tokenizers", "safetensors.torch"} & sys.modules.keys()))
"""


@pytest.mark.parametrize("stored", [True, False])
def test_a_search_by_words_imports_no_model_libraries(library, stored):
    document = write_texts(library, "".join(LINES))
    if stored:
        store_words(document.folder)
    command = [sys.executable, "-c", ALONE, str(library.path)]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    assert told[0] == "300 (0, 0, 6)"
    assert told[1].startswith("[] {'zeppelin': ")
    assert told[1].endswith("[(0, 9, 'zeppelin')]")
    assert told[2] == "[]"
