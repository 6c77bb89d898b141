"""A reading that was stopped goes on where it was: the same bytes, less work, no mixture."""

import dataclasses
import functools
import io
import os
import shutil
from contextlib import suppress
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest
import torch
from sampled import sampled

from longctx.core.ask.session import Session
from longctx.core.common.device import choose_dtype, dtype_name
from longctx.core.common.errors import LongctxError, NotFound, StateMismatch, UsageError
from longctx.core.engine.setup import prepare
from longctx.core.ingest import ingest as ingesting
from longctx.core.ingest.checkpoints import Cadence
from longctx.core.ingest.identity import KEPT, CannotGoOn, left_out_now, now_of
from longctx.core.ingest.ingest import ingest
from longctx.core.model.adapter import Decoder
from longctx.core.store.behind import WriterBehind
from longctx.core.store.library import Library
from longctx.core.store.manifest import Manifest
from longctx.core.store.sameness import Now, begins_with
from longctx.core.store.writer import Writer
from longctx.core.tokens.tokens import TokenStream

LINES = [f"line {i}: the keeper wrote that boat {i * 7919 % 1000} came home" for i in range(26)]
TEXTS = {
    "utf-8": "\n".join(f"{line} — café, naïve, 漢字 🙂🙂" for line in LINES).encode(),
    "utf-16": b"\xff\xfe" + "\n".join(f"{line} 🙂" for line in LINES).encode("utf-16-le"),
    "crlf": "\r\n".join(LINES).encode(),
    "undecodable": "\n".join(LINES).encode().replace(b"boat", b"b\xff\xe2\x82t"),
    "one line": " ".join(LINES).encode(),
}
EVERY_CHUNK = Cadence.given(1, None)
pytestmark = pytest.mark.usefixtures("models_loaded_once")


class Stopped(BaseException):
    """As Ctrl-C, at a place of our choice."""


@pytest.fixture(autouse=True)
def no_sync(monkeypatch) -> None:
    """No power fails here, and waiting for the disk is most of the time."""
    monkeypatch.setattr("os.fsync", lambda handle: None)


@pytest.fixture
def library(tmp_path) -> Path:
    return tmp_path / "library"


@pytest.fixture
def book(tmp_path) -> Path:
    path = tmp_path / "book.txt"
    path.write_bytes(TEXTS["utf-8"])
    return path


def stop_at(tokens: int):
    def on_progress(progress):
        if progress.tokens >= tokens:
            raise Stopped

    return on_progress


def start(library, paths, setup, tokens: int, **options) -> None:
    """Reads until there are so many tokens, with a checkpoint after every chunk."""
    with pytest.raises(Stopped):
        ingest(library, paths, setup, cadence=EVERY_CHUNK, on_progress=stop_at(tokens), **options)


def files(library: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in (library / "documents").rglob("*") if p.is_file()}


def as_on(device: str, writer: Writer, *_: object) -> WriterBehind:
    return WriterBehind(writer, device)


# --- the same bytes ---


@pytest.mark.parametrize("kind", list(TEXTS))
def test_stopped_anywhere_the_result_is_the_same(tmp_path, setup_random, kind, monkeypatch):
    source = tmp_path / "a.txt"
    source.write_bytes(TEXTS[kind])
    ingest(tmp_path / "whole", [str(source)], setup_random)
    # On another device than the CPU, work is done beside the model.
    for device, tokens in sampled(product(("cpu", "other"), (31, 200, 450)), 3):
        monkeypatch.setattr(ingesting, "WriterBehind", functools.partial(as_on, device))
        parts = tmp_path / f"parts-{device}-{tokens}"
        start(parts, [str(source)], setup_random, tokens)
        report = ingest(parts, [str(source)], setup_random)
        assert files(parts) == files(tmp_path / "whole"), (device, tokens)
        assert report.reused_tokens >= tokens
        assert report.tokens > report.reused_tokens


