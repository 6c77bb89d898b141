"""A checkpoint that is not gone on from: of something else, damaged, or with nothing in it."""

import os
from pathlib import Path

import pytest
from small_documents import HEADER, files_of, flip, forge, put
from stopped_runs import FULL, finish, run

from longctx.core.common.errors import NotFound, StateMismatch, UsageError
from longctx.core.store import shard_writer
from longctx.core.store.manifest import Manifest

pytestmark = pytest.mark.usefixtures("no_sync", "small")


def test_what_differs_is_refused_and_stays(library, unfinished):
    run(library, [FULL])
    before = files_of(unfinished)
    asked = []

    def differs(begun):
        asked.append(begun)
        return "it was read with another method"

    with pytest.raises(UsageError) as caught, library.writer("book", HEADER, differs=differs):
        pass
    assert [manifest.tokens for manifest in asked] == [12]
    assert caught.value.what == "'book' was begun from something else (12 tokens)"
    assert caught.value.why == "it was read with another method"
    assert "--replace" in caught.value.remedy
    assert files_of(unfinished) == before


def test_what_differs_is_begun_anew_with_replace(library, unfinished):
    run(library, [FULL])
    with library.writer("book", HEADER, True, lambda begun: "it differs") as writer:
        assert writer.begun is None
        assert list(files_of(unfinished)) == ["manifest.json"]
        assert Manifest.read(unfinished).tokens == 0
    assert finish(library) == finish(library, "whole")


def test_replace_goes_on_where_nothing_differs(library):
    run(library, [FULL])
    with library.writer("book", HEADER, replace=True, shard_rows=4) as writer:
        assert writer.begun.manifest.tokens == 12


@pytest.mark.parametrize("steps", [[], [0], [1]])
def test_a_checkpoint_without_tokens_is_begun_anew(library, unfinished, steps):
    run(library, steps, die=20)

    def differs(begun):
        raise AssertionError("there is nothing that could differ")

    with library.writer("book", HEADER, differs=differs, shard_rows=4) as writer:
        assert writer.begun is None
        assert list(files_of(unfinished)) == ["manifest.json"]
    assert finish(library) == finish(library, "whole")


def test_a_folder_without_manifest_is_begun_anew(library, unfinished):
    run(library, [FULL])
    (unfinished / "manifest.json").unlink()
    assert finish(library) == finish(library, "whole")


def cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 1)


def other_text(path: Path) -> None:
    put(path.parent, path.name, shard_writer.compress_member(b"spring"))


def in_the_middle(path: Path) -> None:
    """A full file that follows one of a checkpoint."""

    rename(path.parent, "tokens-00001.safetensors", "tokens-00001.00000.safetensors")


def full_without_its_lines(path: Path) -> None:
    rename(path.parent, path.name, "text-00001.gz")


def rename(folder: Path, old: str, new: str) -> None:
    def change(data):
        for shard in data["shards"]:
            shard["file"] = new if shard["file"] == old else shard["file"]

    (folder / old).rename(folder / new)
    forge(folder, change)


@pytest.mark.parametrize(
    ("file", "damage"),
    [
        ("manifest.json", lambda path: flip(path, 99)),
        ("text-00001.00000.gz", lambda path: flip(path, 9)),
        ("text-00001.00000.gz", other_text),
        ("text-00001.00000.gz", full_without_its_lines),
        ("tokens-00003.00000.safetensors", lambda path: flip(path, -1)),
        ("tokens-00003.00000.safetensors", in_the_middle),
        ("embeddings-00003.00000.safetensors", lambda path: flip(path, 0)),
        ("embeddings-00003.00000.safetensors", Path.unlink),
        ("memory-00000.00000.safetensors", cut),
        ("tokens-00000.safetensors", cut),
        ("lines-00000.safetensors", Path.unlink),
    ],
)
def test_a_damaged_checkpoint_is_told_and_begun_anew_with_replace(
    library, unfinished, file, damage
):
    run(library, [FULL + 3], die=FULL + 3)
    damage(unfinished / file)
    before = files_of(unfinished)
    with pytest.raises(StateMismatch, match="--replace"), library.writer("book", HEADER):
        pass
    assert files_of(unfinished) == before
    with library.writer("book", HEADER, replace=True) as writer:
        assert writer.begun is None
    assert finish(library) == finish(library, "whole")


def test_the_text_of_an_open_source_is_compared_with_its_hash(library, unfinished):
    run(library, [FULL + 3])
    forge(unfinished, lambda data: data["sources"][-1].update(sha256="0" * 64))
    with pytest.raises(StateMismatch, match="not the one that it describes"):
        finish(library)
    library.remove("book")
    with pytest.raises(NotFound):
        library.document("book", partial=True)
