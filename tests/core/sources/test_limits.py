"""What is bounded whatever a file says: the sum of its members, and memory at once."""

import gzip
import io
import random
import tarfile
import tracemalloc
import zipfile

import pytest
from sample_files import epub, read, tarred, zipped

from longctx.core.common.errors import UnreadableInput
from longctx.core.sources import limits
from longctx.core.sources.detect import NotText

TEXT = b"one\ntwo\n"
NOISE = random.Random(1).randbytes(3000).hex().encode()


def same_named(name: str, data: bytes) -> bytes:
    """A tar that has a member twice."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for _ in range(2):
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return out.getvalue()


LOG = TEXT * 1000
TAKES = {  # bytes that count of a member of this name
    "log.gz": (gzip.compress(LOG), len(LOG)),
    "a.jsonl": (LOG, len(LOG)),
    "a.epub": (epub(LOG.decode()), 2 * len(LOG)),  # its chapter, and the text of that
    "in.zip": (zipped({"log": LOG}), len(LOG)),
    "in.tar.gz": (gzip.compress(tarred({"log": LOG})), len(LOG)),
    "in.tar": (tarred({"log.gz": gzip.compress(LOG)}), len(LOG)),
}


@pytest.mark.parametrize("name", TAKES)
def test_what_members_of_the_same_name_unpack_to_counts_one_by_one(opened_all, name):
    data, size = TAKES[name]

    def told(limit: int) -> list[str]:
        sources = opened_all("x.tar", same_named(name, data), max_unpacked=limit)
        found = [source.refused.why for source in sources if source.refused]
        for source in [source for source in sources if not source.refused]:
            try:
                read(source)
            except limits.TooMuch as error:
                found.append(error.why)
        return found

    assert [why[:13] for why in told(size * 3 // 2)] == ["it holds over"]
    assert told(size * 3) == []


def test_a_member_that_is_read_again_counts_once(opened_all):
    data = same_named("log.gz", gzip.compress(LOG))
    sources = opened_all("x.tar", data, max_unpacked=2 * len(LOG))
    for _ in range(3):
        assert [read(source)[0] for source in sources] == [LOG.decode()] * 2


# --- compressions of zip members ---

WAYS = {
    "stored": zipfile.ZIP_STORED,
    "deflated": zipfile.ZIP_DEFLATED,
    "bzip2": zipfile.ZIP_BZIP2,
    "lzma": zipfile.ZIP_LZMA,
}
PACKING = ("deflated", "bzip2", "lzma")
BOMB = 25_165_849  # bytes, a number that stands nowhere else


def lying(data: bytes, size: int, of: int) -> bytes:
    """A zip file whose heads say `of` bytes where there are `size`."""
    said, told = (number.to_bytes(4, "little") for number in (size, of))
    assert data.count(said) == 2
    return data.replace(said, told)


@pytest.fixture(scope="module")
def bombs():
    return {way: zipped({"word/document.xml": bytes(BOMB)}, WAYS[way]) for way in PACKING}


@pytest.mark.parametrize("way", WAYS)
def test_members_are_read_in_every_compression(opened_all, way):
    files = {"a.txt": TEXT * 100_000, "b.txt": b"", "c.txt": NOISE}
    sources = opened_all("x.zip", zipped(files, WAYS[way]))
    assert [read(source)[0].encode() for source in (sources[0], sources[2])] == [
        *(files["a.txt"], files["c.txt"])
    ]
    with pytest.raises(NotText, match="it is empty"):
        read(sources[1])


@pytest.mark.parametrize("way", PACKING)
@pytest.mark.parametrize("name", ["x.zip", "a.docx"])
@pytest.mark.usefixtures("here")
def test_members_that_hold_more_than_they_say_take_no_memory(opened_all, bombs, name, way):
    (source,) = opened_all(name, lying(bombs[way], BOMB, 99), raw=name == "x.zip")
    tracemalloc.start()
    try:
        with pytest.raises(UnreadableInput, match="CRC"):
            read(source)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 8 << 20


@pytest.mark.parametrize("way", ["bzip2", "lzma"])
def test_members_that_are_cut_off_or_damaged_are_refused(opened_all, way):
    data = bytearray(zipped({"a.txt": NOISE}, WAYS[way]))
    for at in (45, len(data) // 2):
        damaged = data[:at] + bytes([data[at] ^ 255]) + data[at + 1 :]
        (source,) = opened_all("x.zip", bytes(damaged))
        with pytest.raises(UnreadableInput, match="damaged"):
            read(source)
    (source,) = opened_all("x.zip", lying(bytes(data), len(NOISE), len(NOISE) + 1))
    with pytest.raises(UnreadableInput, match="it ends before its end"):
        read(source)


def test_a_compression_that_nobody_knows_is_told(opened_all):
    data = bytearray(zipped({"a.txt": TEXT}))
    data[data.index(b"PK\1\2") + 10] = 97
    (source,) = opened_all("x.zip", bytes(data))
    with pytest.raises(UnreadableInput, match="its compression, number 97, is not known"):
        read(source)
