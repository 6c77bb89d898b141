"""Text made from a file on disk: unpacked, taken from an archive, or converted.

Each piece of the text is reported with its place in the original. Only temporary files are
written. All this runs in the parsing process (`program.py`); the pipeline reads the text through
`remote.py`.
"""

import io
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from tempfile import SpooledTemporaryFile
from typing import IO

from longctx.core.common.errors import UnreadableInput
from longctx.core.common.regular_files import open_regular
from longctx.core.sources import formats
from longctx.core.sources.extra import require
from longctx.core.sources.formats import Format
from longctx.core.sources.limits import (
    CONVERTED,
    IN_MEMORY,
    LOST,
    Budget,
    Share,
    TooMuch,
    require_held,
)
from longctx.core.sources.packed import BLOCK, Counted, damage_told, unpacking
from longctx.core.sources.pieces import Piece, Readable, Stream

MEASURED = 1 << 16  # bytes that may be lost before damage in a file
Opener = Callable[[], AbstractContextManager[Stream]]


class Original:
    """A file on disk that text is made from.

    Args:
        path: the file.
        name: as the user knows it.
        limit: bytes that may be unpacked from it; None for the default.
        on_spend: see `Budget`.
    """

    def __init__(
        self,
        path: Path,
        name: str,
        limit: int | None,
        on_spend: Callable[[int], None] = lambda size: None,
    ):
        self.path = path
        self.budget = Budget(name, path.stat().st_size, limit, on_spend)

    @contextmanager
    def open(self) -> Iterator[IO[bytes]]:
        """Its bytes."""
        with open_regular(self.path) as file:
            yield file


def unpacked(raw: Stream, how: list[str], name: str, opened: ExitStack) -> Stream:
    """A stream with all compressions undone, which `opened` closes."""
    for layer in how:
        raw = opened.enter_context(unpacking(raw, layer, name))
    return raw


@contextmanager
def spooled(stream: Readable) -> Iterator[IO[bytes]]:
    """A stream as a seekable file; a large one is in an unnamed file on disk."""
    with SpooledTemporaryFile(IN_MEMORY) as file:
        while data := stream.read(BLOCK):
            file.write(data)
        file.seek(0)
        yield file


class Made:
    """One text made from a file.

    Args:
        original: the file.
        name: as it is cited.
        opener: opens the bytes it is made from, seekable if compressed.
        how: its compressions, outermost first.
        format: what it is converted from; empty if it is text.
        share: counts what is unpacked.

    Attributes:
        lost: messages about parts of the original that are missing from the text.
        undecodable: number of places in the original that cannot be decoded.
    """

    def __init__(
        self,
        original: Original,
        name: str,
        opener: Opener,
        how: list[str],
        format: str,
        share: Share | None = None,
    ):
        self._name, self._opener, self._how = name, opener, how
        self._share = share or original.budget.share()
        self._format = formats.load(format) if format else None
        self.lost: list[str] = []
        self.undecodable = 0
        self._marks: list[tuple[int, int]] = []

    def take_marks(self) -> list[tuple[int, int]]:
        """(byte of the text, number) for what was read since the last call, ascending."""
        taken, self._marks = self._marks, []
        return taken

    @contextmanager
    def open(self) -> Iterator[Readable]:
        """The text, from its beginning.

        Raises (here and while it is read):
            UnreadableInput: it is damaged, holds too much, or needs a library.
        """
        self.lost, self._marks, self.undecodable = [], [], 0
        with ExitStack() as opened:
            with damage_told(self._name):
                raw = opened.enter_context(self._opener())
                stream = self._unpacked(raw, opened)
            yield self._converted(self._format, stream, opened) if self._format else stream

    def _unpacked(self, raw: Stream, opened: ExitStack) -> Counted:
        if not self._how:
            return Counted(raw, self._name)
        end = self._measure(raw)
        raw.seek(0)
        return Counted(unpacked(raw, self._how, self._name, opened), self._name, end=end)

    def _measure(self, raw: Stream) -> int:
        """Number of bytes that can be unpacked; TooMuch, before any text is read, if too many."""
        size = 0
        with ExitStack() as opened:
            stream = unpacked(raw, self._how, self._name, opened)
            counted = Counted(stream, self._name, self._share)
            try:
                while data := counted.read(MEASURED):
                    size += len(data)
            except TooMuch:
                raise
            except UnreadableInput as error:
                if not size:
                    raise
                told = f"'{self._name}': what follows {size:,} bytes is lost: {error.why}"
                self.lost.append(told)
        return size

    def _converted(self, form: Format, stream: Counted, opened: ExitStack) -> Readable:
        require(form.needs, self._name)
        if form.streams:
            file = io.BufferedReader(stream, BLOCK)
        else:
            data = stream.read(CONVERTED + 1)
            require_held(self._name, len(data))
            file = io.BytesIO(data)
        pieces = form.convert(file, self._name, self._share)
        opened.callback(pieces.close)
        return _Text(pieces, self._note, self._name)

    def _note(self, piece: Piece, at: int) -> None:
        """Records the mark, losses and undecodable places of a piece at byte `at`."""
        self._share.reach("text", at + len(piece.text))
        self.undecodable += piece.undecodable
        if piece.lost and len(self.lost) <= LOST:
            more = f"'{self._name}': over {LOST:,} places are lost, and no more are told"
            self.lost.append(piece.lost if len(self.lost) < LOST else more)
        if piece.text:
            self._marks.append((at, piece.number))


class _Text(io.RawIOBase):
    """Pieces as one stream of UTF-8."""

    def __init__(self, pieces: Iterator[Piece], on_piece: Callable[[Piece, int], None], name: str):
        self._pieces, self._on_piece, self._name = pieces, on_piece, name
        self._held, self._at = bytearray(), 0

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        while size < 0 or len(self._held) < size:
            with damage_told(self._name):
                piece = next(self._pieces, None)
            if piece is None:
                break
            self._on_piece(piece, self._at)
            data = piece.text.encode()
            self._held += data
            self._at += len(data)
        data = bytes(self._held[: size if size >= 0 else None])
        del self._held[: len(data)]
        return data
