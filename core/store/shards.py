"""The files of a document: their names, sizes, element types and records.

A document is tensors in safetensors and text in gzip; the manifest has a `Shard` for each file: its
size and the xxh3-128 of every 1 MiB block. `shard_writer.py` writes the files, `shard_reader.py`
reads them, `docs/format.md` specifies the bytes. This module opens no file.
"""

import re
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from longctx.core.common.errors import StateMismatch

if TYPE_CHECKING:
    import torch

    from longctx.core.store.confined import Confined

BLOCK = 1 << 20  # bytes under one checksum
MEMBER = 1 << 20  # raw bytes in one gzip member
MEMBERS = 64  # gzip members in one text file
AGAIN = "Ingest the document again with --replace"
SNAPSHOTS = ("memory", "boundary")  # groups of one file of tensors that are not rows
WORDS = "words"  # the group of the word index: files of tensors that are not rows
VECTORS = "vectors"  # the group of the passages' vectors, likewise, a file for each of the words
OF_PASSAGES = (WORDS, VECTORS)  # groups that can be made again from text and tokens
# What a search without a model reads.
FOR_WORDS = frozenset({"text", "lines", "tokens", "marks", *OF_PASSAGES})
SEGMENT = "segment"  # a file of a library's word index, likewise
ROWLESS = (*SNAPSHOTS, *OF_PASSAGES, SEGMENT)
PARTS = {  # for people
    **{"lines": "text", "marks": "tokens", "memory": "cache", "boundary": "cache"},
    VECTORS: WORDS,
}
DTYPES = {  # safetensors' name: torch's name, bytes of an element
    "F64": ("float64", 8),
    "F32": ("float32", 4),
    "F16": ("float16", 2),
    "BF16": ("bfloat16", 2),
    "I64": ("int64", 8),
    "I32": ("int32", 4),
    "I16": ("int16", 2),
    "I8": ("int8", 1),
    "U8": ("uint8", 1),
    "BOOL": ("bool", 1),
}

NARROW = {("tokens", "ids"): "int16", ("tokens", "starts"): "int32"}  # stored so where all fit

Rows = dict[str, "torch.Tensor"]

_GROUP = re.compile(r"[a-z][a-z0-9_]{0,39}")
_NAME = re.compile(rf"({_GROUP.pattern})-(\d{{5,9}})(\.\d{{5,9}})?\.(safetensors|gz)")


@dataclass(frozen=True)
class Shard:
    """What the manifest records of one file; ValueError for a value that no writer produces.

    Args:
        file: its name, made of group and number (`shard_name`).
        group: "text", "lines", "tokens", "memory", "boundary", "words", "vectors", or one that a
            method keeps.
        rows: first dimension of every tensor; gzip members of a text file; 0 for ROWLESS.
        size: bytes on disk.
        blocks: xxh3-128 (hex) of each 1 MiB block.
        members: text only: the compressed size of each gzip member.
        raw: text only: bytes of the decompressed text.
    """

    file: str
    group: str
    rows: int
    size: int
    blocks: tuple[str, ...]
    members: tuple[int, ...] | None = None
    raw: int | None = None

    def __post_init__(self) -> None:
        is_text = self.group == "text"
        parts = _parts(self.file)
        if not parts or parts[0] != self.group or (parts[3] == "gz") != is_text:
            raise ValueError(f"{self.file!r} is no file name of group {self.group!r}")
        if self.rows < 0 or self.size < 0 or len(self.blocks) != -(-self.size // BLOCK):
            raise ValueError(f"{self.file}: rows, size and blocks do not fit together")
        if (self.members is not None, self.raw is not None) != (is_text, is_text):
            raise ValueError(f"{self.file}: text files, and only these, have members and raw")
        if is_text and not self._is_text_consistent():
            raise ValueError(f"{self.file}: rows, members and raw do not fit together")

    def _is_text_consistent(self) -> bool:
        members, raw = self.members or (), self.raw or 0
        sizes_fit = min(members, default=0) > 0 and sum(members) == self.size
        return sizes_fit and self.rows == len(members) == -(-raw // MEMBER) <= MEMBERS

    @property
    def number(self) -> int:
        """The position of this file in its group, from its name."""
        return int(_parts(self.file)[1])

    @property
    def part(self) -> str:
        """What people want to know its size of: the group, or the part that it belongs to."""
        return PARTS.get(self.group, self.group)

    @property
    def checkpoint(self) -> int | None:
        """The checkpoint that this file was written for, if any; the next one replaces it."""
        suffix = _parts(self.file)[2]
        return None if suffix is None else int(suffix[1:])


@lru_cache(1 << 12)  # documents have many names in common
def _parts(name: str) -> tuple[str, ...]:
    return found.groups() if (found := _NAME.fullmatch(name)) else ()


def is_group(name: str) -> bool:
    """Whether a group of rows can have this name."""
    return _GROUP.fullmatch(name) is not None


def shard_name(group: str, number: int, checkpoint: int | None) -> str:
    """The file name of one shard; `checkpoint` is a tail's checkpoint, None for final files."""
    suffix = "" if checkpoint is None else f".{checkpoint:05d}"
    return f"{group}-{number:05d}{suffix}.{'gz' if group == 'text' else 'safetensors'}"


def damaged(path: "Confined | Path", why: str, document: str = "") -> StateMismatch:
    """The error for a file that is not what was written; say in `why` what is wrong."""
    return StateMismatch(f"'{path}' is damaged", why, AGAIN, document)
