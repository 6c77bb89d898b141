"""Names of people and places in running text: where one begins, by capital letters.

Titles, initials and particles belong to the name after them: "Dr. Agnes Duthie", "J. R. Hale",
"Rosa de la Cruz". Every sentence begins with a capital letter: there a word belongs to a name only
if it is a title, or the text never has it in lower case.
"""

import re

from longctx.core.passages.sentences import sentences
from longctx.core.passages.wrapping import unwrapped
from longctx.core.tokens.function_words import function_words

_MOST = 6  # words before a place
_WORD = re.compile(r"([^\s(\[\"\u201c\u2018\u00ab]+)\s+\Z")  # and the white space after it
# A word of a name: no comma after it, no number in it.
_PART = re.compile(r"[^\W\d_](?:[^\W\d_]|['\u2019-](?=[^\W\d_]))*(\.?)")
_PARTICLES = frozenset(
    ["al", "bin", "da", "de", "del", "den", "der", "di", "du", "la", "le", "ter", "van", "von"]
)
_TITLES = frozenset(
    re.findall(
        r"\S+",
        "admiral aunt bishop brother captain colonel commander count countess doctor dr father "
        "general judge king lady lieutenant lord major master miss mr mrs ms nurse president "
        "prince princess professor queen reverend saint sergeant sir sister st uncle",
    )
)
# With a capital letter inside sentences too, or often their first word.
_COMMON = frozenset(
    re.findall(
        r"\S+",
        "i monday tuesday wednesday thursday friday saturday sunday january february march april "
        "may june july august september october november december he she we you his her our your "
        "my its from after before so yet nor yes here only both each every some all",
    )
)
_COMMON |= function_words("en")


def name_start(text: str, start: int, low: int = 0) -> int:
    """Where the name begins in which a quotation begins; `start` where it begins in none.

    Args:
        text: some text around the quotation.
        start: where the quotation begins, in characters.
        low: the result is not before this character.
    """
    if not _is_capitalised(text, start):
        return start
    sentence = max((first for first, _ in sentences(unwrapped(text)) if first <= start), default=0)
    low, begin, place = max(low, sentence), start, start
    for _ in range(_MOST):
        found = _WORD.search(text, max(low, place - 80), place)
        if found is None:
            break
        place, word = found.start(), found[1]
        if word in _PARTICLES:
            continue
        if not _is_part(text, place, word, first=not re.search(r"\w", text[sentence:place])):
            break
        begin = place
    return begin


def _is_capitalised(text: str, place: int) -> bool:
    """Whether a word begins with a capital letter and goes on with small ones, or is an initial."""
    found = _PART.match(text, place)
    if found is None or not text[place].isupper():
        return False
    word = found[0]
    return any(map(str.islower, word)) or (len(word) == 2 and bool(found[1]))


def _is_part(text: str, place: int, word: str, first: bool) -> bool:
    """Whether a word belongs to the name after it; `first`: its sentence begins with it."""
    if not _PART.fullmatch(word) or not _is_capitalised(text, place):
        return False
    bare = word.removesuffix(".").lower()
    if bare in _COMMON:
        return False
    known = not first or word.endswith(".") or bare in _TITLES
    return known or re.search(rf"(?<!\w){re.escape(bare)}(?!\w)", text) is None
