"""The files of a library's word index, and the list that says which they are.

`index/segments.json` names each file, with its checksums, and the documents whose words it has,
each with the stamp of its manifest. A file is written before the list names it, and deleted after;
so a kill leaves at worst a file that no list names. Knows no words.
"""

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from longctx.core.store.catalogue import INDEX, checked, folders_from, stamps_from, write_checked
from longctx.core.store.confined import Confined
from longctx.core.store.facts import Stamp
from longctx.core.store.locks import Locks
from longctx.core.store.shard_reader import TensorFile
from longctx.core.store.shard_writer import write_arrays
from longctx.core.store.shards import SEGMENT, Shard, shard_name

if TYPE_CHECKING:
    import numpy as np

LIST = "segments.json"
_VERSION = 1
_MOST_BYTES = 1 << 30

Indexed = tuple[str, Stamp]  # a document: its folder, and the stamp of the manifest that was read


@dataclass(frozen=True)
class Kept:
    """A file of the index, and the documents that it covers, in order."""

    shard: Shard
    documents: tuple[Indexed, ...]


class SegmentFiles:
    """The index files of one library.

    Args:
        library: its folder.
    """

    def __init__(self, library: Confined):
        self._folder = library / INDEX
        self._locks = Locks(library.root)

    def lock(self) -> Any:
        """Held by the one who changes the index.

        Raises, when entered:
            Locked: another process does.
            OSError: the library cannot be written.
        """
        return self._locks.exclusive(f"{INDEX}/words")

    def read(self) -> list[Kept]:
        """What the list names; nothing where there is none to rely on."""
        text = checked(self._folder, LIST, _VERSION, _MOST_BYTES)
        try:
            return [_kept(value) for value in json.loads(text)] if text else []
        except (ValueError, TypeError, KeyError, RecursionError):
            return []

    def open(self, kept: Kept) -> TensorFile:
        """A file of the index.

        Raises:
            StateMismatch: it is missing or damaged.
        """
        return TensorFile(self._folder, kept.shard)

    def add(
        self, arrays: "dict[str, np.ndarray]", documents: Sequence[Indexed], others: list[Kept]
    ) -> Kept:
        """Writes a file, which no list names yet.

        Args:
            arrays: its tensors.
            documents: those it covers.
            others: all files that there are, whose names are taken.

        Raises:
            LongctxError: it cannot be written.
        """
        self._folder.mkdir(exist_ok=True, durable=False)
        number = max((kept.shard.number for kept in others), default=-1) + 1
        shard = write_arrays(self._folder, SEGMENT, shard_name(SEGMENT, number, None), arrays)
        return Kept(shard, tuple(documents))

    def replace(self, kept: Sequence[Kept]) -> None:
        """Makes these files the index, and deletes all others.

        Raises:
            LongctxError: the list cannot be written.
        """
        values = [{**asdict(one.shard), "documents": one.documents} for one in kept]
        write_checked(self._folder, LIST, _VERSION, json.dumps(values))
        named = {one.shard.file for one in kept}
        with suppress(OSError):
            for path in self._folder.iterdir():
                if path.name.startswith(f"{SEGMENT}-") and path.name not in named:
                    with suppress(OSError):  # another system keeps what somebody reads
                        path.unlink()


def _kept(value: Any) -> Kept:
    """An item of the list; ValueError, TypeError or KeyError where it cannot be one."""
    documents = value.pop("documents")
    value["blocks"] = tuple(value["blocks"])
    shard = Shard(**value)
    if shard.group != SEGMENT or not all(type(block) is str for block in shard.blocks):
        raise ValueError("no file of the index")
    folders, stamps = zip(*documents, strict=True) if documents else ((), ())
    return Kept(shard, tuple(zip(folders_from([*folders]), stamps_from([*stamps]), strict=True)))
