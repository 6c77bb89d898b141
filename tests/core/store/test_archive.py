"""A document as one file: what goes out comes in again, and nothing else does."""

import io
import os
import shutil
import tarfile
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import torch
from other_process import holding
from small_documents import (
    HOSTILE_NAMES,
    TOKENS,
    begin,
    files_of,
    flip,
    forge,
    lock_files,
    put,
    write,
)

from longctx.core.common.errors import Locked, LongctxError, NotFound, StateMismatch, UsageError
from longctx.core.engine.disk import folder_bytes
from longctx.core.store import archive, shards
from longctx.core.store.archive import export, receive
from longctx.core.store.confined import Confined
from longctx.core.store.library import Library
from longctx.core.store.naming import require_name
from longctx.core.store.shard_writer import compress_member

pytestmark = pytest.mark.usefixtures("no_sync", "small")

Members = list[tuple[tarfile.TarInfo, bytes]]


@pytest.fixture
def packed() -> bytes:
    """The document "book", exported."""
    return packed_book()


@cache
def packed_book() -> bytes:
    with TemporaryDirectory() as folder:
        source = Library.open(Path(folder) / "source", create=True)
        write(source, shard_rows=64)
        return exported(source)


def exported(library: Library, name: str = "book") -> bytes:
    out = io.BytesIO()
    with library.reading(name) as document:
        assert export(document, out) == len(out.getvalue())
    return out.getvalue()


def imported(library: Library, data: bytes, name: str = "book", **options):
    return receive(library.path, io.BytesIO(data), "book.longctx", name, **options)


def members(data: bytes) -> Members:
    with tarfile.open(fileobj=io.BytesIO(data), mode="r:") as tar:
        return [(info, tar.extractfile(info).read()) for info in tar]


