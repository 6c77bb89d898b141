"""A document that is made longer has the bytes of one reading of everything, and is never half."""

import dataclasses
import io
import os
from pathlib import Path

import pytest
from sampled import sampled
from small_documents import forge

from longctx.core.ask.session import Session
from longctx.core.common.device import choose_dtype, dtype_name
from longctx.core.common.errors import LongctxError, NotFound, StateMismatch, UsageError
from longctx.core.engine.choice import Setup
from longctx.core.ingest import append as appending
from longctx.core.ingest import ingest as ingesting
from longctx.core.ingest.append import append
from longctx.core.ingest.checkpoints import Cadence
from longctx.core.ingest.ingest import ingest
from longctx.core.ingest.job import Job, Observer
from longctx.core.store.manifest import Manifest
from longctx.core.tokens.tokens import TokenStream

LINES = [f"line {i}: the keeper wrote that boat {i * 7919 % 1000} came home" for i in range(40)]
TEXT = "\n".join(f"{line} — café, 漢字 🙂" for line in LINES).encode()
EVERY_CHUNK = Cadence.given(1, None)
pytestmark = pytest.mark.usefixtures("models_loaded_once")


class Stopped(BaseException):
    """As Ctrl-C, at a place of our choice."""


@pytest.fixture(autouse=True)
def quick(monkeypatch) -> None:
    """No power fails here."""
    monkeypatch.setattr("os.fsync", lambda handle: None)


@pytest.fixture
def library(tmp_path) -> Path:
    return tmp_path / "library"


@pytest.fixture
def log(tmp_path) -> Path:
    return tmp_path / "app.log"


def files(library: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in (library / "documents").rglob("*") if p.is_file()}


def whole(log: Path, setup: Setup, library: Path) -> dict[str, bytes]:
    """The files of one reading of what is in the log now."""
    ingest(library, [str(log)], setup, name="app", replace=True)
    return files(library)


def stop_at(tokens: int):
    def on_progress(progress):
        if progress.tokens >= tokens:
            raise Stopped

    return on_progress


# --- the same bytes ---


@pytest.mark.parametrize("kind", ["utf-8", "utf-16", "crlf", "undecodable", "one line"])
def test_whatever_is_added_to_whatever_text(tmp_path, library, log, setup_random, kind):
    """One byte, a part of a character or of a word, a line, a chunk, three chunks."""
    data = {
        "utf-8": TEXT,
        "utf-16": b"\xff\xfe" + TEXT.decode().encode("utf-16-le"),
        "crlf": "\r\n".join(LINES).encode(),
        "undecodable": TEXT.replace(b"boat", b"b\xff\xe2\x82t"),
        "one line": TEXT.replace(b"\n", b" "),
    }[kind]
    character = data.index(
        "漢".encode("utf-16-le" if kind == "utf-16" else "utf-8") if kind != "crlf" else b"\r", 200
    )
    ends = [character, character + 1, character + 2, character + 70, 800]
    ends = ends if kind in ("utf-8", "utf-16") else sampled(ends, 3)
    for end in ends:
        log.write_bytes(data[:end])
        if end == ends[0]:
            ingest(library, [str(log)], setup_random)
        else:
            append(Job(library, [str(log)], setup_random, "app"))
        assert files(library) == whole(log, setup_random, tmp_path / f"whole-{end}"), end


def test_exactly_a_chunk_and_three_and_many(tmp_path, library, log, setup_random):
    """A token for each line, so that ends and chunks' ends can be met."""
    line = b"x" * 40 + b"\n"
    log.write_bytes(line * 10)
    per = ingest(library, [str(log)], setup_random).tokens / 10
    count = 10
    for tokens in (32, 32, 96, 1, 31, 33):
        count += max(1, round(tokens / per))
        log.write_bytes(line * count)
        done = append(Job(library, [str(log)], setup_random, "app"))
        assert done.tokens - done.reused_tokens < max(32, tokens) + 32 + 2 * per
    assert files(library) == whole(log, setup_random, tmp_path / "whole")


