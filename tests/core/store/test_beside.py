"""Full shards that are written in another thread: the same files, and no error is lost."""

import threading

import pytest
import torch
from safetensors.torch import load_file

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


def test_several_shards_are_written_at_once_and_stay_in_order(tmp_path, monkeypatch):
    writer, started = GroupWriter(tmp_path, "some", LIKE, 4), threading.Barrier(3)
    own = shard_writer.write_tensors

    def together(*given):
        started.wait(10)  # until two others are being written
        return own(*given)

    monkeypatch.setattr(shard_writer, "write_tensors", together)
    writer.work_beside()
    writer.append(rows(0, 12))
    writer.settle()
    assert [shard.number for shard in writer._full] == [0, 1, 2]
    for number, shard in enumerate(writer._full):
        stored = load_file(tmp_path / shard.file)
        assert torch.equal(stored["rows"], rows(4 * number, 4)["rows"])


@pytest.mark.parametrize("call", ["append", "shards", "settle"])
def test_a_write_that_fails_is_told_by_the_next_call_that_needs_it(tmp_path, monkeypatch, call):
    writer = GroupWriter(tmp_path, "some", LIKE, 4)
    writer.work_beside()

    def full(*_):
        raise LongctxError("no room")

    monkeypatch.setattr(shard_writer, "write_tensors", full)
    writer.append(rows(0, 4))  # is written meanwhile
    given = {"append": (rows(4, 4 * shard_writer.WRITERS),), "shards": (None,), "settle": ()}[call]
    with pytest.raises(LongctxError, match="no room"):
        getattr(writer, call)(*given)
    with pytest.raises(LongctxError, match="no room"):  # no later one takes its place
        writer.settle()
    assert not list(tmp_path.iterdir())
