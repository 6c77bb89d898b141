"""The files of a document, and the rows of their groups: embeddings, keys and values, a snapshot.

This module knows nothing of models, methods or tokenizers: rows are tensors. The files of text are
opened here, and read in `document.py`. torch is imported when tensors are requested.
"""

from collections.abc import Collection, Generator, Iterable, Iterator
from itertools import accumulate, pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from longctx.core.common.errors import StateMismatch
from longctx.core.store import shards
from longctx.core.store.confined import Confined
from longctx.core.store.manifest import MANIFEST, Manifest, by_group
from longctx.core.store.scattered import take_rows
from longctx.core.store.shard_reader import ShardFile, TensorFile, TextFile
from longctx.core.store.shards import Rows, Shard, damaged

if TYPE_CHECKING:
    import numpy as np
    import torch

LARGE = 4 << 30  # bytes of a group
TOGETHER = 1 << 29  # bytes of files that are brought to a device at once, and one more file


class DocumentRows:
    """The files of a document on disk; every part is verified when it is first read.

    Arguments and errors are those of `Document`.

    Attributes:
        damage: by group, what is wrong with each other group that cannot be read.
    """

    def __init__(
        self,
        folder: Confined | Path,
        manifest: Manifest | None = None,
        needed: Collection[str] | None = None,
    ):
        self._folder = folder = Confined.of(folder)
        self.manifest = manifest or Manifest.read(folder)
        groups = by_group(self.manifest.shards)
        self._manifest_size = (folder / MANIFEST).stat().st_size
        self._text = [TextFile(folder, shard) for shard in groups.pop("text", [])]
        self._tables = {
            group: [_lenient(folder, shard) for shard in groups.pop(group, [])]
            for group in shards.OF_PASSAGES
        }
        self._groups: dict[str, list[TensorFile]] = {}
        self._lent: dict[str, Rows] = {}
        self.damage: dict[str, StateMismatch] = {}
        for group, entries in groups.items():
            try:
                self._groups[group] = _group(folder, group, entries)
            except StateMismatch as exc:
                if needed is None or group in needed:
                    raise
                self.damage[group] = exc

    def size(self) -> int:
        """Bytes on disk."""
        return self.manifest.size + self._manifest_size

    @property
    def checked_bytes(self) -> int:
        """Bytes that were read and verified."""
        return sum(file.checked_bytes for file in self._all_files())

    def read_whole(self) -> list[Confined]:
        """The files that a question reads from end to end: the snapshot, then the method's rows.

        Groups over LARGE bytes are left out: a question may read only some of their rows.
        """
        others = self._groups.keys() - {"lines", "tokens", "marks", *shards.SNAPSHOTS}
        groups = [self._groups.get("memory", []), *(self._groups[name] for name in sorted(others))]
        small = [files for files in groups if sum(f.shard.size for f in files) <= LARGE]
        return [file.path for files in small for file in files]

    def rows(self, group: str, names: tuple[str, ...] | None = None) -> Generator[tuple[int, Rows]]:
        """A group's shards in order, one in memory at a time: (first row, {name: (n, ...)}).

        Args:
            group: the group's name.
            names: the tensors needed; None: all.
        """
        if lent := self._lent.get(group):
            yield 0, {name: lent[name] for name in names or lent}
            return
        for first, file in self._files(group):
            yield first, {name: file.tensor(name) for name in names or file.slots}

    def rows_on(self, group: str, device: str) -> Generator[tuple[int, Rows]]:
        """A group's shards in order, as `rows`, on a device."""
        from longctx.core.store.on_device import on_device

        if group in self._lent or not device.startswith("cuda"):
            for first, block in self.rows(group):
                yield first, {name: tensor.to(device) for name, tensor in block.items()}
            return
        waiting: list[tuple[int, TensorFile]] = []
        files = self._files(group)
        for place, (first, file) in enumerate(files, 1):
            waiting.append((first, file))
            held = sum(file.shard.size for _, file in waiting)
            if held >= TOGETHER or place == len(files):
                firsts, some = zip(*waiting, strict=True)
                yield from zip(firsts, on_device(some, device), strict=True)
                waiting.clear()

    def take(self, group: str, rows: "torch.Tensor", names: tuple[str, ...] | None = None) -> Rows:
        """Selected rows of a group; only the blocks that hold them are read.

        Args:
            group: the group's name.
            rows: ascending positions (S,), int64.
            names: the tensors needed; None: all.

        Returns:
            Tensors (S, ...) on the CPU, by name.

        Raises:
            ValueError: positions that are not ascending or not in the group.
        """
        if lent := self._lent.get(group):
            return {name: lent[name][rows.cpu()] for name in names or lent}
        wanted, (_, file) = rows.cpu().numpy(), self._files(group)[0]
        return {
            name: file.as_tensor(name, self.array_take(group, wanted, name, keep=False))
            for name in names or file.slots
        }

    def lend(self, groups: dict[str, Rows]) -> None:
        """Gives it rows that it does not store, made again, for as long as it is open.

        Args:
            groups: all rows (N, ...) of each group, on the CPU.
        """
        self._lent.update(groups)

    @property
    def has_snapshot(self) -> bool:
        """Whether the method's snapshot is stored; if not, the tokens must be read again."""
        return "memory" in self._groups

    def snapshot(self, device: str = "cpu") -> Rows:
        """The method's whole snapshot, on a device."""
        _, file = self._files("memory")[0]
        if device.startswith("cuda"):
            from longctx.core.store.on_device import on_device

            return on_device([file], device)[0]
        return {name: file.tensor(name) for name in file.slots}

    @property
    def word_files(self) -> int:
        """Number of word index files that the manifest names; 0: there is no word index."""
        return len(self._tables[shards.WORDS])

    def words(self, number: int) -> "dict[str, np.ndarray]":
        """The tables of one file of the word index, with the types and dimensions of the format.

        Their values are not checked here; `core/retrieve/word_tables.py` compares them with one
        another.

        Raises:
            StateMismatch: there is no such file, or it is not what was written.
        """
        return self._table(shards.WORDS, number).arrays()

    @property
    def vector_files(self) -> int:
        """Number of vector files that the manifest names; 0: its passages have no vectors."""
        return len(self._tables[shards.VECTORS])

    def vectors(self, number: int) -> "dict[str, np.ndarray]":
        """The vectors of the passages in one file of the word index.

        Whether there are as many vectors as passages is not checked here.

        Returns:
            "vectors" int8 (P, D) and "scales" float16 (P,): the cosine of passage i with a
            question's vector is their product, times `scales[i]`.

        Raises:
            StateMismatch: there is no such file, or it is not what was written.
        """
        file = self._table(shards.VECTORS, number)
        found = file.arrays()
        if len(found["vectors"]) != len(found["scales"]):
            raise damaged(file.path, "it has another number of scales than of vectors")
        return found

    def array_take(
        self, group: str, rows: "np.ndarray", name: str, keep: bool = True
    ) -> "np.ndarray":
        """Selected rows of one tensor of a group, as `take`, but without torch.

        Args:
            group: the group's name.
            rows: ascending positions (S,), int64.
            name: the tensor's; bfloat16 comes as int16.
            keep: whether small tensors stay in memory, because more of their rows will be needed.

        Raises:
            ValueError: positions that are not ascending or not in the group.
        """
        import numpy as np

        files = self._files(group)
        count = sum(file.shard.rows for _, file in files)
        if (np.diff(rows) < 0).any() or (rows < 0).any() or (rows >= count).any():
            raise ValueError(f"rows of {group!r} must ascend within {count}")
        if not keep and (group, name) not in shards.NARROW:
            return take_rows(files, rows, name)
        bounds = [*np.searchsorted(rows, [first for first, _ in files]).tolist(), len(rows)]
        parts = [files[0][1].array_rows(name, 0, 0)]
        for (first, file), (low, high) in zip(files, pairwise(bounds), strict=True):
            if low < high:
                parts.append(file.array_take(name, rows[low:high] - first, keep))
        return np.concatenate(parts)

    @property
    def folder(self) -> Confined:
        """Where it is."""
        return self._folder

    @property
    def groups(self) -> list[str]:
        """The groups that have a row for each token."""
        stored = self._groups.keys() - {"lines", "marks", *shards.SNAPSHOTS}
        return sorted(stored | self._lent.keys())

    def first_rows(self, group: str, number: int, rows: int) -> Rows:
        """The part of a group's first `rows` rows in its file `number`, which has the last one."""
        if lent := self._lent.get(group):
            return {name: tensor[:rows] for name, tensor in lent.items()}
        first, file = self._files(group)[number]
        return {name: file.rows(name, 0, rows - first) for name in file.slots}

    def rows_between(self, group: str, first: int, last: int) -> Iterator[Rows]:
        """Rows [first, last) of a group, in a piece for each of its files that has some."""
        if lent := self._lent.get(group):
            yield {name: tensor[first:last] for name, tensor in lent.items()}
            return
        for start, file in self._files(group):
            low, high = max(first - start, 0), min(last - start, file.shard.rows)
            if low < high:
                yield {name: file.rows(name, low, high) for name in file.slots}

    def full(self, group: str, rows: int) -> list[Shard]:
        """The leading files of a group that are full and hold only the first `rows` rows."""
        if group in self._lent:
            return []
        files = self._files(group)
        ends = [first for first, _ in files[1:]]  # the last file need not be full
        return [file.shard for end, (_, file) in zip(ends, files, strict=False) if end <= rows]

    def tail(self, group: str) -> Rows:
        """The rows that a checkpoint wrote for a group outside full shards; may be none."""
        _, last = self._files(group)[-1]
        rows = 0 if last.shard.checkpoint is None else last.shard.rows
        return {name: last.rows(name, 0, rows) for name in last.slots}

    def blocks(self, shard: Shard) -> Iterator[memoryview]:
        """The bytes of one file in blocks, each read from disk and verified as it comes.

        Args:
            shard: a file that the manifest names.
        """
        file = ShardFile(self._folder, shard)
        for start in range(0, shard.size, shards.BLOCK):
            yield file.read(start, min(shards.BLOCK, shard.size - start))

    def _all_files(self) -> list[ShardFile]:
        lenient = [file for files in self._tables.values() for file in files]
        tables = [file for file in lenient if isinstance(file, TensorFile)]
        return [*self._text, *tables, *(f for files in self._groups.values() for f in files)]

    def _table(self, group: str, number: int) -> TensorFile:
        """A file of the word index or of vectors."""
        files = self._tables[group]
        if number >= len(files):
            raise StateMismatch(f"'{self.manifest.name}' has no file {number} of its {group}")
        file = files[number]
        if isinstance(file, StateMismatch):
            raise file
        return file

    def _files(self, group: str) -> list[tuple[int, TensorFile]]:
        """The files of a group, each with the position of its first row."""
        if group in self.damage:
            raise self.damage[group]
        if group not in self._groups:
            raise StateMismatch(
                f"'{self.manifest.name}' keeps no {group!r}",
                f"it was read with the method {self.manifest.method!r}",
                "Ask with that method, or ingest the document again with --replace",
            )
        files = self._groups[group]
        firsts = accumulate((file.shard.rows for file in files), initial=0)
        return list(zip(firsts, files, strict=False))


def _group(folder: Confined, group: str, entries: Iterable[Shard]) -> list[TensorFile]:
    """The files of a group, which all hold the same tensors."""
    files = [TensorFile(folder, shard) for shard in entries]
    if any(file.form != files[0].form for file in files):
        raise damaged(folder, f"the files of {group!r} hold different tensors")
    return files


def _lenient(folder: Confined, shard: Shard) -> TensorFile | StateMismatch:
    """A file that can be rebuilt, open; or what is wrong with it."""
    try:
        return TensorFile(folder, shard)
    except StateMismatch as exc:
        return exc
