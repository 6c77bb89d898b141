"""Terms: what the word index counts, and what questions look up.

A word is a run of letters, digits and `_`. Its terms are the whole word and, of an identifier such
as `maxPoolSize`, `snake_case` or `h264`, its parts; all in normal form and reduced to stems. A text
in a script without spaces has the pairs of its neighbouring characters. `docs/format.md` has the
rule to the byte. PyStemmer is imported when words are first stemmed.
"""

import re
from collections.abc import Iterable, Sequence
from functools import cache
from itertools import chain, pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

from longctx.core.tokens.function_words import function_words
from longctx.core.tokens.names import (
    LONGEST,
    RUN,
    Name,
    joined_numbers,
    keys_of,
    names_in,
    names_of,
)
from longctx.core.tokens.normal_form import kinds

if TYPE_CHECKING:
    import numpy as np

# Languages that Snowball reduces to stems; words of others stay whole. Fixed, since stems are kept.
STEMMERS = {
    **{"ar": "arabic", "ca": "catalan", "da": "danish", "de": "german", "el": "greek"},
    **{"en": "english", "es": "spanish", "et": "estonian", "eu": "basque", "fi": "finnish"},
    **{"fr": "french", "ga": "irish", "hi": "hindi", "hu": "hungarian", "hy": "armenian"},
    **{"id": "indonesian", "it": "italian", "lt": "lithuanian", "ne": "nepali", "nl": "dutch"},
    **{"no": "norwegian", "pt": "portuguese", "ro": "romanian", "ru": "russian"},
    **{"sr": "serbian", "sv": "swedish", "ta": "tamil", "tr": "turkish", "": "english"},
}
_MARKS = 16  # combining characters that stay with the one before them
# Of kinds (`normal_form.kinds`): the last character before a place, backwards, and the first after.
_LAST_CHARACTER = re.compile(f"m{{0,{_MARKS}}}u")
_CHARACTER = re.compile(f"um{{0,{_MARKS}}}")
_MARKED = re.compile(f"m{{0,{_MARKS}}}")
_IN_WORD = frozenset("Aa0_m")


class Term(NamedTuple):
    """A term of a text.

    Attributes:
        start, end: its characters in the text.
        text: what is counted and looked up.
    """

    start: int
    end: int
    text: str


class Counted(NamedTuple):
    """The terms of texts as numbers.

    Attributes:
        ids: (N,) int64, of all texts in order.
        texts: (N,) int64, ascending: in which text each term is.
        vocab: each term's number, from 0.
    """

    ids: "np.ndarray"
    texts: "np.ndarray"
    vocab: dict[str, int]


def terms(text: str, language: str = "") -> list[Term]:
    """The terms of a text without function words, by their starts, longer ones first.

    Args:
        text: any.
        language: of the document that it is from: ISO 639-1 code, or "" for unknown.
    """
    found = chain(names_in(text), joined_numbers(text, language))
    return _stemmed(sorted(found, key=_by_place), language)


def words(text: str, language: str = "") -> list[Term]:
    """Those terms that are whole words, or pairs of characters in a script without spaces.

    Texts that differ in letter case or form alone have the same ones.
    """
    return _stemmed([name for name in names_in(text) if name.whole], language)


def query_terms(question: str, language: str = "") -> list[str]:
    """The terms to search for in a document of a language; see `query_words`."""
    return [term for _, term in query_forms(question, language)]


def query_forms(question: str, language: str = "") -> list[tuple[str, str]]:
    """The words of a question in normal form, each with the term to search for; see `query_words`.

    By their forms, words are the same in documents of several languages.
    """
    names = _asked(question, language)
    forms = [name.text for name in names]
    return [*zip(forms, _stems(forms, language), strict=True)]


def query_words(question: str, languages: Iterable[str]) -> list[tuple[str, ...]]:
    """What to search for in documents of several languages: the terms of each word and part.

    Function words of a document's language are left out, and those of English where the question
    is rather in English, unless nothing else is left. Of a number with separators only the number
    without them is searched for.

    Args:
        question: the user's words.
        languages: of the documents; at least one.

    Returns:
        For each word or part of a word, in order, its different stems in these languages.
    """
    found: dict[Name, dict[str, None]] = {}
    for language in dict.fromkeys(languages):
        names = _asked(question, language)
        for name, term in zip(names, _stems([name.text for name in names], language), strict=True):
            found.setdefault(name, {})[term] = None
    return [tuple(found[name]) for name in sorted(found, key=_by_place)]


def string_words(text: str, languages: Iterable[str]) -> list[tuple[int, tuple[str, ...]]]:
    """What a document surely has that has a text, whatever the case and form of its letters.

    Args:
        text: in normal form; it begins and ends with a word's border.
        languages: of the documents; at least one.

    Returns:
        The start and the terms of each word that is a function word in none of the languages.
    """
    names = [name for name in names_in(text) if name.whole]
    languages = tuple(dict.fromkeys(languages))
    plain = [n for n in names if not any(n.text in function_words(each) for each in languages)]
    stems = zip(*(_stems([name.text for name in plain], each) for each in languages), strict=True)
    return [
        (name.start, tuple(dict.fromkeys(found))) for name, found in zip(plain, stems, strict=True)
    ]