@pytest.mark.parametrize("limits", [{"piece": 64, "run": 100}, {"piece": 64, "run": 1 << 20}])
@pytest.mark.parametrize("cuts", [True, False])
def test_however_the_text_is_cut(tmp_path, setup_random, monkeypatch, limits, cuts):
    """Forced splits, and tokenizers for which no cut is known."""

    class Stream(TokenStream):
        def __init__(self, tokenizer):
            super().__init__(tokenizer, **limits)
            self._cuts = self._cuts if cuts else frozenset()

    monkeypatch.setattr("longctx.core.ingest.ingest.TokenStream", Stream)
    source = tmp_path / "a.txt"
    source.write_bytes(TEXTS["one line"] + b"\n" + TEXTS["utf-8"])
    whole = ingest(tmp_path / "whole", [str(source)], setup_random)
    for tokens in (100, 700):
        start(tmp_path / "parts", [str(source)], setup_random, tokens)
    report = ingest(tmp_path / "parts", [str(source)], setup_random)
    assert report.forced_splits == whole.forced_splits
    assert (whole.forced_splits > 5) == (cuts and limits["run"] == 100)
    assert files(tmp_path / "parts") == files(tmp_path / "whole")


def test_with_many_sources_of_which_some_cannot_be_read(tmp_path, setup_random):
    paths = []
    for number in range(12):
        path = tmp_path / f"{number}.txt"
        path.write_bytes(b"" if number in (0, 4, 5, 11) else TEXTS["crlf"][: 40 * number])
        paths.append(str(path))
    whole = ingest(tmp_path / "whole", paths, setup_random, "parts")
    assert len(whole.skipped) == 4
    for tokens in range(1, whole.tokens, 100):
        start(tmp_path / "parts", paths, setup_random, tokens, name="parts")
    report = ingest(tmp_path / "parts", paths, setup_random, "parts")
    assert report.skipped == whole.skipped
    assert files(tmp_path / "parts") == files(tmp_path / "whole")


# --- less work ---


def test_no_chunk_is_read_twice(library, book, setup_random, chunks, tmp_path):
    whole = ingest(tmp_path / "whole", [str(book)], setup_random)
    expected = [*chunks]
    chunks.clear()
    start(library, [str(book)], setup_random, 300)
    report = ingest(library, [str(book)], setup_random)
    assert chunks == expected
    assert report.reused_tokens == 319  # ten chunks of 32, with the prefix's one token
    assert report.tokens == whole.tokens


def test_what_no_checkpoint_has_is_read_again(library, book, setup_random):
    with pytest.raises(Stopped):
        ingest(library, [str(book)], setup_random, on_progress=stop_at(300))
    assert ingest(library, [str(book)], setup_random).reused_tokens == 0


def test_progress_counts_from_the_checkpoint(library, book, setup_random):
    start(library, [str(book)], setup_random, 300)
    told = []
    ingest(library, [str(book)], setup_random, on_progress=told.append)
    assert told[0].cache == told[0].processed > 0
    assert (told[0].tokens, told[0].kept) == (319, 319)
    assert told[-1].processed == told[-1].total == book.stat().st_size


def test_the_cache_is_kept_in_the_dtype_of_the_computation(library, book, setup_random):
    setup = dataclasses.replace(setup_random, dtype="bf16")
    start(library, [str(book)], setup, 300)
    snapshot = Library.open(library).document("book", partial=True).snapshot()
    assert snapshot["keys.0"].dtype == torch.bfloat16
    assert ingest(library, [str(book)], setup).reused_tokens == 319


@pytest.mark.parametrize(
    ("before", "now", "reused"),
    [("fused-1", "fused-1", 319), ("fused-1", "model-1", 0), (None, "fused-1", 0)],
)
def test_what_other_kernels_began_is_begun_anew_and_said(
    library, book, setup_random, monkeypatch, before, now, reused
):
    monkeypatch.setattr("longctx.core.engine.setup.computed_by", lambda device: before)
    start(library, [str(book)], setup_random, 300)
    monkeypatch.setattr("longctx.core.engine.setup.computed_by", lambda device: now)
    report = ingest(library, [str(book)], setup_random)
    assert report.reused_tokens == reused
    notes = [note for note in report.notes if "other kernels" in note]
    of = before or "those of an older version"
    expected = f"begun anew: its reading was begun with other kernels ({of}; now {now})"
    assert notes == ([] if reused else [expected])
    assert Library.open(library).document("book").manifest.recorded["kernels"] == now


