import hashlib
import io
import sys
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from longctx.core.common.errors import UnreadableInput, UsageError
from longctx.core.sources import reader
from longctx.core.sources.find import open_sources
from longctx.core.sources.reader import Source

FRENCH = (
    "Le cœur a ses raisons que la raison ne connaît point ; on le sait en mille choses.\r\n"
    "Éloïse préfère l'été à l'hiver, déjà « partie » vers la forêt — enfin, peut-être…\r\n"
)
RUSSIAN = "Все счастливые семьи похожи друг на друга, каждая несчастлива по-своему.\n"  # noqa: RUF001
CHINESE = "幸福的家庭都是相似的，不幸的家庭各有各的不幸。奥勃朗斯基家里一切都乱了。\n"  # noqa: RUF001


@pytest.fixture(params=[7, 64, 1 << 20])
def read_bytes(request, monkeypatch):
    """Reads so short that characters and errors lie across them, and the real length."""
    monkeypatch.setattr(reader, "READ_BYTES", request.param)


def read(raw: bytes) -> tuple[Source, str, np.ndarray]:
    source, seen = Source("test", None, io.BytesIO(raw)), []
    blocks = list(source.blocks(seen.append))
    assert b"".join(seen) == raw
    for before, after in pairwise(blocks):
        assert before.starts[-1] == after.starts[0]
    starts = [block.starts[:-1] for block in blocks] + [blocks[-1].starts[-1:]]
    return source, "".join(block.text for block in blocks), np.concatenate(starts)


def assert_slices_give_the_text(raw: bytes, source: Source, text: str, starts: np.ndarray):
    assert starts.dtype == np.int64
    assert len(starts) == len(text) + 1
    assert starts[-1] == len(raw)
    for begin in range(0, len(text), max(1, len(text) // 40)):
        for end in (begin + 1, (begin + len(text)) // 2, len(text)):
            got = raw[starts[begin] : starts[end]].decode(source.encoding, "replace")
            assert got == text[begin:end]


@pytest.mark.parametrize("text", ["plain\n", "a\r\nb\rc\u0085d\u2028e\n", "é中😀e\u0301\ufffd\n"])
def test_utf8_is_read_as_it_is(text, read_bytes):
    source, got, starts = read(text.encode())
    assert (got, source.encoding, source.undecodable) == (text, "utf-8", 0)
    assert starts.tolist() == [len(text[:at].encode()) for at in range(len(text) + 1)]


def test_size_and_hash_are_those_of_the_bytes(read_bytes):
    raw = "\ufeffété\n".encode() * 50
    source, _, _ = read(raw)
    assert (source.size, source.sha256) == (len(raw), hashlib.sha256(raw).hexdigest())


@given(st.lists(st.one_of(st.text(max_size=3).map(str.encode), st.binary(max_size=4)), min_size=1))
def test_undecodable_bytes_follow_pythons_rule(parts):
    raw = "né".encode() * 40 + b"".join(parts).replace(b"\0", b" ")
    expected = raw.decode("utf-8", "replace")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reader, "READ_BYTES", 50)
        source, text, starts = read(raw)
    assert text == expected
    assert source.undecodable == expected.count("\ufffd") - raw.count("\ufffd".encode())
    assert_slices_give_the_text(raw, source, text, starts)


def test_each_replacement_keeps_its_bytes(read_bytes):
    _, text, starts = read("é".encode() * 40 + b"\xe2\x82a\xff\xf0\x9f\x98")
    assert text[40:] == "\ufffda\ufffd\ufffd"
    assert (starts[40:] - 80).tolist() == [0, 2, 3, 4, 7]


def test_a_mark_is_skipped_but_counted(read_bytes):
    source, text, starts = read("\ufeffa\ufeffb".encode())
    assert (text, source.encoding) == ("a\ufeffb", "utf-8")
    assert starts.tolist() == [3, 4, 7, 8]


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be"])
def test_utf16_and_utf32_with_a_mark(encoding, monkeypatch):
    monkeypatch.setattr(reader, "READ_BYTES", 7)
    text = "a😀中\r\n" * 30
    raw = ("\ufeff" + text).encode(encoding)
    source, got, starts = read(raw)
    assert (got, source.encoding, starts[0]) == (text, encoding, len("\ufeff".encode(encoding)))
    assert_slices_give_the_text(raw, source, got, starts)


def test_half_a_pair_in_utf16_is_replaced():
    source, text, starts = read("\ufeffab".encode("utf-16-le") + b"\x00\xd8" + b"c\x00d")
    assert (text, source.undecodable) == ("ab\ufffdc\ufffd", 2)
    assert starts.tolist() == [2, 4, 6, 8, 10, 11]


@pytest.mark.parametrize(
    ("text", "encoding"), [(FRENCH, "cp1252"), (RUSSIAN, "koi8_r"), (CHINESE, "gb18030")]
)
def test_other_encodings_are_detected(text, encoding):
    raw = (text * 20).encode(encoding)
    source, got, starts = read(raw)
    assert (got, source.encoding, source.undecodable) == (text * 20, encoding, 0)
    assert_slices_give_the_text(raw, source, got, starts)


@pytest.mark.parametrize(
    ("text", "encoding"),
    [
        ("café naïve en français : été, forêt, garçon.\n", "cp1252"),
        ("Müller geht über die Straße, schöne Grüße aus Köln.\n", "cp1252"),
        ("Zażółć gęślą jaźń, łódka płynęła wzdłuż brzegu.\n", "cp1250"),
        ("Příliš žluťoučký kůň úpěl ďábelské ódy.\n", "cp1250"),
        ("ένας παλιός φάρος στεκόταν στην άκρη της θάλασσας.\n", "cp1253"),
    ],
)
def test_of_nearly_equal_guesses_the_more_common_encoding_is_taken(text, encoding):
    _, got, _ = read(text.encode(encoding))
    assert got == text


@pytest.mark.parametrize(
    "raw", ["déjà vu\n".encode() + b"\xe9\xff", b"plain text\n" * 400 + b"\xe9"]
)
def test_a_few_bad_bytes_leave_it_utf8(raw):
    source, _, _ = read(raw)
    assert source.encoding == "utf-8"
    assert source.undecodable == raw.count(b"\xe9") + raw.count(b"\xff")


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        (b"", "empty"),
        (b"\xef\xbb\xbf", "empty"),
        (b"PK\x03\x04\0\0text", "binary"),
        (bytes(range(1, 256)) * 20, "encoding"),
    ],
)
def test_what_is_no_text_is_refused_before_a_byte_is_passed_on(raw, why):
    seen = []
    with pytest.raises(UnreadableInput, match=why):
        list(Source("test", None, io.BytesIO(raw)).blocks(seen.append))
    assert not seen


