"""What passages may be gathered by: its names, and each source against sums by hand."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from small_passages import alike
from sought_by_hand import Index, sought

from longctx.core.common.errors import UsageError
from longctx.core.retrieve import gather_by
from longctx.core.retrieve.gather_by import Sought
from longctx.core.retrieve.late_interaction import Maxima
from longctx.core.retrieve.ranked import Ranked

ALONE = ("bm25", "dense")


def rank(name: str, wanted: Sought) -> Ranked:
    return gather_by.load(name).rank(wanted)


def z(values: np.ndarray) -> np.ndarray:
    return (values - values.mean()) / values.std()


def test_the_folder_is_the_registry():
    assert gather_by.names() == ["hybrid", "bm25", "dense", "maxsim", "method", "reader"]
    for refused in ("nope", "", "__init__", "Method"):
        said = r"cannot gather by '.*Known: hybrid, bm25, dense, maxsim, method, reader\."
        with pytest.raises(UsageError, match=said):
            gather_by.check(refused)
    assert [name for name in gather_by.names() if gather_by.embeddings(name)] == ["maxsim"]
    wanted = ["used", "unused", "needed", "unused", "unused", "used"]
    assert [gather_by.vectors(name) for name in gather_by.names()] == wanted


def test_bm25_is_the_index_s_with_neighbours_and_asks_for_no_embeddings():
    passages = alike(6, 1)
    words = [1.0, 2, 4, 8, 16, 32, 64]
    fails = [lambda: pytest.fail("asked")] * 2
    found = rank("bm25", Sought("who?", Index(passages, words), *fails))
    around = [31, 63, 63, 63, 63, 62, 64]  # with up to four on each side, of the same source
    assert found.scores.tolist() == np.add(words, np.multiply(0.75, around)).tolist()
    assert found.words.tolist() == words
    assert found.passages is passages
    assert found.meaning is None


def test_maxsim_is_standardised_over_passages_and_asks_for_no_words():
    passages = alike(3, 1)
    best = torch.tensor([[0.1, 0.9], [0.3, 0.2], [0.2, 0.1], [0.8, 0.2]])
    index = Index(passages, [])
    found = rank("maxsim", Sought("who?", index, lambda: 1 / 0, lambda: Maxima(best)))
    wanted = sum(np.maximum(z(column), 0) for column in best.numpy().astype(float).T)
    assert np.allclose(found.scores, wanted, atol=1e-6)
    assert found.scores is found.meaning
    assert found.words is None


def test_hybrid_adds_both_at_two_scales():
    generator = np.random.default_rng(7)
    words = generator.integers(0, 4, 15).astype(float)
    best = torch.from_numpy(generator.random((15, 4)).astype(np.float32))
    found = rank("hybrid", sought(alike(11, 3, 1), words.tolist(), best))

    def ranges(count: int) -> list[list[int]]:
        sources = [range(11), range(11, 14), range(14, 15)]
        return [[i for i in own if abs(i - n) <= count] for own in sources for n in own]

    def at(count: int) -> np.ndarray:
        parts = ranges(count)
        cosines = best.numpy().astype(float).max(1)
        meaning = np.array([cosines[part].mean() for part in parts])
        return z(np.array([words[part].sum() for part in parts])) + z(meaning)

    assert np.allclose(found.scores, at(0) + at(4))
    parts = [rank(name, sought(alike(11, 3, 1), words.tolist(), best)) for name in ALONE]
    assert parts[0].words.tolist() == found.words.tolist()
    assert parts[1].scores.tolist() == found.meaning.tolist()


@pytest.mark.parametrize("constant", [0.0, 0.1, 1e-30, 3e8])
def test_a_part_that_does_not_vary_leaves_the_choice_to_the_other(constant):
    passages, ranks = alike(1, 1, 1, 1, 1, 1), [3.0, 1, 7, 2, 6, 4]
    same = torch.full((6, 3), constant)
    by_words = rank("hybrid", sought(passages, ranks, same))
    assert np.isfinite(by_words.scores).all()
    assert np.allclose(by_words.scores, rank("hybrid", sought(passages, ranks, None)).scores)
    by_meaning = rank("hybrid", sought(passages, [constant] * 6, torch.tensor(ranks)[:, None]))
    assert by_meaning.scores.argmax() == by_meaning.meaning.argmax() == 2
    nothing = rank("hybrid", sought(passages, [0.0] * 6, same))
    assert nothing.scores.tolist() == [0.0] * 6


def test_hybrid_without_vectors_is_words_at_both_scales():
    found = rank("hybrid", sought(alike(12), [0.0] * 8 + [5, 0, 0, 1], None))
    assert found.meaning is None
    assert found.scores.argmax() == 8
    assert found.scores[4] > found.scores[3]  # it has the best one among its neighbours


class Told:
    """Stands for a reader: how well each passage answers."""

    most = 4

    def __init__(self, values: dict[int, float]):
        self.values, self.asked = values, []

    def scores(self, best, search):
        self.asked.append((best.tolist(), search.tolist()))
        return np.array([self.values.get(number, -np.inf) for number in best.tolist()])


def test_the_reader_orders_the_best_of_hybrid_and_leaves_the_rest():
    words = [9.0, 8, 7, 6, 5, 4, 3, 2]
    plain = sought(alike(*[1] * 8), words, torch.tensor(words)[:, None] / 10)
    before = rank("hybrid", plain)
    told = Told({2: 3.0, 0: 1.0, 3: -2.0})
    found = rank("reader", replace(plain, answers=told))
    assert told.asked == [([0, 1, 2, 3], before.scores[:4].tolist())]
    assert np.argsort(-found.scores).tolist() == [2, 0, 3, 1, 4, 5, 6, 7]
    assert sorted(found.scores) == sorted(before.scores)
    assert found.scores[4:].tolist() == before.scores[4:].tolist()
    assert rank("reader", plain).scores.tolist() == before.scores.tolist()