# --- standard input ---


def piped(monkeypatch, data: bytes) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(data)))


def test_standard_input_is_gone_on_with_if_it_is_the_same(
    library, setup_random, monkeypatch, tmp_path
):
    piped(monkeypatch, TEXTS["utf-8"])
    ingest(tmp_path / "whole", ["-"], setup_random)
    piped(monkeypatch, TEXTS["utf-8"])
    start(library, ["-"], setup_random, 300)
    for other in (TEXTS["crlf"], TEXTS["utf-8"][:100]):
        piped(monkeypatch, other)
        with pytest.raises(UsageError, match="cannot go on with 'stdin'"):
            ingest(library, ["-"], setup_random)
    piped(monkeypatch, TEXTS["utf-8"])
    assert ingest(library, ["-"], setup_random).reused_tokens == 319
    assert files(library) == files(tmp_path / "whole")


def test_standard_input_that_was_read_to_its_end(library, setup_random, monkeypatch, book):
    def paths(data):
        piped(monkeypatch, data)
        return ["-", str(book)]

    start(library, paths(TEXTS["crlf"]), setup_random, 1200)
    for other in (TEXTS["undecodable"], TEXTS["crlf"] + b"more", TEXTS["crlf"][:-1]):
        with pytest.raises(UsageError, match="cannot go on with 'stdin'"):
            ingest(library, paths(other), setup_random)
    assert ingest(library, paths(TEXTS["crlf"]), setup_random).reused_tokens >= 1200


def test_replace_begins_anew_with_another_standard_input(library, setup_random, monkeypatch):
    piped(monkeypatch, TEXTS["utf-8"])
    start(library, ["-"], setup_random, 300)
    piped(monkeypatch, TEXTS["crlf"])
    with pytest.raises(UsageError, match=r"cannot go on.*dropped, as --replace says.*run the"):
        ingest(library, ["-"], setup_random, replace=True)
    piped(monkeypatch, TEXTS["crlf"])
    assert ingest(library, ["-"], setup_random, replace=True).reused_tokens == 0


# --- never a mixture ---


def test_a_source_that_changed_is_refused_and_replace_begins_anew(library, book, setup_random):
    start(library, [str(book)], setup_random, 300)
    book.write_bytes(TEXTS["crlf"])
    with pytest.raises(UsageError, match=r"319 tokens\): .*book.txt changed since.*--replace"):
        ingest(library, [str(book)], setup_random)
    assert ingest(library, [str(book)], setup_random, replace=True).reused_tokens == 0


def test_a_source_that_has_grown_is_gone_on_with(library, book, setup_random, tmp_path):
    start(library, [str(book)], setup_random, 300)
    with book.open("ab") as file:
        file.write(b"\nAnd more of it.")
    assert ingest(library, [str(book)], setup_random).reused_tokens == 319
    ingest(tmp_path / "whole", [str(book)], setup_random)
    assert files(library) == files(tmp_path / "whole")


def test_a_source_that_goes_on_in_the_middle_of_a_word(tmp_path, book, setup_random, monkeypatch):
    """The last tokens that are kept may be others when more text has come."""
    monkeypatch.setattr("longctx.core.ingest.ingest.prepare", functools.cache(prepare))  # load once
    refused, begun, text = 0, 0, TEXTS["crlf"][:300]
    book.write_bytes(text)
    ingest(tmp_path / "whole", [str(book)], setup_random)
    for end in sampled(range(60, 120), 16):
        library = tmp_path / f"parts{end}"
        book.write_bytes(text[:end])
        with suppress(Stopped):
            ingest(library, [str(book)], setup_random, cadence=EVERY_CHUNK, on_progress=stop_at(31))
        begun += not files(library)
        book.write_bytes(text)
        try:
            ingest(library, [str(book)], setup_random, replace=True)
        except CannotGoOn:
            ingest(library, [str(book)], setup_random, replace=True)
            refused += 1
        left, right = files(library), files(tmp_path / "whole")
        del left["manifest.json"], right["manifest.json"]  # with its modification time
        assert left == right
    assert 0 < refused < begun


