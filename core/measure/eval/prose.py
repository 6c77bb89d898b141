"""Prose to fill documents with: the package's own, or the user's, as sentences.

Knows nothing of tokens, and of what is hidden among the sentences.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from random import Random

from longctx.core.measure.prose import own_paragraphs, sample_paragraphs

# After a full stop and what closes it; never within a word.
_END = re.compile(r"(?<=[.!?])\s+|(?<=[.!?][\"'\u201d\u2019)])\s+")


@dataclass(frozen=True)
class Prose:
    """Paragraphs, each without line feeds."""

    paragraphs: tuple[str, ...]

    @cached_property
    def text(self) -> str:
        """All of it, to look something up in."""
        return "\n".join(self.paragraphs)

    @cached_property
    def _sentences(self) -> list[list[str]]:
        return [_sentences(paragraph) for paragraph in self.paragraphs]

    def sentences(self, draw: Random) -> Iterator[str]:
        """Sentences without end, whole paragraphs in an order drawn anew for every pass.

        Each ends with a space, or at the end of its paragraph with a line feed.
        """
        order = list(range(len(self.paragraphs)))
        while True:
            draw.shuffle(order)
            for place in order:
                yield from self._sentences[place]


def _sentences(paragraph: str) -> list[str]:
    *before, last = _END.split(paragraph)
    return [*(f"{sentence} " for sentence in before), f"{last}\n"]


def read_prose(path: Path | None) -> Prose:
    """The prose of a file, or of the texts in a folder; None: the package's own.

    Raises:
        UsageError: as `own_paragraphs` does.
    """
    return Prose(tuple(sample_paragraphs() if path is None else own_paragraphs(path.expanduser())))
