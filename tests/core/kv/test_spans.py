"""Spans and their index vectors against sums by loops, the plain algorithm, and cases by hand."""

import math

import pytest
import torch

from longctx.core.kv import spans
from longctx.kernels.span_boxes_ref import triangle


def maps_of(B, H, N, seed=0, dtype=torch.float64):
    """Causal attention (B, H, N, N) whose rows sum to 1; above the diagonal what must not count."""
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(B, H, N, N, generator=generator, dtype=dtype) * 2
    causal = logits.masked_fill(torch.ones(N, N, dtype=torch.bool).triu(1), -torch.inf)
    return causal.softmax(-1) + torch.full((N, N), 7.0, dtype=dtype).triu(1)


# ---- scores and candidates


@pytest.mark.parametrize("N", [1, 2, 9])
def test_a_score_is_the_double_sum_over_the_triangle(N):
    maps, theta = maps_of(2, 3, N), [0.11, 0.2]
    summed = maps.sum(1) - 3 * torch.tensor(theta, dtype=torch.float64)[:, None, None]
    scores = triangle(summed)
    for b in range(2):
        for y in range(N):
            for x in range(y + 1):
                expected = sum(
                    float(maps[b, h, i, j]) - theta[b]
                    for h in range(3)
                    for i in range(x, y + 1)
                    for j in range(x, i + 1)
                )
                assert float(scores[b, y, x]) == pytest.approx(expected, abs=1e-12)


def test_candidates_are_the_best_of_each_anti_diagonal():
    N, maps = 8, maps_of(2, 3, 8)
    theta = spans.quantile(maps, 0.7)
    found = spans.boxes(maps.sum(1), theta, 3)
    scores = triangle(maps.sum(1) - 3 * theta[:, None, None])
    for b in range(2):
        for middle in range(2 * N - 1):
            on = [(float(scores[b, middle - x, x]), -x) for x in range(N) if x <= middle - x < N]
            score, x = max(on)
            assert int(found.x[b, middle]) == -x
            assert int(found.y[b, middle]) == middle + x
            assert float(found.score[b, middle]) == score


def test_of_equal_scores_an_anti_diagonal_gives_the_earlier_x():
    found = spans.boxes(torch.zeros(1, 4, 4), torch.zeros(1))
    assert found.x.tolist() == [[0, 0, 0, 0, 1, 2, 3]]
    assert found.y.tolist() == [[0, 1, 2, 3, 3, 3, 3]]


def test_the_threshold_is_an_entry_below_the_diagonal_of_any_head():
    maps = torch.full((1, 2, 2, 2), 9.0)
    row, column = [0, 1, 1], [0, 0, 1]
    maps[0, 0, row, column] = torch.tensor([0.1, 0.6, 0.2])
    maps[0, 1, row, column] = torch.tensor([0.5, 0.4, 0.3])
    for share, expected in ((0.01, 0.1), (0.5, 0.3), (0.51, 0.4), (0.9, 0.6), (1.0, 0.6)):
        assert float(spans.quantile(maps, share)) == pytest.approx(expected)


# ---- non-maximum suppression


def plain(candidates, phi, keep):
    """Greedy suppression over (score, x, y), one box after the other."""

    def overlap(one, other):
        side = max(0, min(one[2], other[2]) + 1 - max(one[1], other[1]))
        areas = sum((y + 1 - x) ** 2 for _, x, y in (one, other))
        return side**2 / (areas - side**2)

    kept = []
    for box in sorted(candidates, key=lambda box: (-box[0], box[1], box[2] - box[1])):
        if box[0] > 0 and len(kept) < keep and all(overlap(box, k) <= phi for k in kept):
            kept.append(box)
    return [(x, y) for _, x, y in kept]


@pytest.mark.parametrize("phi", [0.01, 0.1, 0.25, 0.9, 1.0])
@pytest.mark.parametrize("keep", [1, 4, 30])
def test_suppression_is_the_plain_algorithm(phi, keep):
    generator = torch.Generator().manual_seed(keep)
    x, y = torch.randint(0, 12, (2, 40, 23), generator=generator).sort(dim=0).values
    score = torch.randint(-2, 4, (40, 23), generator=generator).float()  # many ties
    got = spans.suppress(score, x, y, phi, keep)
    lengths = set()
    for b in range(40):
        rows = zip(score[b].tolist(), x[b].tolist(), y[b].tolist(), strict=True)
        expected = plain(rows, phi, keep)
        first, last, there = (each[b].tolist() for each in got)
        assert there == [n < len(expected) for n in range(keep)]
        assert list(zip(first, last, strict=True))[: len(expected)] == expected
        assert not any(first[len(expected) :] + last[len(expected) :])
        lengths.add(len(expected))
    assert keep < 30 or len(lengths) > 1


def test_only_positive_scores_are_spans():
    x = torch.tensor([[0, 2, 4]])
    _, _, there = spans.suppress(torch.tensor([[0.0, -1.0, 1e-9]]), x, x + 1, 0.5, 3)
    assert there.tolist() == [[True, False, False]]


def test_spans_of_a_map_with_two_triangles():
    maps = torch.full((1, 2, 10, 10), 0.01).tril()
    maps[:, :, 0:4, 0:4] = 0.5
    maps[:, :, 6:10, 6:10] = 0.4
    candidates = spans.boxes(maps.sum(1), torch.tensor([0.2]), 2)
    x, y, there = spans.suppress(*candidates, 0.05, 4)
    assert x[there].tolist() == [0, 6]
    assert y[there].tolist() == [3, 9]


