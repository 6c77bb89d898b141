"""Office documents: zip files of XML, read by their parts; nothing in them is run or followed.

A document type is refused wherever one is declared: it can define entities that expand without
limit, or name other files. No office program writes one.
"""

import posixpath
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from typing import BinaryIO, NamedTuple
from xml.parsers import expat
from zipfile import ZipFile

from longctx.core.common.errors import UnreadableInput
from longctx.core.sources.flow import Flow
from longctx.core.sources.limits import Share, require_held
from longctx.core.sources.zipped import BOUNDED, members_of

OLE = bytes.fromhex("d0cf11e0a1b11ae1")  # begins binary files, and those with a password
LOCKED = "EncryptedPackage".encode("utf-16-le")
FED = 1 << 16  # bytes given to the parser at once
MANIFEST = "META-INF/manifest.xml"  # of OpenDocument
SPACES = {
    "http://schemas.openxmlformats.org/wordprocessingml/2006/main": "w",
    "http://purl.oclc.org/ooxml/wordprocessingml/main": "w",
    "http://schemas.openxmlformats.org/drawingml/2006/main": "a",
    "http://purl.oclc.org/ooxml/drawingml/main": "a",
    "http://schemas.openxmlformats.org/drawingml/2006/chart": "c",
    "http://purl.oclc.org/ooxml/drawingml/chart": "c",
    "http://schemas.openxmlformats.org/spreadsheetml/2006/main": "x",
    "http://purl.oclc.org/ooxml/spreadsheetml/main": "x",
    "http://schemas.openxmlformats.org/presentationml/2006/main": "p",
    "http://purl.oclc.org/ooxml/presentationml/main": "p",
    "http://schemas.openxmlformats.org/officeDocument/2006/relationships": "r",
    "http://purl.oclc.org/ooxml/officeDocument/relationships": "r",
    "http://schemas.openxmlformats.org/markup-compatibility/2006": "mc",
    **{
        f"urn:oasis:names:tc:opendocument:xmlns:{name}:1.0": name
        for name in ("office", "text", "table", "style", "presentation", "chart")
    },
    "urn:oasis:names:tc:opendocument:xmlns:drawing:1.0": "draw",
    "http://www.w3.org/1999/xlink": "xlink",
}
Read = Callable[[str], bytes]


class Event(NamedTuple):
    """The start or end of an element, or text.

    Attributes:
        kind: "start", "end" or "text".
        name: the element's, with the prefix that is usual for its namespace; or the text.
        attributes: of a start, named likewise.
    """

    kind: str
    name: str
    attributes: dict[str, str]


@contextmanager
def package(file: BinaryIO, name: str, share: Share) -> Iterator[tuple[frozenset[str], Read]]:
    """The parts of a document: see `zipped.members_of`.

    Raises:
        UnreadableInput: it needs a password, or is of an older kind.
    """
    if file.read(len(OLE)) == OLE:
        raise _locked(name) if LOCKED in file.read() else old(name)
    file.seek(0)
    with members_of(file, name, share) as (names, read):
        if MANIFEST in names and b"encryption-data" in read(MANIFEST):
            raise _locked(name)
        yield names, read


def paragraphs(
    xml: bytes, space: str, skipped: frozenset[str], signs: Mapping[str, str]
) -> list[str]:
    """The text of each paragraph in order of their ends, with what follows it; see `Flow`.

    Args:
        xml: a part of a document by Microsoft's formats.
        space: prefix of its elements: text `t`, paragraphs `p`, rows `tr` and cells `tc`.
        skipped: elements that are left out with all in them.
        signs: the text that elements without any stand for.

    Raises:
        ValueError: it declares a document type, or is damaged.
    """
    flow, inside_text = Flow(), False
    for kind, name, _ in without(skipped, events(xml)):
        if kind == "text":
            flow.add(name if inside_text else "")
        elif name == f"{space}:t":
            inside_text = kind == "start"
        elif name in signs:
            flow.add(signs[name] if kind == "start" else "")
        else:
            flow.see(kind, name, f"{space}:p", f"{space}:tr", f"{space}:tc")
    return flow.found


