"""Cosines, dots, smoothing and mean normalised ranks, against loops."""

import pytest
import torch

from longctx.core.common.errors import LongctxError
from longctx.core.measure.calibrate.ranks import (
    KINDS,
    NEIGHBOURS,
    affinities,
    cosines,
    dots,
    mean_ranks,
    normalised_ranks,
    pooled,
)
from longctx.core.measure.calibrate.tapping import STATES, LayerStates, Unit

H, G, N, T, D = 4, 2, 60, 3, 8


def states(heads: int, tokens: int, seed: int) -> torch.Tensor:
    return torch.randn(heads, tokens, D, generator=torch.Generator().manual_seed(seed))


def test_the_rank_of_a_constructed_case():
    scores = torch.tensor([[0.9, 0.1, 0.5, 0.7, 0.3], [0.1, 0.2, 0.3, 0.4, 0.5]])
    # Ranks of tokens 0 and 3 are 1 and 2 for the first head, 5 and 2 for the second, of 5 tokens.
    found = normalised_ranks(scores, torch.tensor([0, 3]))
    assert found.tolist() == [pytest.approx([1 / 5, 2 / 5]), pytest.approx([5 / 5, 2 / 5])]


def test_equal_scores_share_the_mean_of_their_ranks():
    scores = torch.tensor([[1.0, 2.0, 1.0, 1.0, 0.0], [0.0, 0.0, 0.0, 0.0, 0.0]])
    # The ones have ranks 2, 3 and 4; all five zeros have 1 to 5.
    found = normalised_ranks(scores, torch.tensor([2]))
    assert found[:, 0].tolist() == pytest.approx([3 / 5, 3 / 5])


def test_ranks_need_no_float64_of_the_device(without_float64):
    scores = torch.ones(2, 5, device=without_float64)
    found = normalised_ranks(scores, torch.tensor([0, 3]))
    assert (found.dtype, found.device.type) == (torch.float64, "cpu")


def test_scores_are_means_over_the_token_and_its_neighbours():
    scores = torch.randn(2, N, generator=torch.Generator().manual_seed(0))
    half, found = NEIGHBOURS // 2, pooled(scores)
    for head in range(2):
        for token in range(N):
            near = scores[head, max(0, token - half) : token + half + 1]
            assert found[head, token].item() == pytest.approx(near.mean().item(), abs=1e-5)


def test_cosines_and_dots_of_every_two_tokens():
    q, k = states(H, T, 1), states(G, N, 2)
    own = states(H, N, 3)
    found = cosines(Unit.of(own), Unit.of(q)), dots(Unit.of(k), Unit.of(q))
    assert found[0].shape == found[1].shape == (H, N, T)
    for head in range(H):
        for token in range(N):
            for t in range(T):
                cosine = float(torch.cosine_similarity(own[head, token], q[head, t], dim=0))
                assert found[0][head, token, t].item() == pytest.approx(cosine, abs=2e-3)
                dot = float(k[head // (H // G), token] @ q[head, t])
                assert found[1][head, token, t].item() == pytest.approx(dot, abs=3e-2)


def layer(document: dict[str, torch.Tensor], question: dict[str, torch.Tensor]) -> LayerStates:
    units = [{k: Unit.of(x) for k, x in each.items()} for each in (document, question)]
    return LayerStates(5, *units)


def random_layer() -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    heads = dict(zip(STATES, (H, G, G, 1), strict=True))
    document = {kind: states(n, N, 10 + n) for kind, n in heads.items()}
    return document, {kind: states(n, T, 20 + n) for kind, n in heads.items()}


def test_the_mean_rank_is_of_the_best_token_of_the_question_smoothed():
    near = states(2, N, 4)[..., :T]
    gold = torch.tensor([7, 8, 30])
    found = mean_ranks(near, gold)
    smooth = pooled(near.amax(dim=2))
    for head in range(2):
        order = smooth[head].argsort(descending=True).tolist()
        ranks = [order.index(token) + 1 for token in gold.tolist()]
        assert found[head].item() == pytest.approx(sum(ranks) / 3 / N)


def test_every_kind_has_its_heads():
    found = affinities(layer(*random_layer()))
    shapes = {kind: (heads, N, T) for kind, heads in zip(KINDS, (H, G, G, H, 1), strict=True)}
    assert {kind: tuple(near.shape) for kind, near in found.items()} == shapes
    assert [*found] == [*KINDS]


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_states_that_are_not_finite_are_refused(value):
    document, question = random_layer()
    document["hidden"][0, 7, 3] = value
    with pytest.raises(LongctxError, match="heads of layer 5: the model gives hidden states"):
        affinities(layer(document, question))
