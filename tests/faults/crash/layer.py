"""The layer below Python: how it is made, begun in a process, and what its journal says."""

import ctypes
import os
import shutil
import struct
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

KINDS = (
    *("create", "open_write", "open_read", "write", "truncate", "sync", "rename", "link"),
    *("unlink", "mkdir", "rmdir", "symlink", "meta", "close", "read", "map"),
)
CHANGES = tuple(k for k in KINDS if k not in ("open_read", "read", "map"))  # what changes a disk
# What needs room on it; a file that is there can be opened without.
GROWS = ("create", "write", "truncate", "link", "mkdir", "symlink")
MODES = ("watch", "fail_once", "fail_on", "kill_before", "kill_within")
_RECORD = struct.Struct("<IIiiqqIIII")
_TOLD = struct.Struct("<QQII1024s")


def available() -> str:
    """Why the layer cannot be made here; empty if it can."""
    if sys.platform != "linux":
        return "only Linux preloads libraries"
    return "" if shutil.which("gcc") else "there is no gcc"


def make(folder: Path) -> Path:
    """Compiles the layer; its path. Where it is there already, it stays."""
    made = folder / "layer.so"
    if not made.exists():
        source = Path(__file__).with_name("layer.c")
        options = ["-O2", "-shared", "-fPIC", "-Wall", "-Wextra", "-Werror"]
        command = ["gcc", *options, "-o", f"{made}.new", str(source), "-ldl", "-lpthread"]
        subprocess.run(command, check=True)
        os.replace(f"{made}.new", made)
    return made


@dataclass(frozen=True)
class Told:
    """What the layer says of a process that has ended.

    Attributes:
        seen: operations that it counted.
        hits: how many of them failed, or killed.
        kind, path: the first of these.
    """

    seen: int
    hits: int
    kind: str
    path: str


@dataclass(frozen=True)
class Plan:
    """What the layer is to do.

    Attributes:
        root: the folder whose files it watches.
        journal: where it writes what it saw; None: nowhere.
        mode: one of MODES.
        number: of the operation, from 0, at which that happens.
        kinds: the operations that are counted.
        error: errno of those that fail.
    """

    root: Path
    journal: Path | None = None
    mode: str = "watch"
    number: int = -1
    kinds: tuple[str, ...] = CHANGES
    error: int = 0

    def begin(self, shared: int) -> None:
        """Begins in this process, into which the layer must have been loaded."""
        mask = sum(1 << KINDS.index(kind) for kind in self.kinds)
        journal = None if self.journal is None else os.fsencode(self.journal)
        begin = ctypes.CDLL(None).layer_begin
        begin.argtypes = [
            *(ctypes.c_char_p, ctypes.c_char_p, ctypes.c_int, ctypes.c_int),
            *(ctypes.c_long, ctypes.c_uint, ctypes.c_int),
        ]
        given = MODES.index(self.mode), self.number, mask, self.error
        begin(os.fsencode(self.root), journal, shared, *given)


def room_for_told() -> int:
    """A file that is shared with a process in which the layer is begun."""
    shared = os.memfd_create("told")
    os.ftruncate(shared, _TOLD.size)
    return shared


def told(shared: int) -> Told:
    """What the layer has told by now."""
    seen, hits, kind, _, path = _TOLD.unpack(os.pread(shared, _TOLD.size, 0))
    return Told(seen, hits, KINDS[kind] if hits else "", os.fsdecode(path.rstrip(b"\0")))


@dataclass(frozen=True)
class Record:
    """An operation. Paths are relative to the folder that was watched, which is ""."""

    kind: str
    handle: int
    error: int
    flags: int
    offset: int
    length: int
    path: str | None
    other: str | None
    data: bytes


def read_journal(path: Path, root: Path) -> Iterator[Record]:
    """The operations that were recorded, in their order."""
    top = os.path.realpath(root)
    content = memoryview(path.read_bytes())
    place = 0

    def take(size: int) -> bytes:
        nonlocal place
        place += size
        return bytes(content[place - size : place])

    def inside(name: bytes) -> str | None:
        found = os.fsdecode(name)
        return found[len(top) + 1 :] if found == top or found.startswith(f"{top}/") else None

    while place < len(content):
        kind, handle, error, flags, offset, length, *sizes, _ = _RECORD.unpack(take(_RECORD.size))
        first, second, data = map(take, sizes)
        names = inside(first), inside(second)
        yield Record(KINDS[kind], handle, error, flags, offset, length, *names, data)
