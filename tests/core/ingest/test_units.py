"""Files that are read one by one: what is unchanged is taken over, and the bytes are the same."""

import dataclasses
import os
import shutil
import signal
import zipfile
from pathlib import Path

import pytest
import torch
from in_chunks import in_chunk
from sampled import covering, sampled

from longctx.core.ask.session import Session
from longctx.core.common.errors import StateMismatch, UsageError
from longctx.core.engine.opening import memory_of, saved_snapshot
from longctx.core.engine.setup import prepare
from longctx.core.ingest import checkpoints, document_reading, plan
from longctx.core.ingest import ingest as ingesting
from longctx.core.ingest import units as units_module
from longctx.core.ingest.checkpoints import Cadence
from longctx.core.ingest.ingest import ingest
from longctx.core.ingest.job import Job
from longctx.core.store.behind import WriterBehind
from longctx.core.store.library import Library
from longctx.core.tokens.tokens import TokenStream

EVERY_CHUNK = Cadence.given(1, None)
CHUNK = 32  # of the random model's profile
pytestmark = pytest.mark.usefixtures("models_loaded_once")


class Stopped(BaseException):
    """As a kill, at a place of our choice."""


@pytest.fixture(autouse=True)
def quick(monkeypatch) -> None:
    """No power fails here, no checkpoint is due by time, and all folders keep their rows."""
    monkeypatch.setattr(units_module, "LEAST", 1 << 30)
    monkeypatch.setattr("os.fsync", lambda handle: None)
    monkeypatch.setattr(document_reading, "SLOW", 1e9)
    monkeypatch.setattr(checkpoints, "_WORTH", 1e9)


@pytest.fixture
def library(tmp_path) -> Path:
    return tmp_path / "library"


def text_of(name: str, lines: int) -> str:
    line = "{} {}: the keeper wrote that boat {} came home\n"
    return "".join(line.format(name, i, i * 7919 % 1000) for i in range(lines))


@pytest.fixture
def folder(tmp_path) -> Path:
    """Short and long files, one of them without text, one converted, one in an archive."""
    place = tmp_path / "code"
    (place / "deep").mkdir(parents=True)
    for number, name in enumerate(("a.py", "b.py", "c.py", "deep/d.py", "e.py")):
        (place / name).write_text(text_of(name, 1 + 3 * number), "utf-8")
    (place / "empty.txt").write_bytes(b"")
    (place / "page.html").write_text("<p>one boat</p>\n<p>another boat came home</p>\n", "utf-8")
    with zipfile.ZipFile(place / "old.zip", "w") as archive:
        archive.writestr("f.txt", text_of("f", 4))
    return place


def read(library: Path, folder: Path, setup, **options):
    return ingest(library, [str(folder)], setup, "code", **{"units": True, **options})


def files(library: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in (library / "documents").rglob("*") if p.is_file()}


def anew(folder: Path, setup) -> dict[str, bytes]:
    """The files of one reading of what is in the folder now."""
    other = folder.parent / "anew"
    shutil.rmtree(other, ignore_errors=True)
    read(other, folder, setup)
    return files(other)


def opened(library: Path):
    return Library.open(library).document("code")


# --- what a file's rows depend on ---


def test_a_files_rows_are_those_of_the_file_alone(library, folder, setup_random, monkeypatch):
    monkeypatch.chdir(folder.parent)
    ingest(library, ["code"], setup_random, units=True)
    whole = opened(library)
    assert whole.manifest.units == "source"
    assert not whole.has_snapshot
    assert whole.boundary() is None
    for number, source in enumerate(whole.manifest.sources[:5]):
        place = folder.parent / f"alone-{number}"
        (place / source.name).parent.mkdir(parents=True)
        shutil.copy(source.name, place / source.name)
        with monkeypatch.context() as patch:
            patch.chdir(place)
            ingest(place / "library", ["code"], setup_random, units=True)
        alone = opened(place / "library")
        assert alone.manifest.tokens == source.tokens
        ends = source.first_token, source.first_token + source.tokens
        (part,) = whole.rows_between("embeddings", *ends)
        (own,) = alone.rows_between("embeddings", 0, source.tokens)
        assert all(torch.equal(part[name], own[name]) for name in part)


