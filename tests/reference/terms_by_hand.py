"""The terms of a text, written out from docs/format.md character by character; no offsets."""

import re
import unicodedata
from collections.abc import Iterator
from itertools import pairwise

from bm25s.tokenization import Tokenized
from Stemmer import Stemmer

from longctx.core.tokens.function_words import function_words
from longctx.core.tokens.names import POINTS
from longctx.core.tokens.terms import STEMMERS

HIDDEN = "\u00ad\u034f\u061c\u115f\u1160\u3164\ufeff\uffa0" + "".join(
    chr(code)
    for low, high in (
        *((0x17B4, 0x17B5), (0x180B, 0x180F), (0x200B, 0x200F), (0x202A, 0x202E)),
        *((0x2060, 0x206F), (0xFE00, 0xFE0F), (0xFFF0, 0xFFF8), (0x1BCA0, 0x1BCA3)),
        *((0x1D173, 0x1D17A), (0xE0000, 0xE0FFF)),
    )
    for code in range(low, high + 1)
)
UNSPACED = (
    *((0xE00, 0xEFF), (0x1000, 0x109F), (0x1100, 0x11FF), (0x1780, 0x17FF), (0x2E80, 0x2FDF)),
    *((0x3000, 0x31FF), (0x3400, 0x4DBF), (0x4E00, 0x9FFF), (0xA960, 0xA97F), (0xA9E0, 0xA9FF)),
    *((0xAA60, 0xAA7F), (0xAC00, 0xD7FF), (0xF900, 0xFAFF), (0x16FE0, 0x18DFF)),
    *((0x1AFF0, 0x1B2FF), (0x20000, 0x3FFFF)),
)


def of_text(text: str, language: str = "") -> list[str]:
    """All terms of a text, in no order."""
    names = [name for kind, run in runs(text) for name in names_of(kind, run)]
    separator = "," if language in POINTS else "."
    spacers = f"'\u2019\u00a0\u2007\u2009\u202f{separator}"
    thousands = rf"(?<![\w.,])\d{{1,3}}([{spacers}])\d{{3}}(\1\d{{3}}){{0,5}}(?!\d|\1\d|\w)"
    for number in re.finditer(thousands, text):
        names.append("".join(str(unicodedata.decimal(c)) for c in number[0] if c.isdecimal()))
    kept = [name for name in names if name not in function_words(language)]
    return Stemmer(STEMMERS[language]).stemWords(kept) if language in STEMMERS else kept


def by_hand(texts: list[str], language: str = "") -> Tokenized:
    """The terms of each text as numbers, and each term's number, as bm25s takes them."""
    vocab: dict[str, int] = {}
    ids = [[vocab.setdefault(t, len(vocab)) for t in of_text(text, language)] for text in texts]
    return Tokenized(ids=ids, vocab=vocab)


def composed(text: str) -> str:
    return unicodedata.normalize("NFKC", "".join(c for c in text if c not in HIDDEN))


def folded(text: str) -> str:
    text = unicodedata.normalize("NFD", "".join(c for c in text if c not in HIDDEN)).casefold()
    text = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    text = unicodedata.normalize("NFC", re.sub("i\u0307+|\u0131\u0307*", "i", text))
    return "".join(str(unicodedata.decimal(c)) if c.isdecimal() else c for c in text)


def kind(character: str) -> str:
    """A capital, a small letter, 0, _, unspaced, mark or a space."""
    kinds = [of_one(c) for c in composed(character)]
    plain = [k for k in kinds if k not in "m "]
    return plain[0] if plain else "m" if all(k == "m" for k in kinds) else " "


def of_one(c: str) -> str:
    category, unspaced = unicodedata.category(c), any(a <= ord(c) <= b for a, b in UNSPACED)
    if category[0] == "M" or 0x1160 <= ord(c) <= 0x11FF or 0xD7B0 <= ord(c) <= 0xD7FF:
        return "m"
    if c == "_":
        return "_"
    if category[0] in "LN" and category != "Nd" and unspaced:
        return "u"
    return {"Lu": "A", "Lt": "A"}.get(category, {"L": "a", "N": "0"}.get(category[0], " "))


def runs(text: str, longest: int = 256) -> Iterator[tuple[str, str]]:
    """Words, of up to `longest` characters, and runs without spaces: what each is, and itself."""
    run, what = "", ""
    for c in [*text, "."]:
        k = kind(c)
        of = "w" if k in "Aa0_" else "u" if k == "u" else what if k == "m" else ""
        if run and (of != what or (what == "w" and len(run) == longest)):
            yield what, run
            run = ""
            of = "" if k == "m" else of
        run, what = (run + c, of) if of else ("", "")


def names_of(what: str, run: str) -> Iterator[str]:
    for inner, piece in runs(composed(run), 10**9):
        if inner == "u":
            characters = re.findall("[^m]m*", "".join(map(kind, piece)))
            ends = [sum(map(len, characters[:n])) for n in range(len(characters) + 1)]
            own = [piece[low:high] for low, high in pairwise(ends)]
            pairs = [one + two for one, two in pairwise(own)]
            yield from map(folded, pairs or own)
            continue
        word = piece.rstrip("_")
        while word and kind(word[0]) in "_m":
            word = word[1:]
        if not word:
            continue
        yield folded(word)
        found = parts(word)
        for part in found if len(found) > 1 else ():
            if len(folded(part)) > 1 or folded(part).isdecimal():
                yield folded(part)


def parts(word: str) -> list[str]:
    """Capitals with what follows, capitals alone, numbers; what is between is left out."""
    if word.isascii():
        return re.findall("[A-Z]{2,}s(?![a-z])|[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+", word)
    found = "".join(map(kind, word))
    matches = re.finditer("A[Am]*(?![am])|(?:Am*)?a[am]*|0[0m]*", found)
    return [word[match.start() : match.end()] for match in matches]
