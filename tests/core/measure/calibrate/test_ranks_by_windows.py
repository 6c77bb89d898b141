"""Windows by standardised MaxSim of single heads: by hand, and against a literal loop."""

from itertools import pairwise

import numpy as np
import pytest
import torch

from longctx.core.measure.calibrate.ranks import sentence_ranks, window_scores

UNIT = 64


def document(units: list[list[float]], last: int = UNIT) -> torch.Tensor:
    """Cosines (1, N, T) of which each unit has its best ones (of T question tokens) once."""
    near = torch.full((1, UNIT * len(units), len(units[0])), -1.0)
    for number, best in enumerate(units):
        for token, value in enumerate(best):
            near[0, UNIT * number + 3 * token, token] = value
    return near[:, : UNIT * (len(units) - 1) + last]


def literal(near: np.ndarray) -> list[float]:
    """Standardised MaxSim of each window of one head, (N, T) float64: one step after another."""
    tokens, asked = near.shape
    units = [range(first, min(first + UNIT, tokens)) for first in range(0, tokens, UNIT)]
    windows = [[*a, *b] for a, b in pairwise(units)] or [[*units[0]]]
    scores = [0.0] * len(windows)
    for j in range(asked):
        best = [max(near[token, j] for token in window) for window in windows]
        mean = sum(best) / len(best)
        deviation = (sum((x - mean) ** 2 for x in best) / len(best)) ** 0.5
        for number, value in enumerate(best):
            if deviation:
                scores[number] += max(0.0, (value - mean) / deviation)
    return scores


def test_the_windows_of_a_constructed_document():
    near = document([[0.1, 0.5], [0.1, 0.5], [0.1, 0.5], [0.9, 0.5], [0.1, 0.5]])
    # Windows 01, 12, 23, 34 have .1 .1 .9 .9: mean .5, deviation .4. The other token never varies.
    assert window_scores(near)[0].tolist() == pytest.approx([0, 0, 1, 1])


def test_what_is_below_the_mean_takes_nothing_away():
    near = document([[0.0, 0.6], [0.0, 0.0], [0.8, 0.0]])
    # Windows 01 and 12: (0, .6) and (.8, 0) are 1 above and 1 below the means of both tokens.
    assert window_scores(near)[0].tolist() == pytest.approx([1, 1])


@pytest.mark.parametrize("tokens", [1, 63, 64, 65, 128, 129, 700])
def test_windows_are_those_of_a_literal_loop(tokens):
    generator = torch.Generator().manual_seed(tokens)
    near = torch.rand(3, tokens, 5, generator=generator) * 2 - 1
    near[1, :, 2] = 0.25  # tells nothing
    found = window_scores(near)
    for head in range(3):
        expected = literal(near[head].double().numpy())
        assert found[head].tolist() == pytest.approx(expected, abs=1e-4)


def test_a_sentence_has_the_rank_of_its_best_window():
    near = document([[0.1], [0.1], [0.1], [0.6], [0.1], [0.1], [0.8], [0.1]])
    # Windows .1 .1 .6 .6 .1 .8 .8, mean .44: ranks 6, 6, 3.5, 3.5, 6, 1.5, 1.5.
    ranks = {
        (0, 10): 6,  # unit 0, which is of window 0 alone
        (63, 64): 6,
        (128, 140): 3.5,  # unit 2: windows 1 and 2
        (200, 300): 3.5,  # units 3 and 4: windows 2 to 4
        (300, 330): 1.5,  # units 4 and 5: windows 3 to 5
        (448, 512): 1.5,  # unit 7, which is of window 6 alone
    }
    for sentence, rank in ranks.items():
        assert sentence_ranks(near, [sentence]).item() == pytest.approx(rank / 7), sentence
    mean = sentence_ranks(near, [(128, 140), (0, 10)])
    assert mean.item() == pytest.approx((3.5 + 6) / 2 / 7)


def test_ranks_are_those_of_a_literal_loop():
    near = torch.rand(2, 500, 4, generator=torch.Generator().manual_seed(1))
    gold = [(30, 80), (255, 257), (470, 500)]
    found = sentence_ranks(near, gold)
    for head in range(2):
        scores, ranks = literal(near[head].double().numpy()), []
        for first, end in gold:
            own = [
                score
                for number, score in enumerate(scores)
                if first < UNIT * (number + 2) and UNIT * number < end
            ]
            ranks.append(1 + sum(score > max(own) for score in scores))
        assert found[head].item() == pytest.approx(sum(ranks) / 3 / len(scores))


def test_a_document_of_one_unit_is_one_window():
    near = torch.rand(2, 40, 3, generator=torch.Generator().manual_seed(2))
    assert window_scores(near).tolist() == [[0], [0]]
    assert sentence_ranks(near, [(5, 9)]).tolist() == [1, 1]


def test_ranks_need_no_float64_of_the_device(without_float64):
    found = sentence_ranks(torch.ones(2, 200, 3, device=without_float64), [(70, 90), (3, 9)])
    assert (found.dtype, found.device.type) == (torch.float64, "cpu")
