"""The answer that the text has none."""

PHRASE = "not in the text"
_PHRASES = (PHRASE, "not in the document")  # models learnt either


def is_refusal(answer: str) -> bool:
    """Whether an answer says that the text has none, and nothing more."""
    return answer.strip().removesuffix(".").casefold() in _PHRASES
