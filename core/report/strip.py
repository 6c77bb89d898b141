"""The strip: where in its documents a ranking sees what was asked for, from 0 to 1.

The documents' sources lie end to end, measured in bytes, and are cut into equal bins; a bin shows
the best of the passages in it. Pages and reports draw it. It knows nothing of either.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from longctx.core.common.errors import UsageError
from longctx.core.retrieve.passage_table import Passages
from longctx.core.retrieve.ranked import Ranked
from longctx.core.store.document import Document

BINS, MOST_BINS = 200, 2000
_FEW = 8  # passages: of fewer, the middle one is no measure of the others


@dataclass(frozen=True)
class Part:
    """One source on the strip.

    Attributes:
        document: its document's name.
        source: its index in that document.
        name: its own name.
        start, end: its bytes on the strip; `start` is the first byte of the source.
    """

    document: str
    source: int
    name: str
    start: int
    end: int

    def as_dict(self) -> dict[str, Any]:
        """The JSON object of a source."""
        told = {"document": self.document, "source": self.source, "name": self.name}
        return told | {"from": self.start, "to": self.end}


@dataclass(frozen=True)
class Strip:
    """The scores over whole documents.

    Attributes:
        bins: from the first byte to the last, each of the same length but for rounding; 1 is the
            best passage, 0 one no better than the middle one. None: no passage there is listed.
            Empty where nothing was looked for.
        parts: the sources, in order; empty ones too.
        total: bytes of all of them.
    """

    bins: tuple[float | None, ...]
    parts: tuple[Part, ...]
    total: int

    def as_dict(self) -> dict[str, Any]:
        """The JSON object of the strip."""
        sources = [part.as_dict() for part in self.parts]
        return {"bins": [*self.bins], "sources": sources, "total": self.total}


def outline(documents: Sequence[Document]) -> Strip:
    """What a strip is over, without scores: no bins."""
    parts = _parts(documents)
    return Strip((), parts, parts[-1].end if parts else 0)


def strip(ranked: Ranked, documents: Sequence[Document], bins: int = BINS) -> Strip:
    """Where the scores of a ranking lie.

    Args:
        ranked: the passages of the documents with their scores, such as `Looked.ranked`.
        documents: open, in the order of the passages, such as `Looked.documents`.
        bins: how many; fewer where there are fewer bytes.

    Raises:
        UsageError: there are to be fewer than 1 or more than 2,000 bins.
        StateMismatch: a document's tokens are damaged.
    """
    if not 1 <= bins <= MOST_BINS:
        raise UsageError(f"a strip has 1 to {MOST_BINS:,} bins, not {bins:,}")
    bare = outline(documents)
    parts, total = bare.parts, bare.total
    if total == 0:
        return bare
    count = min(bins, total)
    start, end = _bytes(ranked.passages, documents, parts)
    scores = _relative(ranked)
    some = end > start
    start, end, scores = start[some], end[some], scores[some]
    first, last = start * count // total, (end - 1) * count // total
    best = np.full(count, -np.inf)
    for step in range(int((last - first).max(initial=-1)) + 1):
        np.maximum.at(best, np.minimum(first + step, last), scores)
    shown = [round(score, 4) if np.isfinite(score) else None for score in best.tolist()]
    return Strip(tuple(shown), parts, total)


def _parts(documents: Sequence[Document]) -> tuple[Part, ...]:
    """The sources end to end."""
    parts, place = list[Part](), 0
    for document in documents:
        for number, source in enumerate(document.manifest.sources):
            end = place + source.size
            parts.append(Part(document.manifest.name, number, source.name, place, end))
            place = end
    return tuple(parts)


def _bytes(
    passages: Passages, documents: Sequence[Document], parts: Sequence[Part]
) -> tuple[np.ndarray, np.ndarray]:
    """Each passage's bytes [start, end) on the strip, (P,) int64 each."""
    before = np.cumsum([0, *(len(document.manifest.sources) for document in documents)])
    numbers = before[passages.documents] + passages.sources
    start = np.array([part.start for part in parts], np.int64)[numbers] + passages.starts
    # A passage ends where the next one of its source begins; the last of a source with the source.
    end = np.array([part.end for part in parts], np.int64)[numbers]
    inner = np.flatnonzero(np.diff(numbers) == 0)
    end[inner] = start[inner + 1]
    return start, end


def _relative(ranked: Ranked) -> np.ndarray:
    """The scores from 0 (the middle one, or worse) to 1 (the best), (P,); `-inf` stays.

    Where all are alike nothing stands out: they are 0, or 1 if they share a word with the query.
    """
    scores = ranked.scores.astype(np.float64)
    known = scores[np.isfinite(scores)]
    if not len(known):
        return scores
    top = known.max()
    low = np.median(known) if len(known) >= _FEW else known.min()
    if top <= low:
        low = known.min()
    if top > low:
        above = np.clip((scores - low) / (top - low), 0, 1)
    else:
        matched = ranked.words is not None and bool((ranked.words > 0).any())
        above = np.full(len(scores), float(matched))
    return np.where(np.isfinite(scores), above, -np.inf)
