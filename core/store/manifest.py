"""The manifest: a document's own record, as canonical JSON, checked when read.

`docs/format.md` describes every field. This module knows nothing of libraries, models or methods:
options are JSON, and it opens none of the files that it names.
"""

import json
import math
import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from itertools import accumulate
from pathlib import Path
from typing import Any

from xxhash import xxh3_128_hexdigest

from longctx.core.common import pasting
from longctx.core.common.errors import StateMismatch, UsageError
from longctx.core.common.records import Reader
from longctx.core.sources.encodings import ENCODINGS
from longctx.core.store import naming, shards
from longctx.core.store.confined import Confined
from longctx.core.store.shards import AGAIN, Shard, damaged

FORMAT = 4  # the version of the format; no other is read
DRAFT = "draft"  # the status of a draft: see `drafts.py`
UNITS = ("document", "source")  # what was read as one text
MANIFEST = "manifest.json"
MANIFEST_BYTES = 1 << 26  # limit for a manifest that is read
FINGERPRINT = ("config", "tokenizer", "weights")  # what makes a model the same model
LARGEST = (1 << 63) - 1  # of a count, which is shown and reckoned with
_PARTS = 1 << 20  # that any file may have, however short
_READER = Reader("", sized=False)  # a file's time may take more than 64 bits
# How the canonical text begins: "checksum" is the first key.
_CHECKSUM = re.compile(rb'\{\n "checksum": "([0-9a-f]{32})",\n')


def canonical_json(value: Any) -> str:
    """The one JSON text of a value: sorted keys, indent 1, ASCII, a final newline."""
    return json.dumps(value, sort_keys=True, indent=1, allow_nan=False) + "\n"


@dataclass(frozen=True)
class Origin:
    """The file that a text was made from by unpacking or converting.

    Args:
        size: bytes of the file.
        sha256: of these bytes.
        part: the archive member that the text comes from; empty: the whole file.
        marks: what its numbers in the group "marks" count: page, line, ...; None: lines of the
            text are counted.
    """

    size: int
    sha256: str
    part: str
    marks: str | None


@dataclass(frozen=True)
class SourceRecord:
    """One text that went into a document.

    Args:
        name: as shown to people and in citations.
        path: where it was read from; None if there is no file (stdin).
        size: bytes of its text in the document.
        mtime_ns: modification time of the file; None if there is none.
        sha256: of the text's bytes.
        encoding: the encoding it is decoded with.
        undecodable: bytes that the encoding has no character for; None while it is being read.
        first_token: position of its first token in the document.
        tokens: its number of tokens.
        text_start: position of its first byte in the document's text.
        origin: what it was made from; None: it is the file itself.
    """

    name: str
    path: str | None
    size: int
    mtime_ns: int | None
    sha256: str
    encoding: str | None
    undecodable: int | None
    first_token: int
    tokens: int
    text_start: int
    origin: Origin | None = None

    @property
    def codec(self) -> str:
        """Python's name of the encoding; the source must have begun to be read."""
        return self.encoding or "utf-8"


