"""Rows from all over a group's files: the same as by indexing, and damage is found."""

import numpy as np
import pytest
import torch
from small_documents import HEADER, flip

from longctx.core.common.errors import StateMismatch
from longctx.core.store import open_files, shards

pytestmark = pytest.mark.usefixtures("no_sync")
ROWS = 90  # in files of 16


@pytest.fixture
def small_blocks(monkeypatch):
    """Blocks of 64 bytes, so that a file has many, and four threads."""
    monkeypatch.setattr(shards, "BLOCK", 64)
    monkeypatch.setattr(open_files.os, "cpu_count", lambda: 4)


@pytest.fixture
def values(library):
    """A document with values in files of 16 rows, and they themselves."""
    given = {
        "values.0": torch.randn(ROWS, 2, 5).to(torch.bfloat16),
        "values.0.scales": torch.rand(ROWS, 2).half(),
    }
    with library.writer("book", HEADER, shard_rows=16) as writer:
        writer.append("kv", given)
        writer.complete({})
    return given


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize(
    "rows",
    [
        [],
        [0],
        [ROWS - 1],
        [3, 4, 5, 15, 16, 17, 40],
        [*range(ROWS)],
        [14, 15, 15, 16, 16, 16, 89, 89],
    ],
)
def test_they_are_those_asked_for_when_verified_and_before(library, values, rows):
    document, wanted = library.document("book"), torch.tensor(rows, dtype=torch.int64)
    for _ in range(2):
        taken = document.take("kv", wanted)
        assert taken.keys() == values.keys()
        for name, whole in values.items():
            assert torch.equal(taken[name], whole[wanted])


@pytest.mark.usefixtures("small_blocks", "values")
def test_only_blocks_with_such_rows_are_verified_each_once(library, monkeypatch):
    document, read = library.document("book"), []
    own = open_files.OpenFile.read_into

    def noted(self, start, data):
        read.append(len(data))
        return own(self, start, data)

    document.take("kv", torch.tensor([0]))  # headers are read too
    monkeypatch.setattr(open_files.OpenFile, "read_into", noted)
    before, wanted = document.checked_bytes, torch.tensor([0, 1, 20, 21, 50])
    document.take("kv", wanted, ("values.0",))
    verified = document.checked_bytes - before
    assert verified > 0
    read.clear()
    document.take("kv", wanted, ("values.0",))
    assert read == [40, 40, 20]  # bytes of two runs of two rows, and of one row
    assert document.checked_bytes - before == verified


@pytest.mark.usefixtures("small_blocks", "values")
def test_damage_is_found_in_whatever_thread(library):
    paths = sorted((library.path / "documents" / "book").glob("kv*"))
    flip(paths[2], paths[2].stat().st_size - 3)
    document = library.document("book")
    fine = torch.tensor([*range(32)])
    assert len(document.take("kv", fine)["values.0"]) == 32
    with pytest.raises(StateMismatch, match="kv-00002"):
        document.take("kv", torch.tensor([1, 17, 33, 47, 60, 70, 89]))


def test_rows_that_do_not_ascend_are_refused(library, values):
    document = library.document("book")
    for rows in ([3, 2], [-1, 0], [ROWS]):
        with pytest.raises(ValueError, match=f"within {len(values['values.0'])}"):
            document.array_take("kv", np.array(rows), "values.0", keep=False)
