"""Errors that libraries raise over foreign files, such as a model's.

The user can fix such a file, whatever kind of exception a library raises for it. Only code that
reads such files runs inside `foreign`, so that our own bugs keep their exceptions.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from longctx.core.common.errors import LongctxError, UsageError

LONGEST = 300  # characters of a library's message
REMEDY = "Fetch it again, or name another model."


@contextmanager
def foreign(what: str, remedy: str = REMEDY) -> Iterator[None]:
    """Turns any exception over a broken file into a UsageError.

    Args:
        what: what cannot be done, with the value in question.
        remedy: what to do about it.

    Raises:
        UsageError: for any exception except our own errors and running out of memory.
    """
    try:
        yield
    except Exception as error:  # libraries raise anything for files that others wrote
        if isinstance(error, LongctxError) or is_memory(error):
            raise
        raise UsageError(what, reason(error), remedy) from error


def is_memory(error: BaseException) -> bool:
    """Whether an error means that memory ran out."""
    # torch is not imported for this: its CUDA error is known by name, its CPU error by its message;
    # so is the loader's, when there is no memory for a library.
    named = isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError"
    said = {RuntimeError: "can't allocate memory", ImportError: "failed to map segment"}
    return named or any(isinstance(error, k) and words in str(error) for k, words in said.items())


def reason(error: BaseException) -> str:
    """A library's message on one line, with the error's type if that adds something."""
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