def test_a_stream_of_zeros_is_refused_by_its_first_bytes():
    with open("/dev/zero", "rb") as zeros, pytest.raises(UnreadableInput, match="binary"):
        next(Source("test", None, zeros).blocks())
    # Behind text they are characters as others, and come piece by piece.
    with open("/dev/zero", "rb") as zeros:
        text = _Both(io.BytesIO(b"text\n" * reader.READ_BYTES), zeros)
        blocks = Source("test", None, text).blocks()
        assert {len(next(blocks).text) for _ in range(9)} == {reader.READ_BYTES}


class _Both(io.RawIOBase):
    """One stream behind another."""

    def __init__(self, first, second):
        self._first, self._second = first, second

    def read(self, size):
        return self._first.read(size) or self._second.read(size)


def test_a_failing_read_is_unreadable_input(tmp_path, monkeypatch):
    (tmp_path / "a.txt").write_text("a")

    def denied(*_):
        raise PermissionError(13, "Permission denied")

    (source,) = open_sources([str(tmp_path / "a.txt")])
    monkeypatch.setattr(type(source.path), "open", denied)
    with pytest.raises(UnreadableInput, match="Permission denied"):
        list(source.blocks())


def test_a_file_can_be_read_again(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"one\ntwo\n")
    (source,) = open_sources([str(tmp_path / "a.txt")])
    assert (source.name, source.expected_size) == (str(tmp_path / "a.txt"), 8)
    for _ in range(2):
        assert [block.text for block in source.blocks()] == ["one\ntwo\n"]
        assert source.size == 8


def test_standard_input_is_a_source(monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"piped\n")))
    (source,) = open_sources(["-"])
    assert (source.name, source.path, source.expected_size) == ("stdin", None, None)
    assert [block.text for block in source.blocks()] == ["piped\n"]
    assert not sys.stdin.closed


@pytest.mark.parametrize(
    ("names", "why"), [(["gone"], "no such file"), ([""], "no such"), (["-", "-"], "twice")]
)
def test_sources_are_checked_first(names, why):
    with pytest.raises(UsageError, match=why):
        open_sources(names)
