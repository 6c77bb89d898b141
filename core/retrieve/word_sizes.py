"""Estimates the size of a text's word index, from its first 65,536 tokens, and of its vectors.

Knows no documents; `core/retrieve/word_tables.py` decides what is stored.
"""

from longctx.core.passages.cutting import SIZES
from longctx.core.store.word_files import FILE_TOKENS
from longctx.core.tokens.terms import counted

_VECTOR = 388  # bytes of a passage's vector and scale
SAMPLE = 1 << 19  # bytes of text that suffice: 8 per token
_POSTING, _STEM, _UNIT, _HEADER = 5, 5, 24, 600  # bytes of each, without a stem's own text


def vector_bytes(counts: list[int]) -> int:
    """The estimated size of the vectors of passages in bytes.

    Args:
        counts: tokens of each source.
    """
    return _VECTOR * sum(-(-count // SIZES.usual) for count in counts)


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
    step = max(1, size * SIZES.usual // tokens)
    units = [some[start : start + step] for start in range(0, len(some), step)]
    found = counted([unit.decode("utf-8", "replace") for unit in units])
    postings = len({*zip(found.texts.tolist(), found.ids.tolist(), strict=True)})
    stems = sum(len(stem.encode()) + _STEM for stem in found.vocab)
    of_sample = postings * _POSTING + stems + len(units) * _UNIT + _HEADER
    return int(of_sample * size / len(some))
