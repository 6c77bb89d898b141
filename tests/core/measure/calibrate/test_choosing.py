"""The table of ranks, and the four heads that are taken."""

import pytest

from longctx.core.measure.calibrate.choosing import Ranks, choose, standard_error, table
from longctx.core.measure.calibrate.ranks import MAXSIM, MEASURES, MNR
from longctx.core.measure.calibrate.tasks import MULTI_HOP, PATTERN

LAYERS = 10


def ranks(best: dict[tuple[int, str, int], float], measure: str = MNR) -> Ranks:
    """A sample in which all heads are bad by all measures, but some by one of them."""
    heads = {"q": 2, "k": 1, "v": 1, "attention": 2, "hidden": 1}

    def of(name: str, layer: int) -> dict[str, list[float]]:
        good = best if name == measure else {}
        return {k: [good.get((layer, k, h), 0.4) for h in range(n)] for k, n in heads.items()}

    return [{name: of(name, layer) for name in MEASURES} for layer in range(LAYERS)]


def test_means_and_standard_errors_over_samples_best_first():
    samples = [ranks({(2, "q", 1): 0.1}), ranks({(2, "q", 1): 0.3})]
    both = table({PATTERN: samples})
    assert [row.measure for row in both] == [MAXSIM] * LAYERS * 7 + [MNR] * LAYERS * 7
    rows = both[LAYERS * 7 :]
    first = rows[0]
    assert (first.task, *first.named) == (PATTERN, 2, "q", 1)
    assert first.mean == pytest.approx(0.2)
    assert first.error == pytest.approx(0.1)  # of 0.1 and 0.3: deviation sqrt(0.02), by sqrt(2)
    assert (rows[1].layer, rows[1].kind, rows[1].head, rows[1].error) == (0, "q", 0, 0.0)
    assert {row.mean for row in both[: LAYERS * 7]} == {0.4}
    assert standard_error([0.5]) is None


def test_by_mnr_two_heads_of_each_task_all_different_and_none_but_q_k_and_v():
    pattern = {
        (1, "attention", 0): 0.01,
        (4, "hidden", 0): 0.01,
        (7, "v", 0): 0.02,  # too deep: 7 of 10 layers are not below 70%
        (6, "k", 0): 0.03,
        (3, "q", 1): 0.04,
        (2, "q", 0): 0.05,
    }
    hops = {(6, "k", 0): 0.01, (9, "v", 0): 0.02, (8, "q", 0): 0.03, (3, "q", 1): 0.015}
    rows = table({PATTERN: [ranks(pattern)], MULTI_HOP: [ranks(hops)]})
    assert choose(rows, LAYERS, MNR) == ((3, "q", 1), (6, "k", 0), (8, "q", 0), (9, "v", 0))


def test_by_maxsim_the_four_best_in_the_mean_of_both_tasks_and_none_but_q_k_and_v():
    pattern = {
        (4, "hidden", 0): 0.01,
        (7, "v", 0): 0.01,
        (3, "q", 1): 0.02,  # alone the best of this task that is bad in the other
        (6, "k", 0): 0.03,
        (9, "v", 0): 0.30,
        (2, "q", 0): 0.31,
    }
    hops = {(4, "hidden", 0): 0.01, (7, "v", 0): 0.2, (6, "k", 0): 0.1, (9, "v", 0): 0.01}
    hops |= {(2, "q", 0): 0.05, (8, "q", 1): 0.02}
    # Means: 7v .105, 6k .065, 9v .155, 2q .18, then 3q1 and 8q1 .21.
    rows = table({PATTERN: [ranks(pattern, MAXSIM)], MULTI_HOP: [ranks(hops, MAXSIM)]})
    assert choose(rows, LAYERS, MAXSIM) == ((2, "q", 0), (6, "k", 0), (7, "v", 0), (9, "v", 0))


@pytest.mark.parametrize("measure", MEASURES)
def test_equal_heads_are_taken_from_the_lower_layer(measure):
    rows = table({PATTERN: [ranks({})], MULTI_HOP: [ranks({})]})
    assert choose(rows, LAYERS, measure) == ((0, "k", 0), (0, "q", 0), (0, "q", 1), (0, "v", 0))
