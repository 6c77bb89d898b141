"""Limits on unpacking and converting files, all in one place.

A small file can claim, or really hold, any amount of text. Usage is counted per file on disk,
through all nested archives, and is refused before it exceeds the limit.
"""

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field

from longctx.core.common.errors import UnreadableInput
from longctx.core.common.units import show_bytes

UNPACKED = 4_000_000_000  # unpacked bytes per file; set by --max-unpacked
RATIO = 500  # unpacked size over size on disk, at most; not checked if --max-unpacked is given
FREE = 16 << 20  # bytes that may be unpacked whatever the ratio
MEMBERS = 100_000  # per file, nested archives included
DEPTH = 4  # nested archives and compressions: a.tar.gz has two
CONVERTED = 256 << 20  # bytes of a file, or of one of its records, held in memory
NAME = 4096  # characters of a member's path; no path on disk is longer
NAMES = 16 << 20  # characters, over all members of a file
HEADER = 1 << 16  # bytes of a tar header that extends another header's fields
DIGITS = 4096  # in a row in such a header
IN_MEMORY = 16 << 20  # bytes of a nested archive; larger ones go to a temporary file


MEMORY = 2_000_000_000  # bytes for parsing one file or member; --max-parser-memory
SECONDS = 120  # for parsing one file or member; --max-parser-time
PER_SECOND = 500_000  # bytes of input and output that allow one more second
PATHS_PER_SECOND = 1000  # matched with .gitignore files, likewise
OPEN_FILES = 64  # in the parsing process
LOST = 10_000  # messages about missing parts, per text
GIVEN_UP = 3  # members of a file that exceed a limit or crash, after which no other is tried


class TooMuch(UnreadableInput):
    """A file holds more than may be unpacked."""


@dataclass
class Budget:
    """How much of one file on disk may be unpacked, and how much has been.

    Args:
        name: the file's name.
        packed: its size in bytes.
        limit: bytes that it may hold; None for the default, and no more than RATIO allows.
        on_spend: called with the number of bytes unpacked.
    """

    name: str
    packed: int
    limit: int | None = None
    on_spend: Callable[[int], None] = lambda size: None
    _spent: int = 0
    _members: int = 0
    _names: int = 0

    def share(self) -> "Share":
        """A share of the budget, for one text or archive in the file."""
        return Share(self)

    def spend(self, size: int) -> None:
        """Counts that `size` more bytes are, or will be, unpacked.

        Raises:
            TooMuch: this exceeds the limit.
        """
        self._spent += size
        self.require_room(0)
        self.on_spend(size)

    def require_room(self, size: int) -> None:
        """Refuses `size` more bytes that are being produced, before they are counted.

        Raises:
            TooMuch: they would exceed the limit.
        """
        total, most = self._spent + size, UNPACKED if self.limit is None else self.limit
        if total > most:
            raise self._too_much(f"it holds over {show_bytes(most)}")
        if self.limit is None and total > max(FREE, RATIO * self.packed):
            raise self._too_much(f"it holds over {RATIO} times its size of {self.packed:,} bytes")

    def add_member(self, name: str = "") -> None:
        """Counts a member.

        Raises:
            TooMuch: there are too many, or their names are too long.
        """
        self._members += 1
        self._names += len(name)
        if self._members > MEMBERS:
            raise self._too_many(f"it has over {MEMBERS:,} members")
        if self._names > NAMES:
            raise self._too_many(f"the names in it have over {NAMES:,} characters")

    def _too_many(self, why: str) -> TooMuch:
        return TooMuch(
            f"cannot unpack '{self.name}'", why, "Unpack it yourself and name the folder."
        )

    def enter(self, depth: int) -> None:
        """Raises TooMuch if archives are nested too deeply."""
        if depth > DEPTH:
            raise too_deep(self.name)

    def _too_much(self, why: str) -> TooMuch:
        return TooMuch(
            f"cannot unpack '{self.name}'", why, "If that is right, say how much: --max-unpacked."
        )


def too_deep(name: str) -> TooMuch:
    """The error for archives that are nested too deeply."""
    return TooMuch(
        f"cannot unpack '{name}'",
        f"over {DEPTH} archives or compressions are in one another",
        "Unpack it yourself and name the folder.",
    )


@dataclass
class Share:
    """What one text or archive takes of a budget, counted apart from all others.

    Names would not tell parts apart: an archive may hold the same name twice.

    Args:
        budget: that of the file on disk.
    """

    budget: Budget
    _reached: dict[Hashable, int] = field(default_factory=dict)

    def reach(self, part: Hashable, size: int) -> None:
        """Counts that `size` bytes of a part are, or will be, unpacked; repeats count once.

        Raises:
            TooMuch: this exceeds the limit.
        """
        more = size - self._reached.get(part, 0)
        if more > 0:
            self._reached[part] = size
            self.budget.spend(more)


def require_held(name: str, size: int) -> None:
    """Refuses data that is too large to be held in memory.

    Raises:
        TooMuch: it exceeds CONVERTED bytes.
    """
    if size > CONVERTED:
        raise TooMuch(
            f"cannot convert '{name}'",
            f"over {show_bytes(CONVERTED)} of it would be held in memory at once",
            "Split it, or convert it to plain text.",
        )
