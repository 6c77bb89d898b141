"""RTF: paragraphs, footnotes inside them; tables by rows; without headers and footers."""

import re
from collections.abc import Generator
from typing import BinaryIO

from longctx.core.sources import formats
from longctx.core.sources.limits import Share
from longctx.core.sources.pieces import Piece, tidy

_NOTE = re.compile(r"(?:\\\*)?\\footnote(?![a-z])")  # which the library leaves out


class Format(formats.Format):
    """One piece per paragraph with text."""

    marks = "paragraph"
    needs = "striprtf"

    def convert(self, file: BinaryIO, name: str, share: Share) -> Generator[Piece]:
        """See `formats.Format`."""
        from striprtf.striprtf import rtf_to_text

        raw = file.read().decode("latin-1")
        if not raw.lstrip().startswith("{\\rtf"):
            raise ValueError("it does not begin with '{\\rtf'")
        text = rtf_to_text(_NOTE.sub("", raw), errors="replace")
        text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")  # joins halves
        for number, line in enumerate(text.split("\n"), 1):
            words = tidy(line.replace("|", "\t") if line.endswith("|") else line).rstrip()
            if words:
                yield Piece(words + "\n", number)
