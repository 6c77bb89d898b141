"""How far all documents of one command are, counted from what is heard of each."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from time import monotonic

from longctx.core.ingest.ingested import Ingested
from longctx.core.ingest.job import Overall, Progress


@dataclass
class _One:
    """What is known of one document: bytes in all, done, and taken over; tokens read."""

    total: int
    processed: int = 0
    cache: int = 0
    tokens: float = 0.0


class Tally:
    """Counts documents, bytes and tokens.

    Args:
        sizes: expected bytes of each file, by the document's name.
    """

    def __init__(self, sizes: Mapping[str, int]):
        self._all = {name: _One(size) for name, size in sizes.items()}
        self._documents = 0
        self._began: float | None = None  # when the first reading did

    def with_all(self, name: str, told: Progress) -> Progress:
        """The progress of one document, with that of all."""
        if self._began is None:
            self._began = monotonic() - told.time_ms / 1000
        if told.phase:  # all its bytes have been read
            return replace(told, overall=self._now())
        one = self._all[name]
        one.total = one.total if told.total is None else told.total
        one.processed, one.cache = told.processed, told.cache
        one.tokens = told.tokens * (told.processed - told.cache) / max(told.processed, 1)
        return replace(told, overall=self._now())

    def done(self, name: str, outcome: object) -> None:
        """Notes that nothing more is to be done for a file."""
        one = self._all[name]
        self._documents += 1
        if not isinstance(outcome, Ingested) or outcome.status == "unchanged":
            one.cache = one.total - (one.processed - one.cache)  # which took no reading
        one.processed = one.total

    def _now(self) -> Overall:
        every, began = self._all.values(), self._began or monotonic()
        return Overall(
            documents=self._documents,
            of=len(self._all),
            total=sum(one.total for one in every),
            cache=sum(one.cache for one in every),
            processed=sum(one.processed for one in every),
            tokens=round(sum(one.tokens for one in every)),
            time_ms=round(1000 * (monotonic() - began)),
        )
