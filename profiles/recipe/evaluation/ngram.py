"""A byte n-gram model, the baseline of bits per byte: orders 0 to 5, Witten-Bell interpolation.

The probability of a byte after a context c is (n(c, byte) + d(c) * its probability after c without
the first byte) / (n(c) + d(c)), where d is the number of different bytes seen after c; below order
0 all 256 bytes are equally likely. Counts come from training text only; it does not adapt to what
it reads.
"""

import numpy as np

ORDER = 5  # bytes of context; with the byte itself they fit into 64 bits


class ByteNgram:
    """Counts of all contexts of up to 5 bytes.

    Args:
        train: the text to count.
    """

    def __init__(self, train: bytes):
        data = np.frombuffer(train, dtype=np.uint8)
        self._grams = [np.unique(_codes(data, n), return_counts=True) for n in range(1, ORDER + 2)]

    def bits(self, text: bytes) -> float:
        """Summed loss of a text's bytes, in bits."""
        data = np.frombuffer(text, dtype=np.uint8)
        chance = np.full(len(data), 1 / 256)
        for order, (grams, counts) in enumerate(self._grams):
            contexts, first = np.unique(grams >> 8, return_index=True)
            total = np.add.reduceat(counts, first)
            different = np.diff(np.append(first, len(grams)))
            codes = _codes(data, order + 1)  # of data[order:]; shorter contexts serve before that
            seen = _looked_up(grams, counts, codes)
            n, d = (_looked_up(contexts, values, codes >> 8) for values in (total, different))
            lower = chance[order:]
            chance[order:] = np.where(n > 0, (seen + d * lower) / np.maximum(n + d, 1), lower)
        return float(-np.log2(chance).sum())


def _codes(data: np.ndarray, length: int) -> np.ndarray:
    """(N - length + 1,) uint64: every run of `length` bytes as one number, the last byte lowest."""
    count = max(0, len(data) - length + 1)
    codes = np.zeros(count, dtype=np.uint64)
    for place in range(length):
        codes = (codes << np.uint64(8)) | data[place : place + count]
    return codes


def _looked_up(keys: np.ndarray, values: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """The value of each wanted key, 0 where there is none; keys ascend."""
    place = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    return np.where(keys[place] == wanted, values[place], 0)
