"""OpenDocument, as LibreOffice writes it: paragraphs, tables and pages of its `content.xml`.

Also what stands beside them: comments, and of charts titles and names of series and categories.
"""

import posixpath
from collections.abc import Iterator

from longctx.core.sources.asides import COMMENT
from longctx.core.sources.flow import Flow
from longctx.core.sources.office import Event, Read, events, without

CONTENT, STYLES = "content.xml", "styles.xml"
# What was deleted; comments; numbers that are filled in.
SKIPPED = frozenset({"text:tracked-changes", "table:tracked-changes", "office:annotation"})
SKIPPED |= {"text:page-number", "text:note-citation"}
SIGNS = {"text:tab": "\t", "text:line-break": "\n"}
SPACES = 1000  # that one element stands for, at most
MARGINS = ("style:header", "style:footer")  # and `style:header-left`, ...
CELLS = ("table:table-cell", "table:covered-table-cell")
NOTE, DRAWN = "office:annotation", "draw:object"
# Of a comment: who wrote it and when; of a margin: what stands for a number or name.
FILLED_IN = frozenset({":creator", ":date", ":creator-initials", ":date-string"})
FILLED_IN |= {"text:page-count", "text:sheet-name"}


def body(xml: bytes) -> Iterator[Event]:
    """The events of a text, without what is not read."""
    return without(SKIPPED, events(xml))


def flow_on(flow: Flow, event: Event) -> None:
    """Adds an event to a flow of paragraphs and tables."""
    kind, name, told = event
    if kind == "text":
        flow.add(name)
    elif name in SIGNS and kind == "start":
        flow.add(SIGNS[name])
    elif name == "text:s" and kind == "start":
        flow.add(" " * min(count(told, "text:c"), SPACES))
    else:
        name = {"text:h": "text:p", CELLS[1]: CELLS[0]}.get(name, name)
        flow.see(kind, name, "text:p", "table:table-row", CELLS[0])


def count(attributes: dict[str, str], name: str) -> int:
    """A number of an element; 1 if there is none."""
    said = attributes.get(name, "1")
    return int(said) if said.isascii() and said.isdigit() and len(said) < 10 else 1


class Asides:
    """The comments and charts among events, which are taken out of the text.

    Attributes:
        comments: what came so far.
        charts: the parts of charts that came so far.
    """

    def __init__(self) -> None:
        self.comments: list[str] = []
        self.charts: list[str] = []
        self._flow: Flow | None = None  # of the comment that is open

    def take(self, event: Event) -> bool:
        """Whether an event belongs to a comment or shows a chart; if so it is taken."""
        kind, name, told = event
        if name == NOTE and kind != "text":
            if kind == "end" and self._flow:
                words = " ".join("".join(self._flow.found).split())
                self.comments += [f"{COMMENT}{words}\n"] if words else []
            self._flow = Flow() if kind == "start" else None
            return True
        if self._flow:
            flow_on(self._flow, event)
            return True
        if name == DRAWN and kind == "start":
            self.charts.append(posixpath.join(told.get("xlink:href", ""), CONTENT).lstrip("./"))
        return name == DRAWN

    def lines(self, read: Read, names: frozenset[str]) -> Iterator[str]:
        """As `texts`, a line each."""
        for text in self.texts(read, names):
            yield from text.splitlines(keepends=True)

    def texts(self, read: Read, names: frozenset[str]) -> list[str]:
        """The comments and the text of charts so far; they are forgotten."""
        charts = [chart(read(part)) for part in self.charts if part in names]
        found = [*self.comments, *filter(None, charts)]
        self.comments, self.charts = [], []
        return found


def paragraphs_in(xml: bytes, within: tuple[str, ...], asides: Asides) -> list[str]:
    """The paragraphs in elements whose names begin so, without what stands beside them.

    Args:
        xml: a part of the document.
        within: beginnings of names; an element that is not displayed is left out.
        asides: gets comments and charts.
    """
    flow, depth, hidden = Flow(), 0, 0
    for event in with_asides(xml):
        if depth > 0 and asides.take(event):
            continue
        if event.kind != "text" and event.name.startswith(within):
            begins = event.kind == "start"
            depth += 1 if begins else -1
            unseen = event.attributes.get("style:display") == "false"
            hidden = (hidden or unseen * depth) if begins else hidden * (hidden <= depth)
        elif depth > 0 and not hidden:
            flow_on(flow, event)
    return flow.found


def with_asides(xml: bytes) -> Iterator[Event]:
    """As `body`, with comments."""
    return without((SKIPPED - {NOTE}) | FILLED_IN, events(xml))


def chart(xml: bytes) -> str:
    """Titles of a chart, and names of its series and categories, a line each; no numbers."""
    flow, is_chart, is_number = Flow(), False, False  # the last of a cell that is open
    for event in body(xml):
        kind, name, told = event
        is_chart |= name == "office:chart"
        if name in CELLS and kind != "text":
            is_number = kind == "start" and told.get("office:value-type", "string") != "string"
        elif not is_number and (kind == "text" or not name.startswith("table:")):
            flow_on(flow, event)
    lines = dict.fromkeys(" ".join(text.split()) for text in flow.found)
    return "".join(f"{line}\n" for line in lines if line) if is_chart else ""
