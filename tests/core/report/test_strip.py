"""The strip over documents: which bins show which passages, and how scores become 0 to 1."""

from itertools import pairwise

import numpy as np
import pytest
from small_passages import small_passages
from word_documents import write_texts

from longctx.core.common.errors import UsageError
from longctx.core.report.strip import outline, strip
from longctx.core.retrieve.lexical import PassageIndex
from longctx.core.retrieve.ranked import Ranked, by_words
from longctx.core.store.library import Library

FILLER = "Of this there is nothing to say, and it was said at length. " * 40
STORY = f"{FILLER}{FILLER}\nThe keeper hid the old map.\n{FILLER}{FILLER}{FILLER}"


@pytest.fixture
def library(tmp_path):
    return Library.open(tmp_path / "library", create=True)


def ranked_by(documents, scores) -> Ranked:
    """A ranking with scores that are given, by nothing."""
    passages = PassageIndex(*documents).passages
    return Ranked(passages, np.array(scores, np.float64), None, None)


def bins_by_loops(documents, ranked: Ranked, relative, count: int) -> list[float | None]:
    """The definition, passage by passage and byte by byte."""
    sources = [s.size for document in documents for s in document.manifest.sources]
    best: list[float | None] = [None] * sum(sources)
    passages = ranked.passages
    for number, score in enumerate(relative):
        document, source = int(passages.documents[number]), int(passages.sources[number])
        before = sum(d.manifest.sources[0].size for d in documents[:document])
        start = int(passages.starts[number])
        end = documents[document].manifest.sources[source].size
        if number + 1 < len(passages) and passages.documents[number + 1] == document:
            end = int(passages.starts[number + 1])
        for byte in range(before + start, before + end):
            best[byte] = max(score, best[byte] or 0.0)
    found: list[float | None] = [None] * count
    for byte, score in enumerate(best):
        at = byte * count // sum(sources)
        if score is not None:
            found[at] = max(score, found[at] or 0.0)
    return found


def test_the_highest_bin_is_where_the_words_are(library):
    document = write_texts(library, STORY)
    ranked = by_words(PassageIndex(document), "Where did the keeper hide the map?")
    found = strip(ranked, [document], 50)
    assert len(found.bins) == 50
    place = STORY.index("keeper") * 50 // len(STORY)
    assert found.bins[place] == 1
    assert max(found.bins[0], found.bins[-1]) < 0.5  # neighbours of neighbours
    assert found.total == len(STORY)


@pytest.mark.parametrize("count", [1, 7, 40, 1000])
def test_every_bin_has_the_best_passage_in_it(library, monkeypatch, count):
    small_passages(monkeypatch, 5)
    texts = [f"{number} " * 31 + "über alles " * 9 for number in (1, 22, 333)]
    documents = [write_texts(library, text, name=f"d{n}") for n, text in enumerate(texts)]
    count_of = len(PassageIndex(*documents).passages)
    scores = np.random.default_rng(0).random(count_of)
    ranked = ranked_by(documents, scores)
    found = strip(ranked, documents, count)
    relative = np.clip((scores - np.median(scores)) / (scores.max() - np.median(scores)), 0, 1)
    expected = bins_by_loops(documents, ranked, relative.tolist(), min(count, found.total))
    assert [*found.bins] == pytest.approx(expected, abs=1e-4)


def test_what_could_not_be_chosen_has_no_score(library, monkeypatch):
    small_passages(monkeypatch, 5)
    document = write_texts(library, "one two three " * 40)
    number = len(PassageIndex(document).passages)
    scores = np.where(np.arange(number) < number // 2, -np.inf, np.arange(number))
    found = strip(ranked_by([document], scores), [document], 4)
    assert found.bins[0] is None
    assert found.bins[-1] == 1
    none = strip(ranked_by([document], np.full(number, -np.inf)), [document], 4)
    assert none.bins == (None,) * 4


def test_a_single_passage_shows_whether_a_word_is_in_it(library):
    document = write_texts(library, "The keeper hid the map.")
    index = PassageIndex(document)
    assert {*strip(by_words(index, "map"), [document], 5).bins} == {1}
    assert {*strip(by_words(index, "boat"), [document], 5).bins} == {0}


def test_one_good_passage_among_many_alike_is_the_only_one(library):
    document = write_texts(library, FILLER * 4)
    number = len(PassageIndex(document).passages)
    best = strip(ranked_by([document], np.arange(number) == 3), [document], 200).bins
    assert max(best) == 1
    assert best.count(0) > 150
    worst = strip(ranked_by([document], np.arange(number) != 3), [document], 200).bins
    assert {*worst} == {0, 1} or {*worst} == {1}


def test_sources_are_told_with_their_bytes(library):
    first = write_texts(library, "one two", "", "three four", name="first")
    second = write_texts(library, "five", name="second")
    ranked = by_words(PassageIndex(first, second), "three")
    found = strip(ranked, [first, second]).as_dict()
    total = sum(source.size for d in (first, second) for source in d.manifest.sources)
    assert found["total"] == total == len(found["bins"])  # never more bins than bytes
    assert outline([first, second]).as_dict() == {**found, "bins": []}
    names = [(part["document"], part["source"], part["name"]) for part in found["sources"]]
    expected = [
        (d.manifest.name, number, source.name)
        for d in (first, second)
        for number, source in enumerate(d.manifest.sources)
    ]
    assert names == expected
    ends = [(part["from"], part["to"]) for part in found["sources"]]
    assert ends[0][0] == 0
    assert all(a[1] == b[0] for a, b in pairwise(ends))


def test_nothing_has_no_bins(library):
    document = write_texts(library, "")
    found = strip(by_words(PassageIndex(document), "map"), [document])
    assert (found.bins, found.total) == ((), 0)


@pytest.mark.parametrize("count", [0, -1, 2001])
def test_a_number_of_bins_that_makes_no_picture_is_refused(library, count):
    document = write_texts(library, "one")
    with pytest.raises(UsageError, match="1 to 2,000 bins"):
        strip(by_words(PassageIndex(document), "one"), [document], count)
