"""The line of a passage that answers a question.

The line with the most of a question's words is often the one before the answer. So each word of the
question counts once, also in the neighbouring lines, and what the question asks for counts too: a
number, a name or a value. The weights were chosen on development questions
(docs/benchmarks/accuracy.md, "The line that `find` prints").
"""

from collections.abc import Sequence

from longctx.core.passages.expected import Expected
from longctx.core.passages.matching import LinePiece, Query

BEFORE, AFTER = 0.7, 0.3  # of a word's weight in the line before, and in the line after
EXPECTED = 1.0  # of the weight of the question's rarest word: a number, a name or a value
ECHO = 0.5  # likewise: taken from a line that says little beyond the question
_LITTLE = 14  # letters and digits that say more than the question
_IN_ORDER = 0.1  # of two words in the question's order


def answering_piece(query: Query, text: str, among: Sequence[LinePiece]) -> LinePiece | None:
    """The piece that fits a question best.

    Args:
        query: the question.
        text: the pieces' text.
        among: some of its pieces in order; ties go to the earlier.

    Returns:
        None where no piece has a word of the question, or what it asks for.
    """
    expected, weights = Expected(query.text), query.weights
    texts = [text[piece.start : piece.end] for piece in among]
    held = [frozenset(query.terms(own).values()) for own in texts]
    kinds = [expected.kinds_in(own) for own in texts]
    if not any(held) and not any(kinds):
        return None
    most = max(weights.values(), default=1.0)
    best: tuple[float, int] | None = None
    for number, own in enumerate(texts):
        before = held[number - 1] if number else frozenset()
        after = held[number + 1] if number + 1 < len(held) else frozenset()
        before, after = before - held[number], after - held[number] - before
        score = sum(map(weights.__getitem__, held[number])) + _IN_ORDER * query.weight(own)[1]
        score += BEFORE * sum(map(weights.__getitem__, before))
        score += AFTER * sum(map(weights.__getitem__, after))
        score += EXPECTED * most * kinds[number]
        score -= ECHO * most * (expected.letters_beyond(own) < _LITTLE)
        best = max(best or (score, -number), (score, -number))
    return among[-best[1]] if best else None
