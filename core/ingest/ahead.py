"""One source read ahead of the model: what was taken from it that the store does not have yet."""

import os
from bisect import bisect_left
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch

from longctx.core.common.errors import UnreadableInput
from longctx.core.ingest.identity import another, now_after_reading
from longctx.core.ingest.units import KeptUnit
from longctx.core.sources.reader import Made, Source
from longctx.core.store.behind import WriterBehind
from longctx.core.store.document import Document
from longctx.core.store.manifest import Origin, SourceRecord
from longctx.core.store.sameness import Now
from longctx.core.tokens.tokens import Tokens, TokenStream


@dataclass(eq=False)
class Unit:
    """One source among those that are read one by one.

    Attributes:
        kept: what is taken over of it, all of it; None: it is read.
        goes_on: a checkpoint has its first tokens.
        tokens: those that were given out so far, or are taken over.
    """

    kept: KeptUnit | None = None
    goes_on: bool = False
    tokens: int = 0


class Found(NamedTuple):
    """What came next from a source.

    Attributes:
        ahead: the source.
        data: raw bytes.
        piece: tokens.
        over: nothing more will come.
        unreadable: why nothing comes at all.
        marks: (byte of the text, number in the original) of the raw bytes.
    """

    ahead: "Ahead"
    data: bytes = b""
    piece: Tokens | None = None
    over: bool = False
    unreadable: UnreadableInput | None = None
    marks: Sequence[tuple[int, int]] = ()


