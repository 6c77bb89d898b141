"""Whatever a file of a format, or an archive, holds: its text, or an error of our own.

Files are random bytes under the name of each kind, and real ones, made here, that were damaged:
in their bytes, or in what they hold before that is packed. Nothing is written but temporary files.
`guided.py` tries them as coverage leads.
"""

import io
import json
import os
import signal
import sys
import tempfile
import warnings
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tarfile import TarInfo

import pytest
from fuzz_cases import many, of_corpus
from fuzz_files import BOOKS, NAMES, PACK, PACKED, PAGE, TOKENS, WHOLE, require_read
from fuzz_running import require_told
from hypothesis import given
from hypothesis import strategies as st
from in_process import parsed_here
from sample_files import tarred, zipped

from longctx.core.common.errors import LongctxError
from longctx.core.sources.find import open_sources
from longctx.core.sources.reader import Source

HANGS = 120  # seconds that no file of a few thousand bytes takes, on the slowest of machines
KINDS = ["flip", "insert", "cut", "put", "repeat", "end"]
edits = st.lists(
    st.tuples(
        st.sampled_from(KINDS),
        st.integers(0, 1 << 16),
        st.sampled_from(TOKENS) | st.binary(max_size=4),
    ),
    min_size=1,
    max_size=4,
)


def edited(data: bytes, changes: list[tuple[str, int, bytes]]) -> bytes:
    """Bytes with a few places changed."""
    for kind, where, new in changes:
        at = where % (len(data) + 1)
        if kind == "flip" and data:
            at %= len(data)
            data = data[:at] + bytes([data[at] ^ 1 << where % 8]) + data[at + 1 :]
        elif kind == "insert":
            data = data[:at] + new + data[at:]
        elif kind == "cut":
            data = data[:at] + data[at + 1 + len(new) * 8 :]
        elif kind == "put":
            data = data[:at] + new + data[at + len(new) :]
        elif kind == "repeat":
            data = data[:at] + data[max(0, at - 40) : at] * 3 + data[at:]
        elif kind == "end":
            data = data[:at]
    return data


class Hangs(BaseException):
    """A file took longer than any may."""


_watched: list[str] = []
_watching = False
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT


def _watch(event: str, arguments: tuple) -> None:
    """Keeps what is written to; hooks stay as long as the process."""
    if not _watching:
        return
    if event == "open" and isinstance(arguments[0], str) and arguments[2] & WRITES:
        _watched.append(arguments[0])
    elif event in ("os.mkdir", "os.rename", "os.link", "os.symlink", "os.remove", "os.chmod"):
        _watched.append(str(arguments[0]))


sys.addaudithook(_watch)
_room = tempfile.TemporaryDirectory()
GIVEN, TEMPORARY = Path(_room.name, "given"), Path(_room.name, "temporary")
GIVEN.mkdir()
TEMPORARY.mkdir()


@contextmanager
def watched() -> Iterator[None]:
    """Fails where something is written outside the folder for temporary files, or it takes long."""
    global _watching

    def stop(*_: object) -> None:
        raise Hangs

    _watched.clear()
    before, signal_before = tempfile.tempdir, signal.signal(signal.SIGALRM, stop)
    tempfile.tempdir, _watching = str(TEMPORARY), True
    signal.alarm(HANGS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, signal_before)
        tempfile.tempdir, _watching = before, False
    assert [path for path in _watched if not path.startswith(str(TEMPORARY))] == []
    assert list(TEMPORARY.iterdir()) == []


def require_sound(name: str, data: bytes) -> list[Source]:
    """All that is in a file can be read, or is refused; its sources."""
    file = GIVEN / name
    file.write_bytes(data)
    try:
        with watched(), parsed_here():
            sources = open_sources([str(file)])
            for source in sources:
                require_read(source)
    except LongctxError as error:
        require_told(error)
        return []
    finally:
        file.unlink()
    assert list(GIVEN.iterdir()) == []
    return sources


@pytest.mark.parametrize("name", {**WHOLE, **PACKED})
def test_the_whole_files_have_text(name):
    assert all(source.sha256 for source in require_sound(name, {**WHOLE, **PACKED}[name]))


@many
@given(name=st.sampled_from([*WHOLE, *PACKED]), data=st.binary(max_size=80))
def test_a_file_of_any_bytes(name, data):
    require_sound(name, data)


