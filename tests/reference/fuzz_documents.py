"""Documents that lie, with right checksums: small real ones with a place changed, and all that
commands do with a document in process.

A case is files that take the place of those of a document. `put_in_place` writes them and `restore`
puts back what was there.
"""

import gzip
import hashlib
import json
import math
import os
import random
import shutil
import struct
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import fuzz_changes as changes
import numpy as np
from fuzz_running import refused_at_most, require_told
from xxhash import xxh3_128_hexdigest

from longctx.cli import render
from longctx.cli import show as show_command
from longctx.core.api.searching import Search
from longctx.core.api.told import details, summary
from longctx.core.api.words_alone import Opened
from longctx.core.common.errors import StateMismatch
from longctx.core.retrieve.lexical import PassageIndex
from longctx.core.retrieve.unit_table import Units
from longctx.core.retrieve.word_tables import count_tables, read_table
from longctx.core.sources.encodings import ENCODINGS
from longctx.core.store import shards
from longctx.core.store.document import Document
from longctx.core.store.facts import Facts
from longctx.core.store.library import Library
from longctx.core.store.manifest import MANIFEST, Manifest, canonical_json
from longctx.core.store.marks import marks_before, marks_of
from longctx.core.store.sameness import changed_sources
from longctx.core.store.word_files import damaged_words, unchanged_words

Case = dict[str, bytes]  # what is put in the place of which file, by its path in the library

STORY = "The keeper wrote that a boat came home.\nInside was a map of the harbour.\n\n"
PAGE = "<html><body><p>The code is 4711.</p>\n<p>caf&eacute; \u5e78\u798f</p></body></html>\n"
SMALL = """\
name: small
window: 4096
prompt: {prefix: "<|bos|>", question: "\\n\\nQuestion: {question}\\nAnswer:"}
max_new_tokens: 2
method: reform
methods:
  reform:
    {chunk: 64, budget: 64, first: 8, last: 8, gather: 96, heads: [[2, v, 1], [3, q, 3]]}
  reattention: {first: 4, local: 64, chunk: 32, voted: 95, gather: 96}
"""
QUERY = "the map of the old harbour"
LOOKED_AT = 4  # tokens, places and rows that are asked for


class Stopped(BaseException):
    """A reading ends here, as by a kill."""


# --- making ---


def make_library(folder: Path) -> Path:
    """A library with three small documents of the bundled model, one of them not finished.

    Args:
        folder: where the sources, the profile and `library` are made.
    """
    from longctx.core.engine.choice import Setup
    from longctx.core.ingest.checkpoints import Cadence
    from longctx.core.ingest.ingest import ingest

    (folder / "small.yaml").write_text(SMALL)
    (folder / "one.txt").write_text(STORY * 5)
    (folder / "two.html").write_text(PAGE * 3)
    (folder / "three.txt").write_bytes("Привет, мир\nthe old map\n".encode("utf-16") * 3)
    paths = [str(folder / name) for name in ("one.txt", "two.html", "three.txt")]
    setup = {"profile": str(folder / "small.yaml"), "device": "cpu", "dtype": "fp32", "threads": 1}

    def stop(progress: Any) -> None:
        if progress.kept > 64:
            raise Stopped

    for name, method in (("book", "reform"), ("kept", "reattention"), ("begun", "reform")):
        ways = {"cadence": Cadence.given(64, None), "on_progress": stop} if name == "begun" else {}
        with suppress(Stopped):
            ingest(folder / "library", paths, Setup(**setup, method=method), name=name, **ways)
    for document in _folders(folder / "library").values():
        _make_the_same_everywhere(document / MANIFEST)
    return folder / "library"


def _folders(library: Path) -> dict[str, Path]:
    """Folders of all documents by name."""
    found = [path for part in ("documents", "unfinished") for path in (library / part).glob("*")]
    return {path.name: path for path in sorted(found) if (path / MANIFEST).exists()}


