"""The library on disk: a folder of documents, each written once and read in part.

`Library` finds documents, `Writer` makes one, `Document` reads one, `Manifest` is what one records
of itself. A document has its name only when it is complete; a kill at any moment leaves the others
as they were. `docs/format.md` specifies the files; `shards.py` reads and writes them.
This module knows nothing of models, methods or tokenizers: rows are tensors, options are JSON.
"""

import hashlib
import json
import re
import shlex
import shutil
from bisect import bisect_right
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import MISSING, asdict, dataclass, fields, is_dataclass, replace
from itertools import accumulate
from pathlib import Path
from types import UnionType
from typing import TYPE_CHECKING, Any, get_args, get_origin, get_type_hints

from filelock import FileLock, Timeout
from xxhash import xxh3_128_hexdigest

from longctx.core import shards
from longctx.core.errors import Locked, LongctxError, NotFound, StateMismatch, UsageError
from longctx.core.shards import (
    GroupWriter,
    Rows,
    Shard,
    ShardFile,
    TensorFile,
    TextFile,
    TextWriter,
)

if TYPE_CHECKING:
    import torch

FORMAT = 1
MANIFEST = "manifest.json"
FINGERPRINT = ("config", "tokenizer", "weights")  # what makes a model the same model
RESERVED = ("text", "lines", "memory")  # groups that are not rows of a method

_NAME = re.compile(r"(?!\.)[A-Za-z0-9._-]{1,100}")


def _canonical(value: Any) -> str:
    """The one JSON text of a value: sorted keys, indent 1, ASCII, a final newline."""
    return json.dumps(value, sort_keys=True, indent=1, allow_nan=False) + "\n"


@dataclass(frozen=True)
class Source:
    """One text that went into a document.

    Args:
        name: as shown to people and in citations.
        path: where it was read from; None where there is no file (stdin).
        size: bytes of its text in the document.
        mtime_ns: modification time of the file; None where there is none.
        sha256: of these bytes.
        encoding: that it was decoded with; None while it is being read.
        undecodable: bytes that the encoding has no character for.
        first_token: its first token, counted over the document.
        tokens: how many it has.
        text_start: position of its first byte in the document's text.
    """

    name: str
    path: str | None
    size: int
    mtime_ns: int | None
    sha256: str
    encoding: str | None
    undecodable: int
    first_token: int
    tokens: int
    text_start: int


@dataclass(frozen=True)
class Manifest:
    """What a document records of itself; `docs/format.md` describes every field.

    `status` is "complete", "reading", or, only in the list of a library, "damaged"; then `report`
    says why under "error".
    """

    format: int
    status: str
    name: str
    tokens: int
    sources: tuple[Source, ...]
    model: dict
    recorded: dict
    method: str
    options: dict
    profile: dict | str
    report: dict
    shards: tuple[Shard, ...]

    @property
    def size(self) -> int:
        """Bytes on disk, without the manifest itself."""
        return sum(shard.size for shard in self.shards)

    def to_json(self) -> str:
        """The canonical text, with its checksum."""
        data = asdict(self)
        for shard in data["shards"]:
            if shard["members"] is None:
                del shard["members"], shard["raw"]
        return _canonical({**data, "checksum": _checksum(data)})

    @classmethod
    def from_json(cls, text: str | bytes, name: str) -> "Manifest":
        """The manifest of the document `name` from its text.

        Raises:
            ValueError: it is damaged or inconsistent, or has unknown or missing fields.
            StateMismatch: it is of another format version.
        """
        data = json.loads(text)
        _check_format(name, data)
        if data.pop("checksum", None) != _checksum(data):
            raise ValueError("it does not have the checksum that it records")
        manifest = _decode(cls, data)
        manifest._check(name)
        return manifest

    @classmethod
    def read(cls, folder: Path) -> "Manifest":
        """Read the manifest of a document's folder.

        Raises:
            StateMismatch: it is missing, damaged, inconsistent or of another format version.
        """
        path = folder / MANIFEST
        try:
            return cls.from_json(path.read_bytes(), folder.name)
        except OSError as exc:
            raise StateMismatch(f"cannot read '{path}'", exc.strerror, shards.AGAIN) from exc
        except (ValueError, RecursionError) as exc:
            raise shards.damaged(path, str(exc)) from exc

    def _check(self, name: str) -> None:
        """ValueError where the parts contradict one another, or the name of the folder."""
        if self.name != name or self.status not in ("reading", "complete"):
            raise ValueError(f"it describes '{self.name}' ({self.status})")
        if set(self.model) != {"name", *FINGERPRINT}:
            raise ValueError("its model has other parts than a fingerprint")
        for group, files in _by_group(self.shards).items():
            if [shard.number for shard in files] != list(range(len(files))):
                raise ValueError(f"the files of {group!r} are not numbered from 0")
        if self.status == "complete" and any(shard.is_tail for shard in self.shards):
            raise ValueError("it is complete and names files of a checkpoint")
        self._check_sources()

    def _check_sources(self) -> None:
        sizes = [source.size for source in self.sources]
        counts = [source.tokens for source in self.sources]
        starts = [(source.text_start, source.first_token) for source in self.sources]
        ends = list(zip(accumulate(sizes, initial=0), accumulate(counts, initial=0), strict=True))
        raw = [shard.raw for shard in self.shards if shard.group == "text"]
        rows = sum(shard.rows for shard in self.shards if shard.group == "tokens")
        lines = sum(shard.group == "lines" for shard in self.shards)
        if len(raw) != lines or any(n != shards.MEMBERS * shards.MEMBER for n in raw[:-1]):
            raise ValueError("its text files are not full, or not with one of lines each")
        if min((*sizes, *counts), default=0) < 0 or starts != ends[:-1] or rows != self.tokens:
            raise ValueError("its sources and tokens do not follow one another")
        if ends[-1] != (sum(raw), rows):
            raise ValueError("its sources are not the text and tokens that it holds")


