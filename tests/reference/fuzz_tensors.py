"""Files that lie, with right checksums: tensors and text that hold something else."""

import gzip
import hashlib
import json
import math
import random
import struct
import zlib
from typing import Any

import fuzz_changes as changes
import numpy as np
from fuzz_library import Case, Shelf, Template, sealed
from fuzz_manifests import LIES
from xxhash import xxh3_128_hexdigest

from longctx.core.store import shards
from longctx.core.store.manifest import MANIFEST


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
