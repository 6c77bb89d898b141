"""PowerPoint: the text of each slide, its tables, diagrams, charts; notes, comments; no macros.

Slides are counted as PowerPoint does, hidden ones too. Of a chart come titles and categories. A
slide's footer is part of its text; slide numbers and dates that are filled in, and pictures, are
left out.
"""

from collections.abc import Generator
from typing import BinaryIO

from longctx.core.sources import asides, formats
from longctx.core.sources.limits import Share
from longctx.core.sources.office import (
    Event,
    Read,
    events,
    links,
    of_pictures,
    package,
    paragraphs,
)
from longctx.core.sources.pieces import Piece, plain_lines, tidy

SLIDES = "ppt/presentation.xml"
SKIPPED = frozenset({"mc:Fallback", "a:fld"})  # the same again for old programs; what is filled in
SIGNS = {"a:br": "\n"}
ASIDE = ("diagramData", "chart", "notesSlide", "comments")  # parts with text, in their order


class Format(formats.Format):
    """One piece per slide."""

    marks = "slide"

    def convert(self, file: BinaryIO, name: str, share: Share) -> Generator[Piece]:
        """See `formats.Format`."""
        with package(file, name, share) as (names, read):
            if SLIDES not in names:
                raise ValueError(f"it has no {SLIDES}")
            listed, found = links(read, names, SLIDES), False
            ids = [e.attributes.get("r:id", "") for e in events(read(SLIDES)) if _is_slide(e)]
            for number, (_, part) in enumerate((listed.get(each, ("", "")) for each in ids), 1):
                if part not in names:
                    yield Piece("", number, f"'{name}': slide {number} is missing")
                    continue
                text = _slide(read, names, part)
                found |= bool(text)
                yield Piece(tidy(text) + "\n" if text else "", number)
        if not found:
            raise of_pictures(name, len(ids))


def _is_slide(event: Event) -> bool:
    return event.kind == "start" and event.name == "p:sldId"


def _slide(read: Read, names: frozenset[str], part: str) -> str:
    """The text of a slide, of its diagrams and charts, of its notes and the comments on it."""
    beside = sorted(links(read, names, part).values(), key=lambda link: link[1])
    parts = [(kind, own) for kind in ASIDE for its, own in beside if its == kind and own in names]
    return "".join(plain_lines(_text(read(own), kind)) for kind, own in [("", part), *parts])


def _text(xml: bytes, kind: str) -> str:
    if kind == "chart":
        return asides.chart(xml)
    if kind == "comments":
        return asides.slide_comments(xml)
    return "".join(paragraphs(xml, "a", SKIPPED, SIGNS))