def test_a_question_is_read_behind_the_prefix_alone(library, folder, setup_random):
    read(library, folder, setup_random)
    engine = prepare(setup_random)
    document = opened(library)
    method = memory_of(engine, document, saved_snapshot(document))
    assert int(method.snapshot()["seen"]) == len(engine.prompt.prefix())


# --- what is taken over ---


def add(folder: Path) -> None:
    (folder / "bb.py").write_text(text_of("bb", 5), "utf-8")


def change(folder: Path) -> None:
    (folder / "b.py").write_text(text_of("b.py", 4) + "and one line more\n", "utf-8")


def remove(folder: Path) -> None:
    (folder / "c.py").unlink()


def rename(folder: Path) -> None:
    (folder / "a.py").rename(folder / "z.py")


def convert(folder: Path) -> None:
    (folder / "page.html").write_text("<p>quite another page</p>\n", "utf-8")


def pack(folder: Path) -> None:
    with zipfile.ZipFile(folder / "old.zip", "a") as archive:
        archive.writestr("g.txt", text_of("g", 2))


def empty(folder: Path) -> None:
    (folder / "a.py").write_bytes(b"")


def fill(folder: Path) -> None:
    (folder / "empty.txt").write_text("not any more\n", "utf-8")


EDITS = {  # how many of seven sources are taken over, and which are gone
    add: (7, []),
    change: (6, []),
    remove: (6, ["c.py"]),
    rename: (6, ["a.py"]),
    convert: (6, []),
    pack: (6, []),
    empty: (6, []),
    fill: (7, []),
}


@pytest.mark.parametrize(  # on another device, work is done beside the model
    ("edit", "device"),
    covering(EDITS, ["cpu", "other"], meet=1),
    ids=lambda one: getattr(one, "__name__", one),
)
def test_what_is_unchanged_is_taken_over(
    library, folder, setup_random, chunks, monkeypatch, edit, device
):
    monkeypatch.setattr(ingesting, "WriterBehind", lambda writer, *_: WriterBehind(writer, device))
    first = read(library, folder, setup_random)
    assert (first.sources, first.reused_sources, first.gone) == (7, 0, [])
    chunks.clear()
    edit(folder)
    done = read(library, folder, setup_random, units=None)  # the document says how it is read
    taken, gone = EDITS[edit]
    names = [Path(name).name for name in done.gone]
    assert (done.reused_sources, names) == (taken, gone)
    new = done.tokens - done.reused_tokens
    prefix = len(prepare(setup_random).prompt.prefix())
    assert sum(chunks) == new + prefix * (done.sources - taken)
    assert files(library) == anew(folder, setup_random)


def test_many_edits_one_after_another(library, folder, setup_random):
    read(library, folder, setup_random)
    for edit in EDITS:
        shutil.copy(folder / "e.py", folder / f"{edit.__name__}.py")
        if edit is not empty:  # which `rename` has moved away
            edit(folder)
        read(library, folder, setup_random)
    assert files(library) == anew(folder, setup_random)


def test_nothing_changed(library, folder, setup_random, chunks):
    before = read(library, folder, setup_random), files(library)
    chunks.clear()
    done = read(library, folder, setup_random, units=None)
    assert (done.status, done.tokens, chunks) == ("unchanged", before[0].tokens, [])
    assert files(library) == before[1]


def test_all_is_gone_but_one_file_and_nothing_is_read(library, folder, setup_random, chunks):
    read(library, folder, setup_random)
    chunks.clear()
    done = ingest(library, [str(folder / "deep")], setup_random, "code")
    assert (done.sources, done.reused_sources, len(done.gone), chunks) == (1, 1, 6, [])


def test_the_same_files_by_other_names_are_read_again(library, folder, setup_random, monkeypatch):
    read(library, folder, setup_random)
    monkeypatch.chdir(folder.parent)
    change(folder)
    done = ingest(library, ["code"], setup_random, "code")
    assert (done.sources, done.reused_sources, done.gone) == (7, 0, [])


def test_a_file_that_was_only_written_again(library, folder, setup_random):
    read(library, folder, setup_random)
    os.utime(folder / "e.py", ns=(1, 1))
    assert read(library, folder, setup_random).status == "unchanged"
    change(folder)
    assert read(library, folder, setup_random).reused_sources == 6
    assert files(library) == anew(folder, setup_random)


