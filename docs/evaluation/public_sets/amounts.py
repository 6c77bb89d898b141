"""Figures of filings: an amount is right within 1%, with its unit and its sign.

What the question says of a unit ("in USD millions", "in units of percents") holds for figures that
have none. Minus signs, brackets and words such as "decline" in front make a figure negative.
"""

import re
from dataclasses import dataclass, replace

from public_sets.rule import Figure, figure_of, pattern

NEAR = 0.01  # of the right amount
_BEFORE = 5  # words in front of a figure that may say its direction
_DOWN = re.compile(
    r"\b(?:declin|decreas|drop|down\b|fell\b|fall|loss|lower|negative|reduc|minus)\w*",
    re.IGNORECASE,
)
_UP = re.compile(r"\b(?:increas|grew\b|grow|improv|up\b|rose\b|ris|higher|positive|gain)\w*", re.I)
_OUT = re.compile(  # a table has such an amount in brackets, and people do not
    r"\b(?:expenditure|capex|paid|pay|dividend|purchase|repurchase|spen[dt]|cost|cogs|expense)",
    re.IGNORECASE,
)
_ASKED = re.compile(r"\b(?:in|USD|of)\s+(?:USD\s+|US\$\s*)?(thousand|million|billion)s?\b", re.I)
_PERCENTS = re.compile(
    r"units? of percents?|as a %|% of|in percent|what percent|percentage points?"
)
_SCALE = {"thousand": 1e3, "million": 1e6, "billion": 1e9}


@dataclass(frozen=True)
class Amount:
    """A figure of a text with what stands around it.

    Attributes:
        figure: its number, scale and unit.
        sign: -1 or 1 as it is written (a minus, brackets); 0: not written.
        turn: -1 or 1 as words in front say; 0: none does.
    """

    figure: Figure
    sign: int
    turn: int


def amounts(text: str) -> list[Amount]:
    """The amounts of a text. Years, quarters and names of forms (10-K) are none."""
    found, ended = [], 0
    for match in pattern().finditer(text):
        if _is_name(text, match):
            ended = match.end()
            continue
        before, after = text[ended : match.start()].rstrip("$€£~ "), text[match.end() :]
        minus = re.search(r"(?<!\w)(?<!\w )(?<!\n)[-\u2212\u2013]$", before) is not None
        figure, brackets = figure_of(match), before.endswith("(") and after.startswith(")")
        if brackets and after.startswith(")%"):
            figure = replace(figure, is_percent=True)
        else:  # `($1.8 bn)` and `(44%)` stand in brackets as asides, `(1,577)` as a loss
            brackets = brackets and figure.scale == 1 and not figure.is_percent
        found.append(Amount(figure, -1 if minus or brackets else 0, _turn(before)))
        ended = match.end()
    return found


def _turn(before: str) -> int:
    """The direction that the last words say: -1, 1 or 0."""
    words = " ".join(before.split()[-_BEFORE:])
    turns = [(m.start(), -1) for m in _DOWN.finditer(words)]
    turns += [(m.start(), 1) for m in _UP.finditer(words)]
    return max(turns)[1] if turns else 0


def _is_name(text: str, match: re.Match[str]) -> bool:
    """Whether a number is a year, the number of an item, or part of a name."""
    whole = match["number"].rstrip(".,")
    before, after = text[: match.start()], text[match.start("number") + len(whole) :]
    if re.search(r"[A-Za-z]'?$|\b[Ff]iscal (?:year )?$", before) or re.match(
        r"-?[KQkq]\b|X\b", after
    ):
        return True
    if re.search(r"\($", before) and re.fullmatch(r"\d", whole) and re.match(r"\) [A-Z]", after):
        return True  # of a list
    plain = not (match["currency"] or match["percent"] or match["scale"])
    is_year = plain and re.fullmatch(r"(?:19[89]|20[0-3])\d", whole) is not None
    months = r"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[a-z]*\.? $"
    return is_year or (plain and re.search(months, before) is not None)


def wanted(question: str, right: str) -> list[Amount]:
    """The amounts of the right answer that the question does not have."""
    asked = {amount.figure.value for amount in amounts(question)}
    return [amount for amount in amounts(right) if amount.figure.value not in asked]


def holds(question: str, right: str, answer: str) -> bool:
    """Whether all wanted amounts stand in an answer; also False if there are none."""
    needed, said = wanted(question, right), amounts(answer)
    return bool(needed) and all(
        any(_is(one, other, question, right) for other in said) for one in needed
    )


def _is(right: Amount, said: Amount, question: str, text: str) -> bool:
    if not _same_way(right, said, f"{question} {text}"):
        return False
    values = _values(said.figure, question)
    return any(
        abs(one - other) <= NEAR * abs(one)
        for one in _values(right.figure, question)[:1]
        for other in values
    )


def _same_way(right: Amount, said: Amount, around: str) -> bool:
    """Whether signs and directions agree, as far as they are said."""
    if right.sign < 0:
        return said.sign < 0 or said.turn < 0
    if said.sign < 0 and right.turn >= 0 and not _OUT.search(around):
        return False
    return not right.turn or not said.turn or right.turn == said.turn


def _values(figure: Figure, question: str) -> list[float]:
    """What a figure may mean: percent as shares, money in single units; the likeliest first."""
    percents = _PERCENTS.search(question)
    asked = _ASKED.search(question)
    if figure.is_percent:
        return [figure.value / 100]
    if figure.scale != 1:
        return [figure.whole]
    if asked and not percents:  # the unit of the question, or all digits written out
        return [figure.value * _SCALE[asked[1].lower()], figure.value]
    if percents and not figure.is_money:
        return [figure.value / 100]
    return [figure.value]