class Ahead:
    """One source, and what was taken from it that the model has not read yet.

    Attributes:
        source: the source.
        unit: the same, for those who read it.
        pieces: the tokens.
        begun: the store knows the source.
        over: nothing more will come.
        unreadable: why nothing comes at all.
        origin: what the text was made from; None: it is the file itself.
        changed: the file was replaced or has grown since it was opened.
        known: what the store had of it at the start.
    """

    def __init__(self, source: Source, kept: KeptUnit | None = None):
        self.source, self.unit = source, Unit(kept)
        self.pieces: deque[Tokens] = deque()
        self.begun = self.over = self.changed = False
        self.unreadable: UnreadableInput | None = None
        self.origin: Origin | None = None
        self._marks: deque[tuple[int, int]] = deque()
        self.known: SourceRecord | None = None
        self._document: Document | None = None
        self._digest = source.hashed()
        self._text = bytearray()  # from byte `_stored` on
        self._stored = self._end = self._begun_at = 0
        self._compared = source.begin
        self._opened: os.stat_result | None = None

    @property
    def mtime_ns(self) -> int | None:
        """The file's last modification before it was opened; None for what does not stay."""
        if self.source.passing:
            return None
        return self._opened.st_mtime_ns if self._opened else self.source.mtime_ns

    def go_on(self, document: Document) -> None:
        """Begins where `document`, a checkpoint, ends: in the middle of this source."""
        self._document, self.known, self.begun = document, document.manifest.sources[-1], True
        self.unit = Unit(goes_on=self.known.tokens > 0)
        self._stored = self._end = self._begun_at = self.known.size

    def read(self, stream: TokenStream) -> Iterator[Found]:
        """What is in the source."""
        if self.source.path and self.source.path.is_file():
            self._opened = self.source.path.stat()
        made = self.source.made
        if made:
            self.origin = self._origin(made)
        after = self.known.size if self.known else -1
        data: list[bytes] = []
        for piece in stream.read(self.source, data.append, after):
            yield Found(self, b"".join(data), piece, marks=made.take_marks() if made else ())
            data.clear()
        marks = made.take_marks() if made else ()
        yield Found(self, b"".join(data), over=True, marks=marks)

    def _origin(self, made: Made) -> Origin:
        try:
            size, sha256 = made.origin()
        except OSError as error:
            why = error.strerror or str(error)
            raise UnreadableInput(f"cannot read '{self.source.name}'", why) from error
        return Origin(size, sha256, self.source.part, made.marks)

    def take_in(self, found: Found) -> torch.Tensor | None:
        """Keeps what came, and returns those of its ids that the store does not have."""
        self._add(found.data)
        self._marks += (mark for mark in found.marks if mark[0] >= self._begun_at)
        self.over, self.unreadable = found.over, found.unreadable
        if found.over and not found.unreadable:
            self._require_compared()
            if self._opened and self.source.path:
                now = now_after_reading(self.source, self.origin, self._opened)
                self.changed = now in (Now.GROWN, Now.REPLACED)
        if found.piece is None:
            return None
        piece = self._unknown(found.piece)
        self.pieces.append(piece)
        self._end = piece.end
        return torch.from_numpy(piece.ids).long()

    def hand_on(self, writer: WriterBehind, count: int, end: int) -> tuple[int, int, int]:
        """Passes up to `count` tokens to the writer, and the text before the next one.

        Args:
            writer: gets them.
            count: most tokens.
            end: end of the document's text so far, in bytes.

        Returns:
            How many tokens, bytes and forced splits.
        """
        source, start = self.source, end - self._stored
        if not self.begun:
            given = source.name, source.file, self.mtime_ns, source.encoding, self.origin
            writer.begin_source(*given)
            self.begun = True
        ids, starts, splits = self._take(count)
        writer.append("tokens", {"ids": torch.from_numpy(ids), "starts": torch.from_numpy(starts)})
        text = self._take_text()
        writer.add_bytes(text)
        marks = []
        while self._marks and self._marks[0][0] < self._stored:
            marks.append(self._marks.popleft())
        if marks:
            places, numbers = torch.tensor(marks).T + torch.tensor([[start], [0]])
            writer.append("marks", {"starts": places, "numbers": numbers})
        return len(ids), len(text), splits

    def _take(self, count: int) -> tuple[np.ndarray, np.ndarray, int]:
        """Up to `count` tokens: ids (n,) int32, starts (n,) int64; and their forced splits."""
        ids, starts, splits = [np.zeros(0, np.int32)], [np.zeros(0, np.int64)], 0
        while self.pieces and count:
            piece = self.pieces.popleft()
            ids.append(piece.ids[:count])
            starts.append(piece.starts[:count])
            if len(piece.ids) > count:
                self.pieces.appendleft(_without(piece, count))
            else:
                splits += piece.forced
            count -= len(ids[-1])
        return np.concatenate(ids), np.concatenate(starts), splits

    def _take_text(self) -> bytes:
        """The bytes before the next token; at the end of the source, all that are left."""
        next_starts = (int(piece.starts[0]) for piece in self.pieces if len(piece.ids))
        everything = self._stored + len(self._text) if self.over else self._end
        data = bytes(self._text[: next(next_starts, everything) - self._stored])
        del self._text[: len(data)]
        self._stored += len(data)
        return data

    def _add(self, data: bytes) -> None:
        """Adds raw bytes; those that the store has are only compared."""
        old = data[: self.known.size - self._compared] if self.known else b""
        self._digest.update(old)
        self._compared += len(old)
        if old and self.known and self._compared == self.known.size:
            self._require_compared()
        self._text += data[len(old) :]

    def _require_compared(self) -> None:
        known = self.known
        if known and (self._compared, self._digest.hexdigest()) != (known.size, known.sha256):
            raise another(self.source)

    def _unknown(self, piece: Tokens) -> Tokens:
        """A piece without the tokens that the store has."""
        known, document = self.known, self._document
        if not known or not document or piece.begin > known.size:
            return piece

        def start(token: int) -> int:
            return int(document.take("tokens", torch.tensor([token]), ("starts",))["starts"])

        tokens = range(known.first_token, known.first_token + known.tokens)
        first = bisect_left(tokens, piece.begin, key=start)
        same = document.take("tokens", torch.arange(tokens.start + first, tokens.stop), ("ids",))
        count = len(same["ids"])
        # In a text that has grown, the last word may end differently.
        if not np.array_equal(same["ids"].numpy(), piece.ids[:count]):
            raise another(self.source)
        return _without(piece, count)


def _without(piece: Tokens, count: int) -> Tokens:
    """A piece without its first tokens."""
    return replace(piece, ids=piece.ids[count:], starts=piece.starts[count:])
