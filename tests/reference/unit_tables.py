"""Units of documents that nobody wrote, for tests of what is searched by them."""

import numpy as np

from longctx.core.retrieve.unit_table import UNIT, Units


def units_of(*sources: int, documents: tuple[int, ...] = ()) -> Units:
    """Units of sources of so many tokens each.

    Args:
        sources: tokens of each.
        documents: the document that each is of; none: all of one.
    """
    owners = documents or (0,) * len(sources)
    rows, first = [], 0
    for number, (tokens, owner) in enumerate(zip(sources, owners, strict=True)):
        for start in range(0, tokens, UNIT):
            rows.append((owner, number, first + start, min(UNIT, tokens - start)))
        first += tokens
    of, number, tokens, lengths = np.array(rows, np.int64).reshape(-1, 4).T
    ends = [sum(s for s, o in zip(sources, owners, strict=True) if o < d) for d in {*owners}]
    counts = [int((of < d).sum()) for d in {*owners}]
    return Units(
        of.astype(np.int32),
        number.astype(np.int32),
        tokens,
        lengths.astype(np.int32),
        np.zeros((0, 2), np.int32),
        np.array([*ends, sum(sources)]),
        np.array([*counts, len(of)]),
    )