def _make_the_same_everywhere(path: Path) -> None:
    """Takes out of a manifest where and when it was made."""
    data = json.loads(path.read_bytes())
    for source in data["sources"]:
        name = Path(source["name"]).name
        source.update(name=name, path=f"/nowhere/{name}", mtime_ns=1)
    data["recorded"] = {"device": "cpu", "dtype": "fp32", "torch": "2", "transformers": "5"}
    path.write_bytes(sealed(data))


def sealed(data: Any) -> bytes:
    """A manifest as a liar writes it: with the checksum of what it says."""
    if not isinstance(data, dict):
        return json.dumps(data).encode()
    data = {key: value for key, value in data.items() if key != "checksum"}
    try:
        return sealed_text(canonical_json(data).encode("ascii"))
    except (ValueError, TypeError):  # NaN
        return sealed_text(changes.json_text(data).encode("ascii"))


def sealed_text(text: bytes) -> bytes:
    """The text of an object, whatever it is, with a checksum that fits it."""
    rest = text.removeprefix(b"{\n")
    checksum = xxh3_128_hexdigest(b"{\n" + rest).encode()
    return b'{\n "checksum": "' + checksum + b'",\n' + rest


@dataclass
class Template:
    """A real document in memory.

    Attributes:
        place: its folder in the library.
        manifest: what its manifest says, without the checksum.
        files: its other files.
    """

    place: str
    manifest: dict[str, Any]
    files: dict[str, bytes]
    _tensors: dict[str, tuple[dict, bytes]] = field(default_factory=dict)

    @classmethod
    def of(cls, library: Path, folder: Path) -> "Template":
        """A document on the disk."""
        manifest = json.loads((folder / MANIFEST).read_bytes())
        del manifest["checksum"]
        files = {
            shard["file"]: (folder / shard["file"]).read_bytes() for shard in manifest["shards"]
        }
        return cls(str(folder.relative_to(library)), manifest, files)

    def tensors(self, name: str) -> tuple[dict, bytes]:
        """Header and data of a file of tensors."""
        if name not in self._tensors:
            data = self.files[name]
            end = 8 + int.from_bytes(data[:8], "little")
            self._tensors[name] = json.loads(data[8:end]), data[end:]
        return self._tensors[name]

    def copy_of_manifest(self) -> dict[str, Any]:
        """What the manifest says, to be changed: sources, files, report and model are new."""
        data = dict(self.manifest)
        data["sources"] = [dict(source) for source in data["sources"]]
        data["shards"] = [dict(shard) for shard in data["shards"]]
        data["report"], data["model"] = dict(data["report"]), dict(data["model"])
        return data


class Shelf:
    """A library whose documents are changed and put back.

    Args:
        library: its folder, which is this one's alone.
    """

    def __init__(self, library: Path):
        self.library = library
        self.templates = {
            name: Template.of(library, folder) for name, folder in _folders(library).items()
        }
        self._whole = {
            f"{template.place}/{name}": data
            for template in self.templates.values()
            for name, data in template.files.items()
        }
        for template in self.templates.values():
            path = f"{template.place}/{MANIFEST}"
            self._whole[path] = (library / path).read_bytes()

    def template(self, rng: random.Random) -> Template:
        """One of the documents, the first more often."""
        return self.templates[rng.choice(["book", "book", "book", "kept", "begun"])]

    @contextmanager
    def with_case(self, case: Case) -> Iterator[None]:
        """Inside, the files of a case are in their places."""
        for path, data in case.items():
            (self.library / path).write_bytes(data)
        try:
            yield
        finally:
            for path in case:
                if path in self._whole:
                    (self.library / path).write_bytes(self._whole[path])
                else:
                    (self.library / path).unlink(missing_ok=True)


def copied(library: Path, to: Path) -> Shelf:
    """A copy of a library, to be changed."""
    return Shelf(Path(shutil.copytree(library, to)))


