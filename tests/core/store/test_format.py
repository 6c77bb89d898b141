"""The format, as docs/format.md specifies it: golden bytes, and a document that is made by hand."""

import gzip
import hashlib
import json
import re
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from small_documents import (
    HEADER,
    SNAPSHOT,
    add_source,
    embeddings,
    files_of,
    forge,
    word_table,
)
from xxhash import xxh3_128_hexdigest

from longctx.core.sources.encodings import ENCODINGS
from longctx.core.store.manifest import FORMAT

pytestmark = pytest.mark.usefixtures("no_sync")

GOLDEN = {
    "embeddings-00000": "65224fb6dc95e5d85e6848e55a47775439f7853e03f09a4925fdef2d4a6b0cf2",
    "embeddings-00001": "f30a18f0e604b8fbbeedce64b2d9d844ff543f72cdb5df05d9e98ff0a17fbaff",
    "lines-00000": "f1679eb030a061be49197dfbcb48dac3863cbbbc7d5da94707afddd824735782",
    "memory-00000": "319b7e1e40701a749b77de375595f757aeb2e123663bee529fec9cd93f4e3fa8",
    "tokens-00000": "8194d82dab5a26eef9b07602737488f6868d6739220c0c2cc501ea47421bfa82",
    "tokens-00001": "feca01a082e35ea13124d881d7aef6d93bb9c01570e3e96f7404f949cc89b26a",
    "words-00000": "68e037261aee718ca2871663ada057fb8f5078ed3c810fd7749b6d0e4d1874ad",
}
GOLDEN_MANIFEST = """\
{
 "encoder": "",
 "format": 4,
 "language": "",
 "method": "reform",
 "model": {
  "config": "c0",
  "name": "tiny",
  "tokenizer": "t0",
  "weights": "w0"
 },
 "options": {
  "chunk": 8
 },
 "profile": {
  "name": "tiny"
 },
 "recorded": {
  "dtype": "float32"
 },
 "report": {
  "forced_splits": 0
 },
 "shards": [
  {
   "blocks": [
    "e9857511e8da276ca5d90331631306c8"
   ],
   "file": "embeddings-00000.safetensors",
   "group": "embeddings",
   "rows": 4,
   "size": 176
  },
  {
   "blocks": [
    "775e6f53538858bfd5806ad5f6206d3a"
   ],
   "file": "embeddings-00001.safetensors",
   "group": "embeddings",
   "rows": 2,
   "size": 156
  },
  {
   "blocks": [
    "dcee79fd954f0a10cf555f8b72ff25b6"
   ],
   "file": "lines-00000.safetensors",
   "group": "lines",
   "rows": 3,
   "size": 96
  },
  {
   "blocks": [
    "bcb2180f90c4bcac9e5b28bd1206c83c"
   ],
   "file": "memory-00000.safetensors",
   "group": "memory",
   "rows": 0,
   "size": 248
  },
  {
   "blocks": [
    "HASH"
   ],
   "file": "text-00000.gz",
   "group": "text",
   "members": [
    SIZE
   ],
   "raw": 11,
   "rows": 1,
   "size": SIZE
  },
  {
   "blocks": [
    "bf4dcf9b9d80629013c02361151b0d48"
   ],
   "file": "tokens-00000.safetensors",
   "group": "tokens",
   "rows": 4,
   "size": 152
  },
  {
   "blocks": [
    "36f3a381488baf005510288858a2bad9"
   ],
   "file": "tokens-00001.safetensors",
   "group": "tokens",
   "rows": 2,
   "size": 140
  },
  {
   "blocks": [
    "488712acecf9caeb5021ad33e727615a"
   ],
   "file": "words-00000.safetensors",
   "group": "words",
   "rows": 0,
   "size": 529
  }
 ],
 "sources": [
  {
   "encoding": "utf-8",
   "first_token": 0,
   "mtime_ns": 1,
   "name": "a.txt",
   "path": "in/a.txt",
   "sha256": "c3f9c8c283a2b1f2f1896f27a01cbe3cddc0c9d93f752e4639035a0f5b36f6e8",
   "size": 8,
   "text_start": 0,
   "tokens": 4,
   "undecodable": 0
  },
  {
   "encoding": "utf-8",
   "first_token": 4,
   "mtime_ns": null,
   "name": "-",
   "path": null,
   "sha256": "400b040bcb5facec6cf237f11a05a197bdc70dc1374bb2572940915403aa6cbd",
   "size": 3,
   "text_start": 8,
   "tokens": 2,
   "undecodable": 1
  }
 ],
 "status": "complete",
 "title": null,
 "tokens": 6,
 "units": "document"
}
"""