@many
@given(name=st.sampled_from([*WHOLE]), changes=edits)
def test_a_damaged_file_of_each_format(name, changes):
    require_sound(name, edited(WHOLE[name], changes))


@many
@given(name=st.sampled_from([*WHOLE]), parts=st.lists(st.sampled_from(TOKENS), max_size=8))
def test_a_file_of_the_signs_of_formats(name, parts):
    start = b"From x\n" if name.endswith("mbox") else b""
    require_sound(name, start + b"".join(parts))


@many
@given(name=st.sampled_from(BOOKS), which=st.integers(0, 9), changes=edits)
def test_a_book_with_a_damaged_member(name, which, changes):
    with zipfile.ZipFile(io.BytesIO(WHOLE[name])) as book:
        files = {member: book.read(member) for member in book.namelist()}
    member = sorted(files)[which % len(files)]
    require_sound(name, zipped({**files, member: edited(files[member], changes)}))


leaves = st.sampled_from([None, True, 0, -1, 1.5, "", "a\nb", "\ud800", "\0", 10**30]) | st.text()
values = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["cells", "source", "input", "outputs", "data", "text/plain", "text", "ename"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=8,
)


@many
@given(name=st.sampled_from(["a.ipynb", "a.jsonl"]), key=st.integers(0, 3), value=values)
def test_notebooks_and_records_of_other_values(name, key, value):
    wrapped = [{"cells": value}, {"cells": [value]}, {"worksheets": value}, value][key]
    require_sound(name, json.dumps(wrapped).encode())


@many
@given(name=st.sampled_from([*PACKED]), changes=edits)
def test_a_damaged_archive_or_compressed_file(name, changes):
    require_sound(name, edited(PACKED[name], changes))


@many
@given(
    names=st.lists(st.sampled_from(NAMES) | st.text(max_size=6), min_size=1, max_size=3),
    kind=st.sampled_from(["zip", "tar", "tar.gz", "tar.xz"]),
    link=st.sampled_from([b"0", b"1", b"2", b"3", b"5", b"6", b"7", b"S", b"x", b"L"]),
    inner=st.sampled_from([b"text\n", b"", PACKED["b.zip"], PACKED["a.tar"], WHOLE["a.pdf"]]),
)
def test_an_archive_with_hostile_names(names, kind, link, inner):
    files = {}
    for name in names:
        info = TarInfo(name)
        info.type, info.linkname = link, "/etc/passwd"
        files[name] = inner if kind == "zip" or link == b"0" else info
    try:
        with warnings.catch_warnings(action="ignore"):
            data = zipped(files) if kind == "zip" else tarred(files)
    except (ValueError, IndexError):
        return  # such a name cannot be written
    data = data.replace(b"~", b"\0")  # which libraries do not write in names
    how = kind.partition(".")[2]
    sources = require_sound(f"a.{kind}", PACK[how](data) if how else data)
    for source in sources:
        if not source.refused:
            assert ".." not in source.part.replace("\\", "/").split("/")
            assert not source.part.startswith(("/", "\\"))


@many
@given(how=st.lists(st.sampled_from(["zip", "tar", *PACK]), min_size=1, max_size=6), changes=edits)
def test_damage_deep_inside(how, changes):
    """Containers in containers, the innermost with damaged text in it."""
    name, data = "a.html", edited(PAGE, changes)
    for each in how:
        if each in PACK:
            data = PACK[each](data)
        else:
            data = zipped({name: data}) if each == "zip" else tarred({name: data})
        name += f".{each}"
    require_sound(name, data)


UNCLOSED = [b"<a b='", b"<a ", b"</a ", b"<!--", b"<![CDATA[", b"<![x", b"<!x", b"<?", b"&a"]


@pytest.mark.parametrize("sign", UNCLOSED)
def test_signs_that_nothing_closes_take_no_time(sign):
    require_sound("a.html", sign * 10_000)


def test_a_book_that_claims_a_million_pages_has_those_that_are_there():
    (source,) = require_sound("a.pdf", WHOLE["a.pdf"].replace(b"/Count 3", b"/Count 900000"))
    assert source.size > 0
    assert 0 < len(source.lost) < 2000


@of_corpus("files/*")
def test_what_was_found_before(file):
    name = file.name.partition("--")[2].removesuffix(".data")
    require_sound(name, file.read_bytes())