def test_a_file_that_is_named_has_no_header_and_is_read_again(
    library, folder, setup_random, monkeypatch
):
    monkeypatch.chdir(folder.parent)
    ingest(library, ["code"], setup_random, "code", units=True)
    named = [f"code/{name}" for name in ("a.py", "b.py")]
    done = ingest(library, named, setup_random, "code")
    assert done.reused_sources == 0
    ingest(folder.parent / "anew", named, setup_random, "code", units=True)
    assert files(library) == files(folder.parent / "anew")


def test_forced_splits_are_counted_as_in_one_reading(library, folder, setup_random, monkeypatch):
    class Stream(TokenStream):
        def __init__(self, tokenizer):
            super().__init__(tokenizer, piece=64, run=100)

    monkeypatch.setattr(ingesting, "TokenStream", Stream)
    monkeypatch.setattr(units_module, "RUN", 100)
    (folder / "long.txt").write_text("boat " * 100, "utf-8")
    assert read(library, folder, setup_random).forced_splits
    change(folder)
    done = read(library, folder, setup_random)
    assert done.reused_sources
    assert done.forced_splits
    assert files(library) == anew(folder, setup_random)


def test_what_is_asked_after_an_edit_cites_the_new_lines(library, folder, setup_random):
    read(library, folder, setup_random)
    old = (folder / "deep" / "d.py").read_text("utf-8").splitlines()
    lines = [*old[:3], "the lighthouse burns zebra oil", *old[3:]]
    (folder / "deep" / "d.py").write_text("\n".join(lines) + "\n", "utf-8")
    read(library, folder, setup_random)
    with Session(library, "code", setup_random) as session:
        assert session.changed == []
        found = session.find("zebra oil", 300, "bm25").passages
    (best,) = (passage for passage in found if "zebra" in passage.text)
    assert best.source.endswith("deep/d.py")
    assert best.text.split("\n")[4 - best.line] == "the lighthouse burns zebra oil"
    with Session(library, "code", setup_random) as session:
        assert session.ask("zebra oil").passages


def test_a_damaged_document_is_not_taken_over(library, folder, setup_random):
    read(library, folder, setup_random)
    (shard,) = (library / "documents").rglob("embeddings-*")
    data = bytearray(shard.read_bytes())
    data[-100] ^= 1
    shard.write_bytes(data)
    change(folder)
    with pytest.raises(StateMismatch, match="embeddings"):
        read(library, folder, setup_random)
    read(library, folder, setup_random, replace=True)
    assert files(library) == anew(folder, setup_random)


# --- stopped ---


def stop_in_chunk(number: int, *given, **options) -> None:
    with pytest.MonkeyPatch.context() as patch:
        in_chunk(patch, number, lambda: signal.raise_signal(signal.SIGINT), after=True)
        with pytest.raises(KeyboardInterrupt):
            read(*given, **options)


@pytest.mark.parametrize("slow", [False, True])
def test_stopped_in_any_chunk_the_result_is_the_same(
    tmp_path, folder, setup_random, chunks, monkeypatch, slow
):
    monkeypatch.setattr(document_reading, "SLOW", -1 if slow else 1e9)
    expected = anew(folder, setup_random)
    for number in sampled(range(2, len(chunks), 3), 3):
        library = tmp_path / f"stopped-{number}"
        stop_in_chunk(number, library, folder, setup_random)
        begun = Library.open(library).document("code", partial=True).manifest
        assert begun.units == "source"
        done = read(library, folder, setup_random)
        assert done.reused_tokens == begun.tokens > 0
        assert files(library) == expected, number


def test_killed_anywhere_the_result_is_the_same(tmp_path, folder, setup_random):
    expected = anew(folder, setup_random)
    total = read(tmp_path / "anew", folder, setup_random).tokens
    for tokens in sampled(range(1, total, 61), 4):
        library = tmp_path / f"killed-{tokens}"

        def on_progress(progress, tokens=tokens):
            if progress.tokens >= tokens:
                raise Stopped

        with pytest.raises(Stopped):
            read(library, folder, setup_random, cadence=EVERY_CHUNK, on_progress=on_progress)
        assert read(library, folder, setup_random).reused_tokens >= tokens
        assert files(library) == expected, tokens


def test_a_checkpoint_can_be_asked(library, folder, setup_random):
    stop_in_chunk(12, library, folder, setup_random)
    with Session(library, "code", setup_random, partial=True) as session:
        assert session.find("boat").passages


