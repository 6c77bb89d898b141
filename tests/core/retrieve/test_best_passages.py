"""Passages of whole sentences, best first, within a number of tokens."""

from itertools import pairwise

import composing_transcription as transcription
import numpy as np
import pytest
from word_documents import write_texts

from longctx.core.passages.sentences import grown
from longctx.core.retrieve.best_passages import Measure, best_passages, gathered, token_scores
from longctx.core.retrieve.ranked import Ranked
from longctx.core.retrieve.unit_table import Units
from longctx.core.store.library import Library

LINE = "one two three four five six seven eight nine ten\n"  # a token for each word


@pytest.fixture
def library(tmp_path) -> Library:
    return Library.open(tmp_path / "library", create=True)


def ranked(documents, scores: dict[int, float]) -> Ranked:
    """Windows of which some score."""
    units = Units.of(*(document.manifest for document in documents))
    values = np.zeros(len(units.windows))
    for window, score in scores.items():
        values[window] = score
    return Ranked(units, units.windows, values, values, None)


def tokens_of(found: Ranked, documents, counts):
    """What is gathered at each count, as tokens."""
    scores = token_scores(found)
    passages = best_passages(found, documents, counts)
    return [gathered(scores, found, some).tokens for some in passages]


def spans(tokens) -> list[tuple[int, int]]:
    """Runs of tokens, [first, end)."""
    tokens = tokens.tolist()
    cuts = [i for i in range(1, len(tokens)) if tokens[i] != tokens[i - 1] + 1]
    bounds = [0, *cuts, len(tokens)]
    return [(tokens[a], tokens[b - 1] + 1) for a, b in pairwise(bounds)]


def test_the_best_windows_come_in_whole_lines(library):
    document = write_texts(library, LINE * 100)  # 1,000 tokens, 16 units, 15 windows
    found = ranked([document], {4: 2.0, 10: 1.0})
    (tokens,) = tokens_of(found, [document], [300])
    first, second = spans(tokens)
    assert first == grown(document, 256, 384) == (250, 390)
    assert second == grown(document, 640, 768)
    assert all(edge % 10 == 0 for edge in (*first, *second))


def test_windows_that_overlap_become_one_passage(library):
    document = write_texts(library, LINE * 100)
    (tokens,) = tokens_of(ranked([document], {4: 2.0, 5: 1.0}), [document], [230])
    assert spans(tokens) == [(250, 450)]


def test_what_does_not_fit_is_left_out_whole(library):
    document = write_texts(library, LINE * 100)
    found = ranked([document], {4: 2.0, 10: 1.0})
    for count in (140, 200, 269):
        (tokens,) = tokens_of(found, [document], [count])
        assert len(tokens) <= count
        assert {*range(250, 390)} <= {*tokens.tolist()}
        assert not {*range(640, 770)} <= {*tokens.tolist()}


def test_a_number_too_small_for_a_passage_gives_the_beginning_of_the_best(library):
    document = write_texts(library, LINE * 100)
    (tokens,) = tokens_of(ranked([document], {4: 2.0}), [document], [30])
    assert spans(tokens) == [(256, 286)]


def test_all_tokens_where_all_fit(library):
    document = write_texts(library, LINE * 10)
    (tokens,) = tokens_of(ranked([document], {}), [document], [100])
    assert tokens.tolist() == [*range(100)]


def test_numbers_are_each_for_themselves_and_over_documents(library):
    first = write_texts(library, LINE * 20, name="first")
    second = write_texts(library, LINE * 40, LINE * 30, name="second")
    both = ranked([first, second], {})
    window = int(np.flatnonzero(both.windows[:, 0] == np.flatnonzero(both.units.documents)[1])[0])
    both.scores[window] = 1.0
    alone, more = tokens_of(both, [first, second], [150, 500])
    low, high = grown(second, 64, 192)
    assert spans(alone) == [(200 + low, 200 + high)]
    assert set(alone.tolist()) < set(more.tolist())
    assert 150 < len(more) <= 500


