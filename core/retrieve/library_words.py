"""The words of all documents of a library, from its word index: for searches over thousands.

The index is made of segments, each with the words of some documents. A document is in it if a
segment names it with its manifest's present stamp; others are indexed when they are first searched.
What a segment says of documents that are gone, changed or not searched is left out; one that has
mostly documents that are gone is written anew. Of eight segments of about one size, one is made. So
words are found as if the documents had been opened, and none is. Nothing depends on the files being
there: what is missing or damaged is read from the documents again.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from longctx.core.common.errors import Locked, LongctxError, NotFound, StateMismatch
from longctx.core.retrieve.lexical import PassageIndex, tables_of
from longctx.core.retrieve.passage_table import Passages
from longctx.core.retrieve.segment import InMemory, Part, Segment, merged, of_document
from longctx.core.retrieve.word_tables import check_passages
from longctx.core.store.confined import Confined
from longctx.core.store.document import Document
from longctx.core.store.facts import UNKNOWN, Facts
from longctx.core.store.library import Library
from longctx.core.store.segments import Indexed, Kept, SegmentFiles
from longctx.core.store.shards import FOR_WORDS

_log = logging.getLogger(__name__)

MOST = 1 << 22  # postings of a segment that is made of several; bounds the memory that takes
ALIKE = 8  # segments of about one size that become one
_SIZE = 3  # binary orders of magnitude that count as one size


class ReadAgain(StateMismatch):
    """The index said what is not so, and was made again from the documents: search again."""


@dataclass
class _Live:
    """A segment with the documents in it that are searched.

    Attributes:
        segment: it.
        documents: all that it covers.
        facts: of each that is searched; None: it is gone, changed or not wanted.
        kept: its file; None: it is in memory alone.
    """

    segment: Segment
    documents: tuple[Indexed, ...]
    facts: list[Facts | None]
    kept: Kept | None = None

    @property
    def keep(self) -> np.ndarray:
        """Which of its documents are searched, (D,) bool."""
        return np.array([facts is not None for facts in self.facts], bool)

    def is_mostly(self, gone: np.ndarray) -> bool:
        """Whether over half of its passages are of these documents, (D,) bool."""
        passages = gone[self.segment.columns["documents"]]
        return 2 * int(passages.sum()) > len(passages) or bool(gone.all())


class LibraryWords(PassageIndex):
    """BM25 over the passages of many documents, as `PassageIndex` over them opened.

    The index is brought up to date when this is made, and on disk if the library can be written.

    Args:
        library: where they are.
        documents: what is known of each; of a folder one.
        partial: for an unfinished document, use what its last checkpoint holds.
        on_left_out: gets each document that cannot be read, and why.

    Attributes:
        documents: those searched, in the order in which passages are numbered.
    """

    def __init__(
        self,
        library: Library,
        documents: Sequence[Facts],
        partial: bool = False,
        on_left_out: Callable[[Facts, LongctxError], None] = lambda facts, error: None,
    ):
        super().__init__()
        self._library, self._partial, self._on_left_out = library, partial, on_left_out
        self._files = SegmentFiles(Confined(library.path))
        wanted = {facts.folder: facts for facts in documents}
        self._live = self._known(wanted)
        if self._missing(wanted) or self._is_untidy():
            self._bring_up_to_date(wanted)
        self._drop_unsearched()
        self.documents = [facts for live in self._live for facts in live.facts if facts]

    # --- what is on disk, and what is made ---

    def _missing(self, wanted: dict[str, Facts]) -> list[Facts]:
        """Those that no segment has."""
        had = {facts.folder for live in self._live for facts in live.facts if facts}
        return [facts for folder, facts in wanted.items() if folder not in had]

    def _known(self, wanted: dict[str, Facts]) -> list[_Live]:
        """The segments on disk; a damaged one counts as missing."""
        found, left = [], dict(wanted)
        for kept in self._files.read():
            with suppress(StateMismatch):
                segment = Segment(self._files.open(kept), len(kept.documents))
                live = _Live(segment, kept.documents, _searched(left, kept.documents), kept)
                _require_sizes(live)
                found.append(live)
                for facts in filter(None, live.facts):
                    left.pop(facts.folder, None)
        return found

    def _is_untidy(self) -> bool:
        """Whether there may be something to merge, or to write anew."""
        return bool(_alike(self._live)) or any(live.is_mostly(~live.keep) for live in self._live)

    def _bring_up_to_date(self, wanted: dict[str, Facts]) -> None:
        """Adds what is missing, and tidies; on disk where that is possible."""
        try:
            with self._files.lock():
                self._live = self._known(wanted)  # another may have done it
                self._add(wanted, on_disk=True)
                if self._is_untidy():
                    self._tidy(wanted)
                return
        except (Locked, OSError, LongctxError) as error:
            _log.info("the word index of the library is not written: %s", error)
        self._add(wanted, on_disk=False)

    def _add(self, wanted: dict[str, Facts], on_disk: bool) -> None:
        """Indexes what no segment has, a segment at a time."""
        for documents, parts in self._batches(self._missing(wanted)):
            lasting = on_disk and all(_lasts(facts) for facts in documents)
            self._put(documents, parts, lasting)

    def _batches(self, missing: Sequence[Facts]) -> Iterator[tuple[list[Facts], list[Part]]]:
        """Documents with their words, of up to MOST postings; those that may change apart."""
        for lasting in (True, False):
            documents: list[Facts] = []
            parts: list[Part] = []
            held = 0
            for facts in missing:
                if _lasts(facts) is not lasting or (made := self._read(facts)) is None:
                    continue
                more = sum(len(part.passages) for part in made)
                if documents and held + more > MOST:
                    yield documents, parts
                    documents, parts, held = [], [], 0
                documents.append(facts)
                parts += made
                held += more
            if documents:
                yield documents, parts

    def _read(self, facts: Facts) -> list[Part] | None:
        """The words of a document; None where it cannot be read."""
        try:
            document = self._library.opened(facts.folder, self._partial, FOR_WORDS)
            if document.manifest.tokens != facts.tokens:
                raise StateMismatch(f"'{facts.name}' has just changed", "", "Try again")
            again = len(self.damaged)
            parts = of_document(document.manifest, tables_of(document, self.damaged))
        except (NotFound, Locked, StateMismatch) as error:
            self._on_left_out(facts, error)
            return None
        if len(self.damaged) > again:
            self.counted_again.append(facts.name)
        return parts

    def _put(self, documents: list[Facts], parts: list[Part], on_disk: bool) -> None:
        arrays = merged(parts)
        indexed = tuple((facts.folder, facts.stamp) for facts in documents)
        if not on_disk:
            segment = Segment(InMemory(arrays), len(indexed))
            self._live.append(_Live(segment, indexed, [*documents]))
            return
        files = self._kept()
        kept = self._files.add(arrays, indexed, files)
        segment = Segment(self._files.open(kept), len(indexed))
        self._live.append(_Live(segment, indexed, [*documents], kept))
        self._files.replace([*files, kept])

    def _kept(self) -> list[Kept]:
        return [live.kept for live in self._live if live.kept]

    def _tidy(self, wanted: dict[str, Facts]) -> None:
        """Merges what is alike, and writes anew what is mostly of documents that are gone."""
        there = {(facts.folder, facts.stamp) for facts in self._library.facts()}
        for live in [live for live in self._live if live.kept]:
            if live.is_mostly(np.array([each not in there for each in live.documents], bool)):
                self._merge([live], there, wanted)
        while some := _alike(self._live):
            self._merge(some, there, wanted)

    def _merge(self, some: list[_Live], there: set[Indexed], wanted: dict[str, Facts]) -> None:
        """Makes one segment of some, without what is gone."""
        others = [live for live in self._live if live not in some]
        indexed = tuple(each for live in some for each in live.documents if each in there)
        if indexed:
            keeps = (np.array([each in there for each in live.documents], bool) for live in some)
            arrays = merged([x.segment.part(keep) for x, keep in zip(some, keeps, strict=True)])
            kept = self._files.add(arrays, indexed, self._kept())
            segment = Segment(self._files.open(kept), len(indexed))
            others.append(_Live(segment, indexed, _searched(wanted, indexed), kept))
        self._live = others
        self._files.replace(self._kept())

    def _drop_unsearched(self) -> None:
        self._live = [live for live in self._live if live.keep.any()]

    # --- what `PassageIndex` needs ---

    @property
    def languages(self) -> tuple[str, ...]:
        """See `PassageIndex`."""
        return tuple(dict.fromkeys(facts.language for facts in self.documents)) or ("",)

    @cached_property
    def passages(self) -> Passages:
        """See `PassageIndex`; no file of a document is read."""
        documents, before = [np.empty(0, np.int64)], 0
        for live, (kept, _) in zip(self._live, self._numbers, strict=True):
            places = np.cumsum(live.keep) - 1
            documents.append(places[live.segment.columns["documents"][kept]] + before)
            before += int(live.keep.sum())
        return Passages.made(
            np.concatenate(documents),
            self._column("sources"),
            self._column("tokens"),
            self._column("starts"),
            np.array([facts.tokens for facts in self.documents], np.int64),
        )

    @cached_property
    def _numbers(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """Of each segment: which passages are searched, and the number of each; -1: it is not."""
        found, first = [], 0
        for live in self._live:
            kept = live.keep[live.segment.columns["documents"]]
            found.append((kept, np.where(kept, np.cumsum(kept) - 1 + first, -1)))
            first += int(kept.sum())
        return found

    def _column(self, name: str) -> np.ndarray:
        pairs = zip(self._live, self._numbers, strict=True)
        return np.concatenate(
            [
                np.empty(0, np.int64),
                *(live.segment.columns[name][kept] for live, (kept, _) in pairs),
            ]
        )

    @cached_property
    def _passage_words(self) -> np.ndarray:
        return self._column("lengths").astype(np.float64)

    def _postings(self, stem: str) -> tuple[np.ndarray, np.ndarray]:
        passages, counts = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
        for place, live in enumerate(self._live):
            some, times = self._find(live, stem)
            number = self._numbers[place][1][some]
            passages.append(number[number >= 0])
            counts.append(times[number >= 0])
        return np.concatenate(passages), np.concatenate(counts)

    def _vocabularies(self) -> Iterator[bytes]:
        return (live.segment.terms for live in self._live)

    def _find(self, live: _Live, stem: str) -> tuple[np.ndarray, np.ndarray]:
        """The postings of a segment; one that turns out to be damaged is read again."""
        try:
            return live.segment.find(stem)
        except StateMismatch as error:
            self._make_again(live, error)
        return live.segment.find(stem)

    def require_true(self, number: int, document: Document) -> None:
        """Compares what was searched of a document with the document, now that it is open.

        Args:
            number: its place in `documents`.
            document: it.

        Raises:
            ReadAgain: they differ, and the passages of all documents have been made again.
            StateMismatch: they differ, although it was read just now.
        """
        own = self.passages.of_document(number)
        said = {"sources": own.sources, "tokens": own.tokens, "lengths": own.lengths}
        try:
            check_passages(said | {"bytes": own.starts}, document)
        except ValueError as error:
            facts = self.documents[number]
            [live] = [live for live in self._live if any(one is facts for one in live.facts)]
            if not live.kept:
                what = f"'{facts.name}' has just changed"
                raise StateMismatch(what, str(error), "Try again", facts.folder) from error
            self._make_again(live, error)
            self._found.clear()
            for name in ("passages", "_passage_words", "_words_until"):
                self.__dict__.pop(name, None)
            raise ReadAgain("the index of the library is damaged", str(error)) from error

    def _make_again(self, live: _Live, error: Exception) -> None:
        """Reads the documents of a damaged segment again; they keep their places."""
        _log.info("a part of the library's word index is read again: %s", error)
        self._forget(live)
        parts = []
        for facts in live.facts:
            made = self._read(facts) if facts else None
            if facts and made is None:
                raise StateMismatch(f"'{facts.name}' cannot be read", "", "", facts.folder)
            parts += made or []
        live.facts, live.kept = [facts for facts in live.facts if facts], None
        live.documents = tuple((facts.folder, facts.stamp) for facts in live.facts if facts)
        live.segment = Segment(InMemory(merged(parts)), len(live.facts))
        self.__dict__.pop("_numbers", None)  # its passages are numbered without those that are gone

    def _forget(self, live: _Live) -> None:
        """Takes a damaged segment off the list, so that the next search makes it again."""
        with suppress(Locked, OSError, LongctxError), self._files.lock():
            self._files.replace([kept for kept in self._files.read() if kept != live.kept])


def _searched(wanted: dict[str, Facts], documents: Sequence[Indexed]) -> list[Facts | None]:
    """The facts of documents that are wanted as they were when they were indexed."""
    found = [(wanted.get(folder), stamp) for folder, stamp in documents]
    return [facts if facts and facts.stamp == stamp else None for facts, stamp in found]


def _lasts(facts: Facts) -> bool:
    """Whether what is known of a document can be compared with its manifest later."""
    return facts.status == "complete" and UNKNOWN[1:] != facts.stamp[1:]


def _alike(segments: list[_Live]) -> list[_Live]:
    """Segments on disk that are to become one: so many of about one size, and not too large."""
    sizes: dict[int, list[_Live]] = {}
    for live in segments:
        if live.kept:
            sizes.setdefault(live.segment.postings.bit_length() // _SIZE, []).append(live)
    for _, some in sorted(sizes.items()):
        if len(some) >= ALIKE and sum(live.segment.postings for live in some) <= MOST:
            return some
    return []


def _require_sizes(live: _Live) -> None:
    """StateMismatch unless a segment has as many tokens of each document as that has."""
    passages = live.segment.columns
    tokens = np.bincount(passages["documents"], passages["tokens"], len(live.documents)).tolist()
    if any(facts and facts.tokens != n for facts, n in zip(live.facts, tokens, strict=True)):
        raise StateMismatch("the index of the library is damaged", "its documents differ")
