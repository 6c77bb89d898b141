"""What passages may be gathered by: its names, and each source against sums by hand."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from sought_by_hand import Index, sought, units_of

from longctx.core.common.errors import UsageError
from longctx.core.retrieve import gather_by
from longctx.core.retrieve.gather_by import Sought
from longctx.core.retrieve.late_interaction import Maxima
from longctx.core.retrieve.ranked import Ranked

ALONE = ("bm25", "maxsim")


def rank(name: str, wanted: Sought) -> Ranked:
    return gather_by.load(name).rank(wanted)


def z(values: np.ndarray) -> np.ndarray:
    return (values - values.mean()) / values.std()


def test_the_folder_is_the_registry():
    assert gather_by.names() == ["hybrid", "bm25", "maxsim", "method"]
    for refused in ("nope", "", "__init__", "Method"):
        said = r"cannot gather by '.*Known: hybrid, bm25, maxsim, method\."
        with pytest.raises(UsageError, match=said):
            gather_by.check(refused)
    wanted = ["used", "unused", "needed", "unused"]
    assert [gather_by.embeddings(name) for name in gather_by.names()] == wanted


def test_bm25_is_the_index_s_and_asks_for_no_embeddings():
    units = units_of(3)
    found = rank("bm25", Sought("who?", lambda: pytest.fail("asked"), Index(units, [1, 2, 4])))
    assert found.scores.tolist() == found.words.tolist() == [3, 6]
    assert found.windows.tolist() == [[0, 1], [1, 2]]
    assert found.meaning is None


def test_maxsim_is_standardised_over_windows_and_asks_for_no_words():
    units = units_of(3, 1)
    best = torch.tensor([[0.1, 0.9], [0.3, 0.2], [0.2, 0.1], [0.8, 0.2]])
    found = rank("maxsim", Sought("who?", lambda: Maxima(units, best), Index(units, [])))
    windows = np.array([[0.3, 0.9], [0.3, 0.2], [0.8, 0.2]])  # the last is of one unit
    wanted = sum(np.maximum(z(column), 0) for column in windows.T)
    assert np.allclose(found.scores, wanted, atol=1e-6)
    assert found.scores is found.meaning
    assert found.words is None


@pytest.mark.parametrize("width", [1, 2, 4])
def test_hybrid_adds_both_at_two_scales(width):
    generator = np.random.default_rng(7)
    units = units_of(11, 3, 1)
    words = generator.integers(0, 4, 15).astype(float)
    best = torch.from_numpy(generator.random((15, 4)).astype(np.float32))
    found = rank("hybrid", replace(sought(units, words.tolist(), best), width=width))

    sources = [(0, 11), (11, 14), (14, 15)]

    def stretches(width: int) -> list[list[int]]:
        parts = []
        for first, end in sources:
            if end - first <= width:
                parts.append([*range(first, end)])
            else:
                parts += [[*range(i, i + width)] for i in range(first, end - width + 1)]
        return parts

    def at(width: int) -> np.ndarray:
        parts = stretches(width)
        cosines = np.array([best.numpy()[part].max(0) for part in parts], float)
        meaning = sum(np.maximum(z(column), 0) for column in cosines.T)
        return z(z(np.array([words[part].sum() for part in parts])) + z(meaning))

    around = at(8)
    unit = [
        max(s for s, part in zip(around, stretches(8), strict=True) if i in part) for i in range(15)
    ]
    near = z(np.array([np.mean([unit[i] for i in part]) for part in stretches(width)]))
    assert found.windows.tolist() == [[part[0], part[-1]] for part in stretches(width)]
    assert np.allclose(found.scores, at(width) + near)
    parts = [
        rank(name, replace(sought(units, words.tolist(), best), width=width)) for name in ALONE
    ]
    assert all(part.windows.tolist() == found.windows.tolist() for part in parts)
    assert parts[0].scores.tolist() == found.words.tolist()
    assert parts[1].scores.tolist() == found.meaning.tolist()


@pytest.mark.parametrize("constant", [0.0, 0.1, 1e-30, 3e8])
def test_a_part_that_does_not_vary_leaves_the_choice_to_the_other(constant):
    units, ranks = units_of(6), [3.0, 1, 7, 2, 6, 4]
    same = torch.full((6, 3), constant)
    by_words = rank("hybrid", sought(units, ranks, same))
    assert np.isfinite(by_words.scores).all()
    assert np.allclose(by_words.scores, rank("hybrid", sought(units, ranks, None)).scores)
    by_meaning = rank("hybrid", sought(units, [constant] * 6, torch.tensor(ranks)[:, None]))
    assert by_meaning.scores.argmax() == by_meaning.meaning.argmax()
    nothing = rank("hybrid", sought(units, [0.0] * 6, same))
    assert nothing.scores.tolist() == [0.0] * 5


def test_hybrid_without_embeddings_is_words_at_both_scales():
    units = units_of(12)
    found = rank("hybrid", sought(units, [0.0] * 8 + [5, 0, 0, 1], None))
    assert found.meaning is None
    assert found.scores.argmax() in (7, 8)