def test_a_finished_source_that_changed_is_refused(tmp_path, library, book, setup_random):
    other = tmp_path / "other.txt"
    other.write_bytes(TEXTS["crlf"])
    start(library, [str(other), str(book)], setup_random, 1500)
    with other.open("ab") as file:
        file.write(b"x")
    with pytest.raises(UsageError, match=r"other.txt changed since"):
        ingest(library, [str(other), str(book)], setup_random)


def test_other_settings_are_refused(library, book, setup_random, tmp_path):
    start(library, [str(book)], setup_random, 300)
    profile = tmp_path / "other.yaml"
    profile.write_text(Path(setup_random.profile).read_text().replace("pool: 4", "pool: 5"))
    other = dataclasses.replace(setup_random, profile=str(profile))
    with pytest.raises(UsageError, match=r"another option"):
        ingest(library, [str(book)], other)
    full = dataclasses.replace(setup_random, method="full")
    with pytest.raises(UsageError, match=r"another method"):
        ingest(library, [str(book)], full)
    assert ingest(library, [str(book)], setup_random).reused_tokens == 319


@pytest.mark.parametrize("own", ["fp32", "bf16"])
def test_a_reading_goes_on_in_the_number_format_in_which_it_was_begun(
    tmp_path, library, book, setup_random, own
):
    named = dataclasses.replace(setup_random, dtype=own)
    start(library, [str(book)], named, 300)
    unnamed = dataclasses.replace(setup_random, dtype="auto")
    assert ingest(library, [str(book)], unnamed).reused_tokens == 319
    assert Library.open(library).document("book").manifest.recorded["dtype"] == own
    ingest(tmp_path / "whole", [str(book)], named)
    assert files(library) == files(tmp_path / "whole")


def test_what_is_begun_anew_has_the_usual_number_format(library, book, setup_random, tmp_path):
    other = tmp_path / "other.txt"
    other.write_text("the keeper wrote of rain\n" * 90)
    usual = dtype_name(choose_dtype("auto", "cpu"))
    another = {"fp32": "bf16", "bf16": "fp32"}[usual]
    start(library, [str(other)], dataclasses.replace(setup_random, dtype=another), 300, name="book")
    unnamed = dataclasses.replace(setup_random, dtype="auto")
    assert ingest(library, [str(book)], unnamed, "book", replace=True).reused_tokens == 0
    assert Library.open(library).document("book").manifest.recorded["dtype"] == usual


def test_another_way_to_draw_answers_changes_no_state(library, book, setup_random, tmp_path):
    profile = tmp_path / "warm.yaml"
    given = Path(setup_random.profile).read_text()
    profile.write_text(given + "\nsampling: {temperature: 0.5}\n")
    other = dataclasses.replace(setup_random, profile=str(profile))
    start(library, [str(book)], setup_random, 300)
    assert ingest(library, [str(book)], other).reused_tokens == 319
    assert ingest(library, [str(book)], setup_random).status == "unchanged"


def test_a_model_whose_files_changed_under_the_same_name(
    library, book, setup_random, make_model_folder, tmp_path, model_folder
):
    folder = shutil.copytree(model_folder, tmp_path / "model")
    setup = dataclasses.replace(
        setup_random, model=str(folder), profile=str(folder / "profile.yaml")
    )
    start(library, [str(book)], setup, 300)
    ingest(library, [str(book)], setup, name="done")
    weights = folder / "model.safetensors"
    data = bytearray(weights.read_bytes())
    data[-3] ^= 1
    weights.write_bytes(data)
    with pytest.raises(UsageError, match=r"another model.*--replace"):
        ingest(library, [str(book)], setup)
    with pytest.raises(StateMismatch, match=r"another weights"):
        Session(library, "done", setup)


