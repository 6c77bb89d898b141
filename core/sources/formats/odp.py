"""OpenDocument presentations: the text of each slide, its tables too; then its notes."""

from collections.abc import Generator
from typing import BinaryIO

from longctx.core.sources import formats
from longctx.core.sources.flow import Flow
from longctx.core.sources.limits import Share
from longctx.core.sources.office import of_pictures, package
from longctx.core.sources.opendocument import CONTENT, body, flow_on
from longctx.core.sources.pieces import Piece, plain_lines, tidy


class Format(formats.Format):
    """One piece per slide."""

    marks = "slide"

    def convert(self, file: BinaryIO, name: str, share: Share) -> Generator[Piece]:
        """See `formats.Format`."""
        with package(file, name, share) as (_, read):
            xml = read(CONTENT)
        number, flow, found = 0, Flow(), False
        for event in body(xml):
            if event.name == "draw:page" and event.kind != "text":
                if event.kind == "start":
                    number, flow = number + 1, Flow()
                elif text := plain_lines(tidy("".join(flow.found))):
                    found = True
                    yield Piece(text + "\n", number)
            elif number:
                flow_on(flow, event)
        if number and not found:
            raise of_pictures(name, number)
