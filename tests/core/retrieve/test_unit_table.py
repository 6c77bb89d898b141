"""Units and windows, by hand."""

from types import SimpleNamespace

import numpy as np
import pytest

from longctx.core.retrieve import unit_table
from longctx.core.retrieve.unit_table import Units


def manifest(*tokens: int) -> SimpleNamespace:
    """Of a document whose sources have so many tokens."""
    firsts = np.cumsum([0, *tokens]).tolist()
    sources = [
        SimpleNamespace(first_token=first, tokens=count)
        for first, count in zip(firsts[:-1], tokens, strict=True)
    ]
    return SimpleNamespace(tokens=firsts[-1], sources=sources)


def test_units_are_64_tokens_of_one_source():
    units = Units.of(manifest(130, 0, 64, 5))
    assert units.sources.tolist() == [0, 0, 0, 2, 3]
    assert units.tokens.tolist() == [0, 64, 128, 130, 194]
    assert units.lengths.tolist() == [64, 64, 2, 64, 5]
    assert units.windows.tolist() == [[0, 1], [1, 2], [3, 3], [4, 4]]
    assert units.documents.tolist() == [0] * 5
    assert not len(units.starts)
    kinds = [getattr(units, name).dtype.name for name in ("sources", "tokens", "lengths")]
    assert kinds == ["int32", "int64", "int32"]


def test_of_several_documents_units_and_tokens_are_counted_on():
    units = Units.of(manifest(65), manifest(), manifest(1, 128))
    assert units.documents.tolist() == [0, 0, 2, 2, 2]
    assert units.sources.tolist() == [0, 0, 0, 1, 1]
    assert units.tokens.tolist() == [0, 64, 65, 66, 130]
    assert units.windows.tolist() == [[0, 1], [2, 2], [3, 4]]
    assert units.first_tokens.tolist() == [0, 65, 65, 194]
    assert units.first_units.tolist() == [0, 2, 2, 5]


@pytest.mark.parametrize("manifests", [(), (manifest(),), (manifest(0), manifest())])
def test_where_there_are_no_tokens_there_are_no_units(manifests):
    units = Units.of(*manifests)
    assert (len(units), units.windows.shape, units.of_unit.shape) == (0, (0, 2), (0, 2))
    assert units.best(np.empty(0, np.float32)).shape == (0,)
    assert units.sums(np.empty(0, int)).shape == (0,)


def test_each_unit_is_in_the_window_that_it_ends_and_the_one_that_it_begins():
    units = Units.of(manifest(192, 3, 128))
    assert units.windows.tolist() == [[0, 1], [1, 2], [3, 3], [4, 5]]
    assert units.of_unit.tolist() == [[-1, 0], [0, 1], [1, -1], [-1, 2], [-1, 3], [3, -1]]
    assert units.sums(np.array([1, 2, 4, 8, 16, 32])).tolist() == [3, 6, 8, 48]
    best = units.best(np.array([1, 5, -2, 0], np.float32))
    assert (best.tolist(), best.dtype.name) == ([1, 5, 5, -2, 0, 0], "float32")


def test_a_million_tokens_in_units_of_another_size(monkeypatch):
    monkeypatch.setattr(unit_table, "UNIT", 7)
    units = Units.of(manifest(*[100] * 500))
    assert len(units) == 500 * 15
    assert units.lengths.sum() == 50_000
    assert (units.lengths[14::15] == 2).all()
    assert len(units.windows) == 500 * 14
