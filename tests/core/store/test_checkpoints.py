"""Going on from a checkpoint: a document of many runs is, byte for byte, that of one run."""

import errno
import os
import random
import threading
import weakref

import pytest
import torch
from sampled import sampled
from small_documents import FIRST, HEADER, SNAPSHOT, Killed, end_source, files_of, stopped_writer
from stopped_runs import END, FULL, SOURCES, STEPS, done, feed, finish, run

from longctx.core.store import writer as writer_module
from longctx.core.store.boundary import Boundary
from longctx.core.store.document import Document
from longctx.core.store.manifest import Manifest
from longctx.core.store.places import delete_files

pytestmark = pytest.mark.usefixtures("no_sync", "small")


# ---- the same bytes


@pytest.mark.parametrize(
    ("kept", "shard_rows"),
    [
        *((kept, 3) for kept in sampled(range(END + 1), 16)),
        *((kept, 64) for kept in range(0, END, 4)),
    ],
)
def test_a_document_in_two_runs_is_the_one_in_one(library, kept, shard_rows):
    run(library, [kept], min(kept + 9, END), shard_rows)
    manifest = Manifest.read(library.path / "unfinished" / "book")
    assert STEPS[done(manifest) : kept] in ([], [STEPS[kept - 1]])  # all, but for a bare beginning
    assert finish(library, shard_rows=shard_rows) == finish(library, "whole", shard_rows)


@pytest.mark.parametrize("seed", range(5))
def test_a_document_in_many_runs_is_the_one_in_one(library, monkeypatch, seed):
    """Some die between checkpoints, some within one, some twice at the same place."""
    chance = random.Random(seed)
    real = writer_module.write_manifest
    kept = 0

    def die(folder, manifest):
        raise Killed

    while kept < END:
        steps = sorted(chance.choices(range(kept, END + 1), k=chance.randint(0, 3)))
        assert kept - run(library, steps, chance.randint(max([kept, *steps]), END)) in (0, 1)
        kept = steps[-1] if steps else kept
        monkeypatch.setattr(writer_module, "write_manifest", die)
        run(library, [min(kept + 5, END)])
        monkeypatch.setattr(writer_module, "write_manifest", real)
    assert finish(library) == finish(library, "whole")


def test_a_checkpoint_where_nothing_is_left_over(library, unfinished):
    """Shards and text are just full: the next run has rows and text, and no file to take up."""
    run(library, [FULL], shard_rows=4)
    names = {shard.file for shard in Document(unfinished).manifest.shards}
    assert {name for name in names if name.count(".") > 1} == {"memory-00000.00000.safetensors"}
    assert finish(library) == finish(library, "whole")


@pytest.mark.parametrize(("before", "after"), [(3, 4), (4, 3), (4, 64), (64, 4)])
def test_another_size_of_shards_does_not_mix_with_the_one_begun(library, before, after):
    run(library, [FULL + 1], shard_rows=before)
    files = finish(library, shard_rows=after)
    sizes = after if before == 64 else before  # 64: no shard was full yet
    assert files == finish(library, "whole", sizes)


def test_a_written_checkpoint_holds_no_snapshot(library):
    """It may be gigabytes of pinned memory, which the next one needs."""
    with stopped_writer(library) as writer:
        feed(writer, 0, FULL)
        snapshot, at_boundary = {"a": torch.ones(2)}, {"a": torch.zeros(2)}
        held = [weakref.ref(rows["a"]) for rows in (snapshot, at_boundary)]
        writer.growth(snapshot, Boundary(2, at_boundary, 0))
        writer.checkpoint(snapshot, Boundary(2, at_boundary, 0))
        del snapshot, at_boundary
        assert [one() for one in held] == [None, None]


def test_text_before_the_first_token_is_not_lost(library):
    with stopped_writer(library) as writer:
        writer.begin_source("bom.txt")
        writer.add_bytes(b"\xef\xbb\xbf")
        writer.checkpoint({})
    with library.writer("book", HEADER) as writer:
        assert writer.begun is None  # no token: from the beginning
        feed(writer, 0, END)
        writer.complete({})
    assert library.document("book").text(0, 0, 3) == FIRST[:3]


# ---- what is taken up


def test_a_writer_says_what_it_goes_on_from(library, unfinished):
    run(library, [FULL])
    tails = [s.size for s in Manifest.read(unfinished).shards if s.checkpoint is not None]
    with library.writer("book", HEADER, shard_rows=4) as writer:
        assert writer.begun.manifest.tokens == 12
        # All rows are in full files; the snapshot's file of the checkpoint goes.
        assert writer.growth({"new": torch.zeros(10)}) == 40 - sum(tails)
        assert writer.begun.manifest.report == {"step": FULL}
        assert writer.begun.snapshot()["step"] == FULL
        source = writer.begun.manifest.sources[-1]
        assert (source.encoding, source.undecodable, source.size) == ("utf-8", None, 4)
    assert run(library, []) == FULL  # nothing was changed by that


def test_the_number_of_the_checkpoint_goes_on(library, unfinished):
    def numbers():
        shards = Manifest.read(unfinished).shards
        return {shard.checkpoint for shard in shards} - {None}

    run(library, [4, 6, 9])
    assert numbers() == {2}
    run(library, [12])
    assert numbers() == {3}
    run(library, [])
    run(library, [13, 15])
    assert numbers() == {5}


