"""Checks the text of a question. Imports nothing heavy, because a model loads after it."""

from longctx.core.common.errors import UsageError


def require_text(words: str) -> None:
    """Refuses a question with undecodable bytes, which a command line may contain.

    Raises:
        UsageError: it has such bytes.
    """
    try:
        words.encode("utf-8")
    except UnicodeEncodeError as error:
        raise UsageError(
            f"cannot take the question {words[:80]!a}",
            f"it is not UTF-8 text from character {error.start + 1} on",
            "Check the encoding of the terminal or of the program that asks.",
        ) from error
