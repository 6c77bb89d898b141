"""Files that the parsing process reads for a command, and their texts as sources.

Nothing is unpacked, converted or inspected here. Answers are checked so that they can do no harm:
numbers and names are in bounds, and a text is bytes.
"""

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from longctx.core.common.errors import UnreadableInput
from longctx.core.common.regular_files import open_regular
from longctx.core.sources import formats, parser
from longctx.core.sources.extra import require
from longctx.core.sources.limits import GIVEN_UP, LOST, MEMBERS, NAME
from longctx.core.sources.naming import needs
from longctx.core.sources.parser import Allowed, GivenUp
from longctx.core.sources.rules import Rules

FRAME = 1 << 20  # bytes of a text per request


class ParsedFile:
    """A file on disk to be parsed.

    Args:
        path: the file.
        name: as the user knows it.
        rules: what is read from it, and the limits.
    """

    def __init__(self, path: Path, name: str, rules: Rules):
        self.path, self.name, self.rules = path, name, rules
        self.size = path.stat().st_size
        self._number, self._given_up = parser.new_number(), 0

    @cached_property
    def sha256(self) -> str:
        """The digest of its bytes; OSError if it cannot be read."""
        with open_regular(self.path) as file:
            return hashlib.file_digest(file, "sha256").hexdigest()

    def allowed(self, name: str) -> Allowed:
        """The limits for parsing it, or one of its members."""
        return Allowed.by(self.rules, name, self.size)

    def ask(self, do: str, allowed: Allowed, **more: Any) -> tuple[dict[str, Any], bytes]:
        """The answer to a request about it.

        Raises:
            GivenUp: there is none, or requests about it failed too often.
        """
        if self._given_up >= GIVEN_UP:
            raise GivenUp(
                f"cannot read '{allowed.name}'",
                f"{GIVEN_UP} members of '{self.name}' took too much or crashed what parses them, "
                "and no other is tried",
                "Unpack it yourself and name the folder.",
            )
        path = os.path.abspath(self.path)
        on_disk = {"path": path, "name": self.name, "limit": self.rules.max_unpacked}
        told = {"do": do, "name": allowed.name, "file": self._number, "on_disk": on_disk}
        try:
            return parser.ask(told | more, allowed=allowed)
        except GivenUp:
            self._given_up += 1
            raise


@dataclass(frozen=True)
class Level:
    """An archive: the file on disk, or one nested in it.

    Attributes:
        id: its number in the file.
        name: as it is cited.
        kind, how: zip or tar, and its compressions.
        number: its index in the archive around it.
        outer: the archive around it; None if it is the file.
        inside: its path in the file, ending in a slash; empty if it is the file.
    """

    id: int
    name: str
    kind: str
    how: tuple[str, ...]
    number: int = 0
    outer: "Level | None" = None
    inside: str = ""

    def told(self) -> list[dict[str, Any]]:
        """The archives around it, outermost first, and itself, as JSON objects."""
        own = {"id": self.id, "name": self.name, "kind": self.kind, "number": self.number}
        return [*(self.outer.told() if self.outer else ()), own | {"how": self.how}]


@dataclass(frozen=True)
class ParsedMember:
    """A file in an archive.

    Attributes:
        level: the archive.
        number: its index in the archive.
        name: its path in the archive.
        size: in bytes, as the archive states it.
        how, format: its compressions, outermost first, and what it is converted from.
        refused: why it is not read; None if it is.
    """

    level: Level
    number: int
    name: str
    size: int = 0
    how: tuple[str, ...] = ()
    format: str = ""
    refused: UnreadableInput | None = None

    @property
    def cited(self) -> str:
        """Its name as cited."""
        return f"{self.level.name}/{self.name}"

    @property
    def part(self) -> str:
        """Its path inside the file on disk."""
        return self.level.inside + self.name


def members(file: ParsedFile, outer: Level) -> list[ParsedMember]:
    """The members of an archive on disk, those of nested archives included.

    Raises:
        UnreadableInput: it is damaged, holds too much, or exceeds the parsing limits.
    """
    allowed, levels = file.allowed(file.name), {outer.id: outer}
    how, found = {"hidden": file.rules.hidden, "raw": file.rules.raw}, []
    answer, _ = file.ask("list", allowed, levels=outer.told(), **how)
    while True:
        if error := parser.refusal(answer):
            raise error
        try:
            found += filter(None, [_member(entry, levels) for entry in answer["found"]])
            more = answer["more"]
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise _nonsense(file.name) from error
        if len(found) > 2 * MEMBERS:
            raise _nonsense(file.name)
        if not more:
            return found
        answer, _ = file.ask("more", allowed)


def _member(entry: dict[str, Any], levels: dict[int, Level]) -> ParsedMember | None:
    """A member from its JSON object; None for an archive, which is added to the levels."""
    level, number, name = levels[entry["in"]], _number(entry["number"]), entry["name"]
    if not isinstance(name, str) or len(name) > NAME:
        raise ValueError(name)
    if refused := parser.refusal(entry):
        return ParsedMember(level, number, name, refused=refused)
    how = tuple(map(str, entry["how"]))
    if "archive" in entry:
        cited, inside = f"{level.name}/{name}", f"{level.inside}{name}/"
        inner = Level(_number(entry["archive"]), cited, entry["kind"], how, number, level, inside)
        levels[inner.id] = inner
        return None
    if entry["format"] and entry["format"] not in formats.names():
        raise ValueError(entry["format"])
    return ParsedMember(level, number, name, _number(entry["size"]), how, entry["format"])


