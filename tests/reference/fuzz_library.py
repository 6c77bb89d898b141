"""A small library of real documents, whose files are exchanged for others and put back.

A case is files that take the place of those of a document. `Shelf.with_case` writes them, and
puts back what was there.
"""

import json
import random
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import fuzz_changes as changes
from xxhash import xxh3_128_hexdigest

from longctx.core.store.manifest import MANIFEST, canonical_json

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


class Stopped(BaseException):
    """A reading ends here, as by a kill."""


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
