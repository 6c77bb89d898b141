"""Moves sources into the store: tokenized ahead of the model, stored behind it.

Tokens and text go to the store only when the model has read them, so the store is always
consistent: the first n tokens, and the text up to the next one. A stopped reading resumes there.
Files are read and tokenized in another thread, which hands over what it found; only the receiving
thread counts and stores. Knows nothing of models or methods.
"""

import sys
from collections import deque
from collections.abc import Generator, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from longctx.core.common.background import prefetched
from longctx.core.common.errors import UnreadableInput
from longctx.core.ingest.ahead import Ahead, Found, Unit
from longctx.core.ingest.identity import begun_with, require_same_stream, skipped
from longctx.core.ingest.units import KeptUnit
from longctx.core.sources import parser
from longctx.core.sources.detect import NotText
from longctx.core.sources.reader import Source
from longctx.core.store.behind import WriterBehind
from longctx.core.store.document import Document
from longctx.core.tokens.tokens import Tokens, TokenStream

NOTHING: Mapping[int, KeptUnit] = {}
AHEAD = 64  # pieces of text, of about 2,000 tokens each, that may be queued for the model


@dataclass(frozen=True)
class Taken:
    """What was taken over from an earlier document: sources, tokens, bytes."""

    sources: int = 0
    tokens: int = 0
    bytes: int = 0


