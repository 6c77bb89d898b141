"""Both measures of all heads of a layer."""

import pytest
import torch

from longctx.core.measure.calibrate.ranks import KINDS, MAXSIM, MEASURES, MNR, layer_ranks
from longctx.core.measure.calibrate.tapping import STATES, LayerStates, Unit

H, G, N, T, D = 4, 2, 640, 3, 8
HEADS = dict(zip(STATES, (H, G, G, 1), strict=True))


def states(tokens: int, seed: int) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return {kind: torch.randn(n, tokens, D, generator=generator) for kind, n in HEADS.items()}


def ranked(
    document: dict[str, torch.Tensor], question: dict[str, torch.Tensor], *gold: tuple[int, int]
) -> dict[str, dict[str, list[float]]]:
    units = [{k: Unit.of(x) for k, x in each.items()} for each in (document, question)]
    return layer_ranks(LayerStates(5, *units), gold)


def test_a_head_that_finds_the_gold_tokens_is_ranked_first_by_both():
    document, question = states(N, 1), states(T, 2)
    document["v"][1, 290:313] = question["v"][1, 2]  # with all neighbours that are averaged
    document["v"][1, 300:302] = question["v"][1, :2]
    ranks = ranked(document, question, (300, 303))
    assert [*ranks] == [*MEASURES]
    for measure in MEASURES:
        heads = {kind: len(each) for kind, each in ranks[measure].items()}
        assert heads == dict(zip(KINDS, (H, G, G, H, 1), strict=True))
    assert ranks[MNR]["v"][1] == pytest.approx(2 / N)  # ranks 1 to 3, which are equal
    assert ranks[MAXSIM]["v"][1] == pytest.approx(1.5 / 9)  # two windows have the same tokens
    others = [rank for kind, heads in ranks[MNR].items() for rank in heads if kind != "v"]
    assert all(rank > ranks[MNR]["v"][1] for rank in [*others, ranks[MNR]["v"][0]])


def test_one_token_that_everything_resembles_misleads_only_the_papers_rule():
    document, question = states(N, 3), states(T, 4)
    document["k"][0] = 0.2 * document["k"][0] + question["k"][0, 0]  # near everywhere
    document["k"][0, 200] = question["k"][0, 1]
    document["k"][0, 202] = question["k"][0, 2]
    document["k"][0, 500:521] = question["k"][0, 0]
    ranks = ranked(document, question, (198, 204))
    assert ranks[MAXSIM]["k"][0] == pytest.approx(1.5 / 9)
    assert ranks[MNR]["k"][0] > 0.02


def test_ranks_are_means_over_the_sentences():
    document, question = states(N, 5), states(T, 6)
    both = ranked(document, question, (10, 20), (400, 410))[MAXSIM]["q"]
    parts = [ranked(document, question, each)[MAXSIM]["q"] for each in ((10, 20), (400, 410))]
    assert both == pytest.approx([(a + b) / 2 for a, b in zip(*parts, strict=True)])