# --- manifests ---


def manifest_case(shelf: Shelf, rng: random.Random) -> Case:
    """A manifest that says something else, with the right checksum."""
    template = shelf.template(rng)
    data = template.copy_of_manifest()
    kind = rng.randrange(8)
    if kind < 3:
        rng.choice(LIES)(rng, data)
    whole: Any = data
    if kind >= 2:
        for _ in range(rng.choice([1, 1, 2, 3])):
            whole = changes.mutated(rng, whole)
    text = sealed(whole)
    if kind == 7:
        text = sealed_text(changes.edited(rng, canonical_json(data).encode(), most=3))
    return {f"{template.place}/{MANIFEST}": text}


def _tokens_elsewhere(rng: random.Random, data: dict) -> None:
    """Sources with more or fewer tokens than they have, which are as many together."""
    _shared_anew(rng, data["sources"], "tokens", "first_token")


def _bytes_elsewhere(rng: random.Random, data: dict) -> None:
    """The same of bytes."""
    _shared_anew(rng, data["sources"], "size", "text_start")


def _shared_anew(rng: random.Random, sources: list[dict], count: str, start: str) -> None:
    total = sum(source[count] for source in sources)
    cuts = sorted(rng.choice([0, total, rng.randrange(total + 1)]) for _ in sources[1:])
    for source, (low, high) in zip(sources, pairwise([0, *cuts, total]), strict=True):
        source[count], source[start] = high - low, low


def _more_sources(rng: random.Random, data: dict) -> None:
    """Sources without text or tokens, here and there; or all in one; or hundreds."""
    sources = data["sources"]
    for _ in range(rng.choice([1, 2, 300])):
        at = rng.randrange(len(sources) + 1)
        follows = sources[at] if at < len(sources) else None
        last = sources[-1]
        empty = {**last, "size": 0, "tokens": 0, "sha256": hashlib.sha256().hexdigest()}
        empty["first_token"] = follows["first_token"] if follows else data["tokens"]
        end = last["text_start"] + last["size"]
        empty["text_start"] = follows["text_start"] if follows else end
        sources.insert(at, empty)


def _one_source(rng: random.Random, data: dict) -> None:
    first, last = data["sources"][0], data["sources"][-1]
    first.update(tokens=data["tokens"], size=last["text_start"] + last["size"])
    data["sources"] = [first] if rng.random() < 0.8 else []


def _another_encoding(rng: random.Random, data: dict) -> None:
    for source in data["sources"]:
        source["encoding"] = rng.choice(sorted(ENCODINGS))


def _another_origin(rng: random.Random, data: dict) -> None:
    kinds = ["page", "line", "cell", "\x1b[2J", "", None, "\ud800", "x" * 5000]
    for source in data["sources"]:
        source["origin"] = {
            **{"size": rng.choice([0, 3, 1 << 62]), "sha256": source["sha256"]},
            **{"part": changes.text(rng), "marks": rng.choice(kinds)},
        }


def _other_names(rng: random.Random, data: dict) -> None:
    for source in data["sources"]:
        source["name"] = changes.text(rng)
        source["path"] = rng.choice([None, changes.text(rng), "/" + changes.text(rng)])
        source["mtime_ns"] = rng.choice([None, *changes.NUMBERS])
    data["title"] = rng.choice([None, changes.text(rng), "x" * 200, "\u202etitle"])


def _another_boundary(rng: random.Random, data: dict) -> None:
    tokens = rng.choice([0, 1, 64, 65, data["tokens"], data["tokens"] - 1, *changes.NUMBERS])
    data["report"]["boundary"] = {"tokens": tokens, "forced_splits": rng.choice(changes.NUMBERS)}


def _another_state(rng: random.Random, data: dict) -> None:
    data["status"] = rng.choice(["reading", "complete", "damaged", ""])
    data["units"] = rng.choice(["document", "source", "x"])
    if changes.seldom(rng, 4):
        data["format"] = 2
        data.pop("title"), data.pop("units")


