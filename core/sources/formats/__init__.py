"""Formats that are converted to text, one file each; the folder is the registry.

`book.html` is converted by `html.py`, which defines a class `Format` that inherits the one below.
"""

from abc import abstractmethod
from collections.abc import Generator
from functools import cache
from pathlib import PurePath
from typing import BinaryIO, ClassVar

from longctx.core.common.contract import Contract
from longctx.core.common.registry import Registry
from longctx.core.sources import places
from longctx.core.sources.limits import Share
from longctx.core.sources.pieces import Piece

OTHER_ENDINGS = {"htm": "html", "xhtml": "html", "ndjson": "jsonl"}
OTHER_ENDINGS |= {"xlsm": "xlsx", "xltx": "xlsx", "xltm": "xlsx", "docm": "docx", "dotx": "docx"}
OTHER_ENDINGS |= {"dotm": "docx", "pptm": "pptx", "ppsx": "pptx", "ppsm": "pptx", "potx": "pptx"}
OTHER_ENDINGS |= {"potm": "pptx", "ott": "odt", "ots": "ods", "otp": "odp"}
REGISTRY = Registry(__name__, "format")


class Format(Contract, abstract=True):
    """Converts a file to text.

    Attributes:
        marks: what the numbers of its pieces count: page, line, ...
        needs: the library it needs beyond Python's own; empty if none.
        streams: the file is streamed; else it is held in memory as a whole.
    """

    marks: ClassVar[str]
    needs: ClassVar[str] = ""
    streams: ClassVar[bool] = False

    @abstractmethod
    def convert(self, file: BinaryIO, name: str, share: Share) -> Generator[Piece]:
        """The pieces of a file's text, in order.

        Args:
            file: the file's bytes.
            name: the file's name as the user knows it.
            share: counts what is unpacked.

        Raises:
            UnreadableInput: it has no text, or more than is allowed. If it is damaged, whatever
                libraries raise (`core/sources/packed.py` turns that into UnreadableInput).
        """


@cache
def names() -> tuple[str, ...]:
    """The names of all formats."""
    return tuple(REGISTRY.names())


def of(file: str) -> str:
    """The format of a file by its ending; empty if it is read as plain text."""
    ending = PurePath(file).suffix.lower().removeprefix(".")
    name = OTHER_ENDINGS.get(ending, ending)
    return name if name in names() else ""


def load(name: str) -> Format:
    """The format of this name."""
    return REGISTRY.load(name).Format()


def cited(marks: str, number: int, part: str = "") -> str:
    """A place in an original as answers cite it: "12", "p. 12", "Sheet1!B7", "message 2 / a.pdf".

    Args:
        marks: what the number counts.
        number: of the place.
        part: the name of the sheet or attachment that the number is of, if it is.
    """
    if marks == "sheet":
        return places.cell(number, part)
    if number >= places.PART:
        message, inside = places.in_attachment(number)
        own = f":{cited(load(form).marks, inside)}" if inside and (form := of(part)) else ""
        return f"message {message} / {part}{own}"
    return {"line": "", "page": "p. "}.get(marks, f"{marks} ") + str(number)