def test_files_of_killed_writes_are_swept(library, unfinished):
    run(library, [10], die=25)  # full shards that no checkpoint names
    named = {"manifest.json", *(shard.file for shard in Manifest.read(unfinished).shards)}
    (unfinished / ".tmp-tokens-00003.safetensors").write_bytes(b"half")
    (unfinished / "memory-00000.00001.safetensors").write_bytes(b"of a checkpoint without manifest")
    assert len(files_of(unfinished).keys() - named) > 2
    with library.writer("book", HEADER, shard_rows=4):
        assert files_of(unfinished).keys() == named


def test_full_files_are_not_written_again(library, unfinished):
    run(library, [FULL + 1])
    full = [shard.file for shard in Manifest.read(unfinished).shards if shard.checkpoint is None]
    assert {name.split("-")[0] for name in full} == {"text", "lines", "tokens", "embeddings"}
    before = {name: (unfinished / name).stat().st_ino for name in full}
    finish(library)
    folder = library.path / "documents" / "book"
    assert {name: (folder / name).stat().st_ino for name in full} == before


def test_a_group_keeps_its_tensors(library):
    run(library, [FULL])
    with library.writer("book", HEADER, shard_rows=4) as writer:
        with pytest.raises(ValueError, match="embeddings"):
            writer.append("embeddings", {"vectors": torch.zeros(1, 2, 3)})
        writer.append("spans", {"ends": torch.arange(3)})  # and there may be new ones
        feed(writer, FULL, END)
        writer.complete({})
    assert library.document("book").take("spans", torch.tensor([2]))["ends"].tolist() == [2]


def test_a_source_that_is_open_must_be_gone_on_with(library):
    run(library, [FULL])
    with library.writer("book", HEADER, shard_rows=4) as writer:
        with pytest.raises(ValueError, match="still open"):
            writer.begin_source("another")
        with pytest.raises(ValueError, match="still open"):
            writer.complete({})
        with pytest.raises(ValueError, match="22 bytes"):
            end_source(writer, SOURCES[2])  # but it has 4


def test_all_was_there_but_the_end(library):
    run(library, [END])
    with library.writer("book", HEADER, shard_rows=4) as writer:
        writer.complete(SNAPSHOT, report={"forced_splits": 0})
    assert files_of(library.path / "documents" / "book") == finish(library, "whole")


# ---- a snapshot that is written already


def saved_then_completed(library, name, beside, again):
    """A document whose end is a checkpoint too; the inodes of its snapshot before and after."""
    snapshot = {"seen": torch.tensor(4), "keys": torch.arange(4.0)}
    with library.writer(name, HEADER) as writer:
        if beside:
            writer.work_beside()
        writer.begin_source("a")
        ids = torch.arange(4, dtype=torch.int32)
        writer.append("tokens", {"ids": ids, "starts": torch.arange(4)})
        writer.add_bytes(FIRST)
        end_source(writer, FIRST)
        writer.checkpoint(snapshot)
        [before] = (library.path / "unfinished" / name).glob("memory-*")
        kept = before.stat().st_ino
        writer.complete({**snapshot, "seen": torch.tensor(4)} if again else snapshot)
    return kept, (library.path / "documents" / name / "memory-00000.safetensors").stat().st_ino


@pytest.mark.parametrize("beside", [False, True])
def test_the_last_checkpoints_snapshot_is_not_written_again_at_the_end(library, beside):
    """Only where it is of the very tensors: equal ones may have been made by later tokens."""
    kept, found = saved_then_completed(library, "book", beside, again=False)
    assert kept == found
    kept, found = saved_then_completed(library, "other", beside, again=True)
    assert kept != found
    documents = [files_of(library.path / "documents" / name) for name in ("book", "other")]
    assert documents[0]["memory-00000.safetensors"] == documents[1]["memory-00000.safetensors"]


def test_a_snapshot_is_copied_where_the_file_system_has_no_links(library, monkeypatch):
    def refused(*_, **__):
        raise OSError(errno.EPERM, "no links here")

    monkeypatch.setattr(os, "link", refused)
    kept, found = saved_then_completed(library, "book", False, again=False)
    assert kept != found
    library.document("book").verify()


# ---- what a checkpoint makes needless


def test_the_last_checkpoint_is_deleted_while_more_is_written(library, monkeypatch):
    """Freeing gigabytes takes a second; only the end of the document waits for that."""
    goes_on, deleted = threading.Event(), []

    def slowly(folder, files):
        assert not files or goes_on.wait(10)
        deleted.extend(path.name for path in files)
        delete_files(folder, files)

    monkeypatch.setattr(writer_module, "delete_files", slowly)
    with library.writer("book", HEADER) as writer:
        writer.work_beside()
        writer.begin_source("a")
        writer.append("tokens", {"ids": torch.zeros(1).int(), "starts": torch.zeros(1).long()})
        writer.add_bytes(FIRST)
        end_source(writer, FIRST)
        writer.checkpoint({"seen": torch.tensor(1)})
        writer.checkpoint({"seen": torch.tensor(2)})
        writer.growth({"seen": torch.tensor(2)})
        assert not deleted
        goes_on.set()
        writer.complete({"seen": torch.tensor(2)})
    assert {"memory-00000.00000.safetensors", "memory-00000.00001.safetensors"} <= {*deleted}
    library.document("book").verify()