@dataclass(frozen=True)
class Manifest:
    """What a document records of itself; `docs/format.md` describes every field.

    `folder` is the folder's name and not stored. `status` is "complete", "draft", "reading", or,
    only in the list of a library, "damaged"; then `report` says why under "error". `title` is None
    where the document is called as its folder is. `units` is "source" where each source was read on
    its own after the prefix, not after the sources before it. `language` is the one that its words
    are counted in: an ISO 639-1 code, or "" where it is unknown. `encoder` names the weights that
    make the vectors of its passages, or is "" where it has none.
    """

    folder: str
    format: int
    status: str
    tokens: int
    sources: tuple[SourceRecord, ...]
    model: dict
    recorded: dict
    method: str
    options: dict
    profile: dict | str
    report: dict
    shards: tuple[Shard, ...]
    title: str | None = None
    units: str = UNITS[0]
    language: str = ""
    encoder: str = ""

    @property
    def name(self) -> str:
        """What people call the document: its title, as `naming.shown`, or its folder's name."""
        return naming.shown(self.title or self.folder)

    @property
    def has_words(self) -> bool:
        """Whether it has word index files, sound or damaged."""
        return any(shard.group == shards.WORDS for shard in self.shards)

    @property
    def has_vectors(self) -> bool:
        """Whether it has files of its passages' vectors, sound or damaged."""
        return any(shard.group == shards.VECTORS for shard in self.shards)

    @property
    def is_draft(self) -> bool:
        """Whether it is of a draft, which has no encoding: see `drafts.py`."""
        return self.status == DRAFT

    @property
    def is_bare(self) -> bool:
        """Whether it keeps nothing of its method, because reading its tokens again makes it."""
        complete = self.status == "complete"
        return complete and {shard.group for shard in self.shards} <= shards.FOR_WORDS

    @property
    def size(self) -> int:
        """Bytes on disk, without the manifest itself."""
        return sum(shard.size for shard in self.shards)

    @property
    def parts(self) -> dict[str, int]:
        """Bytes on disk by part: text, tokens, words, cache, and what the method keeps rows of.

        The vectors of passages count as words.
        """
        sizes: dict[str, int] = {}
        for shard in self.shards:
            sizes[shard.part] = sizes.get(shard.part, 0) + shard.size
        return sizes

    def to_json(self) -> str:
        """The canonical text, with its checksum."""
        data = asdict(self)
        del data["folder"]
        for shard in data["shards"]:
            if shard["members"] is None:
                del shard["members"], shard["raw"]
        for source in data["sources"]:
            if source["origin"] is None:
                del source["origin"]
        return canonical_json({**data, "checksum": _checksum(data)})

    @classmethod
    def from_json(cls, text: str | bytes, folder: str) -> "Manifest":
        """The manifest of the document in the folder of this name, from its text.

        Raises:
            ValueError: it is damaged or inconsistent, or has unknown or missing fields.
            StateMismatch: it is of another format version.
        """
        raw = text.encode() if isinstance(text, str) else text
        check_parts(raw)
        data = json.loads(raw, parse_float=_number, parse_constant=_number)
        _check_format(folder, data)
        recorded = data.pop("checksum", None)
        if not _is_as_written(raw) and recorded != _checksum(data):
            raise ValueError("it does not have the checksum that it records")
        if {"name", "folder"} & data.keys():
            raise ValueError("it has a name, which only its folder has")
        if missing := {field.name for field in fields(cls)} - {"folder", *data}:
            raise ValueError(f"there is no key {min(missing)!r} in the manifest")
        try:
            manifest = _READER.read(cls, {**data, "folder": folder}, "the manifest")
        except UsageError as exc:
            raise ValueError(exc.reason) from exc
        manifest._check()
        return manifest

    @classmethod
    def read(cls, folder: Confined | Path) -> "Manifest":
        """Read the manifest of a document's folder.

        Raises:
            StateMismatch: it is missing, damaged, inconsistent or of another format version.
        """
        folder = Confined.of(folder)
        path = folder / MANIFEST
        try:
            return cls.from_json(path.read_bytes(MANIFEST_BYTES), folder.name)
        except OSError as exc:
            raise StateMismatch(f"cannot read '{path}'", exc.strerror, AGAIN) from exc
        except (ValueError, RecursionError) as exc:
            raise damaged(path, str(exc)) from exc

    def _check(self) -> None:
        """ValueError where its parts contradict one another."""
        if self.status not in ("reading", DRAFT, "complete"):
            raise ValueError(f"its status is {self.status!r}")
        if set(self.model) != {"name", *FINGERPRINT}:
            raise ValueError("its model has other parts than a fingerprint")
        if not all(isinstance(part, str) for part in self.model.values()):
            raise ValueError("its model has parts that are no text")
        for group, files in by_group(self.shards).items():
            if [shard.number for shard in files] != list(range(len(files))):
                raise ValueError(f"the files of {group!r} are not numbered from 0")
            if any(shard.checkpoint is not None for shard in files[:-1]):
                raise ValueError(f"a file of {group!r} follows the one of a checkpoint")
        if self.status != "reading" and any(s.checkpoint is not None for s in self.shards):
            raise ValueError(f"it is {self.status} and names files of a checkpoint")
        if self.status == DRAFT and not {shard.group for shard in self.shards} <= shards.FOR_WORDS:
            raise ValueError("it is a draft and names files of a method")
        self._check_form()
        self._check_sources()

    def _check_form(self) -> None:
        """The same for its title, units and kinds of files."""
        if self.title is not None and not naming.is_title(self.title):
            raise ValueError(f"its title is {self.title!r:.40}")
        if self.units not in UNITS:
            raise ValueError(f"its units are {self.units!r:.40}")
        if not re.fullmatch("([a-z]{2})?", self.language):
            raise ValueError(f"its language is {self.language!r:.40}")
        if not re.fullmatch("[A-Za-z0-9._-]{0,100}", self.encoder):
            raise ValueError(f"its encoder is {self.encoder!r:.40}")
        if self.has_words and self.status == "reading":
            raise ValueError("it names files of words, which checkpoints do not have")
        if self.has_vectors and self.status == "reading":
            raise ValueError("it names files of vectors, which checkpoints do not have")
        if self.has_vectors and not self.encoder:
            raise ValueError("it names files of vectors, and no encoder that made them")
        snapshots = any(shard.group in shards.SNAPSHOTS for shard in self.shards)
        if self.units != UNITS[0] and snapshots and self.status == "complete":
            raise ValueError("its sources were read one by one, and it has a snapshot of all")

    def _check_sources(self) -> None:
        sizes = [source.size for source in self.sources]
        counts = [source.tokens for source in self.sources]
        starts = [(source.text_start, source.first_token) for source in self.sources]
        ends = list(zip(accumulate(sizes, initial=0), accumulate(counts, initial=0), strict=True))
        encodings = {source.encoding for source in self.sources} - ENCODINGS
        if encodings - {None} or (encodings and self.status != "reading"):
            raise ValueError("its sources are in encodings that are not read")
        raw = [shard.raw or 0 for shard in self.shards if shard.group == "text"]
        rows = sum(shard.rows for shard in self.shards if shard.group == "tokens")
        text, lines = (
            [shard.checkpoint for shard in self.shards if shard.group == group]
            for group in ("text", "lines")
        )
        if text != lines or any(n != shards.MEMBERS * shards.MEMBER for n in raw[:-1]):
            raise ValueError("its text files are not full, or not with one of lines each")
        if min((*sizes, *counts), default=0) < 0 or starts != ends[:-1] or rows != self.tokens:
            raise ValueError("its sources and tokens do not follow one another")
        if ends[-1] != (sum(raw), rows):
            raise ValueError("its sources are not the text and tokens that it holds")
        if max(*ends[-1], *(shard.rows for shard in self.shards)) > LARGEST:
            raise ValueError("it counts more than fits into 64 bits")


