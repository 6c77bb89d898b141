"""The rule by which combinations are drawn: what has to meet does, and nothing is there twice."""

from itertools import combinations, product

import pytest
import sampled

AXES = (range(7), "ab", [None, 1.5, 2.5], [True, False])


@pytest.mark.parametrize("meet", [1, 2, 3])
def test_so_many_values_meet(monkeypatch, meet):
    monkeypatch.setattr(sampled, "WHOLE", False)
    drawn = sampled.covering(*AXES, meet=meet)
    every = [*product(*AXES)]
    assert drawn == [case for case in every if case in drawn]
    assert 7 * 2 ** (meet - 1) <= len(drawn) < len(every)
    for places in combinations(range(4), meet):
        met = {tuple(case[place] for place in places) for case in drawn}
        assert met == {*product(*(AXES[place] for place in places))}


def test_all_of_them(monkeypatch):
    monkeypatch.setattr(sampled, "WHOLE", True)
    assert sampled.covering(*AXES) == [*product(*AXES)]
