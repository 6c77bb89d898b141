"""How right an answer is, from 0 to 1, by what is in it. Pure functions of texts."""

import re


def string_match_all(references: tuple[str, ...], answer: str) -> float:
    """The share of references that stand in the answer, in upper or lower case."""
    said = answer.lower()
    return sum(reference.lower() in said for reference in references) / len(references)


def string_match_part(references: tuple[str, ...], answer: str) -> float:
    """1 where any of the references stands in the answer, in upper or lower case."""
    said = answer.lower()
    return float(any(reference.lower() in said for reference in references))


def only_label(labels: frozenset[str], right: tuple[str, ...], answer: str) -> float:
    """1 where the right labels, and no others, are in the first sentence of an answer.

    Labels are looked for as whole words, in upper or lower case.

    Args:
        labels: all that could be an answer.
        right: first what is right, several labels joined by commas; then labels that do not count,
            because the question names them.
        answer: of which the first sentence of the first line counts.
    """
    first = answer.strip().split("\n")[0].split(".")[0]
    said = _labels_in(labels, first)
    wanted = set(right[0].lower().split(","))
    return float(said - ({label.lower() for label in right[1:]} - wanted) == wanted)


def labels_in(labels: frozenset[str], text: str) -> tuple[str, ...]:
    """The labels that stand in a text as whole words, sorted."""
    said = _labels_in(labels, text)
    return tuple(sorted(label for label in labels if label.lower() in said))


def _labels_in(labels: frozenset[str], text: str) -> set[str]:
    words = set(re.findall(r"\w+", text.lower()))
    return {label.lower() for label in labels} & words
