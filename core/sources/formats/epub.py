"""EPUB: text of its files in reading order.

Chapters are numbered from 1 in the order of the book's spine; covers and title pages count too.
"""

import posixpath
from collections.abc import Callable, Generator
from typing import BinaryIO
from urllib.parse import unquote, urlsplit

from longctx.core.common.errors import UnreadableInput
from longctx.core.sources import formats
from longctx.core.sources.formats.html import page_text
from longctx.core.sources.limits import Share, TooMuch
from longctx.core.sources.markup import tags, text_of
from longctx.core.sources.packed import damage_told
from longctx.core.sources.pieces import Piece
from longctx.core.sources.zipped import members_of

CONTAINER, ENCRYPTION = "META-INF/container.xml", "META-INF/encryption.xml"


class Format(formats.Format):
    """The text of each chapter; a broken chapter does not prevent reading the others."""

    marks = "chapter"

    def convert(self, file: BinaryIO, name: str, share: Share) -> Generator[Piece]:
        """See `formats.Format`."""
        found, lost = False, ""
        with members_of(file, name, share) as (names, read):
            locked = _locked(read) if ENCRYPTION in names else set()
            spine = _spine(read, name)
            for number, chapter in enumerate(spine, 1):
                if chapter in locked or chapter not in names:
                    why = "is encrypted" if chapter in locked else f"('{chapter}') is missing"
                    piece = Piece("", number, f"chapter {number} {why}")
                else:
                    piece = _chapter(read, chapter, number)
                found, lost = found or bool(piece.text), lost or piece.lost
                yield piece._replace(lost=f"'{name}': {piece.lost}") if piece.lost else piece
        if lost and not found:
            raise UnreadableInput(
                f"cannot read '{name}'",
                f"none of its {len(spine):,} chapters has text that can be read: {lost}",
                "Get it whole, and without copy protection.",
            )


def _chapter(read: Callable[[str], bytes], member: str, number: int) -> Piece:
    """A chapter's text, or why there is none."""
    try:
        with damage_told(member):
            text, bad = page_text(read(member), member)
    except TooMuch:
        raise
    except UnreadableInput as error:
        return Piece("", number, f"chapter {number} cannot be read: {error.why}")
    words = "".join(piece.text for piece in text_of(text))
    return Piece(words + "\n" if words.strip() else "", number, undecodable=bad)


def _locked(read: Callable[[str], bytes]) -> set[str]:
    """The encrypted files, fonts included; if they are not listed, they fail as non-text."""
    try:
        with damage_told(ENCRYPTION):
            listed = _tags(read, ENCRYPTION, ENCRYPTION)
    except TooMuch:
        raise
    except UnreadableInput:
        return set()
    return {unquote(attrs["uri"]) for _, attrs in listed if "uri" in attrs}


def _spine(read: Callable[[str], bytes], name: str) -> list[str]:
    """The names of the chapters' files, in order."""
    roots = [a["full-path"] for tag, a in _tags(read, CONTAINER, name) if "full-path" in a]
    if not roots:
        raise ValueError("it names no package")
    listed = _tags(read, roots[0], name)
    hrefs = {a["id"]: a["href"] for tag, a in listed if tag == "item" and {"id", "href"} <= {*a}}
    folder = posixpath.dirname(roots[0])
    spine = [hrefs.get(a.get("idref", "")) for tag, a in listed if tag == "itemref"]
    if not any(spine):
        raise ValueError("it has no chapters")
    return [posixpath.normpath(posixpath.join(folder, _path(href or ""))) for href in spine]


def _path(href: str) -> str:
    """The file that a link names; empty if the link is invalid."""
    try:
        return unquote(urlsplit(href).path)
    except ValueError:  # such as "http://[bad"
        return ""


def _tags(read: Callable[[str], bytes], member: str, name: str) -> list[tuple[str, dict[str, str]]]:
    return tags(page_text(read(member), name)[0])
