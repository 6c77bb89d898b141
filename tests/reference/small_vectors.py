"""Vectors of passages by a rule of a few lines: hashed words, as wide as those of the encoder."""

from collections.abc import Callable, Iterator

import numpy as np
from xxhash import xxh32_intdigest

from longctx.core.retrieve import word_tables
from longctx.core.store.document import Document

ENCODER = "hashed-1"
WIDTH = 384


def hashed_tables(
    document: Document,
    first_file: int = 0,
    device: str = "cpu",
    on_passages: Callable[[int], None] = lambda count: None,
) -> Iterator[dict[str, np.ndarray]]:
    """As `vector_tables` of the encoder: the signed counts of a passage's hashed words."""
    count = word_tables.count_tables(document.manifest)
    for number in range(first_file, count):
        starts = _starts(document, number)
        # The last passage of a file ends where the first one of the next file begins.
        starts += _starts(document, number + 1)[:1] if number + 1 < count else [(-1, 0)]
        sums = np.zeros((len(starts) - 1, WIDTH), np.float32)
        for place, (source, begin) in enumerate(starts[:-1]):
            following, end = starts[place + 1]
            end = end if following == source else document.manifest.sources[source].size
            for word in document.text(source, begin, end).split():
                code = xxh32_intdigest(word)
                sums[place, code % WIDTH] += 1 if code >> 31 else -1
            on_passages(1)
        largest = np.abs(sums).max(1, initial=1)
        norms = np.linalg.norm(sums, axis=1).clip(1)
        yield {
            "vectors": np.rint(sums * (127 / largest)[:, None]).astype(np.int8),
            "scales": (largest / 127 / norms).astype(np.float16),
        }


def _starts(document: Document, number: int) -> list[tuple[int, int]]:
    """The source and first byte of each passage of a file."""
    table = document.words(number)
    return list(zip(table["sources"].tolist(), table["bytes"].tolist(), strict=True))
