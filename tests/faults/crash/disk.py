"""A disk that loses what was not synced: a model of what it may hold after a power cut.

As the test VFS of SQLite: all that was synced is there; of the rest anything may be missing. A file
holds what it held at its last sync, and of what was written since any sectors, in any size between.
A folder holds the names that it had at its last sync, and any of the changes since; two changes of
one name or one folder keep their order, and a rename happens as a whole or not at all, as on file
systems with a journal. A folder that is synced makes the renames out of it durable too.
"""

import os
import random
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from crash.layer import Record

SECTORS = (512, 4096)
Tree = dict[str, bytes | None]  # content of every file by its path; None: a folder


@dataclass
class Node:
    """A file or folder.

    Attributes:
        folder: whether it is one.
        data: of a file, as it was synced.
        since: what was written after that: (offset, bytes), or (size, None) where it was cut.
        names: of a folder, as they were synced: number of the node, and of the change.
    """

    folder: bool
    data: bytes = b""
    since: list[tuple[int, bytes | None]] = field(default_factory=list)
    names: dict[str, tuple[int | None, int]] = field(default_factory=dict)


@dataclass(frozen=True)
class Change:
    """A change of names that is not synced: (folder, name, node or None) of each."""

    number: int
    slots: tuple[tuple[int, str, int | None], ...]
    moved: int | None = None  # a folder that gets another place


class Disk:
    """What is on a disk, and what only seems to be.

    Args:
        tree: what it holds at first, all of it synced.
    """

    def __init__(self, tree: Tree):
        self.nodes = [Node(True)]
        self.live: dict[int, dict[str, int]] = {0: {}}  # names as the process sees them
        self.changes: list[Change] = []
        self._handles: dict[int, int] = {}
        self._count = 0
        for path in sorted(tree):
            parent, name = self._parent(path)
            number = self._new(tree[path] is None, tree[path] or b"")
            self.live[parent][name] = number
            self.nodes[parent].names[name] = number, 0

    def apply(self, record: Record) -> None:
        """Does what was recorded; what failed did nothing."""
        if record.error:
            return
        known = getattr(self, f"_{record.kind}", None)
        if known is None:
            raise ValueError(f"this disk knows no {record.kind} ({record.path})")
        known(record)

    def seen(self) -> Tree:
        """What the process sees."""
        names = {folder: dict(found) for folder, found in self.live.items()}
        return self._walk(names, lambda node: _written(node.data, node.since))

    def after_a_cut(self, keep: float, torn: random.Random | None) -> Tree:
        """What the disk may hold if the power fails now.

        Args:
            keep: how likely each change is there that was not synced: 0 none, 1 all.
            torn: decides that, and which sectors of a file; None: files have all or nothing.
        """
        chance = torn or random.Random(0)
        names = {number: dict(node.names) for number, node in enumerate(self.nodes) if node.folder}
        lost: set[tuple[int, str] | int] = set()
        for change in self.changes:
            touched = {slot[:2] for slot in change.slots}
            touched |= set() if change.moved is None else {change.moved}
            if touched & lost or chance.random() >= keep:
                lost |= touched
                continue
            for folder, name, node in change.slots:
                if names[folder].get(name, (None, 0))[1] <= change.number:
                    names[folder][name] = node, change.number
        there = {
            folder: {name: node for name, (node, _) in found.items() if node is not None}
            for folder, found in names.items()
        }
        return self._walk(there, lambda node: _cut(node, keep, torn))

    def _walk(self, names: dict[int, dict[str, int]], content) -> Tree:
        tree: Tree = {}
        folders = [("", 0)]
        while folders:
            prefix, folder = folders.pop()
            for name, number in names[folder].items():
                path, node = f"{prefix}{name}", self.nodes[number]
                assert path not in tree
                tree[path] = None if node.folder else content(node)
                if node.folder:
                    folders.append((f"{path}/", number))
        return tree

    # --- names ---

    def _new(self, folder: bool, data: bytes = b"") -> int:
        self.nodes.append(Node(folder, data))
        if folder:
            self.live[len(self.nodes) - 1] = {}
        return len(self.nodes) - 1

    def _find(self, path: str) -> int:
        number = 0
        for name in filter(None, path.split("/")):
            number = self.live[number][name]
        return number

    def _parent(self, path: str) -> tuple[int, str]:
        folder, _, name = path.rpartition("/")
        return self._find(folder), name

    def _change(self, *slots: tuple[int, str, int | None], moved: int | None = None) -> None:
        self._count += 1
        self.changes.append(Change(self._count, slots, moved))
        for folder, name, node in slots:
            if node is None:
                self.live[folder].pop(name, None)
            else:
                self.live[folder][name] = node

    def _create(self, record: Record) -> None:
        number = self._new(False)
        self._handles[record.handle] = number
        if record.flags != 2:  # else it has no name yet
            self._change((*self._parent(record.path), number))

    def _open_write(self, record: Record) -> None:
        number = self._find(record.path)
        self._handles[record.handle] = number
        if record.flags:
            self.nodes[number].since.append((0, None))

    def _open_read(self, record: Record) -> None:
        if not record.path.endswith(" (deleted)"):
            self._handles[record.handle] = self._find(record.path)

    def _mkdir(self, record: Record) -> None:
        self._change((*self._parent(record.path), self._new(True)))

    def _unlink(self, record: Record) -> None:
        self._change((*self._parent(record.path), None))

    _rmdir = _unlink

    def _link(self, record: Record) -> None:
        source = self._find(record.path) if record.path else self._handles[record.handle]
        self._change((*self._parent(record.other), source))

    def _rename(self, record: Record) -> None:
        if record.path is None or record.other is None or record.flags:
            raise ValueError(f"this disk renames within the folder alone, without flags: {record}")
        number = self._find(record.path)
        old, new = self._parent(record.path), self._parent(record.other)
        moved = number if self.nodes[number].folder else None
        self._change((*old, None), (*new, number), moved=moved)

    # --- data ---

    def _write(self, record: Record) -> None:
        self.nodes[self._handles[record.handle]].since.append((record.offset, record.data))

    def _truncate(self, record: Record) -> None:
        self.nodes[self._handles[record.handle]].since.append((record.length, None))

    def _sync(self, record: Record) -> None:
        number = self._handles[record.handle]
        node = self.nodes[number]
        if not node.folder:
            node.data, node.since = _written(node.data, node.since), []
            return
        durable = [c for c in self.changes if any(slot[0] == number for slot in c.slots)]
        self.changes = [change for change in self.changes if change not in durable]
        for change in durable:
            for folder, name, found in change.slots:
                self.nodes[folder].names[name] = found, change.number

    def _nothing(self, record: Record) -> None:
        pass

    _close = _meta = _nothing


