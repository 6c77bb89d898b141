"""The parsing process's work: answers a command's requests one by one.

It lists archives, unpacks, converts, and matches paths with the patterns of `.gitignore` files.
Answers are JSON objects, each with bytes. Knows nothing of pipes, processes, or memory and time
limits.
"""

from array import array
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

from longctx.core.common.errors import UnreadableInput
from longctx.core.sources.archive import Archive, MemberInfo, found_in, inside, opener_of
from longctx.core.sources.detect import NotText
from longctx.core.sources.limits import Share, TooMuch
from longctx.core.sources.made import Made, Original
from longctx.core.sources.packed import damage_told
from longctx.core.sources.patterns import Pattern, patterns, said_of
from longctx.core.sources.pieces import Readable

BATCH = 256  # members in one answer, at most
LETTERS = 1 << 17  # characters of their names
MESSAGE = 2000  # characters of a message about a file
KINDS = {kind.__name__: kind for kind in (UnreadableInput, NotText, TooMuch)}
Answer = tuple[dict[str, Any], bytes]


class OutOfMemory(Exception):
    """There is too little memory for a file: this process can do nothing more."""


class _File:
    """A file on disk: the archives found in it, and its budget."""

    def __init__(self, told: dict[str, Any], on_work: Callable[[int], None]):
        given = Path(told["path"]), told["name"], told["limit"], on_work
        self.original = Original(*given)
        self.archives: dict[int, Archive] = {}
        self.shares: dict[int, Share] = {}
        self.numbers: dict[Archive, int] = {}
        self.listing: Iterator[MemberInfo] = iter(())
        self._open: list[Archive] = []

    def archive(self, levels: list[dict[str, Any]]) -> Archive | None:
        """The innermost of nested archives, which are given from the outermost inwards.

        Others are closed: only what one text needs stays open.
        """
        found: Archive | None = None
        wanted: list[Archive] = []
        for level in levels:
            number = level["id"]
            if number not in self.archives:
                kind, how, name = level["kind"], level["how"], level["name"]
                if found:
                    opened = inside(found, level["number"], name, kind, how)
                else:
                    opener = self.original.open
                    opened = Archive(self.original, name, opener, kind, how, 1 + len(how))
                self.note(opened, number)
            found = self.archives[number]
            wanted.append(found)
        for archive in self._open:
            if archive not in wanted:
                archive.close()
        self._open = wanted
        return found

    def note(self, archive: Archive, number: int) -> int:
        """Assigns a number to an archive."""
        self.archives[number], self.numbers[archive] = archive, number
        return number


class _Open(NamedTuple):
    """A text that is being read."""

    file: _File
    made: Made
    stream: Readable
    opened: ExitStack


