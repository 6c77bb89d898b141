"""Whether sources are still what was read, and in the order in which they were read.

A source is identified by its file and which part of it it is, and is the same if its bytes are.
`sameness.py` compares one file with its record, which a question needs too; this module has what
only reading needs: whole manifests, streams, and files that change while they are read.
"""

import os
from itertools import pairwise
from pathlib import Path
from types import NoneType
from typing import Any

from longctx.core.common.errors import LongctxError, StateMismatch, UsageError
from longctx.core.sources.reader import Source
from longctx.core.store.manifest import Manifest, Origin, SourceRecord
from longctx.core.store.sameness import Now, begins_with, compare
from longctx.core.store.shards import AGAIN

Entry = int | dict[str, Any]  # number of a source, or the record of one that was left out
KEPT = (Now.SAME, Now.GROWN)  # it has what was read, perhaps with more after it


class CannotGoOn(UsageError):
    """The sources are not those that a checkpoint began with."""


def skipped(manifest: Manifest) -> list[dict[str, Any]]:
    """The sources that were left out, as the manifest records them.

    Raises:
        StateMismatch: no reading has written its report.
    """
    report = manifest.report
    left_out, changed = report.get("skipped", []), report.get("changed", [])
    fits = type(left_out) is type(changed) is list and all(map(_is_left_out, left_out))
    if fits:
        places = -1, *(left["place"] for left in left_out), len(manifest.sources) + len(left_out)
        fits = all(place < after for place, after in pairwise(places))
    if not fits or type(report.get("forced_splits", 0)) is not int:
        raise StateMismatch(f"the state of '{manifest.name}' is damaged", "in its report", AGAIN)
    return left_out.copy()


def _is_left_out(entry: Any) -> bool:
    types = {"place": (int,), "path": (str, NoneType), "mtime_ns": (int, NoneType), "why": (str,)}
    types |= {"part": (str, NoneType), "text": (bool, NoneType)}  # older reports lack these
    return isinstance(entry, dict) and all(type(entry.get(k)) in types[k] for k in types)


def in_order(manifest: Manifest) -> list[Entry]:
    """Numbers of sources, and records of those that were left out, in the order given."""
    left_out = {entry["place"]: entry for entry in skipped(manifest)}
    numbers = iter(range(len(manifest.sources)))
    count = len(manifest.sources) + len(left_out)
    return [left_out[place] if place in left_out else next(numbers) for place in range(count)]


def place_of(manifest: Manifest, entry: Entry) -> tuple[str | None, str]:
    """The file that a source comes from, and which part of it."""
    if not isinstance(entry, int):
        return entry["path"], entry.get("part") or ""
    record = manifest.sources[entry]
    return record.path, record.origin.part if record.origin else ""


def begun_with(sources: list[Source], manifest: Manifest) -> list[SourceRecord | None] | None:
    """A manifest's records of the first of these sources, in order; None for one left out.

    Returns:
        As many as the manifest has; None if these are other sources.
    """
    entries = in_order(manifest)
    places = [place_of(manifest, entry) for entry in entries]
    if places != [(source.file, source.part) for source in sources[: len(entries)]]:
        return None
    return [manifest.sources[entry] if isinstance(entry, int) else None for entry in entries]


def now_of(record: SourceRecord) -> Now:
    """What a source's file is now; if the source is still being read, the file may have grown.

    A stream counts as the same: it is compared while it is read.
    """
    if record.path is None:
        return Now.SAME
    may_grow = record.undecodable is None and not record.origin
    return compare(record, Path(record.path), may_grow)


def left_out_now(entry: dict[str, Any]) -> Now:
    """What a file that could not be read is now: the same if it was not modified."""
    if entry["path"] is None:
        return Now.SAME
    try:
        touched = Path(entry["path"]).stat().st_mtime_ns
    except (OSError, ValueError):
        return Now.GONE
    return Now.SAME if touched == entry["mtime_ns"] else Now.REPLACED


def changed_since(manifest: Manifest) -> list[str]:
    """Sources whose files no longer hold what was read, or were modified after being left out."""
    changed = [record.name for record in manifest.sources if now_of(record) not in KEPT]
    return changed + [
        entry["path"] for entry in skipped(manifest) if left_out_now(entry) is not Now.SAME
    ]


def require_same_stream(source: Source, record: SourceRecord) -> None:
    """CannotGoOn unless a stream equals, from beginning to end, what the store has of it."""
    for _ in source.blocks():
        if source.size > record.size:
            break
    if (source.size, source.sha256) != (record.size, record.sha256):
        raise another(source)


def another(source: Source) -> CannotGoOn:
    """The error for a source that is not the one whose reading was begun."""
    return CannotGoOn(
        f"cannot go on with '{source.name}'",
        "it is not the text whose reading was stopped, or goes on otherwise than it did then",
        "Give the same input again, or add --replace to begin anew.",
    )


def now_after_reading(source: Source, origin: Origin | None, opened: os.stat_result) -> Now:
    """What the file of a source is now that it was read to its end.

    If it was deleted or another file has replaced it, the whole old file was read.

    Args:
        source: a source with a path.
        origin: the file that its text was made from; None: it is the file itself.
        opened: the file's status before it was opened.

    Raises:
        LongctxError: it was rewritten; what was read may be a mixture of old and new.
    """
    assert source.path
    try:
        status = source.path.stat()
    except OSError:
        return Now.GONE
    if _stamp(status) == _stamp(opened):
        return Now.SAME
    file = origin or source
    try:
        if status.st_ino != opened.st_ino:
            return Now.REPLACED
        # Unpacked or converted text is made from the whole file.
        whole = not origin or status.st_size == file.size
        if whole and begins_with(source.path, file.size, file.sha256):
            return Now.GROWN
    except OSError:  # deleted meanwhile
        return Now.REPLACED
    raise LongctxError(
        f"'{source.name}' was rewritten while it was read",
        "what was read may be half old and half new",
        "Run the command again, with --replace, when nothing writes to the file.",
    )


def _stamp(status: os.stat_result) -> tuple[int, int, int]:
    return status.st_ino, status.st_size, status.st_mtime_ns
