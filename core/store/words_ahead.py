"""Tables of the word index that are made while more of a document is read.

For models that do not compute on the CPU: at the end of a long reading, the words of all of it
would be what everything waits for. Counts no words itself, and writes nothing.
"""

from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING

from longctx.core.store.document import Document
from longctx.core.store.word_files import MakeWords, stays

if TYPE_CHECKING:
    import numpy

MOST = 256  # tables that are kept, of about a third of a megabyte each


class WordsAhead:
    """The first tables of a document's word index, kept until it is complete."""

    def __init__(self):
        self._tables: list[dict[str, numpy.ndarray]] = []
        self._codecs: list[str] = []  # by which the sources were decoded that they count

    def count(self, document: Document, make: MakeWords) -> None:
        """Makes the tables that stay as they are, whatever follows.

        Args:
            document: what has been read so far; what was counted before is the same in it.
            make: gives the tables of the files.

        Raises:
            StateMismatch: the document is damaged.
        """
        manifest = document.manifest
        codecs = [source.codec for source in manifest.sources]
        if self._codecs != codecs[: len(self._codecs)]:
            self._tables.clear()
        self._codecs, first = codecs, len(self._tables)
        numbers = range(first, MOST)
        over = next((n for n in numbers if not stays(document, n, manifest.tokens)), MOST)
        self._tables += islice(make(document, first), max(0, over - first))

    def followed(self, make: MakeWords) -> MakeWords:
        """Gives the tables that were made, and makes those after them."""

        def tables(document: Document, first: int) -> "Iterator[dict[str, numpy.ndarray]]":
            codecs = [source.codec for source in document.manifest.sources[: len(self._codecs)]]
            known = self._tables[first:] if codecs == self._codecs else []
            yield from known
            yield from make(document, first + len(known))

        return tables