def _checksum(data: dict) -> str:
    return xxh3_128_hexdigest(_canonical(data).encode("ascii"))


def _by_group(entries: tuple[Shard, ...]) -> dict[str, list[Shard]]:
    groups: dict[str, list[Shard]] = {}
    for shard in entries:
        groups.setdefault(shard.group, []).append(shard)
    return groups


def _check_format(name: str, data: Any) -> None:
    """StateMismatch for another format version, with the command that makes the document anew."""
    found = data.get("format") if isinstance(data, dict) else None
    if type(found) is not int:
        raise ValueError("it does not say which format it has")
    if found != FORMAT:
        paths = [s.get("path") for s in data.get("sources", ()) if isinstance(s, dict)]
        sources = shlex.join(path for path in paths if isinstance(path, str)) or "SOURCE"
        raise StateMismatch(
            f"'{name}' has format {found}",
            f"this longctx reads format {FORMAT}",
            f"Make it again: longctx ingest {sources} --name {name} --replace",
        )


def _decode(cls: type, data: Any) -> Any:
    """A dataclass from parsed JSON; ValueError for unknown or missing fields and wrong types."""
    known = {field.name for field in fields(cls)}
    required = {field.name for field in fields(cls) if field.default is MISSING}
    if not isinstance(data, dict) or not required <= data.keys() <= known:
        raise ValueError(f"{cls.__name__.lower()} has unknown fields, or not all that it needs")
    hints = get_type_hints(cls)
    return cls(**{name: _decode_value(name, hints[name], value) for name, value in data.items()})


def _decode_value(name: str, hint: Any, value: Any) -> Any:
    choices = get_args(hint)
    if isinstance(hint, UnionType):
        kept = type(value) in choices
        return value if kept else _decode_value(name, choices[0], value)
    if get_origin(hint) is tuple and isinstance(value, list):
        return tuple(_decode_value(name, choices[0], item) for item in value)
    if is_dataclass(hint):
        return _decode(hint, value)
    if type(value) is not hint:
        raise ValueError(f"{name} is {value!r:.40}")
    return value


