"""Documents whose sources are read one by one, and what a later reading takes over.

Each source is a unit: it is read behind the prefix, and not behind the sources before it. Its rows
depend on nothing else, so a new state of the document has those of unchanged sources byte for byte,
wherever they stand in it. Nothing here depends on the method.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from longctx.core import methods
from longctx.core.common.errors import UsageError
from longctx.core.ingest.append_sources import header_of
from longctx.core.ingest.job import Job
from longctx.core.sources.reader import Source
from longctx.core.store.behind import WriterBehind
from longctx.core.store.document import Document
from longctx.core.store.manifest import UNITS, Manifest, SourceRecord
from longctx.core.store.marks import marks_of
from longctx.core.store.sameness import Now, compare
from longctx.core.tokens.tokens import RUN, TokenStream

BY_SOURCE = UNITS[1]
LEAST = 64  # tokens: a shorter source takes as long to read


def units_for(job: Job, method: str, known: Manifest | None = None) -> str:
    """What a job reads as one text, as a manifest says it.

    Args:
        job: whether it says so itself, and its paths.
        method: the reader's.
        known: the document of its name, or what was begun of one; None: there is neither.

    Raises:
        UsageError: its sources are to be read one by one, and the method cannot.
    """
    if job.units:
        _require_by_source(method)
        return BY_SOURCE
    if job.units is None and known:
        return known.units
    folder = job.units is None and any(os.path.isdir(path) for path in job.paths)
    return BY_SOURCE if folder and _can_by_source(method) else UNITS[0]


def _can_by_source(method: str) -> bool:
    return methods.load(method).Method.capabilities.by_source


def _require_by_source(method: str) -> None:
    """Refuses a method with which sources cannot be read one by one; names those that can."""
    if _can_by_source(method):
        return
    able = [name for name in methods.names() if _can_by_source(name)]
    raise UsageError(
        f"--units is not for the method {method!r}",
        "what it keeps of a source depends on the sources before it, or a question needs all of it",
        f"Leave it out, or use --method {' or '.join(able)}.",
    )


def tokens_again(counts: Sequence[int], prefix: int) -> int:
    """About as many tokens of one text take as long as reading sources one by one again.

    Args:
        counts: tokens of each source.
        prefix: tokens before each.
    """
    return sum(max(LEAST, prefix + count) for count in counts)


@dataclass(frozen=True)
class KeptUnit:
    """A source as a document has it, to be taken over as it is.

    Attributes:
        document: the document.
        number: the source's number in it.
        mtime_ns: when its file was modified, seen before the two were compared.
    """

    document: Document
    number: int
    mtime_ns: int

    @property
    def record(self) -> SourceRecord:
        """What the document records of it."""
        return self.document.manifest.sources[self.number]

    def hand_on(self, behind: WriterBehind, source: Source, start: int) -> None:
        """Passes its rows, text and marks to a writer.

        Args:
            behind: gets them.
            source: the source as it is now.
            start: end of the new document's text so far, in bytes.

        Raises:
            StateMismatch: the document is damaged.
        """
        known, document = self.record, self.document
        given = source.name, source.file, self.mtime_ns, known.encoding, known.origin
        behind.begin_source(*given)
        tokens = known.first_token, known.first_token + known.tokens
        for group in document.groups:
            for rows in document.rows_between(group, *tokens):
                behind.append(group, rows)
        for piece in document.raw(known.text_start, known.text_start + known.size):
            behind.add_bytes(piece)
        if marks := marks_of(document, self.number):
            places, numbers = torch.tensor(marks).T + torch.tensor([[start], [0]])
            behind.append("marks", {"starts": places, "numbers": numbers})
        ended = known.size, known.sha256, known.encoding, known.undecodable, self.mtime_ns
        behind.end_source(*ended)


def kept_units(
    document: Document, sources: list[Source], stream: TokenStream
) -> dict[int, KeptUnit]:
    """The sources that are as a document has them, by their place among `sources`.

    A source is the same if its name, which the model reads too, and the bytes of its file are.

    Args:
        document: whole, and read one source at a time.
        sources: what the new state is to be made of.
        stream: the tokenizer.

    Raises:
        StateMismatch: the document is damaged.
    """
    known = {_key(record): number for number, record in enumerate(document.manifest.sources)}
    found: dict[int, KeptUnit] = {}
    for place, source in enumerate(sources):
        number = known.get((source.file, source.part, source.name))
        if number is None or not _can_be_told(document.manifest, number, source):
            continue
        kept = _same(document, number, source.path)
        if kept and header_of(document, number, stream) == source.header:
            found[place] = kept
    return found


def _key(record: SourceRecord) -> tuple[str | None, str, str]:
    return record.path, record.origin.part if record.origin else "", record.name


def _can_be_told(manifest: Manifest, number: int, source: Source) -> bool:
    """Whether the report of a new reading follows from the old one, and it is made the same way.

    A manifest counts forced splits and lists what is lost for all sources together.
    """
    record, report = manifest.sources[number], manifest.report
    split = report.get("forced_splits") and record.size >= RUN
    lost = report.get("lost") and record.origin
    same_way = (record.origin is None) == (source.made is None)
    return same_way and not (split or lost or source.refused)


def _same(document: Document, number: int, path: Path | None) -> KeptUnit | None:
    try:
        touched = path.stat().st_mtime_ns if path else None
    except OSError:
        return None
    if path is None or touched is None:
        return None  # a stream
    record = document.manifest.sources[number]
    return KeptUnit(document, number, touched) if compare(record, path) is Now.SAME else None


def gone(document: Document, sources: list[Source]) -> list[str]:
    """Names of a document's sources whose files are not among these."""
    there = {(source.file, source.part) for source in sources}
    records = document.manifest.sources
    return [record.name for record in records if _key(record)[:2] not in there]
