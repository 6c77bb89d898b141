"""OpenDocument, as LibreOffice writes it: paragraphs, tables and pages of its `content.xml`."""

from collections.abc import Iterator

from longctx.core.sources.flow import Flow
from longctx.core.sources.office import Event, events, without

CONTENT, STYLES = "content.xml", "styles.xml"
# What was deleted; comments; numbers that are filled in.
SKIPPED = frozenset({"text:tracked-changes", "table:tracked-changes", "office:annotation"})
SKIPPED |= {"text:page-number", "text:note-citation"}
SIGNS = {"text:tab": "\t", "text:line-break": "\n"}
SPACES = 1000  # that one element stands for, at most
CELLS = ("table:table-cell", "table:covered-table-cell")


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
