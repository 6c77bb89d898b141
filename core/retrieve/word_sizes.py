"""Estimates the size of a text's word index from its first 65,536 tokens.

Knows no documents; `core/retrieve/word_tables.py` decides what is stored.
"""

from longctx.core.retrieve.unit_table import UNIT
from longctx.core.retrieve.word_tables import FILE_TOKENS
from longctx.core.tokens.stems import tokenized

SAMPLE = 1 << 19  # bytes of text that suffice: 8 per token
_POSTING, _STEM, _UNIT, _HEADER = 5, 5, 24, 600  # bytes of each, without a stem's own text


def word_bytes(sample: bytes, size: int, tokens: int) -> int:
    """The estimated size of the word index in bytes.

    Args:
        sample: the beginning of the text, up to SAMPLE bytes.
        size: bytes of the whole text.
        tokens: of the whole text.
    """
    if not tokens or not sample:
        return 0
    some = sample[: size * FILE_TOKENS // tokens]
    step = max(1, size * UNIT // tokens)
    units = [some[start : start + step] for start in range(0, len(some), step)]
    counted = tokenized([unit.decode("utf-8", "replace") for unit in units])
    postings = len({*zip(counted.texts.tolist(), counted.ids.tolist(), strict=True)})
    stems = sum(len(stem.encode()) + _STEM for stem in counted.vocab)
    of_sample = postings * _POSTING + stems + len(units) * _UNIT + _HEADER
    return int(of_sample * size / len(some))
