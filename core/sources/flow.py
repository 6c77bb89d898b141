"""Paragraphs of office documents in reading order, tables by rows.

Knows nothing of files and XML.
"""


class Flow:
    """Paragraphs in the order of their ends; a table's row is one line, its cells apart by tabs.

    Attributes:
        found: the text of each with what follows it: a line end, or in rows a space or tab.
    """

    def __init__(self) -> None:
        self.found: list[str] = []
        self._open: list[list[str]] = []  # a text box has paragraphs inside a paragraph
        self._rows = 0  # that are open, one in another
        self._row = 0  # where the outermost one begins in `found`
        self._tabs = ""  # of empty cells before the first paragraph of a row

    def see(self, kind: str, name: str, paragraph: str, row: str, cell: str) -> None:
        """Takes the start or end of an element; those of these three names count."""
        begins = kind == "start"
        if name == paragraph:
            self.begin() if begins else self.end()
        elif name == row:
            self.begin_row() if begins else self.end_row()
        elif name == cell and not begins:
            self.end_cell()

    def begin(self) -> None:
        """A paragraph begins."""
        self._open.append([])

    def add(self, text: str) -> None:
        """Text in a paragraph; elsewhere it counts for nothing."""
        if self._open:
            self._open[-1].append(text)

    def end(self) -> None:
        """A paragraph ends."""
        if self._open:
            text = "".join(self._open.pop())
            end = " " if self._rows else "\n"
            self.found.append(self._tabs + (f"{text}{end}" if text.strip() else ""))
            self._tabs = ""

    def begin_row(self) -> None:
        """A row begins."""
        self._rows += 1
        if self._rows == 1:
            self._row = len(self.found)

    def end_cell(self) -> None:
        """A cell ends."""
        if self._rows != 1:
            return
        if len(self.found) > self._row:
            self.found[-1] = self.found[-1].removesuffix(" ") + "\t"
        else:
            self._tabs += "\t"

    def end_row(self) -> None:
        """A row ends; one without text is left out."""
        self._rows = max(0, self._rows - 1)
        if self._rows:
            return
        self._tabs = ""
        for index in reversed(range(self._row, len(self.found))):
            words = self.found[index].rstrip()
            self.found[index] = f"{words}\n" if words else ""
            if words:
                break
