"""The language of a document, from the function words in samples of its text.

Languages written without spaces, and Korean, show by their script. Knows nothing of documents.
"""

import re
from collections import Counter
from collections.abc import Iterable
from functools import cache

from longctx.core.tokens.function_words import LANGUAGES, function_words
from longctx.core.tokens.normal_form import folded, kinds

_LEAST = 0.05  # of all words: with fewer function words a text is in no known language
_UNSPACED = 0.2  # of all characters of words, in a script without spaces: one of its languages
_SCRIPTS = (  # Japanese has kana next to Han; so the first language with some characters counts
    ("ja", re.compile("[\u3040-\u30ff]"), 0.05),
    ("ko", re.compile("[\u1100-\u11ff\uac00-\ud7af]"), 0.2),
    ("th", re.compile("[\u0e00-\u0e7f]"), 0.2),
    ("lo", re.compile("[\u0e80-\u0eff]"), 0.2),
    ("my", re.compile("[\u1000-\u109f]"), 0.2),
    ("km", re.compile("[\u1780-\u17ff]"), 0.2),
    ("zh", re.compile("[\u3400-\u9fff\U00020000-\U0003ffff]"), 0.2),
)
_WORD = re.compile("(?<![Aa0_m])[Aa][Aam]*(?![Aa0_m])")


def language_of(texts: Iterable[str]) -> str:
    """The language that most of some texts is in.

    Returns:
        ISO 639-1 code; "" where it is unknown: too few words, a log, a table of numbers.
    """
    form = folded("\n".join(texts))
    kind = kinds(form)
    unspaced, others = kind.count("u"), kind.count("a")
    if unspaced > _UNSPACED * (unspaced + others):
        found = ((language, len(script.findall(form))) for language, script, _ in _SCRIPTS)
        least = {language: share * unspaced for language, _, share in _SCRIPTS}
        return next((language for language, count in found if count > least[language]), "")
    words = Counter(form[word.start() : word.end()] for word in _WORD.finditer(kind))
    scores = dict.fromkeys(("", *LANGUAGES), 0.0)
    for word, times in words.items():
        languages = _languages_with().get(word, ())
        for language in languages:
            scores[language] += times / len(languages)
    best = max(scores, key=lambda language: (scores[language], language))
    return best if scores[best] > _LEAST * words.total() else ""


@cache
def _languages_with() -> dict[str, tuple[str, ...]]:
    """The languages of which each word is a function word."""
    found: dict[str, tuple[str, ...]] = {}
    for language in LANGUAGES:
        for word in sorted(function_words(language)):
            found[word] = (*found.get(word, ()), language)
    return found
