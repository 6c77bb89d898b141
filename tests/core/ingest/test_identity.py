"""What is still what was read: sources in their order, those left out, and files read meanwhile."""

import hashlib
import os
from dataclasses import replace
from pathlib import Path

import pytest

from longctx.core.common.errors import LongctxError, StateMismatch
from longctx.core.ingest.identity import (
    begun_with,
    changed_since,
    in_order,
    left_out_now,
    now_after_reading,
    now_of,
    place_of,
)
from longctx.core.sources.reader import Source
from longctx.core.store.manifest import FORMAT, Manifest, Origin, SourceRecord
from longctx.core.store.sameness import Now

TEXT = b"the keeper wrote"


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    found = [tmp_path / name for name in "abcd"]
    for file in found:
        file.write_bytes(TEXT)
    return found


def record(file: Path, text: bytes = TEXT, whole: bool = True) -> SourceRecord:
    digest, undecodable = hashlib.sha256(text).hexdigest(), 0 if whole else None
    place = file.name, str(file)
    return SourceRecord(*place, len(text), None, digest, "utf-8", undecodable, 0, 3, 0)


def left_out(file: Path, place: int) -> dict:
    mtime_ns = file.stat().st_mtime_ns
    return {"place": place, "path": str(file), "part": "", "mtime_ns": mtime_ns, "why": "empty"}


def manifest(records: list[SourceRecord], skipped: list[dict]) -> Manifest:
    told = {"model": {}, "recorded": {}, "method": "reform", "options": {}, "profile": {}}
    return Manifest(
        format=FORMAT,
        status="reading",
        folder="book",
        tokens=3,
        sources=tuple(records),
        shards=(),
        report={"skipped": skipped},
        **told,
    )


@pytest.mark.parametrize(
    ("places", "order"),
    [((1, 2), "abcd"), ((0, 3), "badc"), ((2, 3), "adbc")],
)
def test_sources_are_told_in_the_order_in_which_they_were_given(files, places, order):
    b, c = (left_out(file, place) for file, place in zip(files[1:3], places, strict=True))
    begun = manifest([record(files[0]), record(files[3])], [b, c])
    told = [Path(place_of(begun, entry)[0]).name for entry in in_order(begun)]
    assert "".join(told) == order
    given = [Source(name, files[0].with_name(name)) for name in order]
    known = begun_with([*given, Source("e", files[0])], begun)
    assert [each and each.name for each in known] == [n if n in "ad" else None for n in order]
    assert begun_with(given[:3], begun) is None
    assert begun_with(given[::-1], begun) is None


@pytest.mark.parametrize("places", [(3, 2), (1, 1), (-1, 2), (1, 4), (7, 9)])
def test_places_that_no_reading_has_written_are_damage(files, places):
    entries = [left_out(file, place) for file, place in zip(files[1:3], places, strict=True)]
    begun = manifest([record(files[0]), record(files[3])], entries)
    with pytest.raises(StateMismatch, match="damaged"):
        begun_with([Source(file.name, file) for file in files], begun)


def test_a_part_of_a_file_is_not_another(files):
    inside = replace(record(files[0]), origin=Origin(0, "", "x", None))
    begun = manifest([inside], [])
    assert begun_with([Source("a", files[0], part="x")], begun) == [inside]
    assert begun_with([Source("a", files[0], part="y")], begun) is None


def test_only_what_is_being_read_may_have_grown(files):
    begun = TEXT[:5]
    assert now_of(record(files[0], begun, whole=False)) is Now.GROWN
    assert now_of(record(files[0], begun)) is Now.REPLACED
    assert now_of(replace(record(files[0], begun), path=None)) is Now.SAME
    out = left_out(files[1], 1)
    known = manifest([record(files[0]), record(files[3], begun)], [out])
    assert changed_since(known) == ["d"]
    os.utime(files[1], (1, 1))
    assert (left_out_now(out), changed_since(known)) == (Now.REPLACED, ["d", str(files[1])])
    files[1].unlink()
    assert left_out_now(out) is Now.GONE


@pytest.mark.parametrize(
    ("change", "now"),
    [
        (lambda file: None, Now.SAME),
        (lambda file: file.write_bytes(TEXT + b" more"), Now.GROWN),
        (lambda file: os.replace(file.with_name("b"), file), Now.REPLACED),
        (Path.unlink, Now.GONE),
    ],
)
def test_a_file_that_changed_while_it_was_read(files, change, now):
    source, opened = Source("a", files[0]), files[0].stat()
    assert "".join(block.text for block in source.blocks()) == TEXT.decode()
    change(files[0])
    assert now_after_reading(source, None, opened) is now


def test_a_file_that_was_rewritten_while_it_was_read(files):
    source, opened = Source("a", files[0]), files[0].stat()
    assert list(source.blocks())
    files[0].write_bytes(TEXT + b" more")
    # What is converted is made of the whole file.
    origin = Origin(len(TEXT), hashlib.sha256(TEXT).hexdigest(), "", None)
    with pytest.raises(LongctxError, match="was rewritten while it was read"):
        now_after_reading(source, origin, opened)
    files[0].write_bytes(b"X" + TEXT)
    with pytest.raises(LongctxError, match="was rewritten while it was read"):
        now_after_reading(source, None, opened)