def require_plain(file: BinaryIO, name: str, share: Share) -> None:
    """Refuses what a library must not be given: what unpacks to too much, or declares entities.

    Raises:
        UnreadableInput: see `package`; or more would be unpacked than is allowed.
        ValueError: a part declares a document type, or is packed in a way that these formats do
            not know.
    """
    with package(file, name, share) as _, ZipFile(file) as zipped:
        for info in zipped.infolist():
            if info.compress_type not in BOUNDED:
                raise ValueError(f"its compression, number {info.compress_type}, is not known")
            require_held(name, info.file_size)
            share.reach(("member", info.header_offset), info.file_size)
            if info.file_size and info.filename.lower().endswith((".xml", ".rels")):
                with zipped.open(info) as part:
                    _require_element(part.read(FED), info.filename)
    file.seek(0)


def _require_element(xml: bytes, part: str) -> None:
    """Refuses a part whose first element, before which a document type would be, does not come."""
    if next(events(xml, whole=False), None) is None:
        raise ValueError(f"'{part}' has no element in its first {FED:,} bytes")


def _locked(name: str) -> UnreadableInput:
    return UnreadableInput(
        f"cannot read '{name}'",
        "it is protected by a password",
        "Open it in its program and save it without a password.",
    )


def old(name: str) -> UnreadableInput:
    """The error for a binary file of the time before these formats, under one of their names."""
    return UnreadableInput(
        f"cannot read '{name}'",
        "it is of an older, binary format, whatever its name says",
        "Open it in its program and save it in a format of today.",
    )


def of_pictures(name: str, slides: int) -> UnreadableInput:
    """The error for slides without text."""
    return UnreadableInput(
        f"cannot read '{name}'",
        f"none of its {slides:,} slides has text",
        "Let a program for text recognition (OCR) put text into it first.",
    )


def events(xml: bytes, whole: bool = True) -> Generator[Event]:
    """What an XML text holds, in order; it is parsed as it is asked for.

    Args:
        xml: the text.
        whole: else it is the beginning of one.

    Raises:
        ExpatError: it is damaged.
        ValueError: it declares a document type.
    """
    found: list[Event] = []
    names: dict[str, str] = {}

    def usual(name: str) -> str:
        if name not in names:
            space, _, local = name.rpartition(" ")
            names[name] = f"{SPACES.get(space, '')}:{local}" if space else local
        return names[name]

    def start(name: str, attributes: dict[str, str]) -> None:
        told = {usual(key): value for key, value in attributes.items()}
        found.append(Event("start", usual(name), told))

    parser = expat.ParserCreate(namespace_separator=" ")
    parser.buffer_text = True
    parser.StartDoctypeDeclHandler = _refuse
    parser.StartElementHandler = start
    parser.EndElementHandler = lambda name: found.append(Event("end", usual(name), {}))
    parser.CharacterDataHandler = lambda data: found.append(Event("text", data, {}))
    for at in range(0, len(xml) + 1, FED):
        parser.Parse(xml[at : at + FED], whole and at + FED > len(xml))
        yield from found
        found.clear()


def without(skipped: frozenset[str], found: Iterator[Event]) -> Iterator[Event]:
    """Events without those elements, and what is in them."""
    depth = 0
    for event in found:
        depth += event.kind == "start" and (depth > 0 or event.name in skipped)
        if not depth:
            yield event
        depth -= event.kind == "end" and depth > 0


def links(read: Read, names: frozenset[str], part: str) -> dict[str, tuple[str, str]]:
    """What a part of an Office Open XML document refers to in it: id to (kind, part)."""
    folder, _, own = part.rpartition("/")
    listed = f"{folder}/_rels/{own}.rels"
    if listed not in names:
        return {}
    found = {}
    for event in events(read(listed)):
        told = event.attributes
        if event.name.endswith("Relationship") and told.get("TargetMode") != "External":
            target = posixpath.normpath(posixpath.join("/", folder, told.get("Target", "")))
            kind = told.get("Type", "").rpartition("/")[2]
            found[told.get("Id", "")] = kind, target.removeprefix("/")
    return found


def _refuse(*declared: object) -> None:
    raise ValueError("it declares a document type")
