"""What `longctx find` finds: hits of a session's ranking, or of a ranking by words alone."""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from longctx.cli.words_alone import Opened
    from longctx.core.answer import Found
    from longctx.core.asking import Asking
    from longctx.core.finding import Hit
    from longctx.core.line_filter import LineFilter
    from longctx.core.ranked import Ranked
    from longctx.core.store.document import Document


@dataclass(frozen=True)
class Results:
    """What was found.

    Attributes:
        documents: that were searched, open.
        hits: best first.
        values: the JSON object.
    """

    documents: "tuple[Document, ...]"
    hits: "list[Hit]"
    values: dict[str, Any]


@dataclass(frozen=True)
class Search:
    """What is looked for.

    Attributes:
        query: the user's words; they may be none where there are `lines`.
        lines: which lines may be hits; None: all.
        most: hits, at most.
        files: one hit of each file is enough.
    """

    query: str
    lines: "LineFilter | None"
    most: int
    files: bool

    def by_words(self, opened: "Opened") -> Results:
        """The best passages by their words; no model is loaded.

        Raises:
            StateMismatch: a document is damaged.
            UsageError: the regular expression takes too long.
        """
        from longctx.core.finding import find_hits
        from longctx.core.lexical import PassageIndex
        from longctx.core.matching import Query
        from longctx.core.ranked import by_words

        started = time.perf_counter()
        documents, index = opened.documents, PassageIndex(*opened.documents)
        query = Query(self.query, index.word_weights(self.query), self.lines)
        hits = find_hits(
            documents, by_words(index, self.query), query, self.most, index, self.files
        )
        spent = round(time.perf_counter() - started, 4)
        timings = {"load_s": round(opened.load_s, 4), "gather_s": spent, "total_s": spent}
        values = {
            "question": self.query,
            "found": bool(hits),
            "documents": [document.manifest.name for document in documents],
            "passages": [hit.as_dict(documents) for hit in hits],
            "tokens": {
                "document": sum(document.manifest.tokens for document in documents),
                "gathered": sum(hit.tokens for hit in hits),
                **{"question": 0, "answer": 0, "dropped": 0},
            },
            "timings": timings,
            "state": opened.state(),
        }
        return Results(documents, hits, values)

    def by_model(
        self,
        session: "Asking",
        library: Path,
        partial: bool,
        gather: int | None,
        gather_by: str | None,
    ) -> Results:
        """The best passages by a session's ranking.

        Raises:
            LongctxError: as the session's `find`; UsageError: the regular expression takes too
                long.
        """
        from longctx.core.finding import find_hits
        from longctx.core.lexical import PassageIndex
        from longctx.core.matching import Query
        from longctx.core.stems import stems

        found = session.find(self.query, gather, gather_by)
        documents, ranked = _ranked_by_model(found, library, partial)
        indexed = all(document.word_files for document in documents)
        index = PassageIndex(*documents) if indexed else None
        weights = {stem: 1.0 for _, _, stem in stems(self.query)}
        if index is not None:
            weights = index.word_weights(self.query)
        query = Query(self.query, weights, self.lines)
        hits = find_hits(documents, ranked, query, self.most, index, self.files)
        values = found.as_dict()
        values["passages"] = [hit.as_dict(documents) for hit in hits]
        values["tokens"]["gathered"] = sum(hit.tokens for hit in hits)
        return Results(documents, hits, values)


def _ranked_by_model(
    found: "Found", library: Path, partial: bool
) -> "tuple[tuple[Document, ...], Ranked]":
    """The documents that a session asked, and how it ranks their windows.

    Here `session.documents` and `session.ranked(query, gather_by)` take the place of the passages
    that it gathered: a window's score is the best of those that touch it.
    """
    import numpy as np

    from longctx.core.exact import unit_at
    from longctx.core.finding import placed
    from longctx.core.ranked import Ranked
    from longctx.core.store.library import Library
    from longctx.core.unit_table import Units

    store = Library.open(library)
    documents = tuple(store.document(name, partial) for name in found.documents)
    units = placed(documents, Units.of(*(document.manifest for document in documents)))
    best = np.full(len(units), -np.inf)
    numbers = {name: number for number, name in enumerate(found.documents)}
    for passage in found.passages:
        number = numbers[passage.document]
        sources = documents[number].manifest.sources
        source = next(n for n, source in enumerate(sources) if source.name == passage.source)
        low, high = (
            unit_at(units, number, source, byte)
            for byte in (passage.start, max(passage.start, passage.end - 1))
        )
        best[low : high + 1] = np.maximum(best[low : high + 1], passage.score)
    return documents, Ranked(units, units.windows, best[units.windows].max(axis=1), None, None)
