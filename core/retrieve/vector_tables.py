"""The vectors of a document's passages as tables, made from its text at the end of reading it.

A table covers the passages of one table of words. Each run of tokens is encoded by itself, in
batches that depend on its passages alone: a document that was stopped, resumed or appended to has
the vectors of one that was read at once.
"""

from collections.abc import Callable, Iterator

import numpy as np

from longctx.core.dense.texts import encoded, quantized
from longctx.core.retrieve.word_tables import count_tables, passage_texts
from longctx.core.store.document import Document


def vector_tables(
    document: Document,
    first_file: int = 0,
    device: str = "cpu",
    on_passages: Callable[[int], None] = lambda count: None,
) -> Iterator[dict[str, np.ndarray]]:
    """The vectors of a document's passages, one table for each of its word index.

    Args:
        document: open.
        first_file: the table to begin with.
        device: where to compute.
        on_passages: gets the number of passages encoded after each batch.

    Yields:
        vectors int8 (P, 384), scales float16 (P,): the vector of passage i is vectors[i] times
        scales[i]. See `docs/format.md`.

    Raises:
        StateMismatch: the document's text or tokens are damaged.
        LongctxError: the encoder's files are missing or damaged.
    """
    for number in range(first_file, count_tables(document.manifest)):
        yield quantized(encoded(passage_texts(document, number), device, on_passages))