def _written(data: bytes, since: list[tuple[int, bytes | None]]) -> bytes:
    content = bytearray(data)
    for place, new in since:
        if new is None:
            content = content[:place] + bytes(max(0, place - len(content)))
        else:
            content += bytes(max(0, place - len(content)))
            content[place : place + len(new)] = new
    return bytes(content)


def _cut(node: Node, keep: float, torn: random.Random | None) -> bytes:
    """What a file holds after the cut: all, nothing, or sectors of what was not synced."""
    if not node.since or keep == 0:
        return node.data
    new = _written(node.data, node.since)
    if torn is None or torn.random() < keep / 2:
        return new
    sector = torn.choice(SECTORS)
    old = node.data.ljust(len(new), b"\0")
    pieces = [
        (new if torn.random() < keep else old)[at : at + sector]
        for at in range(0, len(new), sector)
    ]
    shortest = min(len(node.data), len(new)) // sector
    size = torn.randint(shortest, -(-len(new) // sector)) * sector
    return b"".join(pieces)[:size]


def tree_of(root: Path) -> Tree:
    """What a folder holds."""
    found: Tree = {}
    for folder, folders, files in os.walk(root):
        inside = Path(folder).relative_to(root)
        found |= {str(inside / name): None for name in folders}
        found |= {str(inside / name): (Path(folder) / name).read_bytes() for name in files}
    return found


def put(tree: Tree, root: Path) -> None:
    """Makes a folder hold this, and nothing else."""
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir(parents=True)
    for path in sorted(tree):
        if tree[path] is None:
            (root / path).mkdir()
        else:
            (root / path).write_bytes(tree[path])


@dataclass(frozen=True)
class Cut:
    """A power cut, and what the disk holds after it.

    Attributes:
        name: by which it is found again: the operation before which it comes, and the variant.
        tree: what the disk holds.
        place: number of the operation.
        over: the command had ended.
    """

    name: str
    tree: Tree
    place: int
    over: bool


def cuts(
    tree: Tree, records: list[Record], promised: list[dict[str, int]], seeds: int, seed: int = 0
) -> Iterator[Cut]:
    """What a disk may hold if the power fails during a command, each state once for each promise.

    Just before every sync, and at the end: nothing of what was not synced, all of it, and random
    parts of it.

    Args:
        tree: what it held before the command.
        records: what the command did.
        promised: before each of these, and at the end, what was promised to be durable.
        seeds: how many random parts at each place.
        seed: of these.
    """
    disk, told = Disk(tree), set()
    for place, record in enumerate([*records, None]):
        if record is None or record.kind == "sync":
            for variant in range(seeds + 2):
                keep = (0.0, 1.0, 0.5, 0.9, 0.2)[variant] if variant < 5 else 0.7
                chance = random.Random(f"{seed}:{place}:{variant}") if variant > 1 else None
                state = disk.after_a_cut(keep, chance)
                held = hash(tuple(sorted(state.items(), key=lambda item: item[0])))
                key = record is None, str(promised[place]), held
                if key not in told:
                    told.add(key)
                    yield Cut(f"{place}:{variant}", state, place, record is None)
        if record is not None:
            disk.apply(record)
