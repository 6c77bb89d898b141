"""Full shards that are written in another thread: the same files, and no error is lost."""

import pytest
import torch

from longctx.core.common.errors import LongctxError
from longctx.core.store import shard_writer
from longctx.core.store.shard_writer import GroupWriter

LIKE = {"rows": torch.zeros(0, 3, dtype=torch.int32)}


def rows(first: int, count: int):
    return {"rows": torch.arange(first * 3, (first + count) * 3, dtype=torch.int32).view(-1, 3)}


def write(folder, beside: bool) -> list:
    """Eleven rows in pieces, four to a shard, with a checkpoint on the way."""
    folder.mkdir()
    writer = GroupWriter(folder, "some", LIKE, 4)
    if beside:
        writer.work_beside()
    for first, count in ((0, 3), (3, 1), (4, 5)):
        writer.append(rows(first, count))
        assert writer.rows == first + count
    assert [shard.file for shard in writer.shards(7)][-1] == "some-00002.00007.safetensors"
    writer.append(rows(9, 2))
    return writer.shards(None)


def test_the_files_are_the_same(tmp_path):
    plain, beside = write(tmp_path / "a", False), write(tmp_path / "b", True)
    assert plain == beside
    assert [shard.rows for shard in beside] == [4, 4, 3]
    for shard in plain:
        files = [(tmp_path / name / shard.file).read_bytes() for name in "ab"]
        assert files[0] == files[1]


@pytest.mark.parametrize("call", ["append", "shards", "settle"])
def test_a_write_that_fails_is_told_by_the_next_call_that_needs_it(tmp_path, monkeypatch, call):
    writer = GroupWriter(tmp_path, "some", LIKE, 4)
    writer.work_beside()

    def full(*_):
        raise LongctxError("no room")

    monkeypatch.setattr(shard_writer, "write_tensors", full)
    writer.append(rows(0, 4))  # is written meanwhile
    given = {"append": (rows(4, 4),), "shards": (None,), "settle": ()}[call]
    with pytest.raises(LongctxError, match="no room"):
        getattr(writer, call)(*given)
    assert not list(tmp_path.iterdir())