def most_terms(text: str) -> int:
    """The most terms that a text in this normal form may have, whatever the case of its letters."""
    kind = kinds(text)
    runs = [kind[run.start() : run.end()] for run in RUN.finditer(kind)]
    letters = sum(1 + len(run) // 2 + run.count("0") for run in runs)
    return letters + sum(1 + len(run) for run in runs if run[0] in "u0")


def counted(texts: Sequence[str], language: str = "") -> Counted:
    """The terms of texts, each as often as in `terms`.

    Each reading ends with this, so nothing is imported for it that takes longer than counting.
    """
    import numpy as np

    keys = [keys_of(text, language) for text in texts]
    every = [*chain.from_iterable(keys)]
    numbers = {key: number for number, key in enumerate(dict.fromkeys(every))}
    names = [[name.text for name in names_of(key)] for key in numbers]
    known = {name: -1 for name in function_words(language)}
    fresh = [name for name in dict.fromkeys(chain.from_iterable(names)) if name not in known]
    vocab: dict[str, int] = {}
    for name, stem in zip(fresh, _stems(fresh, language), strict=True):
        known[name] = vocab.setdefault(stem, len(vocab))
    # The terms of key k are `flat[starts[k]:starts[k + 1]]`.
    flat = np.array([known[name] for some in names for name in some], np.int64)
    starts = np.cumsum([0, *map(len, names)])
    of_keys = np.fromiter(map(numbers.__getitem__, every), np.int64, len(every))
    sizes = np.diff(starts)[of_keys]
    first = np.repeat(starts[of_keys] - (np.cumsum(sizes) - sizes), sizes)
    ids = flat[first + np.arange(len(first))]
    found = np.repeat(np.repeat(np.arange(len(texts)), [len(own) for own in keys]), sizes)
    return Counted(ids[ids >= 0], found[ids >= 0], vocab)


# --- cutting texts ---


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
    while start > low and kinds(text[start - 1]) in _IN_WORD:
        start -= 1
    near = kinds(text[start : place + LONGEST])
    here = 0
    while here < place - start:
        run = RUN.match(near, here)
        here = run.end() if run and near[here] != "u" else here + 1
    marks = _MARKED.match(near, here) if start + here > low else None
    return start + (marks.end() if marks else here)


def split(text: str, cuts: Sequence[int]) -> list[str]:
    """The texts between neighbouring cuts, such that each has the terms that begin in it.

    A pair of characters across a cut belongs to the text before it, which so has one more.

    Args:
        text: the whole.
        cuts: ascending positions, made by `cut`.
    """
    crossing = {place: _crossing(text, place) for place in dict.fromkeys(cuts)}
    found = []
    for start, end in pairwise(cuts):
        low, high = start, crossing[end] if start < end else end
        if crossing[start] > start and kinds(text[crossing[start] : crossing[start] + 1]) != "u":
            low = crossing[start]  # the last character of its run begins no pair
        found.append(text[low:high])
    return found


def _crossing(text: str, place: int) -> int:
    """The end of the pair of characters that a cut goes through; where there is none, the cut."""
    before = _LAST_CHARACTER.match(kinds(text[max(0, place - 1 - _MARKS) : place])[::-1])
    after = _CHARACTER.match(kinds(text[place : place + 1 + _MARKS]))
    return place + (after.end() if before and after else 0)


def has_break(text: str) -> bool:
    """Whether a text has a character that is not part of a longer word."""
    return not _IN_WORD.issuperset(kinds(text))


# --- questions, and stems ---


def _asked(question: str, language: str) -> list[Name]:
    """The names of a question to search for in a document of a language."""
    joined = [*joined_numbers(question, language)]
    within = {place for number in joined for place in range(number.start, number.end)}
    names = [name for name in names_in(question) if name.start not in within]
    kept = [name for name in [*names, *joined] if name.text not in function_words(language)]
    own, english = (
        sum(name.text in function_words(each) for name in names) for each in (language, "en")
    )
    others = [name for name in kept if name.text not in function_words("en")]
    return sorted(others if others and english > own else kept, key=_by_place)


def _by_place(name: Name) -> tuple[int, int]:
    return name.start, -name.end


def _stemmed(names: list[Name], language: str) -> list[Term]:
    kept = [name for name in names if name.text not in function_words(language)]
    stems = _stems([name.text for name in kept], language)
    return [Term(name.start, name.end, stem) for name, stem in zip(kept, stems, strict=True)]


def _stems(names: list[str], language: str) -> list[str]:
    """The stems of names; the names themselves where there is no stemmer of the language."""
    return _stemmer(STEMMERS[language]).stemWords(names) if language in STEMMERS else names


@cache
def _stemmer(algorithm: str) -> Any:
    import Stemmer

    return Stemmer.Stemmer(algorithm)
