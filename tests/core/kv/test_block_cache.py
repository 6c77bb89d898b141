"""The cache of blocks: what it reads, what it lets go, by hand."""

import pytest
import torch

from longctx.core.kv.block_cache import BlockCache


class Shelf:
    """Gives blocks whose numbers are all that is in them, and notes which were asked for."""

    def __init__(self):
        self.asked = []

    def read(self, blocks):
        self.asked.append(blocks)
        return torch.tensor(blocks).float()[:, None].expand(-1, 3)


@pytest.fixture
def shelf():
    return Shelf()


def numbers(taken):
    assert (taken == taken[:, :1]).all()
    return taken[:, 0].int().tolist()


def test_it_gives_what_is_asked_for_in_that_order(shelf):
    cache = BlockCache(4, 0.5, shelf.read)
    for blocks in ([2, 5], [5, 7], [2, 5, 7, 9], [0, 1, 2, 3], [1, 9]):
        assert numbers(cache.take(blocks)) == blocks
        assert len(cache.worth) <= 4


def test_only_missing_blocks_are_read(shelf):
    cache = BlockCache(4, 0.5, shelf.read)
    cache.take([2, 5])
    cache.take([2, 5, 7])
    cache.take([5, 7])
    assert shelf.asked == [[2, 5], [7]]


def test_worth_decays_at_each_use_and_grows_by_attention(shelf):
    cache = BlockCache(4, 0.5, shelf.read)
    cache.take([1, 2])
    cache.gain([1, 2], [8.0, 2.0])
    cache.take([2, 3])
    cache.gain([2, 3], [1.0, 3.0])
    assert cache.worth == {1: 4.0, 2: 2.0, 3: 3.0}


def test_the_block_that_is_worth_least_leaves(shelf):
    cache = BlockCache(3, 0.5, shelf.read)
    cache.take([1, 2, 3])
    cache.gain([1, 2, 3], [3.0, 1.0, 2.0])
    cache.take([4])
    assert sorted(cache.worth) == [1, 3, 4]


def test_of_equal_worth_the_earlier_block_leaves(shelf):
    cache = BlockCache(3, 0.5, shelf.read)
    cache.take([3])
    cache.take([1, 2])
    cache.take([9])
    assert sorted(cache.worth) == [2, 3, 9]


def test_a_block_in_use_stays_whatever_it_is_worth(shelf):
    cache = BlockCache(3, 0.5, shelf.read)
    cache.take([1, 2, 3])
    cache.gain([1, 2, 3], [0.0, 5.0, 6.0])
    assert numbers(cache.take([1, 4])) == [1, 4]
    assert sorted(cache.worth) == [1, 3, 4]


def test_a_block_that_comes_back_begins_anew(shelf):
    cache = BlockCache(2, 1.0, shelf.read)
    cache.take([1])
    cache.gain([1], [1.0])
    cache.take([2, 3])
    cache.take([1])
    assert cache.worth[1] == 0
    assert shelf.asked == [[1], [2, 3], [1]]
