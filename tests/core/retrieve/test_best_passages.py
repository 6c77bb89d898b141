"""Passages gathered best first, within a number of tokens."""

import composing_transcription as transcription
import numpy as np
import pytest
from small_passages import alike, passages_of

from longctx.core.retrieve.best_passages import (
    Measure,
    best_passages,
    gathered,
    run_of,
    token_scores,
)
from longctx.core.retrieve.passage_table import Passages
from longctx.core.retrieve.ranked import Ranked

SIXTEEN = alike(16)  # of 64 tokens


def ranked(passages: Passages, scores: dict[int, float]) -> Ranked:
    """Passages of which some score."""
    values = np.zeros(len(passages))
    for passage, score in scores.items():
        values[passage] = score
    return Ranked(passages, values, values, None)


def test_the_best_passages_come_first_and_whole():
    found = ranked(SIXTEEN, {10: 1.0, 4: 2.0})
    few, more, room = best_passages(found, [127, 128, 200])
    assert few == ((256, 320),)
    assert more == ((256, 320), (640, 704))
    assert room[:2] == more
    assert sum(end - first for first, end in room) == 192  # what does not fit is left out whole


def test_neighbours_become_one_run_with_the_rank_of_the_best():
    found = ranked(SIXTEEN, {5: 1.0, 4: 3.0, 9: 2.0})
    assert best_passages(found, [192]) == [((256, 384), (576, 640))]


def test_neighbours_of_two_sources_or_documents_are_apart():
    passages = passages_of([[64], [64]], [[64, 64]])
    found = ranked(passages, {0: 4.0, 1: 3.0, 2: 2.0})
    assert best_passages(found, [192]) == [((0, 64), (64, 128), (128, 192))]


def test_a_number_too_small_for_a_passage_gives_the_beginning_of_the_best():
    assert best_passages(ranked(SIXTEEN, {4: 2.0}), [30]) == [((256, 286),)]
    assert best_passages(ranked(SIXTEEN, {4: 2.0}), [1]) == [((256, 257),)]


def test_all_tokens_where_all_fit():
    found = ranked(SIXTEEN, {})
    for passages in best_passages(found, [1024, 2000]):
        assert passages is None
        assert gathered(token_scores(found), found, passages).tokens.tolist() == [*range(1024)]
    fewer, _ = best_passages(found, [1023, 1024], Measure(most=1))
    assert fewer is not None
    (passages,) = best_passages(found, [1024], Measure(whole=1025))
    assert passages is not None


def test_a_token_has_the_score_of_its_passage():
    passages = passages_of([[3, 70], [1]], [[130]])
    scores = token_scores(Ranked(passages, np.array([1.0, 2.0, 3.0, 4.0]), None, None))
    assert scores.raw.tolist() == [1.0] * 3 + [2.0] * 70 + [3.0] + [4.0] * 130
    assert scores.raw is scores.pooled


# --- how many, how long, best first ---


@pytest.mark.parametrize("seed", [1, 2, 4])
@pytest.mark.parametrize(("most", "each"), [(None, 1), (2, 1), (3, 2)])
def test_passages_are_those_of_the_transcription(seed, most, each):
    generator = np.random.default_rng(seed)
    sizes = [generator.integers(1, 160, count).tolist() for count in (30, 2, 20, 1, 12)]
    passages = passages_of(sizes[:3], sizes[3:])
    runs = [run_of(passages, number) for number in range(len(passages))]
    sources = (100 * passages.documents + passages.sources).tolist()

    def size(first: int, end: int) -> int:
        return each * (end - first) + end % each  # not only a number for each token

    for trial in range(2):
        scores = generator.integers(0, 9 + 90 * trial, len(passages)).astype(float)
        ranked_ = Ranked(passages, scores, scores, None)
        counts = [350, 700, 1300]
        got = best_passages(ranked_, counts, Measure(most, size, 10**6))
        for count, taken in zip(counts, got, strict=True):
            known = [(*run, source) for run, source in zip(runs, sources, strict=True)]
            given = (known, scores.tolist(), count, most, lambda run: size(*run))
            assert [*taken] == transcription.chosen(*given)
            tokens = gathered(token_scores(ranked_), ranked_, taken).tokens.tolist()
            assert tokens == sorted(t for run in taken for t in range(*run))


def test_a_passage_that_joins_two_runs_makes_room_for_another():
    found = ranked(SIXTEEN, {0: 9.0, 2: 8.0, 1: 7.0, 10: 6.0, 13: 5.0})
    assert best_passages(found, [900], Measure(most=2)) == [((0, 192), (640, 704))]


def test_a_size_that_no_passage_fits_gives_none():
    measure = Measure(size=lambda first, end: 50 * (end - first), whole=10**6)
    small, one = best_passages(ranked(SIXTEEN, {4: 2.0}), [49, 120], measure)
    assert small == ()
    assert one == ((256, 258),)