def repacked(parts: Members) -> bytes:
    """A tar as `tar` would write it, with whatever is in the headers."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.GNU_FORMAT) as tar:
        for info, data in parts:
            tar.addfile(info, io.BytesIO(data))
    return out.getvalue()


def forged(tmp_path: Path, change: Callable[[Path], object]) -> bytes:
    """The archive of a document whose folder was changed, put together without longctx."""
    library = Library.open(tmp_path / "forged", create=True)
    manifest = write(library)
    folder = library.path / "documents/book"
    change(folder)
    names = ["manifest.json", *(shard.file for shard in manifest.shards)]
    parts = []
    for name in names:
        info = tarfile.TarInfo(name)
        info.size = (folder / name).stat().st_size
        parts.append((info, (folder / name).read_bytes()))
    return repacked(parts)


def everything(root: Path) -> dict[str, bytes]:
    """Every file of a library but its locks."""
    paths = (path for path in root.rglob("*") if path.is_file())
    found = {path.relative_to(root).as_posix(): path.read_bytes() for path in paths}
    return {name: data for name, data in found.items() if not name.startswith((".lock", "locks"))}


# ---- export


def test_the_file_is_a_plain_tar_of_the_folder(library):
    manifest = write(library)
    parts = members(exported(library))
    names = [info.name for info, _ in parts]
    assert names == ["manifest.json", *(shard.file for shard in manifest.shards)]
    assert {info.name: data for info, data in parts} == files_of(library.path / "documents/book")
    for info, _ in parts:
        assert info.isreg()
        assert (info.mtime, info.uid, info.gid, info.uname, info.gname) == (0, 0, 0, "", "")
        assert info.mode == 0o644


def test_the_same_document_gives_the_same_bytes(library, packed):
    write(library, "other", checkpoints=(3, 9), shard_rows=64)
    assert exported(library, "other") == packed


def test_progress_of_both_ways_reaches_the_end(library, packed):
    told = []
    manifest = imported(library, packed, on_progress=lambda done, total: told.append((done, total)))
    with library.reading("book") as document:
        export(document, io.BytesIO(), lambda done, total: told.append((done, total)))
    assert (manifest.size, manifest.size) in told
    assert [total for _, total in told] == sorted(total for _, total in told)
    ends = [(done, total) for done, total in told if done == total]
    assert {total for _, total in ends} == {total for _, total in told}


def test_damage_is_never_exported(library):
    write(library)
    folder = library.path / "documents/book"
    for path in sorted(folder.glob("*-*")):
        for position in {*range(0, path.stat().st_size, 64), path.stat().st_size - 1}:
            flip(path, position)
            with pytest.raises(StateMismatch, match=path.name):
                exported(library)
            flip(path, position)
    assert exported(library)


def test_only_complete_documents_are_exported(library):
    begin(library)
    with pytest.raises(NotFound, match="not finished"):
        exported(library)


def test_a_manifest_that_could_not_be_imported_is_not_exported(library, monkeypatch):
    write(library)
    monkeypatch.setattr(archive, "MANIFEST_BYTES", 100)
    with pytest.raises(LongctxError, match="100 is the most"):
        exported(library)


def test_a_document_cannot_go_while_it_is_exported(library):
    write(library)
    with library.reading("book") as document:

        def remove(done: int, total: int) -> None:
            with pytest.raises(Locked):
                library.remove("book")

        export(document, io.BytesIO(), remove)


# ---- import


def test_an_imported_document_is_the_one_that_was_exported(library, packed):
    manifest = imported(library, packed, "novel")
    assert (manifest.name, manifest.tokens) == ("novel", TOKENS)
    folder = library.path / "documents/novel"
    assert files_of(folder) == {info.name: data for info, data in members(packed)}
    library.document("novel").verify()
    assert exported(library, "novel") == packed
    assert not list((library.path / "unfinished").iterdir())
    assert lock_files(library.path) == []


def test_a_library_is_made(tmp_path, packed):
    made = Library(tmp_path / "new/library")
    imported(made, packed)
    Library.open(made.path).document("book").verify()


def test_a_tar_of_another_program_is_taken_too(library, packed):
    parts = members(packed)
    for info, _ in parts:
        info.mtime, info.uid, info.uname, info.mode = 1_700_000_000.0, 1000, "me", 0o600
    assert len(repacked(parts)) % tarfile.RECORDSIZE == 0  # zeros follow its end
    imported(library, repacked(parts))
    library.document("book").verify()


def test_an_archive_that_is_cut_off_anywhere_is_refused(library, packed):
    write(library, "other")
    before = everything(library.path)
    for end in {*range(0, len(packed), 301), len(packed) - 1, len(packed) - 512}:
        with pytest.raises(StateMismatch, match=r"book\.longctx"):
            imported(library, packed[:end])
        assert everything(library.path) == before
    assert lock_files(library.path) == []


def test_a_flip_in_the_archive_is_found_or_of_no_meaning(library, packed):
    good = {info.name: data for info, data in members(packed)}
    caught = 0
    for position in range(0, len(packed), 97):
        data = bytearray(packed)
        data[position] ^= 1
        try:
            imported(library, bytes(data))
        except StateMismatch:
            caught += 1
            assert everything(library.path).keys() == {"library.json"}
        else:  # in the padding between files
            assert files_of(library.path / "documents/book") == good
            library.remove("book")
    assert caught > 50


def hostile(name: str, **fields) -> Callable[[Members], Members]:
    """Puts a member of another kind in the place of the second one."""

    def change(parts: Members) -> Members:
        info = tarfile.TarInfo(name)
        for field, value in fields.items():
            setattr(info, field, value)
        return [parts[0], (info, b""), *parts[2:]]

    return change


def renamed(name: str) -> Callable[[Members], Members]:
    def change(parts: Members) -> Members:
        parts[1][0].name = name
        return parts

    return change


CHANGES = {
    "nothing": lambda parts: [],
    "manifest missing": lambda parts: parts[1:],
    "manifest last": lambda parts: [*parts[1:], parts[0]],
    "file missing": lambda parts: [*parts[:2], *parts[3:]],
    "last file missing": lambda parts: parts[:-1],
    "order": lambda parts: [parts[0], parts[2], parts[1], *parts[3:]],
    "twice": lambda parts: [parts[0], parts[1], *parts[1:]],
    "manifest twice": lambda parts: [parts[0], *parts],
    "file more": lambda parts: [*parts, parts[-1]],
    "file more, other name": lambda parts: [*parts, (tarfile.TarInfo("../../evil"), b"")],
    "absolute": renamed("/tmp/evil"),
    "parent": renamed("../evil"),
    "folder": renamed("book/embeddings-00000.safetensors"),
    "dot": renamed("./embeddings-00000.safetensors"),
    "long name": renamed("x" * 300),
    "directory": hostile("embeddings-00000.safetensors", type=tarfile.DIRTYPE),
    "link": hostile("embeddings-00000.safetensors", type=tarfile.SYMTYPE, linkname="/etc/passwd"),
    "hard link": hostile("embeddings-00000.safetensors", type=tarfile.LNKTYPE, linkname="x"),
    "device": hostile("embeddings-00000.safetensors", type=tarfile.CHRTYPE, devmajor=1),
    "pipe": hostile("embeddings-00000.safetensors", type=tarfile.FIFOTYPE),
    "sparse": hostile("embeddings-00000.safetensors", type=tarfile.GNUTYPE_SPARSE),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=list(CHANGES))
def test_hostile_archives_are_refused(library, packed, tmp_path, change):
    write(library, "other")
    before, outside = everything(library.path), sorted(tmp_path.iterdir())
    with pytest.raises(StateMismatch, match=r"cannot import 'book\.longctx'"):
        imported(library, repacked(change(members(packed))))
    assert everything(library.path) == before
    assert sorted(tmp_path.iterdir()) == outside


def header(name: str, size: int, **fields) -> bytes:
    info = tarfile.TarInfo(name)
    info.size = size
    for field, value in fields.items():
        setattr(info, field, value)
    return info.tobuf(tarfile.GNU_FORMAT)


BAD_HEADERS = {
    "no tar": b"\x1f\x8b" + bytes(2000),
    "huge manifest": header("manifest.json", 1 << 40) + bytes(2000),
    "negative size": header("manifest.json", -5) + bytes(2000),
    "huge pax header": header("x", 1 << 40, type=tarfile.XHDTYPE) + bytes(2000),
    "pax header of nothing": header("x", 0, type=tarfile.XHDTYPE) + bytes(2000),
    "pax header of a path": header("x", 20, type=tarfile.XHDTYPE) + b"20 path=/etc/passwd\n",
    "pax header twice": (header("x", 11, type=tarfile.XHDTYPE) + b"11 size=10\n".ljust(512, b"\0"))
    * 2,
    "empty manifest": header("manifest.json", 0) + bytes(2000),
    "manifest of nothing known": header("manifest.json", 2) + b"{}".ljust(2000, b"\0"),
    "manifest of other types": header("manifest.json", 27)
    + b'{"format": 1, "sources": 5}'.ljust(2000, b"\0"),
    "deep manifest": header("manifest.json", 512 * 400) + b"[" * 512 * 400,
    "manifest of binary": header("manifest.json", 512) + b"\xff\0" * 1000,
}


@pytest.mark.parametrize("data", BAD_HEADERS.values(), ids=list(BAD_HEADERS))
def test_what_is_no_archive_is_refused_and_no_library_is_made(tmp_path, data):
    library = Library(tmp_path / "library")
    with pytest.raises(StateMismatch):
        imported(library, data)
    assert not library.path.exists()


def test_manifests_that_lie_are_refused(library, tmp_path):
    def in_first(field: str, value: object) -> Callable[[Path], None]:
        return lambda folder: forge(folder, lambda data: data["shards"][0].update({field: value}))

    def reading(data: dict) -> None:
        data["status"] = "reading"

    tokens = torch.arange(4).int().numpy().tobytes()
    lies = {
        "size and blocks": in_first("size", 10**30),
        "too large a size for a float": in_first("size", 10**400),
        "a path": in_first("file", "../embeddings-00000.safetensors"),
        "other rows": in_first("rows", 3),
        "a checkpoint": lambda folder: forge(folder, reading),
        "another format": lambda folder: forge(folder, lambda data: data.update(format=1)),
        "no safetensors": lambda folder: put(folder, "tokens-00000.safetensors", tokens),
        "other text": lambda folder: put(folder, "text-00000.gz", compress_member(b"x")),
    }
    for what, lie in lies.items():
        shutil.rmtree(tmp_path / "forged", ignore_errors=True)
        with pytest.raises(StateMismatch) as caught:
            imported(library, forged(tmp_path, lie))
        assert everything(library.path).keys() == {"library.json"}, what
        assert ".new" not in str(caught.value), what


def test_sizes_over_8_gib_are_written_and_read(library, monkeypatch):
    write(library, "source", shard_rows=64)
    monkeypatch.setattr(shards, "BLOCK", 1 << 33)  # so that a forged manifest needs few checksums
    monkeypatch.setattr(archive, "free_disk", lambda folder: 1 << 50)
    size = (1 << 33) + 5

    def grow(data: dict) -> None:
        for shard in data["shards"]:
            shard["blocks"] = ["0" * 32]
            shard["members"] = shard.get("members")
        data["shards"] = [{k: v for k, v in s.items() if v is not None} for s in data["shards"]]
        data["shards"][0].update(size=size, blocks=["0" * 32] * 2)

    folder = library.path / "documents/source"
    forge(folder, grow)
    text = (folder / "manifest.json").read_bytes()
    first = tarfile.TarInfo("embeddings-00000.safetensors")
    first.size = size
    start = header("manifest.json", len(text)) + text + bytes(-len(text) % 512)
    with pytest.raises(StateMismatch, match="it is cut off"):  # so the header was taken
        imported(library, start + first.tobuf(tarfile.PAX_FORMAT) + b"some data")
    first.size -= 1
    with pytest.raises(StateMismatch, match="8,589,934,596 bytes and should have 8,589,934,597"):
        imported(library, start + first.tobuf(tarfile.PAX_FORMAT) + b"some data")


@pytest.mark.parametrize("name", HOSTILE_NAMES)
def test_hostile_names_are_refused(library, packed, name):
    with suppress(UsageError):
        assert imported(library, packed, require_name(name)).folder.isascii()
        return
    with pytest.raises(UsageError, match="cannot be the name"):
        imported(library, packed, name)
    assert everything(library.path).keys() == {"library.json"}


def test_what_is_there_is_replaced_only_on_request(library, packed):
    library_book = Library(library.path)
    begin(library, "begun")
    write(library, shard_rows=8)
    before = everything(library.path)
    with pytest.raises(UsageError, match=r"'book' exists.*--replace"):
        imported(library, packed)
    with pytest.raises(UsageError, match=r"'begun' was begun.*still be gone on with"):
        imported(library, packed, "begun")
    assert everything(library.path) == before
    for name in ("book", "begun"):
        imported(library_book, packed, name, replace=True)
        assert exported(library, name) == packed
    assert not list((library.path / "unfinished").iterdir())


def test_a_damaged_reading_is_replaced_only_on_request(library, packed):
    flip(begin(library) / "manifest.json", 50)
    with pytest.raises(StateMismatch, match="damaged"):
        imported(library, packed)
    imported(library, packed, replace=True)
    library.document("book").verify()


def test_a_failed_import_destroys_nothing_that_it_was_to_replace(library, packed):
    write(library)
    begin(library, "begun")
    before = everything(library.path)
    for name in ("book", "begun"):
        with pytest.raises(StateMismatch, match="cut off"):
            imported(library, packed[:-600], name, replace=True)
    assert everything(library.path) == before


def test_a_reading_without_a_checkpoint_is_nothing_to_keep(library, unfinished, packed):
    unfinished.mkdir(parents=True)
    (unfinished / "tokens-00000.safetensors").touch()
    imported(library, packed)
    library.document("book").verify()
    assert not unfinished.exists()


def test_no_room_is_told_before_anything_is_written(library, packed, monkeypatch):
    manifest = imported(library, packed, "other")
    before = everything(library.path)
    used = folder_bytes(library.path)
    needed = used + manifest.size + len(manifest.to_json())
    with pytest.raises(LongctxError, match="--max-size"):
        imported(library, packed, max_size=needed - 1)
    with pytest.raises(LongctxError, match=r"and 0 bytes are left of --max-size"):
        imported(library, packed, max_size=1)
    monkeypatch.setattr(archive, "free_disk", lambda folder: manifest.size)
    with pytest.raises(LongctxError, match="are free"):
        imported(library, packed)
    monkeypatch.undo()
    assert everything(library.path) == before


def test_max_size_that_is_just_enough(tmp_path, library, packed):
    manifest = imported(library, packed, "other")
    size = manifest.size + len(manifest.to_json())
    imported(library, packed, max_size=folder_bytes(library.path) + size)


def test_a_name_in_use_is_refused(library, packed, monkeypatch):
    with (
        holding(library.path, "exclusive", "unfinished/book") as process,
        pytest.raises(Locked, match=f"process {process.pid} "),
    ):
        imported(library, packed)
    write(library, shard_rows=8)
    before = everything(library.path)
    monkeypatch.setattr("longctx.core.store.places.PATIENCE", 0.0)
    with holding(library.path, "shared", "documents/book"):
        with pytest.raises(Locked, match="complete but not in its place"):
            imported(library, packed, replace=True)
        library.document("book").verify()
    assert {k: v for k, v in everything(library.path).items() if k in before} == before
    imported(library, packed, replace=True)
    assert exported(library) == packed


class Moments:
    """Acts at every moment before a file or folder of a library is synced or renamed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, act: Callable[[int], None]):
        self.count = 0
        replace = Confined.replace

        def next_moment() -> None:
            act(self.count)
            self.count += 1

        def moved(path: Confined, target: Confined) -> None:
            next_moment()
            replace(path, target)

        monkeypatch.setattr(os, "fsync", lambda handle: next_moment())
        monkeypatch.setattr(Confined, "replace", moved)


