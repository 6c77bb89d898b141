"""The user's rules for which found files to read."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Rules:
    """Which files in folders and archives are read, and how.

    Args:
        hidden: also read files whose names, or whose folders' names, begin with a dot.
        ignored: also read what .gitignore files ignore.
        raw: read formats as plain text, without converting them.
        max_unpacked: bytes that one file may hold unpacked; None for the default.
        memory, seconds: limits for parsing one file or member; None for the defaults.
    """

    hidden: bool = False
    ignored: bool = False
    raw: bool = False
    max_unpacked: int | None = None
    memory: int | None = None
    seconds: int | None = None