def test_a_token_has_the_score_of_its_best_window(library):
    document = write_texts(library, LINE * 20)  # 200 tokens: units of 64, 64, 64, 8
    scores = token_scores(ranked([document], {0: 3.0, 1: 1.0, 2: 2.0}))
    assert scores.raw.tolist() == [3.0] * 128 + [2.0] * 72
    assert scores.raw is scores.pooled


# --- passages: how many, how long, best first ---


@pytest.mark.parametrize("width", [1, 2, 4])
@pytest.mark.parametrize(("most", "between", "each"), [(None, 0, 1), (2, 0, 1), (3, 7, 2)])
def test_passages_are_those_of_the_transcription(library, width, most, between, each):
    texts = [LINE * 90, LINE * 3, "a line of some words. And another sentence! " * 70, LINE * 40]
    documents = [write_texts(library, *texts[:3], name="a"), write_texts(library, texts[3])]
    units = Units.of(*(document.manifest for document in documents))
    windows, generator = units.spans(width), np.random.default_rng(width)
    ends = units.tokens + units.lengths

    def size(first: int, end: int) -> int:
        return each * (end - first) + end % each  # not only a number for each token

    def grown_of(window: int) -> tuple[int, int, int]:
        first, last = windows[window]
        number = int(units.documents[first])
        offset = int(units.first_tokens[number])
        low, high = grown(documents[number], units.tokens[first] - offset, ends[last] - offset)
        return low + offset, high + offset, 100 * number + int(units.sources[first])

    found = [grown_of(number) for number in range(len(windows))]
    for trial in range(2):
        scores = generator.integers(0, 9 + 90 * trial, len(windows)).astype(float)
        ranked_ = Ranked(units, windows, scores, scores, None)
        counts = [600, 700, 1300]
        measure = Measure(most, size, between, 10**6)
        got = best_passages(ranked_, documents, counts, measure)
        for count, passages in zip(counts, got, strict=True):
            given = (found, scores.tolist(), count, most, lambda run: size(*run), between)
            assert [*passages] == transcription.chosen(*given)
            tokens = gathered(token_scores(ranked_), ranked_, passages).tokens.tolist()
            assert tokens == sorted(t for run in passages for t in range(*run))


def test_a_window_that_joins_two_passages_makes_room_for_another(library):
    document = write_texts(library, LINE * 100)
    found = ranked([document], {0: 9.0, 4: 8.0, 2: 7.0, 10: 6.0, 13: 5.0})
    (passages,) = best_passages(found, [document], [900], Measure(most=2))
    assert passages[0][0] == 0
    assert [*passages] == [(0, 390), grown(document, 640, 768)]


def test_as_a_whole_there_are_no_passages(library):
    document = write_texts(library, LINE * 10)
    found = ranked([document], {})
    assert best_passages(found, [document], [99, 100], Measure(most=1))[1] is None
    (passages,) = best_passages(found, [document], [100], Measure(whole=101))
    assert passages is not None


def test_a_size_that_no_passage_fits_gives_none(library):
    document = write_texts(library, LINE * 100)
    measure = Measure(size=lambda first, end: 50 * (end - first), whole=10**6)
    small, one = best_passages(ranked([document], {4: 2.0}), [document], [49, 120], measure)
    assert small == ()
    assert one == ((256, 258),)


@pytest.mark.parametrize("width", [1, 2, 4])
def test_a_token_has_the_score_of_its_best_window_at_every_width(library, width):
    document = write_texts(library, LINE * 40, LINE * 3)
    units = Units.of(document.manifest)
    windows = units.spans(width)
    scores = np.random.default_rng(3).random(len(windows))
    raw = token_scores(Ranked(units, windows, scores, None, None)).raw.tolist()
    for unit in range(len(units)):
        inside = [s for s, (a, b) in zip(scores, windows, strict=True) if a <= unit <= b]
        first = int(units.tokens[unit])
        assert set(raw[first : first + int(units.lengths[unit])]) == {max(inside)}