@pytest.mark.parametrize("limits", [{"piece": 64, "run": 100}, {"cuts": False}])
def test_however_the_text_is_cut(tmp_path, library, log, setup_random, monkeypatch, limits):
    """Forced splits, and tokenizers for which no cut is known."""

    class Stream(TokenStream):
        def __init__(self, tokenizer):
            super().__init__(tokenizer, **{k: v for k, v in limits.items() if k != "cuts"})
            self._cuts = self._cuts if limits.get("cuts", True) else frozenset()

    for module in (appending, ingesting):
        monkeypatch.setattr(module, "TokenStream", Stream)
    data = TEXT[:400] + TEXT[:700].replace(b"\n", b" ") + TEXT[:400]
    for end in (350, 800, 1000, len(data)):
        log.write_bytes(data[:end])
        if end == 350:
            ingest(library, [str(log)], setup_random)
        else:
            done = append(Job(library, [str(log)], setup_random, "app"))
    assert (done.forced_splits > 3) == ("run" in limits)
    assert files(library) == whole(log, setup_random, tmp_path / "whole")


# --- further sources ---


def test_other_files_become_further_parts_also_when_the_first_is_gone(
    tmp_path, library, log, setup_random
):
    paths = []
    for number in range(7):
        path = tmp_path / f"{number}.txt"
        path.write_bytes(b"" if number == 3 else TEXT[50 * number :][: 150 + 130 * (number % 3)])
        paths.append(str(path))
    ingest(tmp_path / "whole", paths, setup_random, "app")
    ingest(library, paths[:1], setup_random, "app")
    kept = Path(paths[0]).read_bytes()
    Path(paths[0]).unlink()
    append(Job(library, paths[1:3], setup_random, "app"))
    assert append(Job(library, paths[3:], setup_random, "app")).skipped != []
    assert append(Job(library, paths[4:], setup_random, "app")).status == "unchanged"
    Path(paths[0]).write_bytes(kept)
    expected = files(tmp_path / "whole")
    got = files(library)
    assert Manifest.read(library / "documents" / "app").sources == (
        Manifest.read(tmp_path / "whole" / "documents" / "app").sources
    )
    assert got == expected


def test_a_last_part_that_has_grown_and_one_more(tmp_path, library, log, setup_random):
    first, last = tmp_path / "first.txt", tmp_path / "last.txt"
    first.write_bytes(TEXT[:400])
    log.write_bytes(TEXT[:600])
    last.write_bytes(TEXT[:200])
    paths = [str(first), str(log), str(last)]
    ingest(library, paths[:2], setup_random, "app")
    log.write_bytes(TEXT[:900])
    append(Job(library, paths[1:], setup_random, "app"))
    ingest(tmp_path / "whole", paths, setup_random, "app")
    assert files(library) == files(tmp_path / "whole")


def test_standard_input_is_a_further_part(tmp_path, library, log, setup_random, monkeypatch):
    log.write_bytes(TEXT[:500])
    ingest(library, [str(log)], setup_random)
    for place in (library, tmp_path / "whole"):
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(TEXT[:400])))
        if place == library:
            append(Job(place, ["-"], setup_random, "app"))
        else:
            ingest(place, [str(log), "-"], setup_random)
    assert files(library) == files(tmp_path / "whole")


def test_the_same_text_under_another_name_goes_on(tmp_path, library, log, setup_random):
    log.write_bytes(TEXT[:500])
    ingest(library, [str(log)], setup_random)
    moved = tmp_path / "app.log.1"
    moved.write_bytes(TEXT[:900])
    log.unlink()
    append(Job(library, [str(moved)], setup_random, "app"))
    assert files(library) == whole(moved, setup_random, tmp_path / "whole")


# --- what is refused ---


@pytest.mark.parametrize("data", [b"X" + TEXT[1:900], TEXT[:400], TEXT[:499] + b"X" + TEXT[500:]])
def test_an_earlier_part_that_changed_is_refused(library, log, setup_random, data):
    log.write_bytes(TEXT[:500])
    ingest(library, [str(log)], setup_random)
    before = files(library)
    log.write_bytes(data)
    match = r"cannot append to 'app': '.*app.log' does not begin any more.*--replace"
    with pytest.raises(UsageError, match=match):
        append(Job(library, [str(log)], setup_random, "app"))
    assert files(library) == before


