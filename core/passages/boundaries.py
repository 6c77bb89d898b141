r"""Where words and numbers begin and end: the places at which a quotation may be cut.

Nothing is cut inside a word or a number, so 727777 is no part of 7277776. These hold together:

* letters, digits and combining marks;
* one apostrophe or one hyphen between them (`O'Brien`, `twenty-two`, `QX-7731-B`), and underscores
  (`max_iter`); only a possessive `'s` may be left off;
* digits around a separator of decimals, thousands, dates or times (`3.5`, `1,234`, `12/05/2021`,
  `08:15`; thousands after a no-break space too), and a sign or a point before them (`-5`, `.5`).

A word may be quoted with the symbols that touch it (`£390`, `50%`, `C++`, `--all`, `__init__`) or
without. Where words are not divided by spaces (Chinese, Japanese, Thai, ...; also Korean, whose
particles are joined to words), every character is a word.
"""

import re
import unicodedata
from functools import lru_cache

import numpy as np

_UNSPACED = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7a3"
    "\uf900-\ufaff\U00020000-\U0003ffff]"
)
_NO_BREAK = "\u00a0\u2009\u202f"  # thin spaces too: both stand between thousands
# What a character is, as the letter by which the patterns below know it: a letter is `a`, a decimal
# digit `9`, a mark or format character `m`, one of a script without spaces `u`, white space `s`, a
# currency `$`, an opening bracket or quote `(`; other characters are `x`.
_KINDS = {
    **dict.fromkeys("'\u2019\u02bc", "'"),
    **dict.fromkeys("-\u2010\u2011", "-"),
    **dict.fromkeys("+\u2212\u00b1", "+"),
    **dict.fromkeys("%\u2030\u00b0\u2032\u2033", "%"),
    **dict.fromkeys("#@~\u00a7\u2116\\", "#"),
    **dict.fromkeys(",\u066b\u066c", ","),
    **dict.fromkeys('"=<', "("),
    **{one: one for one in "_.:/"},
    **dict.fromkeys(_NO_BREAK, "n"),
}
_CATEGORIES = {"Mn": "m", "Mc": "m", "Me": "m", "Cf": "m", "Nd": "9", "Sc": "$", "Ps": "("}
_CATEGORIES |= {"Pi": "("}
_WORD = re.compile(
    r"(?:(?<![a9mu'%_.\-])[-+])?(?:(?<![a9mu%_.'])\.(?=9))?"  # the sign and point of a number
    r"[a9][a9m]*"
    r"(?:(?:['-](?=[a9])|_+(?=[a9])|(?<=9)[.,/](?=9)|(?<!999)(?<=9):(?=99(?!9))"
    r"|(?<=9)n(?=999(?!9)))[a9][a9m]*)*"
)
_SIGN = re.compile(r"[-+](?!\.?9)")  # before something else than a number
_CHARACTER = re.compile(r"um*")
_DOTTED = re.compile(r"(?<![a9m])(?:am*\.){2,}")  # p.m., U.S.: the last point belongs to it
_BEFORE, _AFTER = "$#+-./_", "$#+%_"
_WORDS, _OPENING = "a9mu", "sn("


def bounds(text: str) -> tuple[np.ndarray, np.ndarray]:
    """Where a quotation may begin and end.

    Args:
        text: any; its start and its end count as bounds.

    Returns:
        (begins, ends), each (len(text) + 1,) bool: whether one may begin before character i, and
        whether one may end before it.
    """
    shape = "".join(map(_kind, text))
    begins, ends = (np.zeros(len(text) + 1, bool) for _ in range(2))
    for match in _CHARACTER.finditer(shape):
        begins[match.start()] = ends[match.end()] = True
    for match in _WORD.finditer(shape):
        start, end = match.span()
        if _SIGN.match(shape, start):
            start += 1
        begins[[start, _with_symbols_before(shape, start)]] = True
        ends[[end, _with_symbols_after(shape, end), _possessor(text, shape, start, end)]] = True
    for match in _DOTTED.finditer(shape):
        ends[match.end()] = True
    return begins, ends


@lru_cache(1 << 14)
def _kind(character: str) -> str:
    if character in _KINDS:
        return _KINDS[character]
    if character.isspace():
        return "s"
    category = unicodedata.category(character)
    if category in _CATEGORIES and not (category == "Nd" and not character.isdecimal()):
        return _CATEGORIES[category]
    if not character.isalnum():
        return "x"
    return "u" if _UNSPACED.match(character) else "a"


def _with_symbols_before(shape: str, start: int) -> int:
    """Where the symbols begin that touch a word's start, if nothing but space is before them."""
    place = start
    while place and shape[place - 1] in _BEFORE:
        place -= 1
    return place if not place or shape[place - 1] in _OPENING else start


def _with_symbols_after(shape: str, end: int) -> int:
    """Where the symbols end that touch a word's end, if no other word touches them."""
    place = end
    while place < len(shape) and shape[place] in _AFTER:
        place += 1
    return place if place == len(shape) or shape[place] not in _WORDS else end


def _possessor(text: str, shape: str, start: int, end: int) -> int:
    """The end of a word without its possessive `'s`."""
    has = end - start > 2 and shape[end - 2] == "'" and text[end - 1] in "sS"
    return end - 2 if has else end
