"""The commands that write, each in a library made for it: how it is begun, and what it leaves.

A world is a folder with `library/` and `out/`; sources lie beside it. What a document is, its
content says, but for where its sources lay and when they changed.
"""

import json
import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from crash.disk import Tree, tree_of
from crash.layer import CHANGES, Plan, read_journal
from crash.process import Ended, Job, arguments

LINES = [f"line {i}: the keeper wrote that boat {i * 7919 % 1000} came home\n" for i in range(40)]
TITLE = "Война и мир"
Content = tuple[tuple[str, bytes], ...]  # the files of a document


@dataclass(frozen=True)
class Scene:
    """A command.

    Attributes:
        name: of the scene.
        argv: behind `longctx`; {library}, {out}, {sources} and {growing} are folders and a file.
        base: the world in which it is begun: empty, plain or garbage.
        touched: names of documents that it makes, changes or removes.
        reads: whether a model reads.
        follows: it follows {growing}.
        also: scenes whose results a killed one may leave, too.
    """

    name: str
    argv: tuple[str, ...]
    base: str = "plain"
    touched: tuple[str, ...] = ()
    reads: bool = False
    follows: bool = False
    also: tuple[str, ...] = ()


_PARTS = "{sources}/part0.txt", "{sources}/part1.txt"
_OFTEN = "--checkpoint", "96"
SCENES = {
    scene.name: scene
    for scene in (
        Scene("first", ("ingest", *_PARTS, "--name", "new", *_OFTEN), "empty", ("new",), True),
        Scene(
            "ingest", ("ingest", *_PARTS, "--name", "new", *_OFTEN), touched=("new",), reads=True
        ),
        Scene(
            "append",
            ("ingest", "{sources}/later.log", "--append", "book", *_OFTEN),
            touched=("book",),
            reads=True,
        ),
        Scene(
            "further",
            ("ingest", "{growing}", "--append", "book", *_OFTEN),
            touched=("book",),
            reads=True,
        ),
        Scene(
            "follow",
            ("ingest", "{growing}", "--follow", "--name", "book", *_OFTEN),
            touched=("book",),
            reads=True,
            follows=True,
            also=("further",),
        ),
        Scene(
            "replace",
            ("ingest", *_PARTS, "--name", "book", "--replace", *_OFTEN),
            touched=("book",),
            reads=True,
        ),
        Scene("import", ("import", "{sources}/in.longctx", "--name", "new"), touched=("new",)),
        Scene(
            "import_replace",
            ("import", "{sources}/in.longctx", "--name", "book", "--replace"),
            touched=("book",),
        ),
        Scene("export", ("export", "book", "{out}/book.longctx")),
        Scene("export_replace", ("export", "book", "{out}/old.longctx", "--replace")),
        Scene("rename", ("rename", "book", "novel"), touched=("book", "novel")),
        Scene("retitle", ("rename", "book", TITLE), touched=("book", "document-f83d61d9")),
        Scene("rm", ("rm", "book", "--yes"), touched=("book",)),
        Scene("gc", ("gc",), "garbage"),
    )
}
KILLED = ("first", "ingest", "append", "follow", "replace", "import", "import_replace", "export")
KILLED += ("export_replace", "rename", "retitle", "rm", "gc")


