"""UTF-16 without a byte order mark, and what has zero bytes and is no text."""

import array
import gzip
import io
import marshal
import pickle
import sqlite3
import struct
import sys
import wave
import zipfile
import zlib
from pathlib import Path

import numpy as np
import pytest
from sample_files import tarred, zipped

from longctx.core.sources import reader
from longctx.core.sources.detect import NotText
from longctx.core.sources.find import open_sources
from longctx.core.sources.reader import READ_BYTES, Source

TEXTS = {
    "word": "map\n",
    "english": "The keeper \u2019 said\u2026 \u201cno\u201d.\r\n" * 30,
    "french": "Le c\u0153ur a ses raisons que la raison ne conna\u00eet point.\n" * 30,
    "russian": "\u041f\u0440\u0438\u0432\u0435\u0442, \u043c\u0438\u0440!\n" * 30,
    "greek": "\u03ba\u03b1\u03bb\u03b7\u03bc\u03ad\u03c1\u03b1 \u03ba\u03cc\u03c3\u03bc\u03b5\r\n"
    * 30,
    "chinese": "\u3000\u3000\u4e00\u5e74\u7684\u5e78\u798f\uff0c\u5bb6\u5ead\u3002" * 6 + "\n",
    "japanese": "\u306e\u306b\u306f\u305f\u304c\u3068\u3066\u308b\u3001\u65e5\u672c\u3002\n" * 9,
    "more chinese": "\u6211\u4eec\u7684\u8239\u6765\u4e86 \u6e2f\u53e3 \u6d77\u4e0a\u6709\u96fe\n"
    * 30,
    "korean": "\ud589\ubcf5\ud55c \uac00\uc815\uc740 \ubaa8\ub450 \uc11c\ub85c\r\n" * 9,
    "hindi": "\u0928\u092e\u0938\u094d\u0924\u0947 \u0926\u0941\u0928\u093f\u092f\u093e\n" * 9,
    "emoji": "a \U0001f600\U0001f680 b\n" * 9,
    "log": "\x1b[31mERROR\x1b[0m\t7\r\n" * 40,
}


def read(raw: bytes) -> tuple[Source, str]:
    source = Source("test", None, io.BytesIO(raw))
    return source, "".join(block.text for block in source.blocks())


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_utf16_without_a_mark(text, encoding):
    source, got = read(text.encode(encoding))
    assert (got, source.encoding, source.undecodable) == (text, encoding, 0)


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_places_and_errors_behind_the_first_bytes(encoding, monkeypatch):
    monkeypatch.setattr(reader, "READ_BYTES", 51)  # cuts characters in half
    text = "a key \U0001f600\n" * 40
    raw = text.encode(encoding) + b"\xd8\xd8\0\n\0\n"
    source = Source("test", None, io.BytesIO(raw))
    blocks = list(source.blocks())
    got, starts = "".join(b.text for b in blocks), [s for b in blocks for s in b.starts[:-1]]
    assert (source.encoding, source.undecodable, got[: len(text)]) == (encoding, 1, text)
    assert starts[:9] == [0, 2, 4, 6, 8, 10, 12, 16, 18]


def test_a_file_in_utf16_is_a_source_and_so_is_a_page(tmp_path):
    (tmp_path / "a.txt").write_bytes(TEXTS["russian"].encode("utf-16-le"))
    (tmp_path / "b.html").write_bytes("<p>a key</p>\n<p>a map</p>".encode("utf-16-be"))
    first, second = open_sources([str(tmp_path)])
    assert "".join(block.text for block in first.blocks()) == TEXTS["russian"]
    assert "".join(block.text for block in second.blocks()) == "a key\n\na map\n"


def elf() -> bytes:
    head = b"\x7fELF\2\1\1" + bytes(9) + struct.pack("<HHIQQQ", 2, 62, 1, 0x401000, 64, 4096)
    return head + struct.pack("<IHHHHHH", 0, 64, 56, 13, 64, 31, 30) + b"hello world\n\0" * 40