class SourceReading:
    """The sources of a document, read once.

    Args:
        sources: what to read, in order.
        stream: the tokenizer.
        behind: gets text and tokens. What it has already is compared, not tokenized again.
        kept: sources, by their place among `sources`, that are taken over from an earlier document.

    Attributes:
        total: bytes of all sources; None if unknown, as for a stream.
        tokens, bytes: of the document, in the store so far.
        skipped: sources that were left out: `place` (sources before it), `path`, `part` of it,
            `mtime_ns`, `why`, a message, and whether there was `text` to miss.
        lost: messages about what is missing in the middle or at the end of sources.
        changed: names of sources that have changed since they were opened.
        forced_splits: places in the stored text where text without line breaks was cut.
        safe: number of first tokens that no longer change, whatever is appended to the document.
        taken: what was taken over from an earlier document.

    Raises:
        CannotGoOn: a stream is not the one whose reading was begun.
    """

    taken = Taken()

    def __init__(
        self,
        sources: list[Source],
        stream: TokenStream,
        behind: WriterBehind,
        kept: Mapping[int, KeptUnit] = NOTHING,
    ):
        self.tokens = self.bytes = self.forced_splits = self.safe = 0
        self.skipped: list[dict[str, Any]] = []
        self.lost: list[str] = []
        self.changed: list[str] = []
        sizes = [source.expected_size for source in sources]
        self.total = None if None in sizes else sum(size or 0 for size in sizes)
        self._stream, self._behind = stream, behind
        self._ahead: deque[Ahead] = deque()
        self._handled = 0  # sources that are stored to their end, or left out
        self._waiting = deque(Ahead(source, kept.get(i)) for i, source in enumerate(sources))
        if behind.writer.begun:
            self._go_on(behind.writer.begun)
        self._given = self.tokens  # tokens that were handed out or are in the store

    @contextmanager
    def pieces(self) -> Iterator[Iterator[tuple[Unit, torch.Tensor]]]:
        """The token ids that the store does not have yet, in pieces (n,) int64, in a context.

        Each piece is of one source; that of a source that is taken over has no ids.

        Raises (where they are taken):
            UnreadableInput: a source failed half-way.
            CannotGoOn: a source is not the one that was begun.
            LongctxError: a source was rewritten while it was read.
        """
        found = self._found()
        # A thread that waits for a stream cannot be stopped.
        waiting = [ahead.source for ahead in self._waiting]
        files = all(source.file or source.passing or source.refused for source in waiting)
        ahead = files and self._behind.beside
        with prefetched(found, AHEAD) if ahead else closing(found) as taken:
            try:
                yield self._taken(taken)
            except BaseException:  # Ctrl-C too: do not wait for a file that is being parsed
                parser.end()
                raise

    def _found(self) -> "Generator[Found]":
        """What is in the sources, in order; changes no state that other threads see."""
        while self._waiting:
            ahead = self._waiting.popleft()
            if ahead.unit.kept:
                yield Found(ahead, over=True)
                continue
            try:
                yield from ahead.read(self._stream)
            except UnreadableInput as error:
                # An empty, binary or forbidden source fails before anything of it is stored.
                if ahead.source.size:
                    raise
                yield Found(ahead, over=True, unreadable=error)

    def _taken(self, found: Iterator[Found]) -> Iterator[tuple[Unit, torch.Tensor]]:
        for part in found:
            ahead = part.ahead
            if not self._ahead or self._ahead[-1] is not ahead:
                self._ahead.append(ahead)
            ids = ahead.take_in(part)
            if ahead.unit.kept:
                ahead.unit.tokens = ahead.unit.kept.record.tokens
                yield ahead.unit, torch.zeros(0, dtype=torch.long)
            elif ids is not None and part.piece:
                self._note(part.piece, len(ids))
                ahead.unit.tokens += len(ids)
                yield ahead.unit, ids

    def _note(self, piece: Tokens, new: int) -> None:
        """Notes that what precedes a piece is safe, and the piece too if more follows."""
        known = len(piece.ids) - new
        self.safe = max(self.safe, self._given - known)
        self._given += new
        if not piece.last:
            self.safe = self._given

    def store(self, tokens: int = sys.maxsize) -> None:
        """Stores the document's first `tokens` tokens, which the model has read, and their text."""
        while self._ahead:
            ahead = self._ahead[0]
            if ahead.unreadable:
                place, source = self._handled, ahead.source
                file = {"path": source.file, "part": source.part, "mtime_ns": ahead.mtime_ns}
                quiet = source.found and isinstance(ahead.unreadable, NotText)
                told = {"why": str(ahead.unreadable), "text": not quiet}
                self.skipped.append({"place": place, **file, **told})
            elif kept := ahead.unit.kept:
                if kept.record.tokens > tokens - self.tokens:
                    return
                self._take_over(kept, ahead.source)
            else:
                given = ahead.hand_on(self._behind, tokens - self.tokens, self.bytes)
                self.tokens, self.bytes = self.tokens + given[0], self.bytes + given[1]
                self.forced_splits += given[2]
                if ahead.pieces or not ahead.over:
                    return
                self._end(ahead)
            self._ahead.popleft()
            self._handled += 1

    def _take_over(self, kept: KeptUnit, source: Source) -> None:
        kept.hand_on(self._behind, source, self.bytes)
        tokens, size, taken = kept.record.tokens, kept.record.size, self.taken
        self.tokens, self.bytes = self.tokens + tokens, self.bytes + size
        self.taken = Taken(taken.sources + 1, taken.tokens + tokens, taken.bytes + size)

    def report(self) -> dict[str, Any]:
        """What the manifest says about the reading."""
        return {
            "forced_splits": self.forced_splits,
            "skipped": [*self.skipped],
            "lost": [*self.lost],
            "changed": [*self.changed],
        }

    def _end(self, ahead: Ahead) -> None:
        source = ahead.source
        self._behind.end_source(
            source.size, source.sha256, source.encoding, source.undecodable, ahead.mtime_ns
        )
        self.lost += source.lost
        if ahead.changed:
            self.changed.append(source.name)

    def _go_on(self, begun: Document) -> None:
        """Resumes after what the store has: finished sources, and perhaps part of one."""
        manifest = begun.manifest
        self.tokens, boundary = manifest.tokens, begun.boundary()
        self.safe = boundary.tokens if boundary else 0
        self.bytes = sum(known.size for known in manifest.sources)
        self.forced_splits = manifest.report.get("forced_splits", 0)
        self.lost = [*manifest.report.get("lost", [])]
        self.skipped, self.changed = skipped(manifest), [*manifest.report.get("changed", [])]
        known = begun_with([ahead.source for ahead in self._waiting], manifest) or []
        done = [self._waiting.popleft() for _ in known]
        if manifest.sources and manifest.sources[-1].undecodable is None:
            done[-1].go_on(begun)
            self._waiting.appendleft(done.pop())
        self._handled = len(done)
        for ahead, source in zip(done, known, strict=False):
            if source and source.path is None and not ahead.source.kept:
                require_same_stream(ahead.source, source)