def _fewer_files(rng: random.Random, data: dict) -> None:
    """Groups that are not named; or more of one."""
    group = rng.choice(data["shards"])["group"]
    data["shards"] = [shard for shard in data["shards"] if shard["group"] != group]
    if group == "text" and rng.random() < 0.7:
        data["shards"] = [shard for shard in data["shards"] if shard["group"] != "lines"]
        for source in data["sources"]:
            source.update(size=0, text_start=0)
    if group == "tokens" and rng.random() < 0.7:
        data["tokens"] = 0
        for source in data["sources"]:
            source.update(tokens=0, first_token=0)


def _more_files(rng: random.Random, data: dict) -> None:
    shard = dict(rng.choice(data["shards"]))
    group = rng.choice([shard["group"], "aa", "zz", "memory", "marks", "kv", "words"])
    number = rng.choice([0, 1, 2, 10**8])
    end = "gz" if group == "text" else "safetensors"
    shard.update(group=group, file=f"{group}-{number:05d}.{end}", rows=rng.choice([0, 1, 2**62]))
    if rng.random() < 0.3:
        shard["size"], shard["blocks"] = 0, []
    data["shards"].append(shard)


def _other_sizes(rng: random.Random, data: dict) -> None:
    shard = rng.choice(data["shards"])
    size = rng.choice([0, 1, shard["size"] - 1, shard["size"] + 1, (1 << 20) + 1, 50 << 20])
    shard.update(size=size, blocks=["0" * 32] * -(-size // shards.BLOCK))
    if "members" in shard:
        shard["members"] = [size] if rng.random() < 0.5 else [1] * min(size, 64)


def _another_way(rng: random.Random, data: dict) -> None:
    """The method's options or the profile, of right types more often than not."""
    key = rng.choice(["options", "profile", "method", "recorded", "model", "report"])
    for _ in range(rng.choice([1, 1, 3])):
        data[key] = changes.mutated(rng, data[key])


LIES: list[Callable[[random.Random, dict], None]] = [
    *(_tokens_elsewhere, _bytes_elsewhere, _more_sources, _one_source, _another_encoding),
    *(_another_origin, _other_names, _another_boundary, _another_state, _fewer_files),
    *(_more_files, _other_sizes, _another_way, _another_way),
]


# --- tensors ---


def tensor_case(shelf: Shelf, rng: random.Random) -> Case:
    """One or two files that hold something else, with the right checksums."""
    template = shelf.template(rng)
    data, case = template.copy_of_manifest(), {}
    for _ in range(rng.choice([1, 1, 2])):
        shard = rng.choice(data["shards"])
        change = _packed_text if shard["group"] == "text" else _tensor_file
        content = change(rng, template, data, shard)
        if changes.seldom(rng, 12):
            content = changes.edited(rng, content, most=2)
        shard["size"], shard["blocks"] = len(content), _hashed(content)
        case[f"{template.place}/{shard['file']}"] = content
    if changes.seldom(rng, 4):
        rng.choice(LIES)(rng, data)
    return {**case, f"{template.place}/{MANIFEST}": sealed(data)}


def _hashed(content: bytes) -> list[str]:
    return [
        xxh3_128_hexdigest(content[start : start + shards.BLOCK])
        for start in range(0, len(content), shards.BLOCK)
    ]


def _tensor_file(rng: random.Random, template: Template, data: dict, shard: dict) -> bytes:
    header, content = template.tensors(shard["file"])
    kind = rng.randrange(16)
    if kind < 8:
        content = _other_values(rng, header, content)
    elif kind < 10:
        header, content = _other_rows(rng, header, content, data, shard)
    elif kind < 13:
        header, content = rng.choice(FORMS)(rng, header, content, shard)
    elif kind == 13:
        header = changes.mutated(rng, header)
    text = json.dumps(header).encode()
    if kind == 14:
        text = changes.edited(rng, text, most=3)
        if changes.seldom(rng, 4):
            text += b" " * rng.choice([1, 7, 8, 1 << 20, (1 << 20) - len(text)])
    text += b" " * (-len(text) % 8)
    length = len(text)
    if kind == 15:
        length = rng.choice([0, 1, length - 1, length + 8, 2**31, 2**63, 2**64 - 1, 1 << 20])
    return struct.pack("<Q", length) + text + content


SIZES = {name: size for name, (_, size) in shards.DTYPES.items()}
KINDS = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "I64": "<i8", "I32": "<i4", "I16": "<i2"}
KINDS |= {"I8": "<i1", "U8": "<u1", "BF16": "<u2", "BOOL": "<u1"}


def _other_values(rng: random.Random, header: dict, content: bytes) -> bytes:
    """A tensor with other values, in its type."""
    entry = header[rng.choice(sorted(header))]
    (start, stop), found = entry["data_offsets"], bytearray(content)
    array = np.frombuffer(found, KINDS[entry["dtype"]])[0:0] if start == stop else None
    if array is not None:
        return content
    array = np.frombuffer(
        found, KINDS[entry["dtype"]], (stop - start) // SIZES[entry["dtype"]], start
    )
    kind = rng.randrange(8)
    if kind == 0:
        array[:] = array[::-1].copy()
    elif kind == 1:
        array[:] = _edge(rng, array)
    elif kind == 2:
        found[start:stop] = (rng.choice([b"\xff", b"\0", b"\n", b"\x7f"])) * (stop - start)
    elif kind == 3:
        found[start:stop] = rng.randbytes(stop - start)
    else:
        for _ in range(rng.choice([1, 1, 2, 8])):
            at = rng.choice([0, len(array) - 1, rng.randrange(len(array))])
            array[at] = _edge(rng, array)
    return bytes(found)


def _edge(rng: random.Random, array: np.ndarray) -> Any:
    """A value at the edge of a type, or near one that is there."""
    if array.dtype.kind == "f":
        most = np.finfo(array.dtype).max
        return rng.choice([np.nan, np.inf, -np.inf, 0.0, -0.0, most, -most, 1e-7])
    limits = np.iinfo(array.dtype)
    old, count = int(array[rng.randrange(len(array))]), len(array)
    wanted = [limits.min, limits.max, 0, 1, -1, old + 1, old - 1, count, count - 1, 64, 255]
    return min(max(rng.choice(wanted), limits.min), limits.max)


def _other_rows(
    rng: random.Random, header: dict, content: bytes, data: dict, shard: dict
) -> tuple[dict, bytes]:
    """More rows or fewer, in all tensors of a file; the manifest agrees."""
    old = min(shard["rows"], 1000)  # it may have been made to claim more
    rows = rng.choice([0, 1, max(0, old - 1), old + 1, 2 * old, rng.randrange(old + 2)])
    found, pieces, at = {}, [], 0
    for name, entry in header.items():
        start, stop = entry["data_offsets"]
        width = math.prod(entry["shape"][1:]) * SIZES[entry["dtype"]]
        first = entry["shape"][0] if entry["shape"] else 0
        count = rows if shard["group"] not in shards.ROWLESS else rng.choice([first, rows])
        piece = (content[start:stop] * 3 + b"\1" * count * width)[: count * width]
        found[name] = {**entry, "shape": [count, *entry["shape"][1:]]}
        found[name]["data_offsets"] = [at, at + len(piece)]
        pieces.append(piece)
        at += len(piece)
    if shard["group"] not in shards.ROWLESS:
        shard["rows"] = rows
        if shard["group"] == "tokens" and rng.random() < 0.8:
            _retold(data, rows)
    return found, b"".join(pieces)


def _retold(data: dict, tokens: int) -> None:
    """Sources that have so many tokens together: the last ones have more, or fewer."""
    data["tokens"], left = tokens, tokens
    for source in data["sources"]:
        source["first_token"] = tokens - left
        source["tokens"] = min(left, source["tokens"])
        left -= source["tokens"]
    if data["sources"]:
        data["sources"][-1]["tokens"] += left


def _no_width(rng: random.Random, header: dict, content: bytes, shard: dict) -> tuple[dict, bytes]:
    """Tensors that have a dimension of 0, so that they can have any number of rows."""
    rows = rng.choice([shard["rows"], 2**31, 10**12, 2**59])
    if shard["group"] not in shards.ROWLESS:
        shard["rows"] = rows
    shapes = [[rows, 0], [rows, 4, 0], [rows, 0, 2**40], [0, rows], [rows]]
    return {
        name: {**entry, "shape": rng.choice(shapes), "data_offsets": [0, 0]}
        for name, entry in header.items()
    }, b""


def _another_form(
    rng: random.Random, header: dict, content: bytes, shard: dict
) -> tuple[dict, bytes]:
    """The same bytes as a tensor of another type or shape."""
    name = rng.choice(sorted(header))
    entry = header[name]
    start, stop = entry["data_offsets"]
    dtype = rng.choice(sorted(SIZES))
    count = (stop - start) // SIZES[dtype]
    shapes = [[count], [1, count], [count, 1], [*entry["shape"], 1], [1] * 16 + [count], []]
    first = shard["rows"]
    if first and count % first == 0:
        shapes += [[first, count // first], [first, 1, count // first], [first, count // first, 1]]
    return {**header, name: {**entry, "dtype": dtype, "shape": rng.choice(shapes)}}, content


def _other_tensors(
    rng: random.Random, header: dict, content: bytes, shard: dict
) -> tuple[dict, bytes]:
    """Names that are exchanged, new, or those of nothing."""
    names, found = sorted(header), dict(header)
    first, second = rng.choice(names), rng.choice(names)
    new = rng.choice(["__metadata__", "x.shape", f"{first}.shape", "", "\ud800", "vectors", "seen"])
    kind = rng.randrange(4)
    if kind == 0:
        found[first], found[second] = found[second], found[first]
    elif kind == 1:
        found[new] = found.pop(first)
    elif kind == 2:
        end = len(content)
        found[new] = {"dtype": "I64", "shape": [shard["rows"], 0], "data_offsets": [end, end]}
    else:
        del found[first]
    return found, content


def _overlapping(
    rng: random.Random, header: dict, content: bytes, shard: dict
) -> tuple[dict, bytes]:
    """Tensors at places that are not theirs."""
    name = rng.choice(sorted(header))
    start, stop = header[name]["data_offsets"]
    shift = rng.choice([-8, 8, 1, -start, len(content), 2**62, -(2**62)])
    places = rng.choice(
        [[start + shift, stop + shift], [stop, start], [start], [start, stop, 0], {}]
    )
    return {**header, name: {**header[name], "data_offsets": places}}, content


FORMS = [_no_width, _another_form, _another_form, _other_tensors, _other_tensors, _overlapping]


def _packed_text(rng: random.Random, template: Template, data: dict, shard: dict) -> bytes:
    """A text file: other text, or a member that is not what it says."""
    packed = template.files[shard["file"]]
    raw = gzip.decompress(packed)
    kind = rng.randrange(8)
    if kind < 3:
        raw = changes.edited(rng, raw)
        packed = _gzip(raw)
    elif kind == 3:
        packed = changes.edited(rng, packed, most=2)
    elif kind == 4:  # two members, or something behind the first
        packed += rng.choice([_gzip(b"more"), b"\0", b"\x1f\x8b", _gzip(b"")])
    elif kind == 5:
        raw = b"\0" * rng.choice([len(raw), shards.MEMBER, shards.MEMBER + 1, 3 << 20])
        packed = _gzip(raw[: rng.choice([len(raw), shards.MEMBER])])
    elif kind == 6:
        raw = rng.choice(["Привет ", "幸福", "a", "\ud7ff", "ab\n"]).encode() * rng.choice([1, 99])
        packed = _gzip(raw)
    else:
        raw = rng.randbytes(len(raw))
        packed = _gzip(raw)
    shard["members"] = [len(packed)] if packed else []
    shard["rows"] = len(shard["members"])
    if len(raw) != shard["raw"] and rng.random() < 0.9:
        shard["raw"] = len(raw)
        left = len(raw)
        for source in data["sources"]:
            source["text_start"], source["size"] = len(raw) - left, min(left, source["size"])
            left -= source["size"]
        data["sources"][-1]["size"] += left
    if rng.random() < 0.5:
        for source in data["sources"]:
            low = source["text_start"]
            source["sha256"] = hashlib.sha256(raw[low : low + source["size"]]).hexdigest()
    return packed


def _gzip(raw: bytes) -> bytes:
    deflate = zlib.compressobj(6, wbits=31)
    return deflate.compress(raw) + deflate.flush()


def without_numbers(shelf: Shelf, name: str, group: str) -> Case:
    """A document whose tensors of a group hold NaN in place of every fraction."""
    template = shelf.templates[name]
    data, case = template.copy_of_manifest(), {}
    for shard in data["shards"]:
        if shard["group"] != group:
            continue
        header, content = template.tensors(shard["file"])
        found = bytearray(content)
        for entry in header.values():
            if KINDS[entry["dtype"]][1] == "f":
                start, stop = entry["data_offsets"]
                part = np.frombuffer(memoryview(found)[start:stop], KINDS[entry["dtype"]])
                part[:] = np.nan
        text = json.dumps(header).encode()
        text += b" " * (-len(text) % 8)
        packed = struct.pack("<Q", len(text)) + text + bytes(found)
        shard["size"], shard["blocks"] = len(packed), _hashed(packed)
        case[f"{template.place}/{shard['file']}"] = packed
    return {**case, f"{template.place}/{MANIFEST}": sealed(data)}


# --- what is done with them ---


def read_case(shelf: Shelf, case: Case, rng: random.Random) -> None:
    """Puts a case in its place and does all with the document that commands do without a model.

    Raises:
        Exception: one that is not of our own, or that says nothing.
    """
    manifest_path = next(path for path in case if path.endswith(MANIFEST))
    folder = shelf.library / os.path.dirname(manifest_path)
    with shelf.with_case(case):
        try:
            manifest = Manifest.read(folder)
        except StateMismatch as error:
            require_told(error)
            if changes.seldom(rng, 16):
                listed(shelf.library)
            return
        told(manifest)
        if changes.seldom(rng, 16):
            listed(shelf.library)
        opened(folder, rng)


def told(manifest: Manifest) -> None:
    """What `show` and `list` tell of a manifest."""
    from longctx.core.engine.choice import recorded

    assert recorded(manifest)
    told_of = details(manifest, summary(manifest))
    assert "\x1b" not in json.dumps(told_of, allow_nan=False)
    facts = show_command.facts(manifest.folder, told_of)
    assert all(isinstance(value, str) for _, value in facts)
    render.one_line(manifest.name)


def listed(library: Path) -> None:
    """What `list` tells of a library; it lists all, whatever is wrong with one."""
    documents = Library.open(library).documents()
    assert {"book", "kept", "begun"} <= {manifest.name for manifest in documents}
    json.dumps([summary(manifest) for manifest in documents], allow_nan=False)


def opened(folder: Path, rng: random.Random) -> None:
    """Opens a document and reads all that is in it, in every way that there is."""
    with refused_at_most():
        whole = Document(folder)
        for step in STEPS if changes.seldom(rng, 8) else rng.sample(STEPS, 2):
            with refused_at_most():
                step(whole, rng)
        if changes.seldom(rng, 2):
            searched(whole, rng)
        return
    with refused_at_most():  # words need less of it
        searched(Document(folder, needed=shards.FOR_WORDS), rng)


def _kept(document: Document, rng: random.Random) -> None:
    document.size(), document.read_whole()
    if document.has_snapshot:
        document.snapshot()


def _boundary(document: Document, rng: random.Random) -> None:
    document.boundary()


def _rows(document: Document, rng: random.Random) -> None:
    for group in document.groups:
        with refused_at_most():
            for _, rows in document.rows(group):
                assert rows is not None


def _chosen_rows(document: Document, rng: random.Random) -> None:
    import torch

    tokens = document.manifest.tokens
    if not tokens:
        return
    wanted = sorted({0, tokens - 1, *(rng.randrange(tokens) for _ in range(LOOKED_AT))})
    with refused_at_most():
        document.array_take("tokens", np.array(wanted), "starts")
    document.take("tokens", torch.tensor(wanted))


def _spans(document: Document, rng: random.Random) -> None:
    manifest = document.manifest
    for source in manifest.sources[:LOOKED_AT] if manifest.tokens else ():
        if source.tokens:
            first = source.first_token + rng.randrange(source.tokens)
            last = rng.choice([first + 1, source.first_token + source.tokens])
            with refused_at_most():
                number, start, end = document.span(first, last)
                document.text(number, start, end)
                document.place(number, start)


def _text(document: Document, rng: random.Random) -> None:
    for number, source in enumerate(document.manifest.sources[:LOOKED_AT]):
        with refused_at_most():
            assert len(document.text(number, 0, source.size)) == source.size
        with refused_at_most():
            at = rng.choice([0, source.size, rng.randrange(source.size + 1)])
            assert document.line(number, at) >= 1 or document.manifest.sources
            document.place(number, at)


def _marks(document: Document, rng: random.Random) -> None:
    for number in range(min(LOOKED_AT, len(document.manifest.sources))):
        with refused_at_most():
            marks_of(document, number, rng.choice([0, 1, 10**6]))
    marks_before(document, rng.choice([0, 10, 10**12]))


def _tails(document: Document, rng: random.Random) -> None:
    """What going on from a checkpoint, or making it longer, reads."""
    for group in document.groups:
        with refused_at_most():
            document.tail(group)
        document.full(group, rng.choice([0, 64, 10**6]))
    assert sum(map(len, document.text_tail())) >= 0
    document.full_text(rng.choice([0, 10, 10**9]))
    unchanged_words(document, document.manifest.tokens)


def _verified(document: Document, rng: random.Random) -> None:
    damaged_words(document)
    document.verify()


def _word_tables(document: Document, rng: random.Random) -> None:
    units = Units.of(document.manifest)
    for number in range(count_tables(units)):
        read_table(document, units, number)


def _sameness(document: Document, rng: random.Random) -> None:
    changed_sources(document.manifest.sources[:LOOKED_AT])


STEPS: list[Callable[[Document, random.Random], None]] = [
    *(_kept, _boundary, _rows, _chosen_rows, _spans, _text, _marks, _tails, _verified),
    *(_word_tables, _sameness),
]


def searched(document: Document, rng: random.Random) -> None:
    """What `find --gather-by bm25` tells."""
    search = Search(rng.choice([QUERY, "code", "карта мир", '"a map"']), None, 3, None, False)
    facts, index = [Facts.of(document.manifest)], PassageIndex(document)
    found = search.by_words(Opened((document,), facts, index, [], None, 0.0))
    json.dumps(found.values, allow_nan=False)
    for hit in found:
        size = max(each.size for each in document.manifest.sources if each.name == hit.source)
        assert 0 <= hit.start <= hit.end <= size
        assert 0 <= hit.match.start <= hit.match.end <= size