def _number(value: Any) -> int:
    if type(value) is not int or not 0 <= value < 1 << 62:
        raise ValueError(value)
    return value


def _nonsense(name: str) -> GivenUp:
    parser.end()
    return GivenUp(f"cannot read '{name}'", "what parses it answers what makes no sense")


@dataclass
class Remote:
    """One text made from a file: implements `reader.Made`.

    Args:
        file: the file on disk.
        name: as it is cited.
        how: its compressions, outermost first.
        format: what it is converted from; empty if it is text.
        member: the archive member that it is; None if it is the file.

    Attributes:
        lost: messages about parts of the original that are missing from the text.
        undecodable: number of places in the original that cannot be decoded.
    """

    file: ParsedFile
    name: str
    how: tuple[str, ...]
    format: str
    member: ParsedMember | None = None
    lost: list[str] = field(default_factory=list)
    undecodable: int = 0
    _marks: list[tuple[int, int]] = field(default_factory=list)
    _number: int = field(default_factory=parser.new_number)

    @property
    def marks(self) -> str | None:
        """What the numbers of its marks count: page, line, ...; None if it has none."""
        return formats.load(self.format).marks if self.format else None

    @property
    def encoding(self) -> str:
        """The text's encoding, if it is converted; else empty."""
        return "utf-8" if self.format else ""

    @property
    def size(self) -> int | None:
        """The text's size in bytes; None if unknown."""
        return None if self.how or self.format or not self.member else self.member.size

    def origin(self) -> tuple[int, str]:
        """Size in bytes and SHA-256 of the file on disk."""
        return self.file.size, self.file.sha256

    def take_marks(self) -> list[tuple[int, int]]:
        """(byte of the text, number) for what was read since the last call, ascending."""
        taken, self._marks = self._marks, []
        return taken

    @contextmanager
    def open(self) -> Iterator["_Text"]:
        """The text, from its beginning.

        Raises (here and while it is read):
            UnreadableInput: it is damaged, holds too much, exceeds the parsing limits, or needs a
                library.
        """
        self.lost, self._marks, self.undecodable = [], [], 0
        own = [formats.load(self.format).needs] if self.format else []
        for library in [*map(needs, self.how), *own]:
            require(library, self.name)
        allowed = self.file.allowed(self.name)
        member = self.member
        levels, number = (member.level.told(), member.number) if member else ([], None)
        what = {"levels": levels, "number": number, "how": self.how, "format": self.format}
        text = _Text(self, allowed, what)
        try:
            yield text
        finally:
            text.close()

    def ask(self, do: str, allowed: Allowed, **more: Any) -> tuple[bytes, bool, bool]:
        """Requests bytes of the text, and records what is reported with them.

        Returns:
            The bytes, whether they are the last, and whether to restart the parsing process.
        """
        answer, data = self.file.ask(do, allowed, text=self._number, size=FRAME, **more)
        self._note(answer)
        size = answer.get("bytes", 0)
        if type(size) is not int or not 0 <= size <= min(FRAME, len(data)):
            raise _nonsense(self.name)
        self._add_marks(data[size:])
        allowed.worked += size
        return data[:size], bool(answer.get("over")), bool(answer.get("worn"))

    def _note(self, answer: dict[str, Any]) -> None:
        """Records what is reported with a text, and raises its error if there is one."""
        lost, bad = answer.get("lost", []), answer.get("undecodable", 0)
        if type(bad) is not int or not isinstance(lost, list):
            raise _nonsense(self.name)
        self.undecodable = max(0, bad)
        self.lost += map(str, lost[: max(0, LOST + 1 - len(self.lost))])
        if error := parser.refusal(answer):
            raise error

    def _add_marks(self, data: bytes) -> None:
        if len(data) % 16:
            raise _nonsense(self.name)
        marks = np.frombuffer(data, np.int64).reshape(-1, 2)
        places = marks[:, 0]
        last = self._marks[-1][0] if self._marks else -1
        ascending = not len(places) or (places[0] > last and bool((np.diff(places) > 0).all()))
        if not ascending or (len(marks) and not (marks[:, 1] > 0).all()):
            raise _nonsense(self.name)
        self._marks += [(at, number) for at, number in marks.tolist()]


class _Text:
    """The text of a `Remote` as a file that is read forwards.

    Args:
        remote: the text.
        allowed: its limits.
        what: the request that opens it.
    """

    def __init__(self, remote: Remote, allowed: Allowed, what: dict[str, Any]):
        self._remote, self._allowed = remote, allowed
        self._held, self._over = b"", False
        self._ask("open", **what)
        self._known = parser.known()

    def read(self, size: int) -> bytes:
        """The next bytes: `size` of them, fewer only at the end.

        Raises:
            UnreadableInput: see `Remote.open`.
        """
        pieces = []
        while size > 0 and (self._held or not self._over):
            if not self._held:
                if not self._is_open():
                    raise GivenUp(f"cannot read '{self._remote.name}'", "what parses it has ended")
                self._ask("read")
            piece, self._held = self._held[:size], self._held[size:]
            pieces.append(piece)
            size -= len(piece)
        return b"".join(pieces)

    def close(self) -> None:
        """Closes the text in the parsing process."""
        if not self._over and self._is_open():
            with suppress(UnreadableInput):
                self._ask("close")

    def _is_open(self) -> bool:
        return self._known == parser.known()

    def _ask(self, do: str, **more: Any) -> None:
        self._held, self._over, worn = self._remote.ask(do, self._allowed, **more)
        if worn and not self._remote.member:  # an archive would be read from its beginning again
            parser.end()
