"""Words of texts and their stems: bm25s' tokenizer, English stop words, the Snowball stemmer.

A document's index counts words, and matching words are highlighted in results. PyStemmer is
imported when words are first stemmed, bm25s when those of a document are counted.
"""

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bm25s.tokenization import Tokenized

LONGEST = 256  # characters of a word; a longer run of letters is cut into words of this length
_UNSPACED = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff"  # kana and Han, written without spaces
# As in bm25s, two or more letters or digits; but each kana or Han character is a word.
WORD = rf"[{_UNSPACED}]|[^\W{_UNSPACED}]{{2,{LONGEST}}}"
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


def tokenized(texts: list[str]) -> "Tokenized":
    """The stems of each text, in order, as numbers; `vocab` maps each stem to its number."""
    with _no_jax():
        from bm25s import tokenize

    counted: Any = tokenize(
        texts,
        token_pattern=WORD,
        stopwords=sorted(STOP_WORDS),
        stemmer=_stemmer(),
        show_progress=False,
    )
    return counted


@contextmanager
def _no_jax() -> Iterator[None]:
    """Keeps JAX from being imported: if it is installed, bm25s starts it to pick the top scores,
    which is not needed here; and JAX takes most of a GPU's memory at once, or fails to."""
    hidden = "jax" not in sys.modules
    if hidden:
        modules: dict[str, Any] = sys.modules
        modules["jax"] = None  # for `import`: not installed
    try:
        yield
    finally:
        if hidden:
            del sys.modules["jax"]


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
