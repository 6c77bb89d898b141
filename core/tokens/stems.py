"""Words of texts and their stems: those of bm25s, its English stop words, the Snowball stemmer.

A document's index counts words, and matching words are highlighted in results. PyStemmer is
imported when words are first stemmed.
"""

import re
from functools import cache
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import numpy as np

LONGEST = 256  # characters of a word; a longer run of letters is cut into words of this length
_UNSPACED = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff"  # kana and Han, written without spaces
# As in bm25s, two or more letters or digits; but each kana or Han character is a word.
WORD = rf"[{_UNSPACED}]|[^\W{_UNSPACED}]{{2,{LONGEST}}}"
_WORDS = re.compile(WORD).findall
_ASCII_WORDS = re.compile(rf"\w{{2,{LONGEST}}}", re.ASCII).findall  # the same, in less time
# Lucene's, as in bm25s for English; copied, because importing it takes longer than a search.
STOP_WORDS = frozenset(
    [
        "a",
        "an",
        "and",
        "are",
        "as",
        "at",
        "be",
        "but",
        "by",
        "for",
        "if",
        "in",
        "into",
        "is",
        "it",
        "no",
        "not",
        "of",
        "on",
        "or",
        "such",
        "that",
        "the",
        "their",
        "then",
        "there",
        "these",
        "they",
        "this",
        "to",
        "was",
        "will",
        "with",
    ]
)
# Words that form a question say nothing about its subject.
QUESTION_WORDS = frozenset(
    ["who", "whom", "whose", "what", "which", "where", "when", "why", "how", "do", "does", "did"]
)
_LETTER = re.compile(rf"[^\W{_UNSPACED}]")
_LETTERS = re.compile(rf"[^\W{_UNSPACED}]{{1,{LONGEST}}}")
_GROWS = "\u0130"  # the one character whose lower case is two characters: I with a dot


class Counted(NamedTuple):
    """The words of texts as numbers of their stems, without stop words.

    Attributes:
        ids: (N,) int64, of all texts in order.
        texts: (N,) int64, ascending: in which text each word is.
        vocab: each stem's number, from 0.
    """

    ids: "np.ndarray"
    texts: "np.ndarray"
    vocab: dict[str, int]


def tokenized(texts: list[str]) -> Counted:
    """The stems of texts as bm25s' tokenizer gives them.

    Each reading ends with this, so nothing is imported for it that takes longer than counting.
    """
    import numpy as np

    words = [_split(text.lower()) for text in texts]
    every = [*chain.from_iterable(words)]
    kept = [word for word in dict.fromkeys(every) if word not in STOP_WORDS]
    vocab: dict[str, int] = {}
    numbers = dict.fromkeys(STOP_WORDS, -1)
    for word, stem in zip(kept, _stemmer().stemWords(kept), strict=True):
        numbers[word] = vocab.setdefault(stem, len(vocab))
    ids = np.fromiter(map(numbers.__getitem__, every), np.int64, len(every))
    found = np.repeat(np.arange(len(texts)), [len(own) for own in words])
    return Counted(ids[ids >= 0], found[ids >= 0], vocab)


def _split(lower: str) -> list[str]:
    """The words of a text in small letters, stop words too."""
    return _ASCII_WORDS(lower) if lower.isascii() else _WORDS(lower)


def stems(text: str) -> list[tuple[int, int, str]]:
    """The words of a text except stop words: (start, end, stem), in characters of the text."""
    lower = text.lower()
    found = [match.span() for match in re.finditer(WORD, lower)]
    kept = [(start, end) for start, end in found if lower[start:end] not in STOP_WORDS]
    stemmed = _stemmer().stemWords([lower[start:end] for start, end in kept])
    places = _places(text) if len(lower) != len(text) else range(len(text) + 1)
    return [
        (places[s], places[e - 1] + 1, stem) for (s, e), stem in zip(kept, stemmed, strict=True)
    ]


def asked(question: str) -> list[str]:
    """The stems to search for: those of a question's words, without question words.

    A question that consists only of question words keeps them.
    """
    found = stems(question)
    kept = [stem for start, end, stem in found if question[start:end].lower() not in QUESTION_WORDS]
    return kept or [stem for _, _, stem in found]


def cut(text: str, place: int, low: int = 0) -> int:
    """Where to cut a text instead of at `place`, so as not to cut a word: after the word there.

    Args:
        text: continues for LONGEST characters after `place`, or ends.
        place: a position in it.
        low: the position where the search for words begins; no word spans it.

    Returns:
        At least `place` and `low`.
    """
    start = max(low, place)
    while start > low and _LETTER.match(text, start - 1):
        start -= 1
    while start < place and (letters := _LETTERS.match(text, start)):
        start = letters.end()
    return start


def has_break(text: str) -> bool:
    """Whether a text has a character that is not part of a longer word."""
    return any(not _LETTER.match(character) for character in text)


def _places(text: str) -> list[int]:
    """For each character of the lower-cased text, and for its end, its position in the text."""
    places = []
    for place, character in enumerate(text):
        places += [place] * (2 if character == _GROWS else 1)
    return [*places, len(text)]


@cache
def _stemmer() -> Any:
    import Stemmer

    return Stemmer.Stemmer("english")
