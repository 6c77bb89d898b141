"""Passages and tables of few tokens, so that short texts have several of both."""

from collections.abc import Sequence

import numpy as np
import pytest

from longctx.core.passages import cutting
from longctx.core.passages.cutting import Sizes
from longctx.core.retrieve import word_tables
from longctx.core.retrieve.passage_table import Passages
from longctx.core.store import word_files


def small_passages(
    monkeypatch: pytest.MonkeyPatch,
    usual: int,
    file: int | None = None,
    shift: int | None = None,
    whole: int | None = None,
) -> None:
    """Cuts passages of `usual` tokens, or up to twice as many; all sizes in proportion.

    Args:
        monkeypatch: puts the usual sizes back.
        usual: tokens of a passage without an end of a sentence or line.
        file: tokens of a run, which has a table of its own; None: as many as ever.
        shift: tokens after a run's first in which its cutting starts; None: two passages.
        whole: of a sentence or line that stays whole; None: two passages.
    """
    whole = whole or 2 * usual
    sizes = Sizes(usual, max(1, usual // 2), min(whole, usual + usual // 4), whole)
    monkeypatch.setattr(cutting, "SIZES", sizes)
    if file is not None:
        for module in (word_tables, word_files):
            monkeypatch.setattr(module, "FILE_TOKENS", file)
            monkeypatch.setattr(module, "SHIFT", 2 * usual if shift is None else shift)


def passages_of(*documents: Sequence[Sequence[int]]) -> Passages:
    """Passages that nobody cut.

    Args:
        documents: for each its sources, and for each of these the tokens of its passages.
    """
    rows = [
        (number, source, tokens)
        for number, sources in enumerate(documents)
        for source, lengths in enumerate(sources)
        for tokens in lengths
    ]
    numbers, sources, lengths = np.array(rows, np.int64).reshape(-1, 3).T
    totals = [sum(map(sum, sources)) for sources in documents]
    starts = np.zeros(len(rows), np.int64)
    return Passages.made(numbers, sources, lengths, starts, np.array(totals, np.int64))


def alike(*sources: int, tokens: int = 64) -> Passages:
    """The passages of one document whose sources have so many, of 64 tokens each."""
    return passages_of([[tokens] * count for count in sources])
