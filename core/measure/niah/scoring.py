"""When an answer is right."""

import re

QUOTES = "\"'`*\u201c\u201d\u2018\u2019"


def is_right(expected: str, answer: str) -> bool:
    """Whether an answer is the expected value; for a number, as in `is_answered`.

    Case, white space, quotation marks around it and a full stop after it are ignored.
    """
    if expected.isdigit():
        return is_answered(expected, answer)
    return _plain(answer) == _plain(expected)


def is_answered(expected: str, answer: str) -> bool:
    """Whether an answer names the expected number and no other.

    Words around the number are ignored. A second, different number makes the answer wrong, and so
    do letters or separators within the number, which the document does not have.
    """
    return set(re.findall(r"\w*\d\w*", answer, re.ASCII)) == {expected}


def score(answers: tuple[str, ...], answer: str) -> float:
    """1 if an answer is one of the right ones, else 0."""
    return float(any(is_right(expected, answer) for expected in answers))


def _plain(text: str) -> str:
    return " ".join(text.split()).strip(QUOTES).rstrip(".").strip(QUOTES).casefold()