@pytest.mark.parametrize("there", ["nothing", "document", "reading"])
def test_a_kill_at_any_moment_leaves_the_old_or_the_new(
    library, packed, monkeypatch, tmp_path, there
):
    if there == "document":
        write(library, shard_rows=8)
    elif there == "reading":
        begin(library)
    copies = tmp_path / "copies"

    def copy(moment: int) -> None:
        shutil.copytree(library.path, copies / f"{moment:03}")

    with monkeypatch.context() as patched:
        moments = Moments(patched, copy)
        imported(library, packed, replace=True)
    copy(moments.count)
    old = found(Library.open(copies / "000"))
    seen = []
    for path in sorted(copies.iterdir()):
        killed = Library.open(path)
        state = found(killed)
        allowed = (old, packed, None) if there == "reading" else (old, packed)
        assert state in allowed
        seen += [state] if state not in seen[-1:] else []
        imported(killed, packed, replace=True)  # and it can be done again
        assert exported(killed) == packed
    assert moments.count > 10
    assert (seen[0], seen[-1]) == (old, packed)


def found(library: Library) -> bytes | int | None:
    """What a library has under the name "book": it whole, the tokens of a reading, or nothing."""
    try:
        return exported(library)
    except NotFound:
        pass
    try:
        document = library.document("book", partial=True)
    except NotFound:
        return None
    document.verify()
    return document.manifest.tokens


def test_an_error_at_any_moment_is_told_and_leaves_no_trace(library, packed, monkeypatch):
    imported(library, packed, "first")  # makes the folders of the library
    with monkeypatch.context() as patched:
        count = Moments(patched, lambda moment: None)
        imported(library, packed, "other")
    before = everything(library.path)
    publishing = 4  # of the last moments: what is whole then may be found
    for last in range(count.count - publishing):

        def fail(moment: int, last: int = last) -> None:
            if moment == last:
                raise OSError(28, "No space left on device")

        with monkeypatch.context() as patched:
            Moments(patched, fail)
            with pytest.raises(LongctxError, match="No space left"):
                imported(library, packed)
        assert everything(library.path) == before
        assert lock_files(library.path) == []


def test_an_input_that_cannot_be_read_is_told(library):
    class Broken(io.BytesIO):
        def read(self, size: int = -1) -> bytes:
            raise OSError(5, "Input/output error")

    with pytest.raises(LongctxError, match=r"cannot read 'book\.longctx': Input"):
        receive(library.path, Broken(), "book.longctx", "book")