def stop_an_update(library: Path, folder: Path, setup) -> None:
    """Stops after files that are taken over, in the second chunk of one that is read."""
    read(library, folder, setup)
    (folder / "deep" / "d.py").write_text(text_of("d", 12), "utf-8")
    stop_in_chunk(2, library, folder, setup)


def test_an_update_that_was_stopped_goes_on(library, folder, setup_random):
    stop_an_update(library, folder, setup_random)
    assert opened(library).manifest.status == "complete"  # as it was
    done = read(library, folder, setup_random)
    assert done.reused_sources == 3  # e.py, the member and the page; the others were kept before
    assert files(library) == anew(folder, setup_random)


@pytest.mark.parametrize("edit", [add, change, remove])
def test_files_that_change_again_before_an_update_goes_on(library, folder, setup_random, edit):
    stop_an_update(library, folder, setup_random)
    edit(folder)
    read(library, folder, setup_random)
    assert files(library) == anew(folder, setup_random)


def test_an_edit_that_is_taken_back_before_an_update_goes_on(library, folder, setup_random):
    file = folder / "deep" / "d.py"
    before, times = file.read_bytes(), file.stat()
    stop_an_update(library, folder, setup_random)
    file.write_bytes(before)
    os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))
    read(library, folder, setup_random)
    assert files(library) == anew(folder, setup_random)


def test_a_first_reading_of_files_that_changed_since_is_not_thrown_away(
    library, folder, setup_random
):
    stop_in_chunk(12, library, folder, setup_random)
    change(folder)
    with pytest.raises(UsageError, match=r"begun from something else.*b\.py changed since"):
        read(library, folder, setup_random)
    read(library, folder, setup_random, replace=True)
    assert files(library) == anew(folder, setup_random)


# --- refused ---


@pytest.mark.parametrize("way", [{"method": "h2o"}, {"keep_kv": True}, {"method": "full"}], ids=str)
def test_other_methods_are_refused(library, folder, setup_random, way):
    setup = dataclasses.replace(setup_random, **way)
    with pytest.raises(UsageError, match=r"--units is not for the method .*--method reform"):
        read(library, folder, setup)
    assert not library.exists()
    with pytest.raises(UsageError, match="--units is not for the method"):
        plan.plan(Job(library, [str(folder)], setup, "code", units=True))


def test_a_document_that_was_read_as_one_text(library, folder, setup_random):
    read(library, folder, setup_random, units=False)
    with pytest.raises(UsageError, match=r"'code' exists: its files were read as one.*--replace"):
        read(library, folder, setup_random)
    assert read(library, folder, setup_random, replace=True).status == "complete"
    assert opened(library).manifest.units == "source"
    read(library, folder, setup_random, units=False, replace=True)
    assert opened(library).manifest.units == "document"


@pytest.mark.parametrize("edit", [add, change])
def test_without_units_a_changed_folder_says_that_they_exist(library, folder, setup_random, edit):
    read(library, folder, setup_random, units=False)
    edit(folder)
    with pytest.raises(UsageError, match=r"'code' exists: .*--replace --units") as told:
        read(library, folder, setup_random, units=None)
    assert ("b.py changed since" in str(told.value)) == (edit is change)


def test_a_changed_file_alone_does_not_speak_of_units(library, folder, setup_random):
    ingest(library, [str(folder / "b.py")], setup_random, "code")
    change(folder)
    with pytest.raises(UsageError, match="'code' exists") as told:
        ingest(library, [str(folder / "b.py")], setup_random, "code")
    assert "--units" not in str(told.value)


def test_an_update_in_another_way_is_refused(library, folder, setup_random):
    read(library, folder, setup_random)
    with pytest.raises(UsageError, match=r"cannot bring 'code' up to date.*another method"):
        read(library, folder, dataclasses.replace(setup_random, method="h2o"), units=None)
    with pytest.raises(UsageError, match="it was read in fp32"):
        read(library, folder, dataclasses.replace(setup_random, dtype="bf16"))


def test_a_plan_keeps_no_snapshot(library, folder, setup_random):
    (folder / "g.py").write_text(text_of("g", 40), "utf-8")
    job = Job(library, [str(folder)], setup_random, "code")
    whole, by_file = (plan.plan(dataclasses.replace(job, units=units)) for units in (False, True))
    assert by_file.disk_bytes < whole.disk_bytes
