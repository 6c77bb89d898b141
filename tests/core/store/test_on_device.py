"""Files that go part by part to a device: the tensors that reading gives, each block checked."""

import pytest
import torch
from small_documents import HEADER, flip

from longctx.core.common.errors import StateMismatch
from longctx.core.store import on_device, shards
from longctx.core.store.confined import Confined
from longctx.core.store.manifest import Manifest
from longctx.core.store.shard_reader import TensorFile

pytestmark = pytest.mark.usefixtures("no_sync")

SNAPSHOT = {
    "keys": torch.arange(900).view(3, 100, 3).bfloat16(),
    "seen": torch.tensor(900),
    "none": torch.empty(0, 5),
    "flags": torch.arange(7) % 2 == 0,
}


@pytest.fixture(params=["verified here", "verified there"])
def small_parts(request, monkeypatch):
    """Blocks of 64 bytes, three of them in a buffer: tensors begin and end within parts."""
    monkeypatch.setattr(on_device, "MUCH", 0 if request.param == "verified there" else 1 << 30)
    monkeypatch.setattr(shards, "BLOCK", 64)
    monkeypatch.setattr(on_device, "PART_BLOCKS", 3)


def files(library):
    """The snapshot and the tokens of a document."""
    with library.writer("book", HEADER) as writer:
        writer.begin_source("a")
        writer.append("tokens", {"ids": torch.tensor([3]).int(), "starts": torch.tensor([0])})
        writer.add_bytes(b"a")
        writer.checkpoint(SNAPSHOT)
    folder = Confined(library.path) / "unfinished" / "book"
    found = {shard.group: shard for shard in Manifest.read(folder).shards}
    return [TensorFile(folder, found[group]) for group in ("memory", "tokens")]


@pytest.mark.usefixtures("small_parts")
def test_they_are_the_tensors_that_reading_gives(library):
    both = files(library)
    for file, found in zip(both, on_device.on_device(both, "cpu"), strict=True):
        assert found.keys() == file.slots.keys()
        for name, tensor in found.items():
            expected = file.tensor(name)
            assert (tensor.dtype, tensor.shape) == (expected.dtype, expected.shape)
            assert torch.equal(tensor, expected)
        assert file.checked_bytes == file.shard.size
        (again,) = on_device.on_device([file], "cpu")  # the buffers of the first time
        assert all(torch.equal(again[name], found[name]) for name in found)


@pytest.mark.usefixtures("small_parts")
@pytest.mark.parametrize("place", [0.1, 0.6, 0.99])
def test_damage_is_told_wherever_it_is(library, place):
    file, _ = files(library)
    flip(library.path / "unfinished" / "book" / file.shard.file, int(file.shard.size * place))
    with pytest.raises(StateMismatch, match="damaged"):
        on_device.on_device([TensorFile(file.path.parent, file.shard)], "cpu")


@pytest.mark.usefixtures("small_parts")
def test_what_arrived_otherwise_is_read_again(library, monkeypatch):
    file, _ = files(library)
    monkeypatch.setattr(on_device, "MUCH", 0)
    sums = on_device.block_checksums

    def broken(memory, *given):
        memory[400:500] = 7  # on its way
        return sums(memory, *given)

    monkeypatch.setattr(on_device, "block_checksums", broken)
    (found,) = on_device.on_device([file], "cpu")
    assert all(torch.equal(found[name], file.tensor(name)) for name in file.slots)