def test_other_files_are_refused_and_more_of_them_are_not(tmp_path, library, book, setup_random):
    other = tmp_path / "other.txt"
    other.write_bytes(TEXTS["crlf"])
    start(library, [str(book)], setup_random, 300)
    with pytest.raises(UsageError, match="other files"):
        ingest(library, [str(other)], setup_random, name="book")
    report = ingest(library, [str(book), str(other)], setup_random)
    assert report.reused_tokens == 319
    ingest(tmp_path / "whole", [str(book), str(other)], setup_random)
    assert files(library) == files(tmp_path / "whole")


def test_sources_that_were_left_out_are_told_apart(tmp_path, library, setup_random):
    paths = {}
    for name, text in {"a": "crlf", "b": "", "c": "utf-8", "d": "utf-8"}.items():
        paths[name] = tmp_path / f"{name}.txt"
        paths[name].write_bytes(TEXTS[text] if text else b"")

    def named(names: str) -> list[str]:
        return [str(paths[name]) for name in names]

    start(library, named("abc"), setup_random, 1200)
    for names in ("acb", "abd", "ab", "cab"):
        with pytest.raises(UsageError, match="other files"):
            ingest(library, named(names), setup_random, name="a")
    paths["b"].write_bytes(TEXTS["crlf"])
    with pytest.raises(UsageError, match=r"b.txt changed since"):
        ingest(library, named("abc"), setup_random)


@pytest.mark.parametrize(
    "report",
    [{"skipped": 1}, {"skipped": [{}]}, {"changed": "x"}, {"forced_splits": None}],
)
def test_a_checkpoint_whose_report_lies_is_refused(library, book, setup_random, report):
    start(library, [str(book)], setup_random, 300)
    path = library / "unfinished" / "book" / "manifest.json"
    manifest = Manifest.read(path.parent)
    path.write_text(dataclasses.replace(manifest, report=report).to_json())
    with pytest.raises(StateMismatch, match=r"state of 'book' is damaged: in its report"):
        ingest(library, [str(book)], setup_random)
    assert ingest(library, [str(book)], setup_random, replace=True).reused_tokens == 0


# --- a source that changes while it is read ---


@pytest.mark.parametrize("change", ["grows", "is replaced", "is deleted"])
def test_a_source_that_only_grows_is_read_and_told(library, book, setup_random, change):
    def on_progress(progress):
        if progress.tokens == 319 and change == "grows":
            with book.open("ab") as file:
                file.write(b" more")
        elif progress.tokens == 319 and change == "is replaced":
            new = book.with_suffix(".new")
            new.write_bytes(b"something else")
            os.replace(new, book)
        elif progress.tokens == 319:
            book.unlink()

    report = ingest(library, [str(book)], setup_random, on_progress=on_progress)
    assert report.changed == ([] if change == "is deleted" else [str(book)])
    text = Library.open(library).document("book").text(0, 0, len(TEXTS["utf-8"]))
    assert text == TEXTS["utf-8"]


def test_a_source_that_is_rewritten_is_refused(library, book, setup_random, monkeypatch):
    def on_progress(progress):
        if progress.tokens == 319:
            book.write_bytes(b"X" + TEXTS["utf-8"][1:])

    with pytest.raises(LongctxError, match=r"was rewritten while it was read"):
        ingest(library, [str(book)], setup_random, on_progress=on_progress)
    with pytest.raises(NotFound):
        Library.open(library).document("book")
    assert begins_with(book, 10, "no hash") is False


# --- what is kept can be asked ---


def test_a_part_answers_only_when_that_is_wanted(library, book, setup_random):
    start(library, [str(book)], setup_random, 300)
    with pytest.raises(NotFound, match=r"stopped after 319 tokens.*--partial"):
        Session(library, "book", setup_random)
    with Session(library, "book", setup_random, partial=True) as session:
        found = session.find("boat", gather=10_000)
        assert found.tokens["document"] == found.tokens["gathered"] == 319
        assert found.state["status"] == "reading"
        [passage] = found.passages
        assert TEXTS["utf-8"].startswith(passage.text.encode())
        assert session.ask("boat?").tokens["answer"] > 0
    assert ingest(library, [str(book)], setup_random).reused_tokens == 319


