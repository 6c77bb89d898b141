"""Passages of whole sentences, best first, within a number of tokens."""

from itertools import pairwise

import numpy as np
import pytest
from word_documents import write_texts

from longctx.core.passages.sentences import grown
from longctx.core.retrieve.best_passages import best_passages, gathered, token_scores
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