def test_finding_spans_takes_the_quantile_off():
    maps = maps_of(3, 2, 12)
    candidates = spans.boxes(maps.sum(1), spans.quantile(maps, 0.8), 2)
    for got, expected in zip(
        spans.find(maps, 0.8, 0.2, 4), spans.suppress(*candidates, 0.2, 4), strict=True
    ):
        assert torch.equal(got, expected)


# ---- index vectors


def test_ratios_by_hand():
    summed = torch.tensor(
        [[[1, 9, 9, 9], [2, 3, 9, 9], [4, 5, 6, 9], [7, 8, 10, 11.0]]],
    )
    x, y = torch.tensor([[1, 0, 2]]), torch.tensor([[2, 1, 3]])
    own = torch.tensor([3 + 5 + 6, 1 + 2 + 3, 6 + 10 + 11.0])
    row = torch.tensor([2 + 4, 0, 4 + 5 + 7 + 8.0])
    column = torch.tensor([8 + 10, 4 + 5 + 7 + 8, 0.0])
    for kind, around in (("row", row), ("column", column), ("row+column", row + column)):
        assert torch.allclose(spans.ratios(summed, x, y, kind)[0], own / (own + around))


def test_a_span_without_attention_has_ratio_one():
    x = torch.tensor([[1]])
    assert spans.ratios(torch.zeros(1, 3, 3), x, x, "row+column").tolist() == [[1.0]]


def test_counts_by_the_formula():
    length, r = torch.tensor([[40, 10, 3, 8]]), torch.tensor([[0.5, 0.9, 0.1, 1.0]])
    there = torch.tensor([[True, True, True, False]])
    wanted = [round(n * math.exp(-3 * (1 - q))) for n, q in ((40, 0.5), (10, 0.9))]
    assert wanted == [9, 7]
    got = spans.counts(length, r, there, 3.0, 17)  # the third rounds to 0 and gets 1
    assert got.tolist() == [[9, 7, 1, 0]]
    # 16 in 3 spans: beyond one each they are 8, 6 and 0, of which 9 / 14 fit
    assert spans.counts(length, r, there, 3.0, 12).tolist() == [[1 + 5, 1 + 3, 1, 0]]


def test_counts_are_never_more_than_most_and_never_none():
    generator = torch.Generator().manual_seed(1)
    length = torch.randint(1, 129, (200, 4), generator=generator)
    there = torch.rand(200, 4, generator=generator) < 0.8
    got = spans.counts(length, torch.rand(200, 4, generator=generator), there, 3.0, 6)
    assert int(got.sum(1).max()) <= 6
    assert torch.equal(got > 0, there)


def test_the_tokens_with_most_attention_stand_for_a_span():
    received = torch.tensor([[9.0, 2, 5, 5, 5, 9]])
    x, y = torch.tensor([[1, 0, 0]]), torch.tensor([[4, 1, 0]])
    tokens = spans.chosen(received, x, y, torch.tensor([[2, 2, 0]]))
    assert [row.nonzero().flatten().tolist() for row in tokens[0]] == [[2, 3], [0, 1], []]


# ---- retrieval


def test_similarity_is_the_sum_over_all_pairs_of_vectors():
    queries, keys = torch.arange(10.0).view(1, 5, 2), torch.arange(8.0).view(1, 4, 2) - 3
    asking = torch.tensor([[[1, 1, 0, 0, 0], [0, 0, 1, 1, 1]]]).bool()
    spanned = torch.tensor([[[1, 0, 0, 0], [0, 1, 1, 0], [0, 0, 0, 1]]]).bool()
    got = spans.similarity(
        spans.summed_vectors(queries, asking)[0], spans.summed_vectors(keys, spanned)[0]
    )
    for j in range(2):
        for i in range(3):
            pairs = [
                float(queries[0, n] @ keys[0, m])
                for n in asking[0, j].nonzero().flatten()
                for m in spanned[0, i].nonzero().flatten()
            ]
            assert float(got[j, i]) == sum(pairs)


def test_a_block_scores_as_its_best_pair_of_spans():
    queries = torch.tensor([[1.0, 0], [0, 1], [9, 9]])
    asking = torch.tensor([True, True, False])
    keys = torch.tensor([[[1.0, 4], [3, 2]], [[5, 1], [8, 8]], [[7, 7], [7, 7]]])
    there = torch.tensor([[True, True], [True, False], [False, False]])
    assert spans.block_scores(queries, asking, keys, there).tolist() == [4, 5, -math.inf]


def test_the_best_blocks_are_in_document_order_and_ties_go_to_the_earlier():
    scores = torch.tensor([1.0, 3, 2, 3, 2])
    assert spans.best(scores, 3).tolist() == [1, 2, 3]
    assert spans.best(scores, 9).tolist() == [0, 1, 2, 3, 4]


def test_votes_come_first_and_similarity_decides_between_equal_ones():
    scores = torch.tensor([1.0, 3, 2, 3, 2])
    votes = torch.tensor([0.5, 0, 0.2, 0, 0.2])
    assert spans.best(scores, 1, votes).tolist() == [0]
    assert spans.best(scores, 2, votes).tolist() == [0, 2]
    assert spans.best(scores, 4, votes).tolist() == [0, 1, 2, 4]
