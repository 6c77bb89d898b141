"""A document's source and the growth of its file, read again from near the old end.

Reading begins at a newline after which the text can be cut (`core/tokens/safe_splits.py`), so the
tokens from there on are those of the whole text. This is checked: the document's own tokens must
come out again, or the source is read from its first byte. Knows nothing of models or of how state
is kept.
"""

import hashlib
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch

from longctx.core.common.errors import UnreadableInput
from longctx.core.common.regular_files import open_regular
from longctx.core.sources.detect import NotText
from longctx.core.sources.naming import heading
from longctx.core.sources.reader import READ_BYTES, Source
from longctx.core.store.document import Document
from longctx.core.store.manifest import Origin, SourceRecord
from longctx.core.store.marks import marks_of
from longctx.core.tokens.tokens import TokenStream

_WINDOW = 1 << 16  # bytes searched for a newline at first
_FARTHEST = 1 << 24  # bytes; beyond this the source is read from its beginning
_WIDE = 16  # bytes after a newline that hold the next character in every encoding


@dataclass(frozen=True)
class Start:
    """Where to start reading a source again.

    Attributes:
        byte: position of the newline before the first token; 0: the source's beginning.
        undecodable: places before it that cannot be decoded.
    """

    byte: int = 0
    undecodable: int = 0


class StoredSource(Source):
    """A source that a document already has.

    Args:
        document: the document.
        number: the source's number in it.
        start: where to begin.
        file: the file with the text beyond what the document has; its beginning must be the same.
            None: there is no more text.
        name: the name it is cited by; None: as before.
        header: what the model has read before it; see `header_of`.
    """

    kept = True

    def __init__(
        self,
        document: Document,
        number: int,
        start: Start | None = None,
        file: Path | None = None,
        name: str | None = None,
        header: str = "",
    ):
        self.known: SourceRecord = document.manifest.sources[number]
        self.start, origin = start or Start(), self.known.origin
        super().__init__(
            name or self.known.name,
            file,
            made=_Remade(document, number, self.start.byte, origin) if origin else None,
            header="" if self.start.byte else header,
            part=origin.part if origin else "",
        )
        self.begin, self.back = self.start.byte, int(self.start.byte > 0)
        self._document, self._number = document, number

    @cached_property
    def file(self) -> str | None:
        """The path by which it is recorded."""
        return super().file if self.path else self.known.path

    @property
    def mtime_ns(self) -> int | None:
        """When its file was modified, as the document tells."""
        return self.known.mtime_ns

    @property
    def expected_size(self) -> int | None:
        """Its size in bytes."""
        return super().expected_size if self.path else self.known.size

    def hashed(self) -> "hashlib._Hash":
        """The hash of its bytes before `begin`."""
        return hash_of(self._document, self._number, self.begin)

    def _begin(self, data: bytes) -> "tuple[int, hashlib._Hash]":
        if not self.begin:
            return super()._begin(data)
        self.encoding, self.undecodable = self.known.encoding or "", self.start.undecodable
        self.size = self.begin
        return 0, self.hashed()

    def _open(self) -> AbstractContextManager[Any]:
        if not self.path:
            return nullcontext(_StoredText(self._document, self._number, self.begin))
        file = open_regular(self.path)
        file.seek(self.begin)
        return file


class LeftOut(Source):
    """A source that was left out of a document; it is not looked at again.

    Args:
        entry: what the document's report says about it.
    """

    def __init__(self, entry: dict[str, Any]):
        quiet = entry.get("text") is False
        why = (NotText if quiet else UnreadableInput)(entry["why"] or "it was left out")
        name, part = entry["path"] or "stdin", entry.get("part") or ""
        super().__init__(name, None, refused=why, found=quiet, part=part)
        self._entry = entry

    @cached_property
    def file(self) -> str | None:
        """The path by which it is recorded."""
        return self._entry["path"]

    @property
    def mtime_ns(self) -> int | None:
        """When its file was modified, as the document tells."""
        return self._entry["mtime_ns"]