class Library:
    """A folder of documents. Make one with `Library.open`."""

    def __init__(self, path: Path):
        self.path = path

    @classmethod
    def open(cls, path: Path, create: bool = False) -> "Library":
        """Open the library in folder `path`, with `create` also where there is none yet.

        Raises:
            NotFound: there is none and `create` is false.
            UsageError: the folder holds other things, or `path` is a file.
            StateMismatch: it is a library of another format version.
            LongctxError: it cannot be made or looked into.
        """
        library = cls(Path(path))
        mark = library.path / "library.json"
        if library._is_library(mark):
            library._check_mark(mark)
        elif library._is_something_else():
            raise UsageError(
                f"'{path}' is not a longctx library",
                "it holds other things and no library.json",
                "Name an empty or new folder, or a library, with --library",
            )
        elif not create:
            raise NotFound(
                f"no library at '{path}'",
                remedy="Run `longctx ingest` to make one, or name another with --library",
            )
        else:
            with shards.storing(library.path):
                library.path.mkdir(parents=True, exist_ok=True)
            _write_text(library.path, mark.name, _canonical({"format": FORMAT}))
        return library

    def documents(self) -> list[Manifest]:
        """Manifests of all documents, then of the unfinished; damaged ones by name and reason."""
        folders = self._folders("documents") + self._folders("unfinished")
        return [_describe(folder) for folder in folders]

    def latest(self) -> str:
        """The name of the document that was completed last; NotFound where there is none."""
        folders = self._complete()
        if not folders:
            raise NotFound(
                f"the library '{self.path}' has no document", remedy="Run `longctx ingest` first"
            )
        return max(folders.values(), key=lambda folder: (_age(folder), folder.name)).name

    def document(self, name: str) -> "Document":
        """Open a complete document.

        Raises:
            UsageError: the name is not one that a document can have.
            NotFound: there is none of this name, or it is not finished.
            StateMismatch: it is damaged, or of another format version.
        """
        _check_name(name)
        finished, unfinished = self.path / "documents" / name, self.path / "unfinished" / name
        if finished.is_dir():
            return Document(finished)
        if _is_complete(unfinished):  # only its last rename was cut off
            return Document(unfinished)
        if unfinished.is_dir():
            raise NotFound(
                f"'{name}' is not finished",
                "it is being read, or its reading was stopped",
                "Wait, or run the same ingest command again",
            )
        raise self._no_document(name)

    @contextmanager
    def writer(
        self, name: str, header: dict, replace: bool = False, shard_rows: int = shards.SHARD_ROWS
    ) -> "Iterator[Writer]":
        """Write document `name`, alone, until the context ends.

        Without `Writer.complete` the folder stays under unfinished/ and documents do not change.

        Args:
            name: 1 to 100 of A-Z a-z 0-9 . _ -, the first not a dot.
            header: model, recorded, method, options, profile of the manifest; report if known.
            replace: a document of this name gives way when the new one is complete.
            shard_rows: rows of a full shard.

        Raises:
            UsageError: a bad name, or the document exists and `replace` is false.
            Locked: another writer has it.
            LongctxError: the library cannot be written.
        """
        _check_name(name)
        with self._locked(name):
            folder = self._prepare(name, replace)
            yield Writer(folder, header, shard_rows, lambda: self._publish(name))

    def remove(self, name: str) -> None:
        """Delete a document, finished or not. A kill on the way leaves no part that opens.

        Raises:
            NotFound: there is none of this name.
            Locked: it is being written.
            LongctxError: it cannot be deleted.
        """
        _check_name(name)
        aside = self._aside(name)
        places = (aside, self.path / "documents" / name, self.path / "unfinished" / name)
        if not any(place.exists() for place in places):
            raise self._no_document(name)
        with self._locked(name), shards.storing(places[1]):
            for place in places:
                self._delete(place, aside)

    def _prepare(self, name: str, replace: bool) -> Path:
        """An empty unfinished folder; what an earlier run left there is finished or deleted."""
        folder, aside = self.path / "unfinished" / name, self._aside(name)
        with shards.storing(folder):
            if _is_complete(folder):
                self._publish(name)
            if (self.path / "documents" / name).exists() and not replace:
                raise UsageError(
                    f"the document '{name}' exists",
                    remedy="Give another name with --name, or --replace to read it anew",
                )
            self._delete(aside, aside)
            self._delete(folder, aside)
            folder.mkdir()
        return folder

    def _publish(self, name: str) -> None:
        """Rename unfinished/<name> to documents/<name>; an old one steps aside and is deleted."""
        folder, aside = self.path / "unfinished" / name, self._aside(name)
        target = self.path / "documents" / name
        with shards.storing(target):
            self._delete(aside, aside)
            if target.exists():
                target.replace(aside)
            folder.replace(target)
            shards.sync_folder(target.parent)
            shards.sync_folder(folder.parent)
            self._delete(aside, aside)

    def _delete(self, folder: Path, aside: Path) -> None:
        """Delete a folder, under a hidden name so that what is left of it is never opened."""
        if not folder.exists():
            return
        if folder != aside:
            folder.replace(aside)
            shards.sync_folder(folder.parent)
        shutil.rmtree(aside)

    @contextmanager
    def _locked(self, name: str) -> Iterator[None]:
        """Hold the document's lock. It dies with the process; its file is removed after use.

        A lock file may be removed only while nobody else can be about to lock it: taking and
        leaving the lock are both done under one lasting lock of the library, held for an instant.
        """
        place = self.path / "unfinished" / f".{name}.lock"
        busy = Locked(
            f"'{name}' is being written by another process",
            remedy="Wait until it is done, or choose another name",
        )
        with shards.storing(place):
            for folder in (self.path / "documents", self.path / "unfinished"):
                folder.mkdir(exist_ok=True)
            shards.sync_folder(self.path)
            lock = FileLock(place, thread_local=False)
            try:
                with self._gate():
                    lock.acquire(timeout=0)
            except Timeout as exc:
                raise busy from exc
        try:
            yield
        finally:
            with self._gate():
                lock.release()
                place.unlink(missing_ok=True)

    def _gate(self) -> FileLock:
        return FileLock(self.path / ".lock", timeout=60)

    def _aside(self, name: str) -> Path:
        return self.path / "unfinished" / f".{name}.old"

    def _folders(self, place: str) -> list[Path]:
        found = (self.path / place).glob("*")
        return sorted(path for path in found if path.is_dir() and _NAME.fullmatch(path.name))

    def _complete(self) -> dict[str, Path]:
        """Folder of every complete document; one whose last rename was cut off is still aside."""
        waiting = {path.name: path for path in self._folders("unfinished") if _is_complete(path)}
        return waiting | {path.name: path for path in self._folders("documents")}

    def _no_document(self, name: str) -> NotFound:
        names = ", ".join(sorted(self._complete())) or "no document"
        return NotFound(
            f"no document '{name}' in the library '{self.path}'",
            f"it holds {names}",
            "Run `longctx ingest` to add one",
        )

    def _is_library(self, mark: Path) -> bool:
        try:
            return mark.is_file()
        except OSError as exc:
            raise LongctxError(
                f"cannot open the library '{self.path}'",
                exc.strerror,
                "Name another with --library",
            ) from exc

    def _is_something_else(self) -> bool:
        if not self.path.is_dir():
            return self.path.exists()
        return any(not p.name.startswith(shards.TEMPORARY) for p in self.path.iterdir())

    def _check_mark(self, mark: Path) -> None:
        try:
            found = json.loads(mark.read_bytes())
        except (OSError, ValueError) as exc:
            raise shards.damaged(mark, str(exc)) from exc
        if found != {"format": FORMAT}:
            raise StateMismatch(
                f"the library '{self.path}' is {found}",
                f"this longctx uses format {FORMAT}",
                "Name another folder with --library",
            )


