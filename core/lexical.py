"""The words of a document's passages, and BM25 by them; bm25s and PyStemmer do the counting.

A passage is 128 tokens of one source, the last one of a source what is left. Knows nothing of
models and methods. Both libraries are imported when words are first counted: they are an extra.
"""

from collections.abc import Iterator
from itertools import chain, pairwise
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from longctx.core.errors import StateMismatch
from longctx.core.memory import Scores
from longctx.core.store.document import Document
from longctx.core.store.shards import AGAIN

if TYPE_CHECKING:
    from bm25s import BM25
    from bm25s.tokenization import Tokenized

PASSAGE = 128  # tokens
K1, B = 1.5, 0.75  # how much repeated words count, and the passage's length
_UNSPACED = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff"  # kana and Han, written without spaces
# As bm25s has it, two or more letters or digits; but each of those characters is a word.
WORD = rf"[{_UNSPACED}]|[^\W{_UNSPACED}]{{2,}}"


class PassageIndex:
    """BM25 over a document's passages: English stop words left out, words cut to their stems.

    It is made when it is first needed and kept: some seconds and 20 MB for a million tokens. Of
    several documents, a word is as rare as it is in all of them.

    Args:
        documents: open; their passages and tokens are counted on from one to the next.
    """

    def __init__(self, *documents: Document):
        self._documents = documents
        self._lengths: Tensor | None = None  # of the passages, in tokens; None: nothing was counted
        self._index: BM25 | None = None  # None then too: no passage has a word

    def scores(self, words: str) -> Scores:
        """The score of each token's passage, (N,) float32; raw and pooled ones are the same.

        Args:
            words: of the question; those that no passage has do not count, none gives zeros.

        Raises:
            StateMismatch: the document's text is not what was written.
        """
        if self._lengths is None:
            self._index = _index(*self._documents)
            self._lengths = torch.cat([_lengths(document) for document in self._documents])
        found = torch.zeros(len(self._lengths))
        if self._index is not None:
            known = self._index.get_tokens_ids(_counted([words], return_ids=False)[0])
            found = torch.from_numpy(self._index.get_scores_from_ids(known))
        spread = found.repeat_interleave(self._lengths)
        return Scores(spread, spread)


def _lengths(document: Document) -> Tensor:
    """Tokens of each passage, in order."""
    lengths = []
    for source in document.manifest.sources:
        whole, rest = divmod(source.tokens, PASSAGE)
        lengths += [PASSAGE] * whole + [rest] * bool(rest)
    return torch.tensor(lengths, dtype=torch.long)


def _texts(document: Document) -> Iterator[str]:
    """The text of each passage, in order."""
    for number, source in enumerate(document.manifest.sources):
        firsts = torch.arange(source.first_token, source.first_token + source.tokens, PASSAGE)
        starts = document.take("tokens", firsts, ("starts",))["starts"].tolist()
        for start, end in pairwise([*starts, source.size]):
            try:
                raw = document.text(number, start, end)
            except ValueError as error:
                name = document.manifest.name
                raise StateMismatch(f"'{name}' is damaged", str(error), AGAIN) from error
            yield raw.decode(source.encoding, errors="replace")


def _index(*documents: Document) -> "BM25 | None":
    """The index of all passages; None where they have no words: their mean length would be 0."""
    from bm25s import BM25

    counted = _counted(chain.from_iterable(map(_texts, documents)))
    if not counted.vocab:
        return None
    index = BM25(k1=K1, b=B, method="lucene")
    index.index(counted, show_progress=False)
    return index


def _counted(texts: "Iterator[str] | list[str]", return_ids: bool = True) -> "Tokenized":
    """The stems of each text, in order, as numbers or as words."""
    import Stemmer
    from bm25s import tokenize

    return tokenize(
        texts,
        token_pattern=WORD,
        stopwords="en",
        stemmer=Stemmer.Stemmer("english"),
        return_ids=return_ids,
        show_progress=False,
    )
