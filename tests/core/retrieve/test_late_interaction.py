"""Standardised MaxSim next to a transcription: loops over ranges of passages and over tokens."""

import math

import numpy as np
import pytest
import torch
from small_passages import alike, passages_of

from longctx.core.common.errors import StateMismatch
from longctx.core.retrieve.late_interaction import Maxima, maxima
from longctx.kernels.quantize import quantize

HEADS, D = 2, 8


def draw(seed: int, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.randn(count, HEADS, D, generator=generator)
    return quantize(torch.nn.functional.normalize(drawn, dim=-1))


def decoded(vectors: torch.Tensor, scales: torch.Tensor) -> list:
    return (vectors.double() * scales.double()[..., None]).tolist()


def cosine(token: list, word: list) -> float:
    heads = [
        sum(a * b for a, b in zip(x, y, strict=True)) for x, y in zip(token, word, strict=True)
    ]
    return sum(heads) / HEADS


def in_blocks(rows: tuple[torch.Tensor, torch.Tensor], size: int):
    for first in range(0, len(rows[0]), size):
        vectors, scales = (part[first : first + size] for part in rows)
        yield first, {"vectors": vectors, "scales": scales}


@pytest.mark.parametrize("block", [1, 50, 64, 1000])
def test_maxima_are_the_best_cosines_of_passages(block):
    passages = passages_of([[130, 1, 69], [10], [64]])
    rows, question = draw(1, 274), draw(2, 6)
    scored = torch.tensor([False, True, True, False, True, False])
    best, count = maxima(question, scored, in_blocks(rows, block), passages)
    assert count == 274
    words = [word for word, own in zip(decoded(*question), scored.tolist(), strict=True) if own]
    tokens = decoded(*rows)
    for number, (first, length) in enumerate(zip(passages.tokens, passages.lengths, strict=True)):
        for j, word in enumerate(words):
            wanted = max(cosine(token, word) for token in tokens[first : first + length])
            assert float(best[number, j]) == pytest.approx(wanted, abs=1e-5)


def test_fewer_rows_than_tokens_are_counted():
    best, count = maxima(
        draw(2, 3), torch.ones(3, dtype=torch.bool), in_blocks(draw(1, 70), 64), alike(4)
    )
    assert count == 70
    assert best[2:].isneginf().all()


def test_rows_of_other_heads_are_refused():
    rows = [(0, {"vectors": torch.zeros(64, 3, D, dtype=torch.int8), "scales": torch.zeros(64, 3)})]
    with pytest.raises(StateMismatch, match="cannot be those of its embedding heads"):
        maxima(draw(2, 3), torch.ones(3, dtype=torch.bool), rows, alike(1))


@pytest.mark.parametrize("count", [0, 1, 4, 20])
def test_scores_are_standardised_over_all_ranges(count):
    passages = passages_of([[128] * 5 + [70], [128, 2]], [[5], [128, 128, 60]])
    best = torch.rand(len(passages), 5, generator=torch.Generator().manual_seed(3))
    best[:, 4] = 0.25  # tells nothing
    for ranges in (passages.around(count), passages.runs(count + 1)):
        found = Maxima(best).scores(ranges)
        wanted = [0.0] * len(ranges)
        for j in range(4):
            m = [max(float(best[i, j]) for i in range(a, b + 1)) for a, b in ranges.tolist()]
            mean = sum(m) / len(m)
            deviation = math.sqrt(sum((x - mean) ** 2 for x in m) / len(m))
            wanted = [w + max(0.0, (x - mean) / deviation) for w, x in zip(wanted, m, strict=True)]
        assert np.allclose(found, wanted)
        assert (found > 0).sum() > len(found) / 4


def test_several_documents_are_standardised_together():
    both = passages_of([[64] * 4], [[64] * 8])
    parts = [torch.rand(4, 3), torch.rand(8, 3)]
    joined = Maxima.joined(parts).scores(both.around(1))
    assert np.allclose(joined, Maxima(torch.cat(parts)).scores(both.around(1)))
    assert not np.allclose(joined[:4], Maxima(parts[0]).scores(alike(4).around(1)))