def test_nothing_new_is_unchanged_and_a_part_inside_is_refused(
    tmp_path, library, log, setup_random
):
    log.write_bytes(TEXT[:500])
    other = tmp_path / "other.txt"
    other.write_bytes(TEXT[100:300])
    ingest(library, [str(log), str(other)], setup_random)
    assert append(Job(library, [str(log), str(other)], setup_random, "app")).status == "unchanged"
    with pytest.raises(UsageError, match=r"in the document, and not its last source"):
        append(Job(library, [str(log)], setup_random, "app"))
    with pytest.raises(NotFound):
        append(Job(library, [str(log)], setup_random, "none"))


def test_a_document_of_an_older_version_is_refused_and_can_be_asked(library, log, setup_random):
    log.write_bytes(TEXT[:500])
    ingest(library, [str(log)], setup_random)
    folder = library / "documents" / "app"

    def forget(data: dict) -> None:
        del data["report"]["boundary"]
        data["shards"] = [s for s in data["shards"] if s["group"] != "boundary"]

    forge(folder, forget)
    log.write_bytes(TEXT[:900])
    with pytest.raises(StateMismatch, match=r"older longctx.*--replace"):
        append(Job(library, [str(log)], setup_random, "app"))
    with Session(library, "app", setup_random) as session:
        assert session.find("boat").passages


@pytest.mark.parametrize("told", [1, {}, {"tokens": -1, "forced_splits": 0}, {"tokens": 10**9}])
def test_a_boundary_that_lies_is_refused(library, log, setup_random, told):
    log.write_bytes(TEXT[:500])
    ingest(library, [str(log)], setup_random)
    forge(library / "documents" / "app", lambda data: data["report"].update(boundary=told))
    log.write_bytes(TEXT[:900])
    with pytest.raises(StateMismatch, match="boundary"):
        append(Job(library, [str(log)], setup_random, "app"))


# --- never half ---


def test_an_append_that_is_stopped_leaves_the_document_and_goes_on(
    tmp_path, library, log, setup_random
):
    other = tmp_path / "other.txt"
    other.write_bytes(TEXT[:700])
    log.write_bytes(TEXT[:700])
    tokens = ingest(library, [str(log)], setup_random).tokens
    before = files(library)
    log.write_bytes(TEXT[:1100])
    for end in (tokens + 40, tokens + 150, tokens + 250):
        with pytest.raises(Stopped):
            append(
                Job(library, [str(log), str(other)], setup_random, "app", cadence=EVERY_CHUNK),
                Observer(progress=stop_at(end)),
            )
        assert files(library) == before
        with Session(library, "app", setup_random) as session:
            assert session.find("boat").tokens["document"] == tokens
    done = append(Job(library, [str(log), str(other)], setup_random, "app"))
    assert done.reused_tokens >= tokens + 250
    ingest(tmp_path / "whole", [str(log), str(other)], setup_random)
    assert files(library) == files(tmp_path / "whole")


@pytest.mark.parametrize("own", ["fp32", "bf16"])
def test_a_document_is_read_on_in_its_own_number_format(
    tmp_path, library, log, setup_random, monkeypatch, own
):
    named = dataclasses.replace(setup_random, dtype=own)
    unnamed = dataclasses.replace(setup_random, dtype="auto")
    log.write_bytes(TEXT[:700])
    ingest(library, [str(log)], named)
    log.write_bytes(TEXT[:1300])
    done = append(Job(library, [str(log)], unnamed, "app"))
    assert files(library) == whole(log, named, tmp_path / "whole")
    usual = dtype_name(choose_dtype("auto", "cpu"))
    told = [] if own == usual else [f"read on in {own}, as it was begun; here {usual} is usual"]
    assert done.notes == told


