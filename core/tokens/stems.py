"""The words of texts and their stems: bm25s' tokenizer, English stop words, Snowball's stemmer.

Words are what a document's index counts, and what is marked where a question is found. PyStemmer is
imported when words are first looked for, bm25s when a document's are counted.
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
# As bm25s has it, two or more letters or digits; but each of those characters is a word.
WORD = rf"[{_UNSPACED}]|[^\W{_UNSPACED}]{{2,{LONGEST}}}"
# Lucene's, as bm25s has them for English; here, because importing it takes longer than a search.
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
# What makes a question of words tells nothing of what they are about.
QUESTION_WORDS = frozenset(
    ["who", "whom", "whose", "what", "which", "where", "when", "why", "how", "do", "does", "did"]
)
_LETTER = re.compile(rf"[^\W{_UNSPACED}]")
_LETTERS = re.compile(rf"[^\W{_UNSPACED}]{{1,{LONGEST}}}")
_GROWS = "\u0130"  # the one character whose small letter is two: I with a dot


def tokenized(texts: list[str]) -> "Tokenized":
    """The stems of each text, in order, as numbers; `vocab` has the number of each stem."""
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
    """Keeps JAX from being imported: bm25s begins it where it is installed, to pick the best of
    scores, which is not done here; and JAX takes most of a GPU's memory at once, or fails to."""
    hidden = "jax" not in sys.modules
    if hidden:
        modules: dict[str, Any] = sys.modules
        modules["jax"] = None  # for `import`: there is none
    try:
        yield
    finally:
        if hidden:
            del sys.modules["jax"]


def stems(text: str) -> list[tuple[int, int, str]]:
    """The words of a text that are no stop words: (start, end, stem), in characters of the text."""
    lower = text.lower()
    found = [match.span() for match in re.finditer(WORD, lower)]
    kept = [(start, end) for start, end in found if lower[start:end] not in STOP_WORDS]
    stemmed = _stemmer().stemWords([lower[start:end] for start, end in kept])
    places = _places(text) if len(lower) != len(text) else range(len(text) + 1)
    return [
        (places[s], places[e - 1] + 1, stem) for (s, e), stem in zip(kept, stemmed, strict=True)
    ]


def asked(question: str) -> list[str]:
    """The stems by which a question is looked for: those of its words but the question words.

    Of a question that has no others, these.
    """
    found = stems(question)
    kept = [stem for start, end, stem in found if question[start:end].lower() not in QUESTION_WORDS]
    return kept or [stem for _, _, stem in found]


def cut(text: str, place: int, low: int = 0) -> int:
    """Where a text is cut in place of `place`, so that no word is: behind the word that is there.

    Args:
        text: goes on for LONGEST characters behind `place`, or ends.
        place: a position in it.
        low: a position before which no word is looked for; one that no word goes over.

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
    """Whether there is a character in a text that is no part of a longer word."""
    return any(not _LETTER.match(character) for character in text)


def _places(text: str) -> list[int]:
    """Of each character of the text in small letters, and of its end, where it is in the text."""
    places = []
    for place, character in enumerate(text):
        places += [place] * (2 if character == _GROWS else 1)
    return [*places, len(text)]


@cache
def _stemmer() -> Any:
    import Stemmer

    return Stemmer.Stemmer("english")
