"""Errors that libraries raise over foreign files, such as a model's.

What is wrong there is the user's to mend, whatever kind of exception a library has for it. Only
what reads such files stands inside `foreign`, so that our own faults stay what they are.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from longctx.core.common.errors import LongctxError, UsageError

LONGEST = 300  # characters of a library's message
REMEDY = "Fetch it again, or name another model."


@contextmanager
def foreign(what: str, remedy: str = REMEDY) -> Iterator[None]:
    """Turns what comes of a broken file into an error of ours.

    Args:
        what: what cannot be done, with the value in question.
        remedy: what to do about it.

    Raises:
        UsageError: of any exception, but for one of ours and running out of memory.
    """
    try:
        yield
    except Exception as error:
        if isinstance(error, LongctxError) or is_memory(error):
            raise
        raise UsageError(what, reason(error), remedy) from error


def is_memory(error: BaseException) -> bool:
    """Whether it says that there is no more memory."""
    # torch is not imported for this: its CUDA error is known by name, its CPU one by its words; so
    # is that of the loader, which has no room for a library.
    named = isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError"
    said = {RuntimeError: "can't allocate memory", ImportError: "failed to map segment"}
    return named or any(isinstance(error, k) and words in str(error) for k, words in said.items())


def reason(error: BaseException) -> str:
    """What a library says of it, on one line, with the kind of error where that tells more."""
    if isinstance(error, OSError) and error.strerror:
        at = f": {str(error.filename)!r}" if error.filename else ""
        return f"{error.strerror}{at}"
    if isinstance(error, KeyError):
        return f"there is no {error}"
    if "ignore_mismatched_sizes" in str(error):
        return "its weights have other shapes than its config.json says"
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [""]
    said = " ".join(lines[: 2 if lines[0].endswith(":") else 1])[:LONGEST].rstrip(".")
    known = said and (isinstance(error, OSError | ValueError) or type(error) is Exception)
    return said if known else f"{type(error).__name__}: {said}".rstrip(": ")
