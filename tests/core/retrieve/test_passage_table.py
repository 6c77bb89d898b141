"""Passages as arrays, by hand."""

import numpy as np
import pytest
from small_passages import alike, passages_of

from longctx.core.retrieve.passage_table import Passages

THREE = passages_of([[64, 70, 2], [], [64], [5]], [], [[1], [128, 3]])


def test_passages_and_tokens_are_numbered_through_all_documents():
    assert THREE.documents.tolist() == [0, 0, 0, 0, 0, 2, 2, 2]
    assert THREE.sources.tolist() == [0, 0, 0, 2, 3, 0, 1, 1]
    assert THREE.tokens.tolist() == [0, 64, 134, 136, 200, 205, 206, 334]
    assert THREE.first_tokens.tolist() == [0, 205, 205, 337]
    assert THREE.first_passages.tolist() == [0, 5, 5, 8]
    kinds = [getattr(THREE, name).dtype.name for name in ("sources", "tokens", "lengths", "starts")]
    assert kinds == ["int32", "int64", "int32", "int64"]


def test_ranges_are_of_one_source():
    assert THREE.first.tolist() == [0, 0, 0, 3, 4, 5, 6, 6]
    assert THREE.last.tolist() == [2, 2, 2, 3, 4, 5, 7, 7]
    assert THREE.alone().tolist() == [[n, n] for n in range(8)]
    assert THREE.around(1).tolist() == [
        *([0, 1], [0, 2], [1, 2], [3, 3], [4, 4], [5, 5], [6, 7], [6, 7])
    ]
    assert THREE.around(9)[:3].tolist() == [[0, 2]] * 3
    assert THREE.runs(1).tolist() == THREE.alone().tolist()
    assert THREE.runs(2).tolist() == [[0, 1], [1, 2], [3, 3], [4, 4], [5, 5], [6, 7]]
    assert THREE.runs(4).tolist() == [[0, 2], [3, 3], [4, 4], [5, 5], [6, 7]]


def test_a_document_has_its_own_numbers():
    for number, first in ((0, 0), (1, 205), (2, 205)):
        own = THREE.of_document(number)
        chosen = THREE.documents == number
        assert own.tokens.tolist() == (THREE.tokens[chosen] - first).tolist()
        assert own.sources.tolist() == THREE.sources[chosen].tolist()
        assert own.lengths.tolist() == THREE.lengths[chosen].tolist()
        assert not own.documents.any()
        assert own.first_passages.tolist() == [0, chosen.sum()]
        assert own.first_tokens.tolist() == [0, THREE.lengths[chosen].sum()]


def test_the_passage_of_a_byte():
    given = alike(3, 1), alike(2)
    starts = np.array([2, 10, 30, 0, 0, 7])
    joined = [
        np.concatenate([getattr(each, name) for each in given]) for name in ("sources", "lengths")
    ]
    both = Passages.made(np.repeat([0, 1], [4, 2]), *joined, starts, np.array([256, 128]))
    assert [both.containing(0, 0, byte) for byte in (0, 2, 9, 10, 29, 30, 99)] == [
        *(0, 0, 0, 1, 1, 2, 2)
    ]
    assert both.containing(0, 1, 5) == 3
    assert [both.containing(1, 0, byte) for byte in (0, 6, 7)] == [4, 4, 5]


@pytest.mark.parametrize("documents", [(), ([],), ([[], []], [])])
def test_without_tokens_there_are_no_passages(documents):
    passages = passages_of(*documents)
    assert len(passages) == 0
    for ranges in (passages.alone(), passages.around(4), passages.runs(4)):
        assert ranges.shape == (0, 2)
    assert passages.first_tokens.tolist() == [0] * (len(documents) + 1)
