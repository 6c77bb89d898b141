"""Needles: texts to hide in a haystack, a question about them, and the answer that they give.

`absent` needles have no texts: their question is asked although the document does not answer it.
Data only; the other files of this folder make them.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Needle:
    """Texts to hide, and a question about them.

    Attributes:
        texts: hidden apart from each other; in this order if `ordered`.
        question: asked after the document.
        answer: as in texts[holder], or a list of such answers, or a refusal.
        kind: kind of task, for the logs.
        holder: the text with the answer.
    """

    texts: tuple[str, ...]
    question: str
    answer: str
    kind: str
    holder: int = 0
    ordered: bool = False
