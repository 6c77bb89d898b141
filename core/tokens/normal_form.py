"""The normal form of text, and what kind of character each one is in it.

Texts that differ in letter case, in compatibility forms (ligatures, full-width letters) or in
characters that are not seen (soft hyphens) have one normal form: Unicode's NFKC_Casefold, with
decimal digits of all scripts as 0 to 9 and one i for the dotted and the dotless one.
"""

import re
import unicodedata
from collections.abc import Sequence
from functools import lru_cache

_IGNORABLE = (  # Default_Ignorable_Code_Point, which Unicode keeps stable
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f"
    "\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufff8\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
    "\U000e0000-\U000e0fff"
)
_IGNORED = re.compile(f"[{_IGNORABLE}]+")
# Scripts written without spaces between words, and Hangul, whose words end in particles.
_UNSPACED = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1100-\u11ff\u1780-\u17ff\u2e80-\u2fdf\u3000-\u31ff\u3400-\u4dbf"
    "\u4e00-\u9fff\ua960-\ua97f\ua9e0-\ua9ff\uaa60-\uaa7f\uac00-\ud7ff\uf900-\ufaff"
    "\U00016fe0-\U00018dff\U0001aff0-\U0001b2ff\U00020000-\U0003ffff]"
)
_CLUSTER = re.compile("m+|[^m]m*")
_OTHER_DIGIT = re.compile(r"(?![0-9])\d")
_DOTTED = re.compile("i\u0307+|\u0131\u0307*")
_JOINING = re.compile("[\u1160-\u11ff\ud7b0-\ud7ff]")  # Hangul that composes with what is before it
_KINDS = {"Lu": "A", "Lt": "A", "L": "a", "N": "0", "M": "m"}


def composed(text: str) -> str:
    """A text in NFKC without ignorable characters; capitals stay."""
    return text if text.isascii() else unicodedata.normalize("NFKC", _IGNORED.sub("", text))


def folded(text: str) -> str:
    """The normal form of a text; it may have another length."""
    if text.isascii():
        return text.lower()
    found = unicodedata.normalize("NFD", _IGNORED.sub("", text)).casefold()
    found = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", found).casefold())
    if "i\u0307" in found or "\u0131" in found:
        found = _DOTTED.sub("i", found)
        found = unicodedata.normalize("NFC", found)
    return _OTHER_DIGIT.sub(lambda digit: str(unicodedata.decimal(digit[0])), found)


def folded_places(text: str) -> tuple[Sequence[int], Sequence[int], str]:
    """A text in normal form, and where each of its characters is from.

    Returns:
        For each character of the normal form the start and the end, in the text, of what it stands
        for: a character with all that belongs to it. And the normal form.
    """
    if text.isascii():
        return range(len(text)), range(1, len(text) + 1), text.lower()
    starts: list[int] = []
    ends: list[int] = []
    parts: list[str] = []
    for start, end in clusters(text):
        parts.append(_folded_cluster(text[start:end]))
        starts += [start] * len(parts[-1])
        ends += [end] * len(parts[-1])
    return starts, ends, "".join(parts)


_folded_cluster = lru_cache(1 << 16)(folded)


class _Kinds(dict[int, str]):
    """The kind of each character, found when it is first met."""

    def __missing__(self, code: int) -> str:
        self[code] = found = _kind(chr(code))
        return found


_KNOWN = _Kinds()


def kinds(text: str) -> str:
    """The kind of each character, as a text of the same length.

    `A` a capital, `a` another letter, `0` a digit or number, `_` itself, `u` a letter of a script
    written without spaces, `m` what belongs to the character before it (combining and ignorable
    characters), a space everything else. A character that stands for several is as their first
    letter or digit.
    """
    return text.translate(_KNOWN)


def _kind(character: str) -> str:
    form = composed(character)
    for each in form:
        found = _kind_of_plain(each)
        if found not in "m ":
            return found
    return "m" if all(_kind_of_plain(each) == "m" for each in form) else " "


def _kind_of_plain(character: str) -> str:
    category = unicodedata.category(character)
    if _JOINING.match(character):
        return "m"
    if _UNSPACED.match(character) and category[0] in "LN" and category != "Nd":
        return "u"
    return _KINDS.get(category, _KINDS.get(category[0], "_" if character == "_" else " "))


def clusters(text: str) -> list[tuple[int, int]]:
    """The characters of a text, each with what belongs to it: [start, end) of each."""
    return [match.span() for match in _CLUSTER.finditer(kinds(text))]