def _write_text(folder: Path, name: str, text: str) -> None:
    data = text.encode("ascii")
    shards.write_file(folder, name, len(data), lambda path: path.write_bytes(data))


def _check_name(name: str) -> None:
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"{name!r} cannot be the name of a document",
            "a name is 1 to 100 of A-Z a-z 0-9 . _ -, the first not a dot",
            "Choose another with --name",
        )


def _is_complete(folder: Path) -> bool:
    return _describe(folder).status == "complete"


def _describe(folder: Path) -> Manifest:
    """The manifest of a folder, or one of status "damaged" that says why there is none."""
    try:
        return Manifest.read(folder)
    except StateMismatch as exc:
        return Manifest(
            format=FORMAT,
            status="damaged",
            name=folder.name,
            tokens=0,
            sources=(),
            model={},
            recorded={},
            method="",
            options={},
            profile={},
            report={"error": str(exc)},
            shards=(),
        )


def _age(folder: Path) -> int:
    """Modification time of the manifest in ns; 0 where it has gone."""
    try:
        return (folder / MANIFEST).stat().st_mtime_ns
    except OSError:
        return 0


class Writer:
    """Writes one document; made by `Library.writer`. After an error it is of no more use.

    Bytes and rows come in pieces of any size; the files at the end do not depend on the pieces, nor
    on when there were checkpoints. Tokens are those of the source that is open.

    Args:
        folder: an empty folder, named like the document.
        header: fields of the manifest that are known now.
        shard_rows: rows of a full shard.
        publish: puts the complete folder in its place.
    """

    def __init__(self, folder: Path, header: dict, shard_rows: int, publish: Callable[[], None]):
        import torch

        self._folder, self._shard_rows, self._publish = folder, shard_rows, publish
        self._text = TextWriter(folder)
        self._groups: dict[str, GroupWriter] = {}
        self._sources: list[Source] = []
        self._open: Source | None = None
        self._sha256 = hashlib.sha256()
        self._checkpoints = 0
        self._manifest = Manifest(
            format=FORMAT,
            status="reading",
            name=folder.name,
            tokens=0,
            sources=(),
            shards=(),
            **{"report": {}, **header},
        )
        self._write_manifest()
        empty = {"ids": torch.empty(0, dtype=torch.int32), "starts": torch.empty(0).long()}
        self.append("tokens", empty)

    def begin_source(
        self, name: str, path: Path | str | None = None, mtime_ns: int | None = None
    ) -> None:
        """Start the next source; what is added until `end_source` is its own.

        A source that was begun before and got nothing is forgotten.
        """
        if self._source_so_far():
            raise ValueError(f"source {self._open.name!r} is still open")
        self._sha256 = hashlib.sha256()
        before = self._sources[-1] if self._sources else None
        self._open = Source(
            name=name,
            path=None if path is None else str(path),
            size=0,
            mtime_ns=mtime_ns,
            sha256="",
            encoding=None,
            undecodable=0,
            first_token=self._groups["tokens"].rows,
            tokens=0,
            text_start=before.text_start + before.size if before else 0,
        )

    def add_bytes(self, data: bytes) -> None:
        """Append raw bytes of the open source."""
        if not self._open:
            raise ValueError("no source is open")
        self._open = replace(self._open, size=self._open.size + len(data))
        self._sha256.update(data)
        self._text.add(data)

    def end_source(self, size: int, sha256: str, encoding: str, undecodable: int) -> None:
        """Close the open source, whose bytes and tokens have all been added.

        Args:
            size: bytes that the caller read.
            sha256: of these bytes.
            encoding: that it was decoded with.
            undecodable: bytes that the encoding has no character for.

        Raises:
            ValueError: no source is open, or other bytes were added than the caller read.
        """
        if not self._open or (size, sha256) != (self._open.size, self._sha256.hexdigest()):
            raise ValueError(f"{size} bytes {sha256} end {self._open}")
        source = self._closed_now()
        self._sources.append(replace(source, encoding=encoding, undecodable=undecodable))
        self._open = None

    def append(self, group: str, rows: Rows) -> None:
        """Append rows to a group; the first call for a group fixes its tensors.

        Args:
            group: "tokens" ("ids" int32 (n,), "starts" int64 (n,)), or a name of the method's own.
            rows: tensors (n, ...) on any device, copied; empty ones are a way to declare a group.

        Raises:
            ValueError: the name cannot be that of a group, or the rows are unlike the first.
            LongctxError: a shard cannot be written.
        """
        if group in RESERVED:
            raise ValueError(f"the group name {group!r} is taken")
        writer = self._groups.get(group)
        if writer is None:
            writer = GroupWriter(self._folder, group, rows, self._shard_rows)
        writer.append(rows)
        self._groups[group] = writer

    def checkpoint(self, snapshot: Rows, **changes: Any) -> None:
        """Write all that came so far, so that a later run can go on from here.

        Rows and bytes that fill no shard yet are written beside, in files of this checkpoint,
        and stay in memory; the next checkpoint deletes these files.

        Args:
            snapshot: what the method needs to go on: tensors of any shape.
            **changes: fields of the manifest: recorded, options, profile, report, ...
        """
        self._save("reading", snapshot, self._checkpoints, changes)
        self._checkpoints += 1

    def complete(self, snapshot: Rows, **changes: Any) -> Manifest:
        """Write the rest and give the document its place under documents/.

        Args:
            snapshot: what the method needs to answer questions.
            **changes: fields of the manifest.

        Raises:
            ValueError: a source is open.
            LongctxError: something cannot be written; the document is not there then.
        """
        if self._source_so_far():
            raise ValueError(f"source {self._open.name!r} is still open")
        manifest = self._save("complete", snapshot, None, changes)
        self._publish()
        return manifest

    def _save(self, status: str, snapshot: Rows, checkpoint: int | None, changes: dict) -> Manifest:
        name = shards.shard_name("memory", 0, checkpoint)
        entries = [
            shards.write_tensors(self._folder, "memory", name, snapshot),
            *self._text.shards(checkpoint),
            *(shard for group in self._groups.values() for shard in group.shards(checkpoint)),
        ]
        self._manifest = replace(
            self._manifest,
            status=status,
            tokens=self._groups["tokens"].rows,
            sources=(*self._sources, *self._source_so_far()),
            shards=tuple(sorted(entries, key=lambda shard: shard.group)),
            **changes,
        )
        written = self._write_manifest()
        self._sweep({MANIFEST, *(shard.file for shard in entries)})
        return written

    def _write_manifest(self) -> Manifest:
        """Write the manifest; ValueError, and nothing written, if it could not be read back."""
        text = self._manifest.to_json()
        written = Manifest.from_json(text, self._folder.name)
        _write_text(self._folder, MANIFEST, text)
        return written

    def _source_so_far(self) -> list[Source]:
        """The open source, if anything of it has come."""
        source = self._closed_now() if self._open else None
        return [source] if source and (source.size or source.tokens) else []

    def _closed_now(self) -> Source:
        tokens = self._groups["tokens"].rows - self._open.first_token
        return replace(self._open, sha256=self._sha256.hexdigest(), tokens=tokens)

    def _sweep(self, named: set[str]) -> None:
        """Delete what the manifest on disk does not name: files of the checkpoint before."""
        with shards.storing(self._folder):
            for path in self._folder.iterdir():
                if path.name not in named:
                    path.unlink()


