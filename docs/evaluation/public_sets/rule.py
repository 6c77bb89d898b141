"""The rule that scores an answer without a judge.

An answer is right where every figure of the right answer that the question does not have stands in
it; where there is no such figure, where F1 of its content words and those of the right answer is
large enough. Only the first words of an answer count, never passages. How often the rule errs is in
docs/evaluation.md.
"""

import re
from collections import Counter
from dataclasses import dataclass
from functools import cache

SHORT, LONG = 30, 60  # words of an answer that count
F1 = {SHORT: 0.3, LONG: 0.2}  # the least F1 of a right answer; twice as much where it refuses
EMPTY = "empty"  # verdicts
RIGHT, WRONG, REFUSED = "right", "wrong", "refused"

_SCALES = {"thousand": 1e3, "k": 1e3, "million": 1e6, "millions": 1e6, "mn": 1e6, "m": 1e6}
_SCALES |= {"billion": 1e9, "billions": 1e9, "bn": 1e9, "b": 1e9, "trillion": 1e12}
_FIGURE = re.compile(
    r"(?P<currency>[$€£¥]\s?)?(?P<number>\d[\d,]*\.?\d*)"
    r"(?:\s?(?P<percent>\\?%|percent\b|per cent\b|percentage points?\b)"
    rf"|\s?(?P<scale>{'|'.join(sorted(_SCALES, key=len, reverse=True))})\b)?",
    re.IGNORECASE,
)
_SPELT = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
_SPELT += ("eleven", "twelve")
_SPELT_FIGURE = re.compile(rf"\b({'|'.join(_SPELT)})\b", re.IGNORECASE)
_WORD = re.compile(r"\d[\d,.]*\d|\w+(?:'\w+)?")
_STOP = frozenset(
    re.findall(
        r"\w+",
        "a an the and or but nor of in on at to for from by with as into than then that this these "
        "those it its is are was were be been being has have had do does did not no he she they "
        "them his her their him i you we our your my me who whom whose which what when where why "
        "how there here so such both also can could will would may might shall should about "
        "between during after before over under per each any all more most some other",
    )
)
_SAID = (
    r"(?:mention|provid|specif(?:y|ie)|answer|stat(?:e|ed|ing)\b|disclos|includ|giv|describ"
    r"|indicat|discuss|report"
    r"|address|contain|list|detail|cover|reveal|elaborat|explain|explor|quantif|identif"
    r"|present(?! in (?:20|the same))"
    r"|offer|outlin|name|say|refer|available|found|analy[sz]|examin|evaluat|investigat|compar|show"
    r"|focus|delve|touch|propos|applicable)"
)
_REFUSAL = re.compile(
    r"not in the text|insufficient (?:information|data|detail)|\Anone\b"
    r"|unable to (?:determin|find|answer|provid|locat|infer|identif|calculat|assess|conclud)"
    rf"|(?:not|n't|never)\s(?:\w+ly\s|seem to\s|appear to\s|been\s|be\s|have\s){{0,2}}{_SAID}"
    r"|(?:do|does|did)(?: not|n't) (?:have|contain|include|provide|give|find|see)\b[^.;]{0,40}?"
    r"\b(?:information|details?|data|mention|evidence)"
    r"|\bno (?:\w+,? ){0,3}?(?:information|mention|details?|data|indication|reference|discussion"
    r"|evidence|record|description|explanation)\b"
    r"|(?:cannot|can't|can not|could not|couldn't) (?:be )?(?:\w+ly )?"
    r"(?:determin|find|found|answer|provid|locat|infer|identif|calculat|assess|conclud)"
    r"|(?:text|paper|document|statements?|passage|chunks?|context|excerpt|article|story)s? "
    r"(?:do|does|did|is|are|was|were|has|have)(?: not|n't)\b"
    r"|\bno [^.;]{0,70}?\b(?:provided|mentioned|given|specified|stated|disclosed|reported|listed"
    r"|available|discussed|described|detailed|included|indicated)\b"
    r"|(?:text|document|statement)s?\b[^.;]{0,40}? (?:is|are) not about\b"
    r"|there(?:'s| is| are| was| were) no (?:specific|explicit|direct|clear|such|mention)"
    r"|not (?:\w+ )?answerable|(?:not|n't) (?:yet )?(?:released|announced|published) any\b",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Figure:
    """A number in a text.

    Attributes:
        value: as it is written.
        scale: factor of the word after it; 1 without one.
        is_percent, is_money: its unit, where that is written next to it.
    """

    value: float
    scale: float = 1
    is_percent: bool = False
    is_money: bool = False

    @property
    def whole(self) -> float:
        """With its scale."""
        return self.value * self.scale


@dataclass(frozen=True)
class Verdict:
    """What the rule says of an answer.

    Attributes:
        said: RIGHT, WRONG, REFUSED or EMPTY.
        by: `figures`, `words` or `refusal`: what decided.
    """

    said: str
    by: str


def verdict(question: str, right: str, answer: str, words: int, answerable: bool = True) -> Verdict:
    """The verdict on an answer.

    Of a question without an answer, a refusal is right. Of others it is wrong, and REFUSED says
    so, unless the answer has all that is wanted. An EMPTY answer, also a lone `$`, is neither right
    nor a refusal.

    Args:
        question, right, answer: texts.
        words: how many words of the answer count: SHORT or LONG.
        answerable: the document has the answer.
    """
    given = first_words(answer, words)
    by = "figures" if wanted(question, right) else "words"
    if is_empty(given):
        return Verdict(EMPTY, by if answerable else "refusal")
    if not answerable:
        return Verdict(RIGHT if refuses(given) else WRONG, "refusal")
    if by == "figures":
        holds = holds_figures(question, right, given)
    else:
        holds = holds_words(question, right, given, F1[words])
    if holds:
        return Verdict(RIGHT, by)
    return Verdict(REFUSED if refuses(given) else WRONG, by)


def first_words(text: str, words: int) -> str:
    """The beginning of a text."""
    return " ".join(text.split()[:words])


def is_empty(text: str) -> bool:
    """Whether a text has no letter and no digit."""
    return not re.search(r"[^\W_]", text)


def refuses(answer: str) -> bool:
    """Whether the first SHORT words of an answer say that the text does not have it."""
    return _REFUSAL.search(first_words(answer, SHORT)) is not None


def figures(text: str) -> list[Figure]:
    """The figures of a text, in order."""
    return [*map(figure_of, _FIGURE.finditer(text))]


def pattern() -> re.Pattern[str]:
    """What matches a figure with its unit."""
    return _FIGURE


def figure_of(match: re.Match[str]) -> Figure:
    """The figure that `pattern` has matched."""
    number = match["number"].replace(",", "").rstrip(".")
    scale = _SCALES[match["scale"].lower()] if match["scale"] else 1
    percent = bool(match["percent"])  # TeX sets `$7\%$` between dollars
    return Figure(float(number), scale, percent, bool(match["currency"]) > percent)


def wanted(question: str, right: str) -> list[Figure]:
    """The figures of the right answer that the question does not have."""
    asked = {figure.value for figure in figures(question)}
    found = {f.value: f for f in reversed(figures(right)) if f.value not in asked}
    return [*reversed(found.values())]


def holds_figures(question: str, right: str, answer: str) -> bool:
    """Whether all wanted figures stand in an answer; also False if there are none."""
    said = figures(answer)
    said += [Figure(_SPELT.index(w.lower())) for w in _SPELT_FIGURE.findall(answer)]
    needed = wanted(question, right)
    return bool(needed) and all(any(same(one, other) for other in said) for one in needed)


def same(right: Figure, said: Figure) -> bool:
    """Whether two figures are one, which thousands, millions and percent may write differently."""
    if (right.is_percent and (said.is_money or said.scale != 1)) or (
        said.is_percent and (right.is_money or right.scale != 1)
    ):
        return False
    if right.scale != 1 and said.scale != 1:
        return _equal(right.whole, said.whole)
    if right.value == said.value or _equal(right.whole, said.whole):
        return True
    if right.is_percent != said.is_percent:
        return _equal(right.value, said.value * 100) or _equal(right.value * 100, said.value)
    # A table in thousands or millions: with three digits that agree, hardly another figure.
    if right.is_percent or _digits(right.value) < 3:
        return False
    return any(
        _equal(right.value * by, said.value) or _equal(right.value, said.value * by)
        for by in (1e3, 1e6)
    )


def _equal(one: float, other: float) -> bool:
    return abs(one - other) <= 1e-9 * max(abs(one), abs(other))


def _digits(value: float) -> int:
    return len(f"{value:f}".replace(".", "").strip("0"))


def holds_words(question: str, right: str, answer: str, least: float) -> bool:
    """Whether an answer has the content words of the right one, and every number that it spells.

    Numbers that the question spells too are not needed.

    Args:
        question, right, answer: texts.
        least: F1 that is enough; an answer that refuses needs twice as much.
    """
    spelt = {*_spelt(right)} - {*_spelt(question), "1"}
    enough = least * (1 + refuses(answer))
    return f1(question, right, answer) >= enough and spelt <= {*content(answer)}


def _spelt(text: str) -> list[str]:
    """The numbers that a text spells, as digits."""
    return [_stem(word.lower()) for word in _SPELT_FIGURE.findall(text)]


def f1(question: str, right: str, answer: str) -> float:
    """The best F1 of content words, by their stems, of any beginning of an answer.

    What follows a right beginning costs nothing. Words of the question do not count, unless the
    right answer has no other.
    """
    known = {*content(question)}
    needed = [word for word in content(right) if word not in known]
    given = [word for word in content(answer) if word not in known]
    if not needed:
        every = not content(right)  # the right answer is a small word
        needed, given = content(right, every), content(answer, every)
    left, common, best = Counter(needed), 0, 0.0
    for number, word in enumerate(given, 1):
        if left[word] > 0:
            left[word] -= 1
            common += 1
            best = max(best, 2 * common / (len(needed) + number))
    return best


def content(text: str, every: bool = False) -> list[str]:
    """Stems of a text's words; small ones only where `every` word is wanted."""
    words = [word.lower().replace("\u2019", "'").removesuffix("'s") for word in _WORD.findall(text)]
    return [_stem(word) for word in words if every or word not in _STOP]


@cache
def _stem(word: str) -> str:
    from Stemmer import Stemmer

    if word in _SPELT:
        return str(_SPELT.index(word))
    return Stemmer("english").stemWord(word)
