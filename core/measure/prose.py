"""Prose to hide needles in and to fill documents with: the package's own, or a user's.

Knows nothing of tokens.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from importlib import resources
from pathlib import Path
from random import Random

from longctx.core.common import file_limits
from longctx.core.common.errors import UsageError
from longctx.core.common.regular_files import is_regular, read_text
from longctx.core.measure.eval.text_match import occurs
from longctx.core.measure.niah.words import CITIES

SUFFIXES = (".txt", ".md", ".rst")
LONGEST = 400  # words of a paragraph; longer ones are cut
LEAST = 300  # words in all; each pass through them is shuffled again
# After a full stop and closing quotes or brackets; never within a word.
_END = re.compile(r"(?<=[.!?])\s+|(?<=[.!?][\"'\u201d\u2019)])\s+")


@dataclass(frozen=True)
class Prose:
    """Paragraphs, each without line feeds."""

    paragraphs: tuple[str, ...]

    @cached_property
    def text(self) -> str:
        """The whole prose, to search in."""
        return "\n".join(self.paragraphs)

    @cached_property
    def cities(self) -> list[str]:
        """Cities that it does not name."""
        return [city for city in CITIES if city not in self.text]

    def has(self, value: str) -> bool:
        """Whether it contains a value, as defined by `occurs`."""
        return occurs(value, self._folded)

    def sentences(self, draw: Random) -> Iterator[str]:
        """Endless sentences: whole paragraphs, in a new random order for every pass.

        Each ends with a space, or at the end of its paragraph with a line feed.
        """
        order = list(range(len(self.paragraphs)))
        while True:
            draw.shuffle(order)
            for place in order:
                yield from self._sentences[place]

    @cached_property
    def _folded(self) -> str:
        return self.text.casefold()

    @cached_property
    def _sentences(self) -> list[list[str]]:
        return [_sentences(paragraph) for paragraph in self.paragraphs]


def _sentences(paragraph: str) -> list[str]:
    *before, last = _END.split(paragraph)
    return [*(f"{sentence} " for sentence in before), f"{last}\n"]


def read_prose(path: Path | None = None) -> Prose:
    """A user's prose, each paragraph once; or the package's own, without headings and lists.

    Args:
        path: a UTF-8 text file, or a folder, whose .txt, .md and .rst files are all read; None:
            the package's own.

    Raises:
        UsageError: no such path, no text there, too little text, or text in another encoding.
    """
    if path is None:
        text = (resources.files("longctx.samples") / "harbour-book.md").read_text("utf-8")
        return Prose(tuple(p for p in paragraphs(text) if not p.startswith(("#", "- "))))
    path, files = path.expanduser(), [path.expanduser()]
    if path.is_dir():
        named = (file for file in path.rglob("*") if file.suffix.lower() in SUFFIXES)
        files = sorted(filter(is_regular, named))
    found = tuple(dict.fromkeys(line for file in files for line in paragraphs(_read(file))))
    words = sum(len(line.split()) for line in found)
    if words < LEAST:
        files_read = f"{len(files)} files (.txt, .md, .rst)" if path.is_dir() else "it"
        raise UsageError(
            f"cannot make haystacks of '{path}'",
            f"{files_read} held {words:,} words, and {LEAST} are needed",
            "Name a file or folder with more prose.",
        )
    return Prose(found)


def paragraphs(text: str) -> list[str]:
    """Text between blank lines, each on one line, in pieces of at most `LONGEST` words."""
    blocks = [block.split() for block in re.split(r"\n\s*\n", text)]
    pieces = [words[at : at + LONGEST] for words in blocks for at in range(0, len(words), LONGEST)]
    return [" ".join(piece) for piece in pieces]


def _read(file: Path) -> str:
    try:
        return read_text(file, file_limits.DATA, "utf-8-sig")
    except UnicodeDecodeError as error:
        why = f"it is no UTF-8 text: {error.reason} at byte {error.start:,}"
        raise UsageError(f"cannot read '{file}'", why, "Convert it, or leave it out.") from error
    except OSError as error:
        why = error.strerror or str(error)
        raise UsageError(f"cannot read '{file}'", why, "Check --haystack.") from error
