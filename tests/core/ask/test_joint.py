"""Which tokens of several documents are gathered, beside the rule written out in loops."""

import random

import pytest
import torch

from longctx.core.ask.gather import split
from longctx.core.ask.joint import joint_tokens
from longctx.core.contracts.memory import Scores


def by_the_rule(raw, pooled, count, lengths, edges) -> list[int]:
    """The same, token by token."""
    owner = [number for number, length in enumerate(lengths) for _ in range(length)]
    if count >= len(owner):
        return [*range(len(owner))]
    order = sorted(range(len(owner)), key=lambda i: (-pooled[i], -raw[i], i))
    ranking = list(dict.fromkeys(owner[token] for token in order))
    for number in range(len(ranking), 0, -1):
        admitted = ranking[:number]
        share = min(sum(edges), count // 2 // number)
        first = share * edges[0] // sum(edges)
        pinned = set()
        for document in admitted:
            own = [token for token in range(len(owner)) if owner[token] == document]
            ends = own[:first] + own[len(own) - share + first :]
            pinned |= set(own if len(own) <= share else ends)
        free = [token for token in order if owner[token] in admitted and token not in pinned]
        chosen = free[: count - len(pinned)]
        (latest_best, *_) = [token for token in order if owner[token] == admitted[-1]]
        without = sum(lengths[document] for document in admitted[:-1])
        if without < count or order.index(latest_best) <= order.index(chosen[-1]):
            return sorted(pinned | set(chosen))
    raise AssertionError("the best document always comes in")


@pytest.mark.parametrize("seed", range(60))
def test_tokens_are_those_of_the_rule(seed):
    drawn = random.Random(seed)
    lengths = [drawn.choice([0, 1, 3, 20, 60]) for _ in range(drawn.randint(2, 5))] + [50]
    total = sum(lengths)
    levels = drawn.choice([2, 5, 1000])  # few levels: many ties
    raw, pooled = ([drawn.randrange(levels) for _ in range(total)] for _ in range(2))
    count = drawn.randint(1, total + 3)
    edges = drawn.choice([(2, 2), (4, 1), (32, 32)])
    scores = Scores(torch.tensor(raw).float(), torch.tensor(pooled).float())
    chosen = joint_tokens(scores, count, lengths, edges).tolist()
    assert chosen == by_the_rule(raw, pooled, count, lengths, edges)
    assert len(chosen) == min(count, total)


def flat(values: list[float]) -> Scores:
    scores = torch.tensor(values)
    return Scores(scores, scores)


def test_only_documents_that_contribute_have_their_edges_in():
    values = [0.0] * 300
    values[150] = 2.0  # of the second document
    values[40:60] = [1.0] * 20  # of the first
    chosen = joint_tokens(flat(values), 100, [100, 100, 100], (10, 10)).tolist()
    assert {*range(10), *range(90, 100), *range(100, 110), *range(190, 200)} < set(chosen)
    assert {150, *range(40, 60)} < set(chosen)
    assert max(chosen) < 200
    assert len(chosen) == 100


def test_a_document_comes_in_only_if_it_still_does_with_its_edges():
    values = [1.0] * 100 + [0.9] + [0.0] * 99
    chosen = joint_tokens(flat(values), 90, [100, 100], (10, 10)).tolist()
    assert chosen == [*range(80), *range(90, 100)]
    better = [*values[:100], 1.1, *values[101:]]
    chosen = joint_tokens(flat(better), 90, [100, 100], (10, 10)).tolist()
    assert chosen == [*range(60), *range(90, 100), *range(100, 110), *range(190, 200)]


def test_ties_go_to_the_raw_score_then_to_the_earlier_document_then_to_the_earlier_token():
    pooled, raw = torch.ones(9), torch.tensor([0.0, 1, 0, 0, 2, 1, 1, 0, 0])
    lengths, picks = [3, 3, 3], []
    for count in range(1, 9):
        picks.append(joint_tokens(Scores(raw, pooled), count, lengths, (0, 0)).tolist())
    new = [next(iter(set(b) - set(a))) for a, b in zip([[], *picks], picks, strict=False)]
    assert new == [4, 1, 5, 6, 0, 2, 3, 7]


def test_edges_take_half_at_most():
    chosen = joint_tokens(flat([0.0] * 20 + [1.0] * 60 + [0.0] * 20), 40, [100], (32, 32))
    assert chosen.tolist() == [*range(10), *range(20, 40), *range(90, 100)]


def test_tokens_are_told_apart_by_document():
    parts = split(torch.tensor([0, 2, 3, 9]), [3, 0, 4, 3])
    assert [part.tolist() for part in parts] == [[0, 2], [], [0], [2]]
