"""Messages with what is attached to them, whichever program wrote them, as pieces of text.

An attachment is read as a file of its name would be. One that is no document, such as a picture, is
named; one that is a document and cannot be read is lost, and the rest is read.
"""

import io
from abc import abstractmethod
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field
from typing import BinaryIO, ClassVar, NamedTuple

from longctx.core.common.errors import UnreadableInput
from longctx.core.sources import formats, places
from longctx.core.sources.detect import NotText, detect
from longctx.core.sources.extra import require
from longctx.core.sources.limits import DEPTH, Share, TooMuch
from longctx.core.sources.markup import text_of
from longctx.core.sources.naming import kind_of, layers
from longctx.core.sources.packed import damage_told
from longctx.core.sources.pieces import Piece, decoded, plain_lines, tidy


class Attached(NamedTuple):
    """What is attached to a message.

    Attributes:
        name: of the file, or the subject of a message.
        opened: gives its bytes, or the message that it is.
    """

    name: str
    opened: "Callable[[], bytes | Letter]"


class Letter(NamedTuple):
    """A message.

    Attributes:
        heads: (name, value) of the headers that are read.
        text: its own text.
        attached: in order.
        undecodable: places in the text that could not be decoded.
        lost: why its text could not be read; empty if it was.
    """

    heads: Sequence[tuple[str, str]]
    text: str
    attached: Sequence[Attached]
    undecodable: int = 0
    lost: str = ""


class LetterFormat(formats.Format, abstract=True):
    """A format whose files are one message each: one piece for its text, and those attached."""

    marks: ClassVar[str] = "message"

    @abstractmethod
    def letter(self, data: bytes, name: str) -> Letter:
        """The message in a file.

        Raises:
            UnreadableInput: it is encrypted.
            Exception: whatever libraries raise for a damaged file.
        """

    def convert(self, file: BinaryIO, name: str, share: Share) -> Generator[Piece]:
        """See `formats.Format`."""
        yield from _Reading(name, share).pieces(self.letter(file.read(), name), 1)


@dataclass
class _Reading:
    """One file: its messages and attachments are counted as they come."""

    name: str
    share: Share
    _messages: int = field(default=0, init=False)
    _attachments: int = field(default=0, init=False)

    def pieces(self, letter: Letter, depth: int) -> Iterator[Piece]:
        """A message, and what is attached to it, messages too."""
        self._messages += 1
        number = self._messages
        heads = "".join(f"{key}: {' '.join(value.split())}\n" for key, value in letter.heads)
        lost = f"'{self.name}': message {number}: {letter.lost}" if letter.lost else ""
        text = tidy(f"{heads}\n{plain_lines(letter.text)}\n")
        yield Piece(text, number, lost, letter.undecodable)
        for each in letter.attached:
            yield from self._attached(each, number, depth)

    def _attached(self, each: Attached, message: int, depth: int) -> Iterator[Piece]:
        """What is attached: its name, and its text if it has any."""
        self._attachments += 1
        count = self._attachments
        number = places.of_attachment(count, message)
        yield Piece(tidy(places.heading("attachment", each.name)), number)
        try:
            with damage_told(each.name):
                for piece in self._read(each, depth):
                    if isinstance(piece, Letter):
                        yield from self.pieces(piece, depth + 1)
                        continue
                    inside = places.of_attachment(count, message, piece.number)
                    lost = f"'{self.name}': {piece.lost}" if piece.lost else ""
                    yield piece._replace(number=inside, lost=lost)
        except (TooMuch, MemoryError):
            raise
        except Exception as error:  # parsers raise anything for a damaged file
            why = error.why if isinstance(error, UnreadableInput) else f"it is damaged ({error})"
            told = f"'{self.name}': the attachment '{each.name}' cannot be read: {why}"
            yield Piece("", number, told)

    def _read(self, each: Attached, depth: int) -> Iterator[Piece | Letter]:
        """The pieces of an attachment, or the message that it is."""
        data = each.opened()
        form = formats.load(found) if (found := formats.of(each.name)) else None
        if isinstance(data, bytes) and isinstance(form, LetterFormat):
            require(form.needs, each.name)
            data = form.letter(data, each.name)
        if isinstance(data, Letter):
            if depth >= DEPTH:
                raise ValueError(f"over {DEPTH} messages are in one another")
            yield data
        elif form:
            require(form.needs, each.name)
            yield from form.convert(io.BytesIO(data), each.name, self.share.budget.share())
        else:
            yield from _plain(data, each.name)


def _plain(data: bytes, name: str) -> Iterator[Piece]:
    """The text of an attachment that is text; none of one that is neither that nor a document."""
    stem, how = layers(name)
    if how or kind_of(stem):
        raise UnreadableInput(f"cannot read '{name}'", "archives in messages are not opened")
    try:
        encoding, mark = detect(data, name, found=True)
    except NotText:
        return
    text, bad = decoded(data[mark:], encoding)
    yield Piece(plain_lines(tidy(text)) + "\n", 0, undecodable=bad)


def of_page(page: str) -> str:
    """The text of a message that is written as a page."""
    return "".join(piece.text for piece in text_of(page))