class Stage:
    """Where the worlds are that scenes begin in, and what undisturbed commands leave.

    Args:
        folder: made by `build`; then it is only read.
        model: the folder of a model.
    """

    def __init__(self, folder: Path, model: Path):
        self.folder, self.model = folder, model
        self.sources = folder / "sources"

    def base(self, name: str) -> Path:
        """The world in which scenes of this base begin."""
        return self.folder / "base" / name

    def left(self, scene: Scene) -> Path:
        """The world that the scene's undisturbed command left."""
        return self.folder / "left" / scene.name

    def journal(self, scene: Scene) -> Path:
        """What that command did."""
        return self.folder / "left" / f"{scene.name}.journal"

    def root(self, scene: Scene) -> Path:
        """Where it did it."""
        return Path((self.folder / "left" / f"{scene.name}.root").read_text())

    def operations(self, scene: Scene, kinds: tuple[str, ...] = CHANGES) -> int:
        """How many operations it had, of those that change the disk."""
        counts = json.loads((self.folder / "left" / f"{scene.name}.operations").read_text())
        return sum(counts.get(kind, 0) for kind in kinds)

    def begin(self, scene: Scene, place: Path) -> None:
        """Makes `place` a folder with the scene's world, and the file that grows."""
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        shutil.copytree(self.base(scene.base), place / "world", symlinks=True)
        shutil.copyfile(self.sources / "middle.log", place / "growing.log")

    def job(self, scene: Scene, place: Path, plan: Plan | None = None, **more: object) -> Job:
        """The scene's command."""
        places = {
            "library": place / "world" / "library",
            "out": place / "world" / "out",
            "sources": self.sources,
            "growing": place / "growing.log",
        }
        argv = [word.format(**places) for word in scene.argv]
        argv += ["--library", str(places["library"])]
        further = "--append" in argv or "--follow" in argv
        argv += arguments(self.model, further) if scene.reads else []
        grow = (places["growing"], self.sources / "later.log") if scene.follows else None
        return Job(argv, plan, grow, **more)

    def command(self, place: Path, *words: str, reads: bool = False) -> Ended:
        """Any command, undisturbed."""
        scene = Scene("", words, reads=reads)
        return self.job(scene, place).run()

    def build(self) -> None:
        """Makes all that is read later."""
        self.sources.mkdir(parents=True)
        for name, lines in {
            "part0.txt": LINES[:15],
            "part1.txt": LINES[15:30],
            "early.log": LINES[:18],
            "middle.log": LINES[:26],
            "later.log": LINES[:34],
            "other.txt": LINES[30:],
        }.items():
            (self.sources / name).write_text("".join(lines))
        place = self.folder / "building"
        self._bases(place)
        for scene in SCENES.values():
            self.begin(scene, place)
            journal = self.journal(scene)
            journal.parent.mkdir(exist_ok=True)
            ended = self.job(scene, place, Plan(place / "world", journal)).run()
            assert ended.code == 0, (scene.name, ended)
            counts = Counter(record.kind for record in read_journal(journal, place / "world"))
            journal.with_suffix(".operations").write_text(json.dumps(counts))
            journal.with_suffix(".root").write_text(str(place / "world"))
            (place / "world").rename(self.left(scene))
        shutil.rmtree(place)

    def _bases(self, place: Path) -> None:
        (place / "world" / "out").mkdir(parents=True)
        (place / "world" / "out" / "old.longctx").write_bytes(b"what was there before")
        self.base("plain").parent.mkdir()
        shutil.copytree(place / "world", self.base("empty"))
        self._need(place, "ingest", "{sources}/part1.txt", "{sources}/part0.txt", "--name", "in")
        self._need(place, "export", "in", "{sources}/in.longctx")
        self._need(place, "rm", "in", "--yes")
        self._need(place, "ingest", "{sources}/early.log", "--name", "book")
        self._need(place, "ingest", "{sources}/other.txt", "--name", "other")
        self._half(place)
        shutil.copytree(place / "world", self.base("plain"))
        library = place / "world" / "library"
        for file in (".tmp-0123456789abcdef", "documents/book/.tmp-0123456789abcdef"):
            (library / file).write_bytes(b"half")
        for folder in ("unfinished/empty", "unfinished/.gone.old", "locks/documents/book"):
            (library / folder).mkdir(parents=True, exist_ok=True)
        shutil.copyfile(library / "library.json", library / "unfinished/.gone.old/tokens")
        for ending in ("lock", "json"):
            (library / "locks" / "documents" / "book" / f"1-abcdef01.{ending}").write_bytes(b"")
        shutil.copytree(place / "world", self.base("garbage"))

    def _half(self, place: Path) -> None:
        """A reading that was killed, with a checkpoint."""
        scene = Scene("", ("ingest", *_PARTS, "--name", "half", *_OFTEN), reads=True)
        world, files = place / "world", place / "watched.journal"
        whole = shutil.copytree(world, place / "aside")
        seen = self.job(scene, place, Plan(world, files)).run().told.seen
        shutil.rmtree(world)
        whole.rename(world)
        killed = Plan(world, None, "kill_before", seen * 2 // 3)
        assert self.job(scene, place, killed).run().code == -9
        assert self.command(place, "gc").code == 0
        manifest = json.loads((world / "library/unfinished/half/manifest.json").read_bytes())
        assert manifest["tokens"], manifest

    def _need(self, place: Path, *words: str) -> None:
        ended = self.command(place, *words, reads=words[0] == "ingest")
        assert ended.code == 0, ended


def content(folder: Path, names: Callable[[dict], set[str]] | None = None) -> Content:
    """What a document is: its files, and its manifest but for the places of its sources.

    Args:
        folder: the document's.
        names: which files count, given the manifest; None: all.
    """
    manifest = json.loads((folder / "manifest.json").read_bytes())
    wanted = names(manifest) if names else None
    files = {
        path.name: path.read_bytes()
        for path in folder.iterdir()
        if wanted is None or path.name in wanted
    }
    manifest.pop("checksum", None)
    for source in manifest["sources"]:
        source["path"] = source["mtime_ns"] = None
        source["name"] = Path(source["name"]).name
    files["manifest.json"] = json.dumps(manifest, sort_keys=True).encode()
    return tuple(sorted(files.items()))


def named(manifest: dict) -> set[str]:
    """The files that a manifest names."""
    return {shard["file"] for shard in manifest["shards"]}


def documents(library: Path, names: Callable[[dict], set[str]] | None = None) -> dict[str, Content]:
    """All of documents/, every file, or those that count as of `content`."""
    folder = library / "documents"
    found = sorted(folder.iterdir()) if folder.is_dir() else []
    return {path.name: content(path, names) for path in found}


def beside(world: Path) -> Tree:
    """What lies beside the library; temporary files of a killed export apart."""
    return {name: data for name, data in tree_of(world / "out").items() if ".tmp-" not in name}