def check_parts(text: bytes) -> None:
    """ValueError where a JSON text has so many parts that parsing it would fill the memory.

    Python takes 64 bytes for `[]`, so 62 MB of them would take 2.25 GB. A real manifest has one
    mapping or list per few hundred bytes, and one value per ten or so.
    """
    lists, mappings, commas = map(text.count, (b"[", b"{", b","))
    if lists + mappings > _PARTS + len(text) // 32 or commas > _PARTS + len(text) // 6:
        raise ValueError(f"it has {lists + mappings + commas:,} parts in {len(text):,} bytes")


def _number(text: str) -> float:
    """ValueError for NaN and overflow, which Python reads but canonical JSON does not have."""
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text:.40} is no number to reckon with")
    return number


def _checksum(data: dict) -> str:
    return xxh3_128_hexdigest(canonical_json(data).encode("ascii"))


def _is_as_written(text: bytes) -> bool:
    """Whether `to_json` wrote a text; checking that is cheaper than writing it again."""
    head = _CHECKSUM.match(text)
    return bool(head) and xxh3_128_hexdigest(b"{\n" + text[head.end() :]) == head[1].decode()


def by_group(entries: tuple[Shard, ...]) -> dict[str, list[Shard]]:
    """The files of each group, in the order of the manifest."""
    groups: dict[str, list[Shard]] = {}
    for shard in entries:
        groups.setdefault(shard.group, []).append(shard)
    return groups


def in_order(files: Iterable[Shard]) -> tuple[Shard, ...]:
    """The files in a manifest's order: by group, and in each group as they come."""
    return tuple(sorted(files, key=lambda shard: shard.group))


def _check_format(name: str, data: Any) -> None:
    """StateMismatch for another format version, with the command that makes the document again."""
    found = data.get("format") if isinstance(data, dict) else None
    if type(found) is not int:
        raise ValueError("it does not say which format it has")
    if found != FORMAT:
        known = data.get("sources")
        paths = [s.get("path") for s in known if isinstance(s, dict)] if type(known) is list else []
        paths = [path for path in paths if isinstance(path, str)]
        title = data.get("title")
        name = title if isinstance(title, str) and naming.is_title(title) else name
        raise StateMismatch(
            f"'{name}' has format {found}",
            f"this longctx reads format {FORMAT}",
            f"Ingest it again: longctx ingest {pasting.files(paths)} "
            f"{pasting.option('--name', name)} --replace",
        )
