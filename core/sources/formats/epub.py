"""EPUB: the text of its files in reading order, cited by chapter.

Chapters are counted as the book's spine lists its files, the first is 1; covers and title pages
count too.
"""

import posixpath
from collections.abc import Callable, Iterator
from typing import BinaryIO
from urllib.parse import unquote, urlsplit

from longctx.core.sources.formats.html import page_text
from longctx.core.sources.limits import Share
from longctx.core.sources.markup import tags, text_of
from longctx.core.sources.pieces import Piece
from longctx.core.sources.zipped import members_of

MARKS, NEEDS, STREAM = "chapter", "", False
CONTAINER, ENCRYPTION = "META-INF/container.xml", "META-INF/encryption.xml"


def convert(file: BinaryIO, name: str, share: Share) -> Iterator[Piece]:
    """The text of each chapter.

    Raises:
        ValueError: it does not say what is in it.
    """
    with members_of(file, name, share) as (names, read):
        locked: set[str] = set()
        if ENCRYPTION in names:
            listed = tags(page_text(read(ENCRYPTION), name)[0])
            locked = {unquote(attrs["uri"]) for _, attrs in listed if "uri" in attrs}
        for number, chapter in enumerate(_spine(read, name), 1):
            if chapter in locked or chapter not in names:
                why = "is encrypted" if chapter in locked else f"('{chapter}') is missing"
                yield Piece("", number, f"'{name}': chapter {number} {why}")
                continue
            text, bad = page_text(read(chapter), f"{name}/{chapter}")
            words = "".join(piece.text for piece in text_of(text))
            if words.strip():
                yield Piece(words + "\n", number, undecodable=bad)


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
    paths = [unquote(urlsplit(href or "").path) for href in spine]
    return [posixpath.normpath(posixpath.join(folder, path)) for path in paths]


def _tags(read: Callable[[str], bytes], member: str, name: str) -> list[tuple[str, dict[str, str]]]:
    return tags(page_text(read(member), name)[0])
