"""OpenDocument presentations: the text of each slide, its tables, notes, comments and charts.

Of a chart come titles and categories. Headers and footers are read at the first slide that has
them.
"""

from collections.abc import Generator
from typing import BinaryIO

from longctx.core.sources import formats
from longctx.core.sources.flow import Flow
from longctx.core.sources.limits import Share
from longctx.core.sources.office import Event, of_pictures, package
from longctx.core.sources.opendocument import CONTENT, Asides, flow_on, with_asides
from longctx.core.sources.pieces import Piece, plain_lines, tidy

DECLARED = {  # to the attribute of a slide that names one
    "presentation:header-decl": "presentation:use-header-name",
    "presentation:footer-decl": "presentation:use-footer-name",
}


class Format(formats.Format):
    """One piece per slide."""

    marks = "slide"

    def convert(self, file: BinaryIO, name: str, share: Share) -> Generator[Piece]:
        """See `formats.Format`."""
        number, flow, found, margins, asides = 0, Flow(), False, _Margins(), Asides()
        with package(file, name, share) as (names, read):
            for event in with_asides(read(CONTENT)):
                if event.name == "draw:page" and event.kind != "text":
                    if event.kind == "start":
                        number, flow = number + 1, Flow()
                        margins.see_page(event)
                        continue
                    texts = [*flow.found, *asides.texts(read, names), *margins.new()]
                    if text := plain_lines(tidy("".join(texts))):
                        found = True
                        yield Piece(text + "\n", number)
                elif not number:
                    margins.see(event)
                elif not asides.take(event):
                    flow_on(flow, event)
        if number and not found:
            raise of_pictures(name, number)


class _Margins:
    """Headers and footers, which are declared before the slides, and named by them."""

    def __init__(self) -> None:
        self._declared: dict[str, str] = {}
        self._open, self._waiting = "", list[str]()

    def see(self, event: Event) -> None:
        """Takes what comes before the slides."""
        if event.name in DECLARED and event.kind == "start":
            self._open = DECLARED[event.name] + event.attributes.get("presentation:name", "")
        elif event.name in DECLARED and event.kind == "end":
            self._open = ""
        elif event.kind == "text" and self._open:
            self._declared[self._open] = self._declared.get(self._open, "") + event.name

    def see_page(self, event: Event) -> None:
        """Takes the beginning of a slide."""
        for kind in DECLARED.values():
            self._waiting.append(kind + event.attributes.get(kind, ""))

    def new(self) -> list[str]:
        """Those of the slide that no slide before it had."""
        found = [self._declared.pop(name, "").strip() for name in self._waiting]
        self._waiting = []
        return [f"{text}\n" for text in found if text]