def png() -> bytes:
    def chunk(kind: bytes, data: bytes) -> bytes:
        sum_ = zlib.crc32(kind + data).to_bytes(4, "big")
        return len(data).to_bytes(4, "big") + kind + data + sum_

    parts = chunk(b"IHDR", struct.pack(">IIBBBBB", 2, 2, 8, 0, 0, 0, 0))
    return (
        b"\x89PNG\r\n\x1a\n" + parts + chunk(b"IDAT", zlib.compress(bytes(6))) + chunk(b"IEND", b"")
    )


def sqlite() -> bytes:
    with sqlite3.connect(":memory:") as base:
        base.execute("create table t (a text, b int)")
        base.executemany("insert into t values (?, ?)", [("a key", n) for n in range(99)])
        data = base.serialize()
    base.close()
    return data


def npy(values: np.ndarray) -> bytes:
    out = io.BytesIO()
    np.save(out, values)
    return out.getvalue()


def sound() -> bytes:
    out, samples = io.BytesIO(), (3000 * np.sin(np.arange(4000) / 9)).astype("<i2")
    with wave.open(out, "wb") as file:
        file.setparams((1, 2, 8000, 0, "NONE", ""))
        file.writeframes(samples.tobytes())
    return out.getvalue()


CODE = compile("def f(a):\n    return 'a key ' + a\n" * 9, "a.py", "exec")
NAMES = ["abc", "a file", "x.py", "notes of may.txt", "b"]
NOISE = np.random.default_rng(1)
BINARY = {
    "elf": elf(),
    "python": Path(sys.executable).read_bytes()[: READ_BYTES + 1],
    "png": png(),
    "sqlite": sqlite(),
    "npy floats": npy(NOISE.normal(size=99).astype("f4")),
    "npy bytes": npy(np.arange(32, 126, dtype="u1")),
    "npy words": npy(np.arange(32, 999, dtype="<u2")),
    "npy text": npy(np.array(["a key", "a map"])),
    "pyc": b"\xa7\r\r\n" + bytes(12) + marshal.dumps(CODE),
    "tar": tarred({"a.txt": b"a key\n" * 99}),
    "tar padding": tarred({"a" * 100: b"a key\n" * 170}),
    "zip": zipped({"a.txt": b"a key\n" * 9}, zipfile.ZIP_STORED),
    "gzip": gzip.compress(b"a key\n" * 99),
    "pickle": pickle.dumps({"a key": list(range(99))}),
    "wav": sound(),
    "samples": array.array("h", [int(n) for n in NOISE.normal(0, 900, 999)]).tobytes(),
    "counts": array.array("H", [n % 999 for n in range(2000)]).tobytes(),
    "noise": NOISE.bytes(4096),
    "strings": "".join(f"{name}\0" for name in NAMES).encode() * 9,
    "even strings": b"abc\0a file\0key\0" * 9,
    "padded strings": b"map    \0key    \0" * 9,
    "lines with zeros": b"line 1\n\0line 2\n\0" * 9,
    "fields and tabs": b"".join(b"key%03d\0\tsome value %d\n" % (n, n) for n in range(200)),
    "records": "".join(f"{n} caf\u00e9 au lait\n\0" for n in range(300)).encode(),
    "padded names": "".join(f"{n:<9}\0" for n in ("M\u00fcller", "Hans Peter"[:9])).encode() * 40,
    "latin-1 fields": "M\u00fcller    \0Hans Peter\0".encode("latin-1") * 40,
    "cells": b"a key,\0,\ta map\n" * 60 + b"a boat \0,\t\xc3\xa9t\xc3\xa9\n" * 60,
    "utf-32": "a key\n".encode("utf-32-le") * 9,
    "text with a zero": b"a key\n" * 99 + b"\0" + b"a map\n" * 99,
    "zeros": bytes(99),
    "odd": "a key\n".encode("utf-16-le") + b"a",
    "half a pair": "a key\n".encode("utf-16-le") + b"\x00\xd8 \0",
}


@pytest.mark.parametrize("data", BINARY.values(), ids=BINARY)
def test_what_is_binary_stays_so(data):
    assert b"\0" in data
    with pytest.raises(NotText, match="it is binary"):
        read(data)
