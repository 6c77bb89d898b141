"""The verdict `found`: whether documents seem to answer a question: yes, unsure or no.

It measures how much of the weight of the question's words, weighted by rarity, occurs together in
four passages that follow one another. If a question is about another text, this one lacks some of
its words or has them far apart, however long it is; scores that only rank passages tell less
(docs/benchmarks/accuracy.md, "Found"). No model is involved, so the verdict means the same whatever
read the document.
"""

from longctx.core.retrieve.lexical import PassageIndex

YES, UNSURE, NO = "yes", "unsure", "no"
# Chosen on development questions; each set was tested with the values that the others give.
LITTLE, MUCH = 0.1, 0.5  # of the weight


def judged(index: PassageIndex, words: str) -> tuple[str, float | None]:
    """The verdict, and the share of the words' weight that occurs together.

    Args:
        index: of the documents' words.
        words: of the question.

    Returns:
        YES, UNSURE or NO, and the share; UNSURE and None where none of the question's words count.

    Raises:
        StateMismatch: a document's text or tokens are damaged.
    """
    share = index.shared(words)
    if share is None:
        return UNSURE, None
    share = round(share, 4)  # as reported, so that verdict and share agree
    return (NO if share < LITTLE else YES if share >= MUCH else UNSURE), share
