"""Texts of any bytes in each encoding, and `.gitignore` files; what reading one must come to."""

import io
import os
import random
from contextlib import nullcontext
from itertools import pairwise
from pathlib import Path
from unittest import mock

import fuzz_changes as changes
import numpy as np
from fuzz_running import require_told

from longctx.core.common.errors import LongctxError, UnreadableInput
from longctx.core.sources import reader
from longctx.core.sources.encodings import BOMS, ENCODINGS
from longctx.core.sources.reader import Source
from longctx.core.sources.rules import Rules
from longctx.core.sources.walk import walk

WIDE = {"cp932", "gb18030", "cp949", "big5"}
MARKS = [mark for mark, _ in BOMS]
WORDS = [
    "plain",
    "\r\n",
    "café",
    "Привет",
    "幸福的家庭",
    "日本語",
    "한국어",
    "😀",
    "\ufffd",
    "\u2028",
]


class Given:
    """Text that is said to be in an encoding, as converted text is."""

    marks, size, undecodable = None, None, 0

    def __init__(self, data: bytes, encoding: str):
        self._data, self.encoding, self.lost = data, encoding, []

    def open(self) -> nullcontext:
        return nullcontext(io.BytesIO(self._data))

    def origin(self) -> tuple[int, str]:
        return len(self._data), ""

    def take_marks(self) -> list[tuple[int, int]]:
        return []


def require_sound(source: Source, raw: bytes, read_bytes: int) -> None:
    """Each character has its bytes, or nothing of the source is passed on."""
    seen: list[bytes] = []
    try:
        with mock.patch.object(reader, "READ_BYTES", read_bytes):
            blocks = list(source.blocks(seen.append))
    except UnreadableInput as error:
        require_told(error)
        blocks = []
    if not blocks:
        assert not seen
        return
    assert b"".join(seen) == raw
    assert source.size == len(raw)
    require_places(source, raw, blocks)


def require_places(source: Source, raw: bytes, blocks: list[reader.Block]) -> None:
    for before, after in pairwise(blocks):
        assert before.starts[-1] == after.starts[0]
    text = "".join(block.text for block in blocks)
    text.encode()  # it has no halves of characters
    ends = [blocks[-1].starts[-1:]] if blocks else []
    starts = np.concatenate([*(block.starts[:-1] for block in blocks), *ends, []]).astype(int)
    assert starts[-1:].tolist() == [len(raw)] * bool(blocks)
    assert np.all(np.diff(starts) > 0)
    assert len(starts) == len(text) + bool(blocks)
    step = max(1, len(text) // 12)
    for begin in range(0, len(text), step):
        for end in (begin + 1, (begin + len(text) + 1) // 2, len(text)):
            if source.encoding in WIDE and "\ufffd" in text[max(begin, end - 4) : end]:
                continue  # its last bytes alone may be half a character
            got = raw[starts[begin] : starts[end]].decode(source.encoding, "replace")
            assert got == text[begin:end]


# --- .gitignore ---

FILES = ("a.txt", "b/c.md", "b/d/a.txt", "x y", "[z]", "a" * 60, "é")


def make_repository(folder: Path) -> None:
    """The top of a repository, with a few files."""
    for name in (*FILES, ".git/info/exclude"):
        path = Path(folder, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()


def require_walked(repository: Path, where: str, data: bytes) -> None:
    """Of the files that are there, some."""
    file = repository / where
    file.write_bytes(data)
    try:
        found = [entry.inside for entry in walk(str(repository), Rules())]
    except LongctxError as error:
        require_told(error)
        return
    finally:
        file.write_bytes(b"")
    assert set(found) <= set(FILES)
    assert found == sorted(found, key=os.fsencode)


# --- cases ---

READ_BYTES = [5, 7, 16, 64, 1 << 20]
SOME_BYTES = [*MARKS, b"\n", b"\xff", b"\xc3", b"\x84\x31\x95\x33", b"+/v8", b"\x1b$B", b"\0"]
IN_ORDER = sorted(ENCODINGS)
PATTERNS = "ab*?[]!/\\# \t.-^z~é\0\r\x85"
PIECES = ["a", "b", "*", "**", "?", "[a-z]", "[!b]", "c.md", "x y", "\\", "!", "[", "d", "*.txt"]
WHERE = [".gitignore", "b/.gitignore", ".git/info/exclude"]


def text_case(rng: random.Random) -> tuple[str, bytes, int]:
    """A text: its encoding, empty where that is to be found, its bytes, and how many are read."""
    encoding = rng.choice(["", "", *IN_ORDER])
    kind = rng.randrange(4)
    if kind == 0:
        data = rng.randbytes(rng.randrange(1, 65))
    else:
        data = b"".join(_piece(rng, encoding) for _ in range(rng.randrange(1, 7)))
    if kind == 3:
        data = changes.edited(rng, data, SOME_BYTES)
    return encoding, data or b"a", rng.choice(READ_BYTES)


def _piece(rng: random.Random, encoding: str) -> bytes:
    kind = rng.randrange(4)
    if kind == 0:
        return rng.choice(SOME_BYTES)
    if kind == 1:
        return rng.choice([b"the keeper\n", "été ".encode()]) * rng.choice([1, 40])
    if kind == 2:
        return rng.choice(WORDS).encode(rng.choice(IN_ORDER), "replace")
    return rng.choice(WORDS).encode(encoding or "utf-8", "replace")


def read_text(encoding: str, data: bytes, read_bytes: int) -> None:
    """Reads a text as `text_case` gives it."""
    if encoding:
        require_sound(Source("fuzz", None, made=Given(data, encoding)), data, read_bytes)
    else:
        require_sound(Source("fuzz", None, io.BytesIO(data)), data, read_bytes)


def ignore_case(rng: random.Random) -> tuple[str, bytes]:
    """Patterns: the file that they are in, and its bytes."""
    kind = rng.randrange(4)
    if kind == 0:
        return rng.choice(WHERE), rng.randbytes(rng.randrange(40))
    lines = []
    for _ in range(rng.randrange(1, 5)):
        if rng.random() < 0.5:
            lines.append("".join(rng.choices(PATTERNS, k=rng.randrange(14))))
        else:
            lines.append("/".join(rng.choices(PIECES, k=rng.randrange(1, 6))))
    return rng.choice(WHERE), "\n".join(lines).encode()
