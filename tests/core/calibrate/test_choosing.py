"""The table of ranks, and the four heads that are taken."""

import pytest

from longctx.core.calibrate.choosing import choose, standard_error, table
from longctx.core.calibrate.tasks import MULTI_HOP, PATTERN

LAYERS = 10


def ranks(best: dict[tuple[int, str, int], float]) -> list[dict[str, list[float]]]:
    """A sample in which all heads are bad but some."""
    heads = {"q": 2, "k": 1, "v": 1, "attention": 2, "hidden": 1}
    return [
        {kind: [best.get((layer, kind, h), 0.4) for h in range(n)] for kind, n in heads.items()}
        for layer in range(LAYERS)
    ]


def test_means_and_standard_errors_over_samples_best_first():
    samples = [ranks({(2, "q", 1): 0.1}), ranks({(2, "q", 1): 0.3})]
    rows = table({PATTERN: samples})
    first = rows[0]
    assert (first.task, first.layer, first.kind, first.head) == (PATTERN, 2, "q", 1)
    assert first.mean == pytest.approx(0.2)
    assert first.error == pytest.approx(0.1)  # of 0.1 and 0.3: deviation sqrt(0.02), by sqrt(2)
    assert (rows[1].layer, rows[1].kind, rows[1].head, rows[1].error) == (0, "q", 0, 0.0)
    assert len(rows) == LAYERS * 7
    assert standard_error([0.5]) is None


def test_two_heads_of_each_task_all_different_and_none_but_q_k_and_v():
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
    assert choose(rows, LAYERS) == ((3, "q", 1), (6, "k", 0), (8, "q", 0), (9, "v", 0))


def test_equal_heads_are_taken_from_the_lower_layer():
    rows = table({PATTERN: [ranks({})], MULTI_HOP: [ranks({})]})
    assert choose(rows, LAYERS) == ((0, "k", 0), (0, "q", 0), (0, "q", 1), (0, "v", 0))
