"""Whatever bytes a source has: its text, with the place of each character, or an error of our own.

Also whatever stands in a `.gitignore`.
"""

import io
import os
import tempfile
from contextlib import nullcontext
from itertools import pairwise
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
from fuzz_cases import many, of_corpus, require_told
from hypothesis import example, given
from hypothesis import strategies as st

from longctx.core import reader
from longctx.core.encodings import BOMS, ENCODINGS
from longctx.core.errors import LongctxError, UnreadableInput
from longctx.core.reader import Source
from longctx.core.sources.rules import Rules
from longctx.core.sources.walk import walk

READS = st.sampled_from([5, 7, 16, 64, 1 << 20])
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


def written(word: str, encoding: str) -> bytes:
    return word.encode(encoding, "replace")


pieces = st.one_of(
    st.binary(max_size=12),
    st.sampled_from([*MARKS, b"\n", b"\xff", b"\xc3", b"\x84\x31\x95\x33", b"+/v8", b"\x1b$B"]),
    st.builds(written, st.sampled_from(WORDS), st.sampled_from(sorted(ENCODINGS))),
    st.builds(bytes.__mul__, st.sampled_from([b"the keeper\n", "été ".encode()]), st.just(40)),
)
mixed = st.builds(b"".join, st.lists(pieces, min_size=1, max_size=6))


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


@many
@given(raw=mixed, read_bytes=READS)
@example(raw=b"\x84\x31\x95\x33", read_bytes=7)
def test_a_source_of_mixed_bytes(raw, read_bytes):
    require_sound(Source("fuzz", None, io.BytesIO(raw)), raw, read_bytes)


@many
@given(raw=st.binary(min_size=1, max_size=64), mark=st.sampled_from([b"", *MARKS]), n=READS)
def test_a_source_of_any_bytes(raw, mark, n):
    require_sound(Source("fuzz", None, io.BytesIO(mark + raw)), mark + raw, n)


@many
@given(raw=mixed | st.binary(max_size=40), encoding=st.sampled_from(sorted(ENCODINGS)), n=READS)
def test_any_bytes_that_are_said_to_be_in_an_encoding(raw, encoding, n):
    require_sound(Source("fuzz", None, made=Given(raw, encoding)), raw, n)


# --- .gitignore ---

FILES = ("a.txt", "b/c.md", "b/d/a.txt", "x y", "[z]", "a" * 60, "é")


@pytest.fixture(scope="module")
def repository():
    """A folder of a few files, which is the top of a repository."""
    with tempfile.TemporaryDirectory() as folder:
        for name in (*FILES, ".git/info/exclude"):
            path = Path(folder, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
        yield Path(folder)


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


SIGNS = st.text(st.sampled_from("ab*?[]!/\\# \t.-^z~é\0\r\x85"), max_size=14)
WHERE = st.sampled_from([".gitignore", "b/.gitignore", ".git/info/exclude"])


@many
@given(data=st.binary(max_size=40) | st.lists(SIGNS, max_size=4).map("\n".join), where=WHERE)
def test_an_ignore_file_of_any_bytes(repository, data, where):
    require_walked(repository, where, data.encode() if isinstance(data, str) else data)


@of_corpus("ignore/*")
def test_ignore_files_that_were_found_before(repository, file):
    require_walked(repository, ".gitignore", file.read_bytes())
