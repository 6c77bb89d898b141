"""Reads pages as a browser's parser would, as far as tests need it."""

from html.parser import HTMLParser


class Elements(HTMLParser):
    """What a page holds.

    Attributes:
        found: the elements with their attributes.
        texts: pieces of text between tags.
        inside: (element, its attributes, text) of each text, for the innermost element.
    """

    def __init__(self, text: str):
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.inside: list[tuple[str, dict[str, str | None], str]] = []
        self._open: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """An element begins."""
        self.found.append((tag, dict(attrs)))
        if tag not in ("meta", "br", "hr"):
            self._open.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        """An element ends: the one that began last."""
        assert self._open.pop()[0] == tag

    def handle_data(self, data: str) -> None:
        """Text."""
        self.texts.append(data)
        if self._open:
            self.inside.append((*self._open[-1], data))