def test_a_source_that_changed_since_is_told(library, book, setup_random):
    ingest(library, [str(book)], setup_random)
    for change, changed in [
        (lambda: os.utime(book, (1, 1)), []),  # the same content
        (lambda: book.write_bytes(b"X" + TEXTS["utf-8"][1:]), [str(book)]),
        (lambda: book.write_bytes(b"X"), [str(book)]),
        (book.unlink, []),
    ]:
        change()
        with Session(library, "book", setup_random) as session:
            assert session.changed == changed
            assert session.find("boat").state["changed_sources"] == changed


# --- memory and size ---


@pytest.mark.parametrize(
    "error", [torch.OutOfMemoryError("CUDA"), RuntimeError("can't allocate memory: 9")]
)
def test_out_of_memory_has_figures_and_keeps_the_checkpoint(
    library, book, setup_random, monkeypatch, error
):
    read, count = Decoder.read, 0

    def fail(self, *args):
        nonlocal count
        count += 1
        if count == 5:
            raise error
        return read(self, *args)

    with monkeypatch.context() as patch:
        patch.setattr(Decoder, "read", fail)
        match = r"out of memory on cpu: .*weights take .* in fp32.*held up to .*are free"
        with pytest.raises(LongctxError, match=match):
            ingest(library, [str(book)], setup_random, cadence=EVERY_CHUNK)
    assert ingest(library, [str(book)], setup_random).reused_tokens == 4 * 32 - 1


def test_another_error_of_torch_is_not_taken_for_memory(library, book, setup_random, monkeypatch):
    def fail(*args):
        raise RuntimeError("shape")

    monkeypatch.setattr(Decoder, "read", fail)
    with pytest.raises(RuntimeError, match=r"^shape$"):
        ingest(library, [str(book)], setup_random)


def test_the_size_of_a_library_is_kept(library, book, setup_random, tmp_path, monkeypatch):
    with pytest.raises(LongctxError, match=r"no room in the library.*left of --max-size"):
        ingest(library, [str(book)], setup_random, max_size=10_000)
    assert Library.open(library).documents() == []
    piped(monkeypatch, TEXTS["utf-8"])
    with pytest.raises(LongctxError, match=r"is full.*--max-size is .*checkpoint"):
        ingest(library, ["-"], setup_random, max_size=20_000, cadence=EVERY_CHUNK)
    piped(monkeypatch, TEXTS["utf-8"])
    with pytest.raises(LongctxError, match=r"is full"):  # without a checkpoint on the way
        ingest(library, ["-"], setup_random, max_size=40_000)
    piped(monkeypatch, TEXTS["utf-8"])
    report = ingest(library, ["-"], setup_random, max_size=300_000)
    assert report.reused_tokens > 0


def test_the_snapshot_counts_before_the_run(tmp_path, book, setup_random):
    """A short text has a small state, but its snapshot may be large."""
    size = ingest(tmp_path / "first", [str(book)], setup_random).state_bytes
    method = prepare(setup_random).new_method()
    with pytest.raises(LongctxError, match=r"left of --max-size"):
        ingest(tmp_path / "second", [str(book)], setup_random, max_size=size)
    assert method.snapshot_bytes(10**9, 4) == method.snapshot_bytes(56, 4)  # 24 kept, a chunk of 32
    snapshot = Library.open(tmp_path / "first").document("book").snapshot()
    held = sum(tensor.nbytes for tensor in snapshot.values())
    assert held <= method.snapshot_bytes(10**9, 4) + 8 <= 3 * held


@pytest.mark.usefixtures("never_waits")
@pytest.mark.parametrize("path", ["/a\0b", "/dev/zero", "/dev/null/x", "/" + "x" * 9999])
def test_places_that_a_document_may_name(library, book, setup_random, path):
    ingest(library, [str(book)], setup_random)
    (known,) = Library.open(library).document("book").manifest.sources
    assert now_of(known) is Now.SAME
    assert left_out_now({"path": str(book), "mtime_ns": known.mtime_ns}) is Now.SAME
    for undecodable in (0, None):
        lost = replace(known, path=path, undecodable=undecodable, mtime_ns=None)
        assert now_of(lost) not in KEPT
    assert left_out_now({"path": path, "mtime_ns": 1}) is not Now.SAME
