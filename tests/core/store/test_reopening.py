"""A document is opened again at its boundary: the same bytes, shared files, and nothing lost."""

import os
from pathlib import Path

import pytest
import torch
from sampled import sampled
from small_documents import HEADER, SNAPSHOT, files_of, flip
from stopped_runs import END, STEPS, feed, finish, run

from longctx.core.common.errors import Locked, NotFound, StateMismatch
from longctx.core.store.boundary import Boundary, folded, unfolded
from longctx.core.store.library import Library
from longctx.core.store.manifest import Manifest
from longctx.core.store.space import folder_bytes
from longctx.core.store.upkeep import sweep

pytestmark = pytest.mark.usefixtures("no_sync", "small")
AT = {"keys": SNAPSHOT["keys"][:, :2].contiguous(), "count": torch.tensor(3)}


def checkpoint(folder: Path, step: int) -> Manifest:
    """The manifest of a reading that was stopped after so many steps."""
    library = Library.open(folder, create=True)
    run(library, checkpoints=(step,), die=step)
    return library.document("book", partial=True).manifest


def make(library: Library, boundary: Boundary, snapshot=SNAPSHOT) -> Path:
    """A complete document with a boundary."""
    with library.writer("book", HEADER, shard_rows=4) as writer:
        feed(writer, 0, END)
        writer.complete(snapshot, boundary, report={"forced_splits": 0})
    return library.path / "documents" / "book"


TOKENS = [n + 1 for n, step in enumerate(STEPS) if step[0] == "token"]


@pytest.mark.parametrize("step", sampled(TOKENS, 13))
def test_going_on_from_any_place_gives_the_same_bytes(tmp_path, library, step):
    begun = checkpoint(tmp_path / "begun", step)
    boundary = Boundary(begun.tokens, AT, 0)
    folder = make(library, boundary)
    before = files_of(folder)
    shared = {name: os.stat(folder / name).st_ino for name in before}
    with library.longer("book") as longer:
        longer.shard_rows = 4
        writer = longer.begin(HEADER, boundary, begun.sources, {"forced_splits": 0})
        assert writer.begun.snapshot().keys() == AT.keys()
        assert writer.begun.boundary().tokens == begun.tokens
        assert files_of(folder) == before
        feed(writer, step, END)
        writer.complete(SNAPSHOT, boundary, report={"forced_splits": 0})
    assert files_of(folder) == before
    library.document("book").verify()
    full = [s.file for s in begun.shards if s.checkpoint is None]
    assert [name for name in full if os.stat(folder / name).st_ino != shared[name]] == []


def test_a_disk_without_links_gets_copies(tmp_path, library, monkeypatch):
    def no_link(source, target, **folders):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr("os.link", no_link)
    step = STEPS.index(("token", 2, 8))
    begun = checkpoint(tmp_path / "begun", step)
    boundary = Boundary(begun.tokens, AT, 0)
    folder = make(library, boundary)
    before = files_of(folder)
    with library.longer("book") as longer:
        longer.shard_rows = 4
        writer = longer.begin(HEADER, boundary, begun.sources, {"forced_splits": 0})
        feed(writer, step, END)
        writer.complete(SNAPSHOT, boundary, report={"forced_splits": 0})
    assert files_of(folder) == before


def test_what_is_shared_counts_once(tmp_path, library):
    step = STEPS.index(("token", 2, 8))
    begun = checkpoint(tmp_path / "begun", step)
    boundary = Boundary(begun.tokens, AT, 0)
    folder = make(library, boundary)
    size = folder_bytes(library.path)
    with library.longer("book") as longer:
        longer.shard_rows = 4
        longer.begin(HEADER, boundary, begun.sources, {"forced_splits": 0})
    added = folder_bytes(library.path) - size
    beside = sum(len(data) for data in files_of(library.path / "unfinished" / "book").values())
    shared = sum((folder / s.file).stat().st_size for s in begun.shards if s.checkpoint is None)
    assert shared > 0
    assert added <= beside - shared + 1000  # locks


