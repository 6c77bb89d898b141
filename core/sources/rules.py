"""The user's rules for which found files to read."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Rules:
    """What is read of folders and archives, and how.

    Args:
        hidden: also files whose names, or whose folders', begin with a dot.
        ignored: also what .gitignore files leave out.
        raw: formats are read as the text that they are written in.
        max_unpacked: bytes that one file may hold unpacked; None: the usual number.
        memory, seconds: that parsing one file or member may take; None: the usual numbers.
    """

    hidden: bool = False
    ignored: bool = False
    raw: bool = False
    max_unpacked: int | None = None
    memory: int | None = None
    seconds: int | None = None
