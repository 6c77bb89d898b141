"""What a library tells of a document without opening it: the few facts of its manifest.

A library of ten thousand documents is listed, searched and asked by these; `catalogue.py` keeps
them in one file. This module reads none.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from longctx.core.store.manifest import DRAFT, UNITS, Manifest
from longctx.core.store.naming import shown
from longctx.core.store.shards import FOR_WORDS, PARTS, VECTORS, WORDS

# Identifies one writing of a manifest: its times of content and of status (ns), size and inode.
Stamp = tuple[int, int, int, int]
UNKNOWN: Stamp = (0, 0, 0, 0)


@dataclass(frozen=True)
class Facts:
    """The facts of a document that are known without opening it; names are those of `Manifest`.

    Attributes:
        folder, title, status, tokens, method, model, language: as in `Manifest`.
        bytes: of its text.
        groups: bytes on disk of each group of files.
        one_text: everything was read as one text.
        error: why it cannot be read; empty unless its status is "damaged".
        paths: files that it was made of.
        stamp: of the manifest that says so; not of the facts themselves.
    """

    folder: str
    title: str | None
    status: str
    tokens: int
    bytes: int
    method: str
    model: Mapping[str, str]
    groups: Mapping[str, int]
    one_text: bool
    error: str
    paths: tuple[str, ...]
    language: str = ""
    stamp: Stamp = field(default=UNKNOWN, compare=False)

    @classmethod
    def of(cls, manifest: Manifest, stamp: Stamp = UNKNOWN) -> "Facts":
        """The facts of a manifest, also of one that stands for a damaged document."""
        groups: dict[str, int] = {}
        for shard in manifest.shards:
            groups[shard.group] = groups.get(shard.group, 0) + shard.size
        damaged = manifest.status == "damaged"
        return cls(
            folder=manifest.folder,
            title=manifest.title,
            status=manifest.status,
            tokens=manifest.tokens,
            bytes=sum(source.size for source in manifest.sources),
            method=manifest.method,
            model=manifest.model,
            groups=groups,
            one_text=manifest.units == UNITS[0],
            error=manifest.report["error"] if damaged else "",
            paths=tuple(dict.fromkeys(s.path for s in manifest.sources if s.path is not None)),
            language=manifest.language,
            stamp=stamp,
        )

    @property
    def name(self) -> str:
        """What people call the document: its title, as `naming.shown`, or its folder's name."""
        return shown(self.title or self.folder)

    @property
    def saved(self) -> int:
        """When its manifest was written, in ns since 1970; 0: unknown."""
        return self.stamp[0]

    @property
    def size(self) -> int:
        """Bytes on disk, without the manifest itself."""
        return sum(self.groups.values())

    @property
    def has_words(self) -> bool:
        """As `Manifest.has_words`."""
        return WORDS in self.groups

    @property
    def has_vectors(self) -> bool:
        """As `Manifest.has_vectors`."""
        return VECTORS in self.groups

    @property
    def is_draft(self) -> bool:
        """As `Manifest.is_draft`."""
        return self.status == DRAFT

    @property
    def is_bare(self) -> bool:
        """As `Manifest.is_bare`."""
        return self.status == "complete" and self.groups.keys() <= FOR_WORDS

    @property
    def parts(self) -> dict[str, int]:
        """As `Manifest.parts`."""
        sizes: dict[str, int] = {}
        for group, count in self.groups.items():
            part = PARTS.get(group, group)
            sizes[part] = sizes.get(part, 0) + count
        return sizes