def test_what_was_begun_stays_until_it_is_whole(tmp_path, library):
    step = STEPS.index(("token", 2, 8))
    begun = checkpoint(tmp_path / "begun", step)
    boundary = Boundary(begun.tokens, AT, 0)
    folder = make(library, boundary)
    before = files_of(folder)
    with library.longer("book") as longer:
        longer.shard_rows = 4
        writer = longer.begin(HEADER, boundary, begun.sources, {"forced_splits": 0})
        feed(writer, step, step + 3)
        writer.checkpoint(SNAPSHOT, boundary)
        with library.reading("book") as document:
            document.verify()
        with pytest.raises(Locked), library.longer("book"):
            pass
        with pytest.raises(Locked):
            library.remove("book")
    assert sweep(library).kept == []
    assert files_of(folder) == before
    with library.longer("book") as longer:
        longer.shard_rows = 4
        writer = longer.go_on(HEADER)
        feed(writer, step + 3, END)
        writer.complete(SNAPSHOT, boundary, report={"forced_splits": 0})
    assert files_of(folder) == before


def test_a_reader_keeps_the_longer_one_waiting(library, clock):
    boundary = Boundary(0, {}, 0)
    make(library, boundary)
    with library.reading("book"), library.longer("book") as longer:
        longer.shard_rows = 4
        writer = longer.begin(HEADER, boundary, (), {})
        feed(writer, 0, END)
        with pytest.raises(Locked, match="complete but not in its place"):
            writer.complete(SNAPSHOT, boundary, report={"forced_splits": 0})
    assert library.is_waiting("book")
    assert library.settle("book")
    assert not library.is_waiting("book")


def test_there_must_be_a_complete_document(library):
    with pytest.raises(NotFound), library.longer("none"):
        pass
    run(library, checkpoints=(5,))
    with pytest.raises(NotFound, match="not finished"), library.longer("book"):
        pass


# --- the snapshot of a boundary ---


@pytest.mark.parametrize(
    "tensor",
    [
        SNAPSHOT["keys"],
        SNAPSHOT["keys"][:1, :2, :3],
        SNAPSHOT["keys"][:, 1:],
        SNAPSHOT["keys"].float(),
        SNAPSHOT["keys"][0],
        torch.zeros(9, 9, 9),
        torch.tensor(7),
    ],
)
def test_only_what_the_snapshot_does_not_begin_with_is_kept(tensor, tmp_path):
    stored = folded({"keys": tensor.contiguous()}, SNAPSHOT)
    back = unfolded(stored, SNAPSHOT, tmp_path)["keys"]
    assert back.dtype == tensor.dtype
    assert torch.equal(back, tensor)
    begins = tensor.dtype == torch.bfloat16 and tensor.dim() == 3 and tensor.flatten()[0] == 0
    assert [*stored] == (["keys.shape"] if begins else ["keys"])


@pytest.mark.parametrize(
    "stored",
    [
        {"none_such.shape": torch.tensor([1])},
        {"keys.shape": torch.tensor([1, 1])},
        {"keys.shape": torch.tensor(1)},
        {"keys.shape": torch.tensor([1, 1, 5])},
        {"keys.shape": torch.tensor([1, 1, -1])},
        {"keys.shape": torch.tensor([1.0, 1.0, 1.0])},
        {"keys.shape": torch.tensor([True, True, True])},
    ],
)
def test_a_boundary_that_is_no_part_is_refused(stored, tmp_path):
    with pytest.raises(StateMismatch, match="damaged"):
        unfolded(stored, SNAPSHOT, tmp_path)


def test_a_damaged_boundary_is_found(library):
    folder = make(library, Boundary(8, AT, 0))
    assert torch.equal(library.document("book").boundary().snapshot["keys"], AT["keys"])
    flip(folder / "boundary-00000.safetensors", -1)
    with pytest.raises(StateMismatch, match="checksum"):
        library.document("book").boundary()
    with pytest.raises(StateMismatch, match="checksum"):
        library.document("book").verify()


def test_without_a_boundary_there_is_none(library):
    finish(library)
    assert library.document("book").boundary() is None
