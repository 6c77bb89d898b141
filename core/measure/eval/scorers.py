"""Scores of answers, from 0 to 1, by what they contain."""

import re

WORD = re.compile(r"\w+(?:['\u2019]\w+)*")  # John's is one word, and 'office' is office


def string_match_all(references: tuple[str, ...], answer: str) -> float:
    """The share of references that the answer contains, in any case."""
    said = answer.lower()
    return sum(reference.lower() in said for reference in references) / len(references)


def string_match_part(references: tuple[str, ...], answer: str) -> float:
    """1 if the answer contains any reference, in any case; else 0."""
    said = answer.lower()
    return float(any(reference.lower() in said for reference in references))


def only_label(
    labels: frozenset[str], right: tuple[str, ...], answer: str, ordered: bool = False
) -> float:
    """1 if the right labels, and no others, are in the first sentence of an answer; else 0.

    Labels are matched as whole words, in any case; John's is not John.

    Args:
        labels: all possible answers.
        right: first the right labels, joined by commas; then labels that do not count, because
            the question names them.
        answer: only the first sentence of its first line counts.
        ordered: the labels must come in the right order, each the right number of times.
    """
    first = answer.strip().split("\n")[0].split(".")[0]
    wanted = right[0].lower().split(",")
    named = {label.lower() for label in right[1:]} - {*wanted}
    said = [label for label in _labels_in(labels, first) if label not in named]
    return float(said == wanted if ordered else {*said} == {*wanted})


def labels_in(labels: frozenset[str], text: str) -> tuple[str, ...]:
    """The labels that occur in a text as whole words, sorted."""
    said = _labels_in(labels, text)
    return tuple(sorted(label for label in labels if label.lower() in said))


def _labels_in(labels: frozenset[str], text: str) -> list[str]:
    """Each occurrence of a label in a text, in lower case."""
    known = {label.lower() for label in labels}
    return [word for word in WORD.findall(text.lower()) if word in known]