class Document:
    """A document on disk, read in parts; every part is verified when it is first read.

    Args:
        folder: the document's folder. Sizes and headers of its files are checked here.

    Raises:
        StateMismatch: here and in every method: a file is missing, damaged or of another format.
    """

    def __init__(self, folder: Path):
        self.manifest = Manifest.read(folder)
        groups = _by_group(self.manifest.shards)
        self._manifest_size = (folder / MANIFEST).stat().st_size
        # What passages of one neighbourhood share is kept: a file's newlines, a member's text.
        self._lines: tuple[int, torch.Tensor | None] = (-1, None)
        self._last_member: tuple[int, bytes] = (-1, b"")
        self._text = [TextFile(folder, shard) for shard in groups.pop("text", [])]
        self._groups = {
            group: [TensorFile(folder, shard) for shard in entries]
            for group, entries in groups.items()
        }

    def size(self) -> int:
        """Bytes on disk."""
        return self.manifest.size + self._manifest_size

    @property
    def checked_bytes(self) -> int:
        """Bytes that were read and found to be what was written."""
        return sum(file.checked_bytes for file in self._all_files())

    def require_model(self, fingerprint: dict[str, str]) -> None:
        """StateMismatch unless `fingerprint` is that of the model that read the document.

        Args:
            fingerprint: "config", "tokenizer", "weights", which are compared, and "name".
        """
        model = self.manifest.model
        differing = [part for part in FINGERPRINT if model[part] != fingerprint[part]]
        if differing:
            raise StateMismatch(
                f"'{self.manifest.name}' was read with the model {model['name']}",
                f"{fingerprint['name']} has another {' and '.join(differing)}",
                f"Ask with --model {model['name']}, or ingest the document again with --replace",
            )

    def rows(self, group: str, names: tuple[str, ...] | None = None) -> Iterator[tuple[int, Rows]]:
        """A group's shards in order, one in memory at a time: (first row, {name: (n, ...)}).

        Args:
            group: the group's name.
            names: the tensors wanted; all where None.
        """
        for first, file in self._files(group):
            yield first, {name: file.tensor(name) for name in names or file.slots}

    def take(self, group: str, rows: "torch.Tensor", names: tuple[str, ...] | None = None) -> Rows:
        """Chosen rows of a group; only the blocks that hold them are read.

        Args:
            group: the group's name.
            rows: ascending positions (S,), int64.
            names: the tensors wanted; all where None.

        Returns:
            Tensors (S, ...) on the CPU, by name.

        Raises:
            ValueError: positions that are not ascending or not in the group.
        """
        import torch

        files, rows = self._files(group), rows.cpu()
        count = sum(file.shard.rows for _, file in files)
        if (rows.diff() < 0).any() or rows.lt(0).any() or rows.ge(count).any():
            raise ValueError(f"rows of {group!r} must ascend within {count}")
        bounds = torch.searchsorted(rows, torch.tensor([first for first, _ in files])).tolist()
        taken = {name: [files[0][1].rows(name, 0, 0)] for name in names or files[0][1].slots}
        for (first, file), low, high in zip(files, bounds, [*bounds[1:], len(rows)], strict=True):
            for name, parts in taken.items() if low < high else ():
                parts.append(file.take(name, rows[low:high] - first))
        return {name: torch.cat(parts) for name, parts in taken.items()}

    def snapshot(self) -> Rows:
        """The method's snapshot, whole."""
        _, file = self._files("memory")[0]
        return {name: file.tensor(name) for name in file.slots}

    def text(self, source: int, start: int, end: int) -> bytes:
        """Bytes [start, end) of a source, as they were read; only their gzip members are unpacked.

        Raises:
            ValueError: the source does not have these bytes.
        """
        where = self.manifest.sources[source]
        if not 0 <= start <= end <= where.size:
            raise ValueError(f"{where.name!r} has {where.size} bytes, not [{start}, {end})")
        low, high = where.text_start + start, where.text_start + end
        first, last = low // shards.MEMBER, -(-high // shards.MEMBER)
        raw = b"".join(self._member(index) for index in range(first, last))
        return raw[low - first * shards.MEMBER : high - first * shards.MEMBER]

    def line(self, source: int, offset: int) -> int:
        """The number of the line, from 1, that the byte at `offset` of a source is in."""
        start = self.manifest.sources[source].text_start
        return 1 + self._newlines_before(start + offset) - self._newlines_before(start)

    def source_of(self, token: int) -> int:
        """The index of the source that a token is of; ValueError where there is no such token."""
        if not 0 <= token < self.manifest.tokens:
            raise ValueError(f"the document has {self.manifest.tokens} tokens, and no {token}")
        starts = [source.first_token for source in self.manifest.sources]
        return bisect_right(starts, token) - 1

    def span(self, first: int, last: int) -> tuple[int, int, int]:
        """Where tokens [first, last) of one source stand: (source, start byte, end byte).

        The end is where the next token of the source starts, or the end of the source.

        Raises:
            ValueError: no tokens, or not of one source.
        """
        import torch

        source = self.source_of(first)
        where = self.manifest.sources[source]
        stop = where.first_token + where.tokens
        if not first < last <= stop:
            raise ValueError(f"tokens [{first}, {last}) are not of one source")
        rows = torch.tensor([first, min(last, stop - 1)])
        start, end = self.take("tokens", rows, ("starts",))["starts"].tolist()
        return source, start, where.size if last == stop else end

    def verify(self) -> None:
        """Read everything; StateMismatch for the first block that is not what was written."""
        for file in self._all_files():
            file.verify()

    def _all_files(self) -> list[ShardFile]:
        return [*self._text, *(file for files in self._groups.values() for file in files)]

    def _files(self, group: str) -> list[tuple[int, TensorFile]]:
        """The files of a group, each with its first row."""
        if group not in self._groups:
            raise StateMismatch(
                f"'{self.manifest.name}' keeps no {group!r}",
                f"it was read with the method {self.manifest.method!r}",
                "Ask with that method, or ingest the document again with --replace",
            )
        files = self._groups[group]
        firsts = accumulate((file.shard.rows for file in files), initial=0)
        return list(zip(firsts, files, strict=False))

    def _member(self, index: int) -> bytes:
        if self._last_member[0] != index:
            file = self._text[index // shards.MEMBERS]
            self._last_member = (index, file.member(index % shards.MEMBERS))
        return self._last_member[1]

    def _newlines_before(self, position: int) -> int:
        """Newlines in the first `position` bytes of all text."""
        import torch

        number = position // (shards.MEMBER * shards.MEMBERS)
        files = self._groups.get("lines", [])
        before = sum(file.shard.rows for file in files[:number])
        if number >= len(files):
            return before
        if self._lines[0] != number:
            self._lines = (number, files[number].tensor("newlines"))
        return before + int(torch.searchsorted(self._lines[1], position))
