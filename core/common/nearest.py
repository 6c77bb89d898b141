"""The known name that is nearest to one that is not known, for messages. Knows none itself."""

from collections.abc import Iterable
from difflib import get_close_matches

ENOUGH = 0.6  # of the letters, in order


def nearest(given: str, known: Iterable[str], enough: float = ENOUGH) -> str:
    """The known name most like `given`, whatever the case of letters; empty if none is.

    Args:
        given: what a user wrote.
        known: the names there are.
        enough: how much alike they must be, from 0 to 1.
    """
    names = {name.casefold(): name for name in known}
    close = get_close_matches(given.casefold(), names, n=1, cutoff=enough)
    return names[close[0]] if close else ""