@pytest.mark.parametrize(("own", "wanted"), [("fp32", "bf16"), ("bf16", "fp32"), ("fp32", "fp16")])
def test_another_number_format_is_refused(library, log, setup_random, own, wanted):
    log.write_bytes(TEXT[:700])
    ingest(library, [str(log)], dataclasses.replace(setup_random, dtype=own))
    before = files(library)
    log.write_bytes(TEXT[:1300])
    with pytest.raises(UsageError, match=rf"in {wanted}: it was read in {own}"):
        append(Job(library, [str(log)], dataclasses.replace(setup_random, dtype=wanted), "app"))
    assert files(library) == before


def test_an_append_that_was_begun_in_another_number_format_is_begun_anew(
    tmp_path, library, log, setup_random
):
    log.write_bytes(TEXT[:700])
    tokens = ingest(library, [str(log)], setup_random).tokens
    log.write_bytes(TEXT[:1300])
    other = dataclasses.replace(setup_random, dtype="bf16")
    stop = stop_at(tokens + 150)
    engine = ingesting.prepare(other)  # older versions took any
    with pytest.raises(Stopped):
        append(
            Job(library, [str(log)], other, "app", cadence=EVERY_CHUNK, engine=engine),
            Observer(progress=stop),
        )
    assert append(Job(library, [str(log)], setup_random, "app")).reused_tokens <= tokens
    assert files(library) == whole(log, setup_random, tmp_path / "whole")


def test_a_document_that_names_no_number_format_is_read_on_in_what_is_wanted(
    library, log, setup_random
):
    log.write_bytes(TEXT[:700])
    ingest(library, [str(log)], setup_random)
    for recorded in ({}, {"dtype": ["fp32"]}, {"dtype": "fp4"}):
        forge(library / "documents/app", lambda data, value=recorded: data.update(recorded=value))
        log.write_bytes(log.read_bytes() + b"and a boat came home\n")
        assert append(Job(library, [str(log)], setup_random, "app")).status == "complete"


def test_what_was_begun_behind_another_text_is_dropped(tmp_path, library, log, setup_random):
    log.write_bytes(TEXT[:500])
    tokens = ingest(library, [str(log)], setup_random).tokens
    log.write_bytes(TEXT[:1100])
    with pytest.raises(Stopped):
        append(
            Job(library, [str(log)], setup_random, "app", cadence=EVERY_CHUNK),
            Observer(progress=stop_at(tokens + 90)),
        )
    log.write_bytes(TEXT[:500] + TEXT[700:1300])
    assert append(Job(library, [str(log)], setup_random, "app")).reused_tokens < tokens
    assert files(library) == whole(log, setup_random, tmp_path / "whole")


def test_a_reading_that_is_to_replace_the_document_is_not_dropped(library, log, setup_random):
    log.write_bytes(TEXT[:500])
    ingest(library, [str(log)], setup_random)
    log.write_bytes(TEXT[:1100])
    with pytest.raises(Stopped):
        ingest(
            library,
            [str(log)],
            setup_random,
            replace=True,
            cadence=EVERY_CHUNK,
            on_progress=stop_at(90),
        )
    with pytest.raises(UsageError, match=r"take its place was begun"):
        append(Job(library, [str(log)], setup_random, "app"))


@pytest.mark.parametrize("fails", [0, 3, 6, 9, 11])
def test_a_write_that_fails_harms_nothing(tmp_path, library, log, setup_random, monkeypatch, fails):
    log.write_bytes(TEXT[:500])
    ingest(library, [str(log)], setup_random)
    before, rename, count = files(library), os.replace, 0
    log.write_bytes(TEXT[:700])

    def failing(source, target, **folders):
        nonlocal count
        count += 1
        if count == fails + 1:
            raise OSError(28, "No space left on device")
        rename(source, target, **folders)

    with monkeypatch.context() as patch:
        patch.setattr("os.replace", failing)
        with pytest.raises(LongctxError, match="No space left"):
            append(Job(library, [str(log)], setup_random, "app"))
    assert files(library) == before
    append(Job(library, [str(log)], setup_random, "app"))
    assert files(library) == whole(log, setup_random, tmp_path / "whole")
