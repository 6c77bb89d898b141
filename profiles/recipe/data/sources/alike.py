"""Groups texts that use the same rare words: sections of one tale, paragraphs on one subject.

A small TF-IDF: words are hashed into a fixed number of columns. Knows nothing of questions.
"""

import random
import re
import zlib
from collections.abc import Sequence

import numpy as np

COLUMNS = 4096
_WORD = re.compile(r"[a-z]{3,}")


def vectors(texts: Sequence[str]) -> np.ndarray:
    """A row of unit length for each text; the inner product of two rows is their likeness."""
    counts = np.zeros((len(texts), COLUMNS), np.float32)
    for row, text in zip(counts, texts, strict=True):
        for word in _WORD.findall(text.lower()):
            row[zlib.crc32(word.encode()) % COLUMNS] += 1
    rarity = np.log((1 + len(texts)) / (1 + (counts > 0).sum(0)))
    weighed = np.log1p(counts) * rarity
    return weighed / np.maximum(np.linalg.norm(weighed, axis=1, keepdims=True), 1e-9)


def groups(texts: Sequence[str], least: int, most: int, rng: random.Random) -> list[list[int]]:
    """Puts each text in one group with those most like it.

    Args:
        texts: what to group.
        least, most: the size of a group; drawn for each, and the last may be smaller.
        rng: draws the sizes, the text a group starts from and the order within it.

    Returns:
        Indices of texts.
    """
    rows = vectors(texts)
    free = np.ones(len(texts), bool)
    made = []
    for first in rng.sample(range(len(texts)), len(texts)):
        if not free[first]:
            continue
        likeness = np.where(free, rows @ rows[first], -1.0)
        likeness[first] = 2.0
        size = min(rng.randint(least, most), int(free.sum()))
        group = [int(index) for index in np.argsort(-likeness, kind="stable")[:size]]
        free[group] = False
        made.append(rng.sample(group, size))
    return made
