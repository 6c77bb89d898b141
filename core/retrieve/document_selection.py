"""Document selection: which of many documents to ask, by BM25 over their stored tokens.

A term is a token's text without case and spaces, so no text is unpacked and no word counted in
advance: a million tokens take some hundredths of a second. Passages are 128 tokens of a document;
a term's rarity counts the passages of all documents. The scores equal those of bm25s, as a test
shows; its own index scores every term of every passage beforehand, which takes ten times as long,
with all documents in memory at once. Independent of methods.
"""

from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from longctx.core.common.errors import StateMismatch
from longctx.core.retrieve.lexical import K1, B
from longctx.core.store.document import Document
from longctx.core.store.shards import AGAIN

PASSAGE = 128  # tokens
UNKNOWN = "\ufffd"  # in the text of a token that is part of a character


class Terms:
    """The terms of a tokenizer's vocabulary.

    Args:
        backend: the tokenizer.
        size: how many token ids the model has.
    """

    def __init__(self, backend: Any, size: int):
        self._backend, self._size = backend, size

    @cached_property
    def _of_token(self) -> list[str]:
        """The term of each token id; empty where it has no letter or digit."""
        texts = self._backend.decode_batch(
            [[number] for number in range(self._size)], skip_special_tokens=True
        )
        return [_term(number, text) for number, text in enumerate(texts)]

    def numbered(self, question: Tensor) -> Tensor:
        """Numbers the terms of a question.

        Args:
            question: (n,) token ids of the user's own words.

        Returns:
            (vocabulary,) int64: the number of the question's term for each token id; -1: none.
        """
        wanted = [self._of_token[number] for number in question.tolist()]
        numbers = {term: number for number, term in enumerate(dict.fromkeys(filter(None, wanted)))}
        return torch.tensor([numbers.get(term, -1) for term in self._of_token], dtype=torch.long)


def best_documents(documents: Iterable[Document], numbered: Tensor, count: int) -> list[int]:
    """The documents with the best-matching passages.

    A document's score is that of its best passage; ties go to the earlier document.

    Args:
        documents: opened one after another; only the counts of each are kept.
        numbered: the question's terms, from `Terms.numbered`.
        count: how many to choose.

    Returns:
        Their indices, ascending.

    Raises:
        StateMismatch: a document is damaged.
    """
    terms = max(1, int(numbered.max()) + 1)  # without any, nothing is found
    counted = [_counts(document, numbered, terms) for document in documents]
    scores = torch.tensor(_best_scores(counted))
    order = scores.argsort(descending=True, stable=True)
    return sorted(order[:count].tolist())


def _best_scores(counted: Sequence[tuple[Tensor, int]]) -> list[float]:
    """The score of each document's best passage: Lucene's BM25, as in `lexical`."""
    passages = sum(len(counts) for counts, _ in counted)
    having = torch.stack([(counts > 0).sum(dim=0) for counts, _ in counted]).sum(dim=0)
    mean = sum(tokens for _, tokens in counted) / max(1, passages)
    rarity = torch.log(1 + (passages - having + 0.5) / (having + 0.5))
    scores = []
    for counts, tokens in counted:
        times = counts.float()
        lengths = torch.full((len(counts), 1), float(PASSAGE))
        lengths[-1:] = tokens - PASSAGE * (len(counts) - 1)
        least = K1 * (1 - B + B * lengths / max(1.0, mean))
        found = (rarity * times / (times + least)).sum(dim=1)
        scores.append(float(found.max()) if len(found) else 0.0)
    return scores


def _counts(document: Document, numbered: Tensor, terms: int) -> tuple[Tensor, int]:
    """Counts of each term in each passage, uint8 (passages, terms), and the document's tokens."""
    total, size = document.manifest.tokens, PASSAGE
    counts = torch.zeros(-(-total // size) * terms, dtype=torch.long)
    for first, rows in document.rows("tokens", ("ids",)):
        ids = rows["ids"].long()
        if ((ids < 0) | (ids >= len(numbered))).any():
            why = "it has tokens that the model does not have"
            name, folder = document.manifest.name, document.manifest.folder
            raise StateMismatch(f"'{name}' is damaged", why, AGAIN, folder)
        found = numbered[ids]
        places = (found >= 0).nonzero()[:, 0]
        slots = (places + first) // size * terms + found[places]
        counts += torch.bincount(slots, minlength=len(counts))
    return counts.view(-1, terms).clamp(max=255).byte(), total


def _term(number: int, text: str) -> str:
    if UNKNOWN in text:
        return f"{UNKNOWN}{number}"
    term = text.strip().casefold()
    return term if any(character.isalnum() for character in term) else ""
