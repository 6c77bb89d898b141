"""Thousands of documents opened for a search by words: by the library's word index."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from longctx.core.api.opening import told_left_out
from longctx.core.api.words_alone import NOTHING, Opened, tell
from longctx.core.ask.candidates import Candidates, none_left, why_gone
from longctx.core.common.errors import LongctxError, StateMismatch
from longctx.core.retrieve.library_words import LibraryWords, ReadAgain
from longctx.core.store.facts import Facts
from longctx.core.store.lazily import LazyDocuments
from longctx.core.store.library import Library
from longctx.core.store.sameness import changed_sources
from longctx.core.store.shards import FOR_WORDS


@dataclass
class OpenedMany(Opened):
    """Documents of which only those are opened that passages are in."""

    def _leave_out(self, error: StateMismatch) -> None:
        if not isinstance(error, ReadAgain):
            super()._leave_out(error)

    def _go_without(self, place: int) -> None:
        lazy = _lazy(self)
        lazy.close()
        gone, skipped = self.facts[place], self.skipped or {}
        rest = [facts for facts in self.facts if facts != gone]
        words, self.documents = _found(lazy.library, rest, lazy.partial, skipped, self.note)
        self.index, self.facts = words, words.documents

    @property
    def checked_bytes(self) -> int:
        """Bytes of the documents that were read and verified."""
        return _lazy(self).checked_bytes

    def look_at(self, owners: Sequence[int]) -> None:
        """Tells people what they should know of the documents that have passages."""
        documents = [self.documents[owner] for owner in dict.fromkeys(owners)]
        sources = [source for document in documents for source in document.manifest.sources]
        self.changed = changed_sources(sources)
        self.drafts |= tell(documents, self.changed, self.note, _lazy(self).library)


@contextmanager
def open_many(chosen: Candidates, note: Callable[[str], None]) -> Iterator[Opened]:
    """Many documents to search; those that cannot be read are left out.

    Args:
        chosen: they.
        note: is told what people should know.

    Raises:
        NotFound: none can be read.
    """
    started, skipped = time.perf_counter(), dict(chosen.skipped)
    words, documents = _found(chosen.library, chosen.manifests, chosen.partial, skipped, note)
    load_s = time.perf_counter() - started
    opened = OpenedMany(documents, words.documents, words, [], skipped, load_s, False, note)
    try:
        yield opened
    finally:
        _lazy(opened).close()


def _found(
    library: Library,
    wanted: Sequence[Facts],
    partial: bool,
    skipped: dict[str, str],
    note: Callable[[str], None],
) -> tuple[LibraryWords, LazyDocuments]:
    """The words of documents, and these; what cannot be read is added to `skipped`."""

    def leave_out(facts: Facts, error: LongctxError) -> None:
        skipped[facts.name] = why_gone(error)
        note(told_left_out(facts.name, skipped[facts.name]))

    words = LibraryWords(library, wanted, partial, leave_out)
    if not words.documents:
        raise none_left(NOTHING, skipped)
    documents = LazyDocuments(library, words.documents, partial, FOR_WORDS, words.require_true)
    return words, documents


def _lazy(opened: OpenedMany) -> LazyDocuments:
    if not isinstance(opened.documents, LazyDocuments):
        raise TypeError("many documents are opened when they are looked at")
    return opened.documents