def test_golden_bytes(library):
    """The files of format 4. If this fails, the format has changed: that needs another version."""
    with library.writer("golden", {**HEADER, "profile": {"name": "tiny"}}, shard_rows=4) as writer:
        add_source(writer, "a.txt", b"one\ntwo\n", path="in/a.txt", mtime_ns=1)
        add_source(writer, "-", b"\xff3\n")
        writer.append("embeddings", embeddings(6))
        words = iter([word_table()])
        writer.complete(SNAPSHOT, words=lambda *given: words, report={"forced_splits": 0})
    files = files_of(library.path / "documents" / "golden")
    text = files.pop("text-00000.gz")  # deflate may differ between builds of zlib
    assert text[:10] == b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff"
    assert gzip.decompress(text) == b"one\ntwo\n\xff3\n"
    manifest = files.pop("manifest.json").decode()
    hashes = {name: hashlib.sha256(data).hexdigest() for name, data in files.items()}
    assert hashes == {f"{name}.safetensors": value for name, value in GOLDEN.items()}
    first, checksum, rest = manifest.split("\n", 2)
    rest = f"{first}\n{rest}"
    assert checksum == f' "checksum": "{xxh3_128_hexdigest(rest.encode())}",'
    expected = GOLDEN_MANIFEST.replace("SIZE", str(len(text)))
    assert rest == expected.replace("HASH", xxh3_128_hexdigest(text))


def test_an_independent_writer_of_the_format_is_read(library):
    """The files alone, made by hand from docs/format.md, are a document."""
    folder = library.path / "documents" / "hand"
    folder.mkdir(parents=True)
    data = b"by hand\nand by head\n"
    (folder / "text-00000.gz").write_bytes(gzip.compress(data, mtime=0))
    newlines = torch.tensor([i for i, byte in enumerate(data) if byte == 10])
    save_file({"newlines": newlines}, folder / "lines-00000.safetensors")
    tokens = {"ids": torch.tensor([4, 5]).int(), "starts": torch.tensor([0, 8])}
    save_file(tokens, folder / "tokens-00000.safetensors")
    save_file({}, folder / "memory-00000.safetensors")
    entries = []
    for path in sorted(folder.iterdir()):
        raw = path.read_bytes()
        group = path.name.split("-")[0]
        rows = {"text": 1, "lines": 2, "tokens": 2, "memory": 0}[group]
        blocks = [xxh3_128_hexdigest(raw)]
        entries.append(
            {"file": path.name, "group": group, "rows": rows, "size": len(raw), "blocks": blocks}
        )
        if group == "text":
            entries[-1] |= {"members": [len(raw)], "raw": len(data)}
    source = {
        "name": "hand.txt",
        "path": None,
        "size": len(data),
        "mtime_ns": None,
        "sha256": hashlib.sha256(data).hexdigest(),
        "encoding": "utf-8",
        "undecodable": 0,
        "first_token": 0,
        "tokens": 2,
        "text_start": 0,
    }
    manifest = {
        **HEADER,
        "title": "Рука",
        "language": "en",
        "encoder": "",
        "units": "document",
        "format": FORMAT,
        "status": "complete",
        "tokens": 2,
        "sources": [source],
        "report": {},
        "shards": entries,
        "checksum": "",
    }
    (folder / "manifest.json").write_text(json.dumps(manifest))
    forge(folder, lambda data: None)
    document = library.document("hand")
    assert document.text(*document.span(1, 2)) == b"and by head\n"
    assert document.line(0, 8) == 2
    assert document.manifest.name == "Рука"
    assert document.manifest.units == "document"
    assert library.folder_named("Рука") == "hand"
    assert (
        document.manifest.to_json()
        == json.dumps(json.loads((folder / "manifest.json").read_text()), sort_keys=True, indent=1)
        + "\n"
    )


def test_the_encodings_of_sources_are_those_of_the_page():
    page = (Path(__file__).parents[3] / "docs" / "format.md").read_text("utf-8")
    [listed] = re.findall(r"Encodings have Python's names, and are ([^.]*)\.", page)
    assert sorted(re.findall("`(.*?)`", listed)) == sorted(ENCODINGS)


def test_the_format_version_is_four():
    assert FORMAT == 4
