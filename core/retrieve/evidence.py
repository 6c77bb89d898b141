"""The verdict `found`: whether documents seem to answer a question: yes, unsure or no.

By the question's own words, weighed by how rare they are: how much of their weight stands together
in one stretch of 512 tokens. A question about another text has words that this one lacks, or has
far apart, however long it is; scores that only rank passages tell less
(docs/benchmarks/accuracy.md, "Found"). It knows no model, so it means the same whatever read the
document.
"""

from longctx.core.retrieve.lexical import PassageIndex

YES, UNSURE, NO = "yes", "unsure", "no"
# Chosen on development questions, and for each set of them tried with what the others give.
LITTLE, MUCH = 0.1, 0.5  # of the weight


def judged(index: PassageIndex, words: str) -> tuple[str, float | None]:
    """Whether it is there, and the share of the words' weight that stands together.

    Args:
        index: of the documents' words.
        words: the question's.

    Returns:
        YES, UNSURE or NO, and the share; UNSURE and None where the question has no words that
        count.

    Raises:
        StateMismatch: a document's text or tokens are not what was written.
    """
    share = index.shared(words)
    if share is None:
        return UNSURE, None
    share = round(share, 4)  # what is told, so that both say the same
    return (NO if share < LITTLE else YES if share >= MUCH else UNSURE), share
