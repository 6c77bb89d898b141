"""How far files are unpacked and converted: all limits in one place.

A small file can claim, or really hold, any amount of text. What it takes is counted per file on the
disk, through all archives in archives, and refused before it takes more than is allowed.
"""

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field

from longctx.core.common.errors import UnreadableInput
from longctx.core.common.units import show_bytes

UNPACKED = 4_000_000_000  # bytes that one file may hold unpacked; --max-unpacked changes it
RATIO = 500  # times its size on the disk that a file may hold, unless --max-unpacked is given
FREE = 16 << 20  # bytes that are unpacked whatever the ratio
MEMBERS = 100_000  # of one file, through all archives in it
DEPTH = 4  # archives and compressions within one another: a.tar.gz has two
CONVERTED = 256 << 20  # bytes of a file, or of one record of it, that are held in memory
NAME = 4096  # characters of the path of a member; what is on a disk has no longer ones
NAMES = 16 << 20  # of all members of a file together
HEADER = 1 << 16  # bytes of a header of a tar that tells of what its own fields have no room for
DIGITS = 4096  # in a row in such a header
IN_MEMORY = 16 << 20  # bytes of an archive in an archive; larger ones go to a temporary file


MEMORY = 2_000_000_000  # bytes that parsing one file or member may take; --max-parser-memory
SECONDS = 120  # that it may take; --max-parser-time
PER_SECOND = 500_000  # bytes of the file, and of what comes of it, for which it has one more
PATHS_PER_SECOND = 1000  # that are compared with .gitignore files, likewise
OPEN_FILES = 64  # by the program that parses
LOST = 10_000  # messages on what is missing in one text
GIVEN_UP = 3  # members of a file that passed a limit or crashed, after which no other is tried


class TooMuch(UnreadableInput):
    """A file holds more than is unpacked."""


@dataclass
class Budget:
    """What may be unpacked of one file on the disk, and what was.

    Args:
        name: the file's.
        packed: its size in bytes.
        limit: bytes that it may hold; None: the usual number, and no more than RATIO allows.
        on_spend: told of bytes that are unpacked.
    """

    name: str
    packed: int
    limit: int | None = None
    on_spend: Callable[[int], None] = lambda size: None
    _spent: int = 0
    _members: int = 0
    _names: int = 0

    def share(self) -> "Share":
        """What one text or archive in the file takes of it."""
        return Share(self)

    def spend(self, size: int) -> None:
        """Counts that `size` more bytes are, or will be, unpacked.

        Raises:
            TooMuch: this is over the limit.
        """
        self._spent += size
        self.require_room(0)
        self.on_spend(size)

    def require_room(self, size: int) -> None:
        """Refuses `size` more bytes that are being made, before they are counted.

        Raises:
            TooMuch: with them it would be over the limit.
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
        """TooMuch where archives are nested deeper than is followed."""
        if depth > DEPTH:
            raise too_deep(self.name)

    def _too_much(self, why: str) -> TooMuch:
        return TooMuch(
            f"cannot unpack '{self.name}'", why, "If that is right, say how much: --max-unpacked."
        )


def too_deep(name: str) -> TooMuch:
    """Archives are nested deeper than is followed."""
    return TooMuch(
        f"cannot unpack '{name}'",
        f"over {DEPTH} archives or compressions are in one another",
        "Unpack it yourself and name the folder.",
    )


@dataclass
class Share:
    """What one text or archive takes of a budget; no other's parts are taken for its own.

    Names would not tell them apart: an archive may have one twice.

    Args:
        budget: that of the file on the disk.
    """

    budget: Budget
    _reached: dict[Hashable, int] = field(default_factory=dict)

    def reach(self, part: Hashable, size: int) -> None:
        """Counts that `size` bytes of a part are, or will be, unpacked; twice the same is once.

        Raises:
            TooMuch: this is over the limit.
        """
        more = size - self._reached.get(part, 0)
        if more > 0:
            self._reached[part] = size
            self.budget.spend(more)


def require_held(name: str, size: int) -> None:
    """Refuses what would be held in memory and is too large for that.

    Raises:
        TooMuch: it is over CONVERTED bytes.
    """
    if size > CONVERTED:
        raise TooMuch(
            f"cannot convert '{name}'",
            f"over {show_bytes(CONVERTED)} of it would be held in memory at once",
            "Split it, or convert it to plain text.",
        )