class _Remade:
    """A document's text that was made from a file, as `reader.Made` needs it."""

    def __init__(self, document: Document, number: int, begin: int, origin: Origin):
        known = document.manifest.sources[number]
        self._document, self._number, self._begin = document, number, begin
        self._origin, self._told = origin, False
        self.marks, self.size = origin.marks, known.size
        converted = self.marks is not None
        self.encoding = known.encoding or "" if converted else ""
        # If the text was only unpacked, reading it again counts them.
        self.undecodable = known.undecodable or 0 if converted else 0
        self.lost: list[str] = []  # the report has these

    def open(self) -> AbstractContextManager[Any]:
        return nullcontext(_StoredText(self._document, self._number, self._begin))

    def origin(self) -> tuple[int, str]:
        return self._origin.size, self._origin.sha256

    def take_marks(self) -> list[tuple[int, int]]:
        told, self._told = self._told, True
        return [] if told else marks_of(self._document, self._number, self._begin)


class _StoredText:
    """The text of a source as a file that can be read forwards."""

    def __init__(self, document: Document, number: int, at: int):
        self._document, self._number, self._at = document, number, at
        self._size = document.manifest.sources[number].size

    def read(self, size: int) -> bytes:
        """The next bytes, at most `size`; none at the end."""
        end = min(self._at + size, self._size)
        data = self._document.text(self._number, self._at, end)
        self._at = end
        return data


def hash_of(document: Document, number: int, size: int) -> "hashlib._Hash":
    """SHA-256 of the first `size` bytes of a document's source."""
    digest, first = hashlib.sha256(), document.manifest.sources[number].text_start
    for piece in document.raw(first, first + size):
        digest.update(piece)
    return digest


def header_of(document: Document, number: int, stream: TokenStream) -> str:
    """What the model has read before a document's source: its name, or nothing."""
    known = document.manifest.sources[number]
    header = heading(known.name)
    head = stream.head(header)
    rows = torch.arange(known.first_token, known.first_token + min(len(head), known.tokens))
    found = document.take("tokens", rows)
    # A text may begin with the same tokens, but they do not all start at its first character.
    same = bool((found["starts"] == found["starts"][:1]).all())
    return header if same and np.array_equal(found["ids"].numpy(), head) else ""


def start_before(document: Document, number: int, token: int, stream: TokenStream) -> Start:
    """Where to begin so that all tokens from `token` on are those of the whole source.

    Args:
        document: a complete document.
        number: the source that the token is in.
        token: its position in the document.
        stream: the tokenizer.
    """
    known = document.manifest.sources[number]
    at = int(document.take("tokens", torch.tensor([token]), ("starts",))["starts"])
    newline = _newline_before(document, number, at, stream)
    if not newline or token == known.first_token:
        return Start()
    source = StoredSource(document, number, Start(newline))
    pieces = list(stream.read(source))
    ids, starts = (np.concatenate([getattr(p, x) for p in pieces]) for x in ("ids", "starts"))
    last = known.first_token + known.tokens
    rows = torch.arange(last - min(len(ids), known.tokens), last)
    found = document.take("tokens", rows)
    same = np.array_equal(found["ids"].numpy(), ids)
    if not (same and np.array_equal(found["starts"].numpy(), starts)):
        return Start()
    return Start(newline, (known.undecodable or 0) - source.undecodable)


def _newline_before(document: Document, number: int, end: int, stream: TokenStream) -> int:
    """The last newline up to byte `end` after which the text can be cut; 0: none."""
    known = document.manifest.sources[number]
    encoding, size = known.encoding or "utf-8", _WINDOW
    newline = "\n".encode(encoding)
    while size <= _FARTHEST:
        low = max(0, end - size)
        text = document.text(number, low, min(known.size, end + _WIDE))
        at = end - low
        while (at := text.rfind(newline, 0, at)) > 0:
            after = text[at + len(newline) :][:_WIDE].decode(encoding, "replace")
            # In UTF-16 and UTF-32 a newline's bytes may also straddle two characters.
            if (low + at) % len(newline) == 0 and after and stream.is_cut(after[0]):
                return low + at
            at += len(newline) - 1
        if not low:
            return 0
        size *= 8
    return 0


def encoding_stays(document: Document, number: int, file: Path) -> bool:
    """Whether a grown file is still detected as the encoding that it was read in."""
    known = document.manifest.sources[number]
    if known.size >= READ_BYTES:
        return True  # the first bytes alone determine it
    grown = Source(known.name, file)
    next(grown.blocks(), None)
    return grown.encoding == known.encoding
