"""Exact strings in documents: candidates from the word index, verified in the text.

A string without an indexed word ("C++", "is it") is searched for in the whole text, one part in
memory at a time.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from longctx.core.passages.matching import ExactString
from longctx.core.passages.snippet import Snippet
from longctx.core.retrieve.lexical import PassageIndex
from longctx.core.retrieve.passage_table import Passages
from longctx.core.retrieve.ranked import Ranked
from longctx.core.store.document import Document
from longctx.core.tokens.terms import most_terms, string_words

MOST_SCANNED = 1000  # occurrences kept of a string without words
_FEW = 4  # passages that are sooner read than looked up
_PIECE = 1 << 20  # bytes of text searched at a time
_SPARE = 1024  # bytes of extra white space that an occurrence may have


@dataclass(frozen=True)
class Occurrence:
    """One occurrence of a string in the text.

    Attributes:
        document, source: indices.
        start, end: its bytes in the source.
        passage: in which it begins, numbered through all documents.
    """

    document: int
    source: int
    start: int
    end: int
    passage: int


def occurrences(
    documents: Sequence[Document], ranked: Ranked, index: PassageIndex | None, string: ExactString
) -> Iterator[Occurrence]:
    """Where a string occurs, best passages first; ties go to the earlier.

    Args:
        documents: open, in the order of the passages.
        ranked: the passages and their scores.
        index: the documents' words; None: there is none, and all text is searched.
        string: what to search for.

    Yields:
        Each occurrence once; for a string without words only the first `MOST_SCANNED`.

    Raises:
        StateMismatch: a document is damaged.
    """
    having = None if index is None else _having(index, string)
    if having is None:
        yield from _by_score(ranked, _scanned(documents, ranked.passages, string))
        return
    for passage in having[np.argsort(-ranked.scores[having], kind="stable")].tolist():
        yield from _within(documents, ranked.passages, passage, string)


def bytes_of(
    documents: Sequence[Document], passages: Passages, first: int, last: int
) -> tuple[int, int]:
    """The bytes of passages [first, last] of one source."""
    start = int(passages.starts[first])
    if last < passages.last[last]:
        return start, int(passages.starts[last + 1])
    document, source = int(passages.documents[last]), int(passages.sources[last])
    return start, documents[document].manifest.sources[source].size


def _having(index: PassageIndex, string: ExactString) -> np.ndarray | None:
    """The passages that have all indexed words of a string near; None: it has no such word.

    Between the passage in which the string begins and that of one of its words, there is nothing
    but the string: passages with few words, or with none where it has much white space. So of a
    library most passages are left out without a look into their documents.
    """
    text = " ".join(string.parts)
    words = [(start, index.looked_up(word)) for start, word in string_words(text, index.languages)]
    if not words:
        return None
    having = np.arange(len(index.passages))
    looked: set[tuple[str, ...]] = set()
    for start, word in words:
        if word in looked:
            continue
        if looked and len(having) <= _FEW:
            break
        looked.add(word)
        # The first word begins where the string does.
        last = index.reach(having, most_terms(text[:start])) if start > 0 else having
        having = having[index.counts_in(word, np.stack([having, last], axis=1)) > 0]
    return having


def _within(
    documents: Sequence[Document], passages: Passages, passage: int, string: ExactString
) -> Iterator[Occurrence]:
    """The occurrences of a string that begin in a passage."""
    document, source = int(passages.documents[passage]), int(passages.sources[passage])
    start, end = bytes_of(documents, passages, passage, passage)
    if passage == passages.first[passage]:
        start = 0  # a tokenizer may give the first characters of a source to no token
    ahead = min(documents[document].manifest.sources[source].size, end + _length(string))
    snippet = Snippet.of(documents[document], source, start, ahead)
    before = Snippet.of(documents[document], source, max(0, snippet.start - 8), snippet.start)
    for low, high in string.spans(before.text + snippet.text):
        low, high = low - len(before.text), high - len(before.text)
        if low >= 0 and start <= snippet.byte(low) < end:
            yield Occurrence(document, source, snippet.byte(low), snippet.byte(high), passage)


def _scanned(
    documents: Sequence[Document], passages: Passages, string: ExactString
) -> Iterator[Occurrence]:
    """The first occurrences of a string in the whole text."""
    count, beyond = 0, _length(string)
    for number, document in enumerate(documents):
        for source, info in enumerate(document.manifest.sources if len(passages) else ()):
            for start in range(0, info.size if info.tokens else 0, _PIECE):
                back = min(start, 8)
                until = min(info.size, start + _PIECE + beyond)
                snippet = Snippet.of(document, source, start - back, until)
                for low, high in string.spans(snippet.text):
                    byte = snippet.byte(low)
                    if not start <= byte < start + _PIECE:
                        continue
                    passage = passages.containing(number, source, byte)
                    yield Occurrence(number, source, byte, snippet.byte(high), passage)
                    count += 1
                    if count == MOST_SCANNED:
                        return


def _by_score(ranked: Ranked, found: Iterator[Occurrence]) -> list[Occurrence]:
    """Occurrences sorted by the scores of their passages; ties go to the earlier."""
    return sorted(found, key=lambda each: -float(ranked.scores[each.passage]))


def _length(string: ExactString) -> int:
    """The most bytes that an occurrence may have."""
    return 16 * sum(map(len, string.parts)) + _SPARE  # each of four characters of four bytes
