"""Text of HTML, with source line numbers; and a simple scanner for XML tags.

Python's own parser is tolerant, expands no entities that a document defines, and reports line
numbers. Knows nothing of files.
"""

import re
from html.parser import HTMLParser

from longctx.core.sources.encodings import BOMS
from longctx.core.sources.pieces import Piece, known_encoding, tidy

HIDDEN = frozenset({"script", "style", "template"})
BLOCKS = frozenset(
    (
        *("address", "article", "aside", "blockquote", "body", "br", "caption", "center", "dd"),
        *("details", "dialog", "div", "dl", "dt", "fieldset", "figcaption", "figure", "footer"),
        *("form", "h1", "h2", "h3", "h4", "h5", "h6", "head", "header", "hr", "html", "legend"),
        *("li", "main", "nav", "ol", "option", "p", "pre", "section", "summary", "table", "tbody"),
        *("tfoot", "thead", "title", "tr", "ul"),
    )
)
APART = frozenset(
    (
        *("h1", "h2", "h3", "h4", "h5", "h6", "p", "pre", "table", "ul", "ol", "dl"),
        *("blockquote", "title", "section"),
    )
)
_CHARSET = re.compile(rb"""<meta[^>]{0,200}charset\s*=\s*["']?\s*([A-Za-z0-9_.:-]{1,40})""", re.I)
_XML = re.compile(rb"""^\s*<\?xml[^>]{0,200}encoding\s*=\s*["']([A-Za-z0-9_.:-]{1,40})["']""")
_LONG = re.compile(r"&#0*[1-9][0-9]{8,};?")  # numbers beyond any character
_ZEROS = re.compile(r"&#0{9,}(?=[0-9])")
UNCLOSED = 1024  # characters of an unclosed tag that are searched for other tags
HEAD = 4096  # bytes in which a page declares its encoding


class _Tolerant(HTMLParser):
    """Python's parser, made to accept unknown declarations and long numbers."""

    def feed(self, data: str) -> None:
        """Feeds a text; numbers of over 4,300 digits, which Python refuses, are shortened."""
        if "&#" in data:
            data = _LONG.sub("\ufffd", _ZEROS.sub("&#", data))
        super().feed(data)

    def parse_marked_section(self, i: int, report: bool = True) -> int:
        """Where `<![...` at `i` ends; as in browsers, an unknown one is a comment."""
        try:
            return super().parse_marked_section(i, report)
        except AssertionError:
            return self.parse_bogus_comment(i)

    def close(self) -> None:
        """Ends the text; a long unclosed tag stays verbatim.

        Python would search it for tags from every character, in quadratic time.
        """
        if len(self.rawdata) > UNCLOSED:
            rest, self.rawdata = self.rawdata, ""
            self.handle_data(rest)
        super().close()


class _Text(_Tolerant):
    """Collects the text of a page."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.pieces: list[Piece] = []
        self._hidden = self._pre = 0
        self._ended = 2  # line ends that the text so far ends with; the start is like a blank line
        self._space = False  # white space is due before the next word

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._hidden += tag in HIDDEN
        self._pre += tag == "pre"
        self._around(tag)
        if tag == "li":
            self._add("- ")
        if tag == "img":
            self.handle_data(f" {dict(attrs).get('alt') or ''} ")

    def handle_endtag(self, tag: str) -> None:
        self._hidden = max(0, self._hidden - (tag in HIDDEN))
        self._pre = max(0, self._pre - (tag == "pre"))
        self._around(tag)

    def handle_data(self, data: str) -> None:
        if self._hidden:
            return
        first, _ = self.getpos()
        for number, line in enumerate(data.split("\n"), first):
            if self._pre:
                self._add(line + "\n" * (number < first + data.count("\n")), number)
            else:
                self._flow(line, number)
                self._space |= number < first + data.count("\n")

    def _around(self, tag: str) -> None:
        """Ends the line if the tag does."""
        if tag in ("td", "th"):
            self._space = True
        if tag in BLOCKS and not self._hidden:
            self._space = False
            missing = (2 if tag in APART else 1) - self._ended
            self._add("\n" * missing)

    def _flow(self, line: str, number: int) -> None:
        words = line.split()
        self._space |= line[:1].isspace()
        if words:
            self._add(" " * (self._space and not self._ended) + " ".join(words), number)
            self._space = line[-1:].isspace()

    def _add(self, text: str, number: int | None = None) -> None:
        if text:
            self.pieces.append(Piece(tidy(text), self.getpos()[0] if number is None else number))
            ends = len(text) - len(text.rstrip("\n"))
            self._ended = ends + (self._ended if ends == len(text) else 0)


def text_of(page: str) -> list[Piece]:
    """The visible text of a page, each piece with its line in the source."""
    reader = _Text()
    reader.feed(page.replace("\r\n", "\n").replace("\r", "\n"))
    reader.close()
    pieces = reader.pieces
    while pieces and not pieces[-1].text.strip():
        pieces.pop()
    if pieces:
        pieces[-1] = pieces[-1]._replace(text=pieces[-1].text.rstrip() + "\n")
    return pieces


def said_encoding(data: bytes) -> str:
    """The encoding that a page declares, by Python's name; empty if none or unknown."""
    for mark, encoding in BOMS:
        if data.startswith(mark):
            return encoding[:6] if encoding != "utf-8" else "utf-8-sig"  # which skip the mark
    said = _CHARSET.search(data[:HEAD]) or _XML.search(data[:HEAD])
    return known_encoding(said[1].decode("ascii").lower()) if said else ""


def tags(data: str) -> list[tuple[str, dict[str, str]]]:
    """All tags of an XML text in order: lower-case name without prefix, and attributes."""
    found: list[tuple[str, dict[str, str]]] = []

    class Tags(_Tolerant):
        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            found.append((tag.rpartition(":")[2], {key: value or "" for key, value in attrs}))

    reader = Tags()
    reader.feed(data)
    reader.close()
    return found
