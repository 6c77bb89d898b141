"""Dense retrieval: the cosine of a question's vector with the vector of every passage.

The sentence encoder made the passages' vectors when the document was read (`core/dense/`); of the
question it makes one now, by numpy. Does not import torch.
"""

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from longctx.core.common.errors import LongctxError, StateMismatch
from longctx.core.dense.weights import FINGERPRINT, WIDTH
from longctx.core.retrieve.gather_by import WORDS
from longctx.core.retrieve.lexical import PassageIndex
from longctx.core.store.document import Document


def no_vectors(gather_by: str, names: Sequence[str]) -> LongctxError:
    """The error where a gather source needs vectors that documents do not have."""
    return LongctxError(
        f"cannot gather by {gather_by!r} from {', '.join(map(repr, names))}",
        "its passages have no vectors of the sentence encoder",
        f"Ingest it again without --no-vectors, or use --gather-by {WORDS}.",
    )


class DenseIndex:
    """The vectors of documents' passages.

    They are read when first needed, and kept: for a million tokens some 3 MB.

    Args:
        documents: open.
        index: their passages, in the same order.
    """

    def __init__(self, documents: Sequence[Document], index: PassageIndex):
        self._documents, self._index = documents, index
        self._asked: tuple[str, np.ndarray] | None = None

    @property
    def missing(self) -> list[str]:
        """Names of the documents whose passages have no vectors, or unusable ones."""
        return [self._documents[number].manifest.name for number in self._missing]

    @property
    def without(self) -> list[str]:
        """The same, but empty where no document was to have vectors: nothing is amiss then."""
        wanted = any(document.manifest.encoder for document in self._documents)
        return self.missing if wanted else []

    def cosines(self, words: str) -> np.ndarray | None:
        """The cosine of a question with each passage, (P,) float64.

        Returns:
            None where `missing` names a document: cosines of some passages alone rank nothing.

        Raises:
            LongctxError: the encoder's files are missing or damaged.
        """
        if self._missing or not len(self._index.passages):
            return None
        if self._asked is None or self._asked[0] != words:
            from longctx.core.dense.question import question_vector

            vector = question_vector(words) if words.strip() else np.zeros(WIDTH, np.float32)
            parts = [vectors @ vector * scales for _, vectors, scales in self._tables]
            self._asked = words, np.concatenate(parts).astype(np.float64)
        return self._asked[1]

    @cached_property
    def _missing(self) -> list[int]:
        """The numbers of the documents in `without`."""
        read = {number for number, _, _ in self._tables}
        counts = np.diff(self._index.passages.first_passages)
        return [number for number, count in enumerate(counts) if count and number not in read]

    @cached_property
    def _tables(self) -> list[tuple[int, np.ndarray, np.ndarray]]:
        """By document: its number, (P, 384) float32 and (P,) float32 scales."""
        counts = np.diff(self._index.passages.first_passages).tolist()
        found = []
        for number, (document, count) in enumerate(zip(self._documents, counts, strict=True)):
            if document.manifest.encoder != FINGERPRINT:
                continue
            try:
                tables = [document.vectors(file) for file in range(document.vector_files)]
            except StateMismatch:
                continue
            vectors = [table["vectors"] for table in tables]
            scales = np.concatenate([np.empty(0, np.float32), *(t["scales"] for t in tables)])
            if len(scales) == count and np.isfinite(scales).all():
                rows = np.concatenate([np.empty((0, WIDTH), np.int8), *vectors])
                found.append((number, rows.astype(np.float32), scales.astype(np.float32)))
        return found
