"""A search: hits from a session's ranking, or from one by stored words and vectors."""

import time
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING

from longctx.core.api.passages import Findings, findings

if TYPE_CHECKING:
    from collections.abc import Sequence

    from longctx.core.api.words_alone import Opened
    from longctx.core.ask.asking import Asking
    from longctx.core.passages.line_filter import LineFilter
    from longctx.core.retrieve.hit import Hit
    from longctx.core.retrieve.lexical import PassageIndex
    from longctx.core.retrieve.ranked import Ranked
    from longctx.core.store.document import Document


@dataclass(frozen=True)
class Search:
    """What to search for.

    Attributes:
        query: the user's words; may be empty if `lines` is set.
        lines: which lines may be hits; None: all.
        most: the most hits.
        tokens: the most tokens of all hits together, except that the first hit always counts;
            None: any number.
        files: one hit from each file is enough.
        around: lines before and behind the matching one that are wanted too.
    """

    query: str
    lines: "LineFilter | None"
    most: int
    tokens: int | None
    files: bool
    around: int = 0

    def by_stored(self, opened: "Opened", gather_by: str) -> Findings:
        """The best passages by stored words and vectors; no model of a document is loaded.

        Args:
            opened: the documents.
            gather_by: a gather source that needs no embeddings.

        Raises:
            StateMismatch: a document is damaged.
            LongctxError: the gather source needs vectors that a document does not have.
            UsageError: the regular expression takes too long.
        """
        from longctx.core.retrieve.evidence import judged
        from longctx.core.retrieve.hit import SCHEMA_VERSION

        started = time.perf_counter()
        documents, index = opened.documents, opened.index
        hits = self._hits(documents, opened.ranked(self.query, gather_by), index)
        found, evidence = judged(index, self.query)
        opened.look_at([hit.document for hit in hits])
        spent = round(time.perf_counter() - started, 4)
        values = {
            **{"schema_version": SCHEMA_VERSION, "question": self.query},
            **{"found": found, "evidence": evidence},
            "documents": [facts.name for facts in opened.facts],
            "passages": [hit.as_dict(documents) for hit in hits],
            "tokens": {
                "document": sum(facts.tokens for facts in opened.facts),
                "gathered": sum(hit.tokens for hit in hits),
                **{"question": 0, "answer": 0, "dropped": 0},
            },
            "timings": {
                "load_s": round(opened.load_s, 4),
                **{"gather_s": spent, "total_s": spent},
            },
            "state": opened.state(gather_by, hits),
        }
        return findings(documents, hits, values, self.around)

    def by_model(self, session: "Asking", gather_by: str | None) -> Findings:
        """The best passages by a session's ranking.

        Raises:
            LongctxError: as the session's `look`.
            UsageError: the regular expression takes too long.
        """
        looked = session.look(self.query, gather_by)
        started, documents = time.perf_counter(), looked.documents
        hits = self._hits(documents, looked.ranked, looked.index)
        values = looked.found.as_dict()
        values["passages"] = [hit.as_dict(documents) for hit in hits]
        values["tokens"]["gathered"] = sum(hit.tokens for hit in hits)
        for number, asked in enumerate(values["state"].get("asked", ())):
            asked["gathered"] = sum(hit.tokens for hit in hits if hit.document == number)
        spent = values["timings"]["total_s"] + time.perf_counter() - started
        values["timings"]["total_s"] = round(spent, 4)
        return findings(documents, hits, values, self.around)

    def _hits(
        self, documents: "Sequence[Document]", ranked: "Ranked", index: "PassageIndex"
    ) -> "list[Hit]":
        """The best passages within the limits; the first one whatever its length."""
        from longctx.core.passages.matching import Query
        from longctx.core.retrieve.finding import find_hits

        weights = index.word_weights(self.query)
        query = Query(self.query, weights, self.lines, index.languages)
        hits = find_hits(documents, ranked, query, self.most, index, self.files)
        if self.tokens is None:
            return hits
        sums = accumulate(hit.tokens for hit in hits)
        return hits[: max(1, sum(total <= self.tokens for total in sums))]