class Parsing:
    """Answers requests.

    Args:
        on_work: called during a request with the number of bytes unpacked or converted.
    """

    def __init__(self, on_work: Callable[[int], None] = lambda size: None):
        self._on_work = on_work
        self._files: dict[int, _File] = {}
        self._texts: dict[int, _Open] = {}
        self._last: _File | None = None
        self._patterns: dict[int, tuple[Pattern, ...]] = {}

    def answer(self, told: dict[str, Any], data: bytes) -> Answer:
        """The answer to a request; whatever libraries raise for a file becomes an answer.

        Raises:
            OutOfMemory: no memory was left.
        """
        name = told.get("name", "")
        try:
            return getattr(self, "_" + told["do"])(told, data)
        except MemoryError as error:
            raise OutOfMemory from error
        except UnreadableInput as error:
            return _refusal(error), b""
        except Exception as error:  # parsers raise anything for a damaged file
            why = f"it is damaged, or not what its name says ({type(error).__name__}: {error})"
            return _refusal(UnreadableInput(f"cannot read '{name}'", why)), b""

    def _list(self, told: dict[str, Any], data: bytes) -> Answer:
        """Begins to list an archive."""
        file = self._file(told)
        archive = file.archive(told["levels"])
        if archive is None:
            raise ValueError("no archive is named")
        file.listing = found_in(archive, told["hidden"], told["raw"])
        return self._more(told, data)

    def _more(self, told: dict[str, Any], data: bytes) -> Answer:
        """The next members of an archive."""
        file, found, letters = self._file(told), [], 0
        for each in file.listing:
            found.append(_entry(file, each))
            letters += len(each.name)
            if len(found) >= BATCH or letters > LETTERS:
                return {"found": found, "more": True}, b""
        return {"found": found, "more": False}, b""

    def _open(self, told: dict[str, Any], data: bytes) -> Answer:
        """Opens a text, and reads its first bytes."""
        text, file, how = told["text"], self._file(told), told["how"]
        self._end(text)
        archive = file.archive(told["levels"])
        opener = opener_of(archive, told["number"], how) if archive else file.original.open
        share = file.shares.get(text) or file.original.budget.share()
        if how or told["format"]:
            file.shares[text] = share
        made = Made(file.original, told["name"], opener, how, told["format"], share)
        with ExitStack() as opened:
            stream = opened.enter_context(made.open())
            self._texts[text] = _Open(file, made, stream, opened.pop_all())
        return self._read(told, data)

    def _read(self, told: dict[str, Any], data: bytes) -> Answer:
        """The next bytes of a text, and the places in the original that they come from.

        A text is closed at its end, and where it cannot be read on.
        """
        _, made, stream, _ = self._texts[told["text"]]
        try:
            with damage_told(told["name"]):
                text = stream.read(told["size"])
        except UnreadableInput as error:
            self._end(told["text"])
            return _beside(made) | _refusal(error), b""
        except Exception:  # raised again: only the text is closed, which would hold its file open
            self._end(told["text"])
            raise
        marks = array("q", [number for mark in made.take_marks() for number in mark])
        if over := len(text) < told["size"]:
            self._end(told["text"])
        return _beside(made) | {"bytes": len(text), "over": over}, text + marks.tobytes()

    def _close(self, told: dict[str, Any], data: bytes) -> Answer:
        """Closes a text."""
        self._end(told["text"])
        return {}, b""

    def _learn(self, told: dict[str, Any], data: bytes) -> Answer:
        """Reads the patterns of a .gitignore."""
        lines = data.decode("utf-8", "surrogateescape").splitlines()
        self._patterns[told["patterns"]] = learned = patterns(lines)
        return {"count": len(learned)}, b""

    def _ignored(self, told: dict[str, Any], data: bytes) -> Answer:
        """Which paths are ignored, one byte each; the deepest patterns come first."""
        known = [(start, self._patterns[number]) for start, number in told["patterns"]]
        return {}, bytes(map(lambda path: _is_ignored(path, known), told["paths"]))

    def _file(self, told: dict[str, Any]) -> _File:
        number = told["file"]
        if number not in self._files:
            self._files[number] = _File(told["on_disk"], self._on_work)
        file, before = self._files[number], self._last
        if (
            before
            and before is not file
            and not any(t.file is before for t in self._texts.values())
        ):
            before.archive([])
        self._last = file
        return file

    def _end(self, text: int) -> None:
        if text in self._texts:
            self._texts.pop(text).opened.close()


def _is_ignored(path: str, known: list[tuple[int, tuple[Pattern, ...]]]) -> bool:
    for start, those in known:
        if (said := said_of(path[start:], those)) is not None:
            return said
    return False


def _entry(file: _File, found: MemberInfo) -> dict[str, Any]:
    """A member as a JSON object."""
    entry = {"in": file.numbers[found.archive], "number": found.number, "name": found.name}
    if found.refused:
        return entry | _refusal(found.refused)
    if found.inner:
        number = file.note(found.inner, len(file.archives))
        return entry | {"archive": number, "kind": found.inner.kind, "how": found.how}
    return entry | {"size": found.size, "how": found.how, "format": found.form}


def _beside(made: Made) -> dict[str, Any]:
    """What is reported with a text; messages only once."""
    lost, made.lost = made.lost, []
    return {"lost": [message[:MESSAGE] for message in lost], "undecodable": made.undecodable}


def _refusal(error: UnreadableInput) -> dict[str, Any]:
    """An error as a JSON object; its message may hold any bytes of the file."""
    kind = next(name for name, kind in reversed(KINDS.items()) if isinstance(error, kind))
    told = {part: getattr(error, part)[:MESSAGE] for part in ("what", "why", "remedy")}
    return {"error": {"kind": kind, **told}}
