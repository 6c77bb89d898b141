"""Many documents in one run: each file becomes one, and the model is loaded once.

If a file cannot be read, or its document exists with other content, the others are still read. What
would fail for every file (the disk, the memory, the model) ends the run.
"""

import hashlib
import os
import re
from contextlib import closing
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from longctx.core.common.errors import LongctxError, UnreadableInput
from longctx.core.engine.setup import Engine, prepare
from longctx.core.ingest.ingest import read_sources
from longctx.core.ingest.ingested import Ingested
from longctx.core.ingest.job import NOBODY, Job, Observer, Progress
from longctx.core.ingest.overall import Tally
from longctx.core.sources.detect import NotText
from longctx.core.sources.find import check, open_sources
from longctx.core.sources.reader import Source
from longctx.core.sources.rules import Rules
from longctx.core.store.naming import LONGEST, NAME_BYTES, cut, name_from

_OTHER = re.compile(r"[^A-Za-z0-9._-]+")


@dataclass(frozen=True)
class Failed:
    """A file that did not become a document.

    Attributes:
        source: its name.
        code: the exit code for this error.
        message: why.
    """

    source: str
    code: int
    message: str


@dataclass
class Each:
    """The outcome for many files.

    Attributes:
        documents: the documents that now exist.
        failed: files that could not be read, or whose document has other content.
        left_out: messages about non-text files.
        interrupted: Ctrl-C came before all files were read; set by the caller that catches it.
    """

    documents: list[Ingested] = field(default_factory=list)
    failed: list[Failed] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    interrupted: bool = False

    def add(self, outcome: "Outcome") -> None:
        """Notes what became of one more file."""
        if isinstance(outcome, Failed):
            self.failed.append(outcome)
        elif isinstance(outcome, str):
            self.left_out.append(outcome)
        else:
            self.documents.append(outcome)

    def as_dict(self) -> dict[str, Any]:
        """The JSON object of `ingest --each`."""
        return asdict(self)


# What became of a file: a document, a failure, or why it is left out.
Outcome = Ingested | Failed | str


def read_each(job: Job, observer: Observer = NOBODY, result: Each | None = None) -> Each:
    """Reads each file into a document of its own, named after its path.

    Args:
        job: what is read and how; it names no document.
        observer: hears about progress with the document's name, and about each file with text.
        result: returned, and filled as files are done, so that it is usable even if Ctrl-C or an
            error ends the run; None: a new one.

    Raises:
        UsageError: a missing file, or an impossible setup.
        UnreadableInput: a folder is empty, or holds no text.
        LongctxError: something that would fail for every file.
    """
    result = Each() if result is None else result
    named = named_sources(job.paths, job.rules, job.shard)
    engine = job.engine or prepare(job.setup)
    tally = Tally({name: source.expected_size or 0 for name, source in named.items()})
    for name, source in named.items():

        def progress(told: Progress, name: str = name) -> None:
            observer.progress(tally.with_all(name, told), document=name)

        outcome = read_one(job, replace(observer, progress=progress), engine, source, name)
        tally.done(name, outcome)
        result.add(outcome)
        if not isinstance(outcome, str):
            observer.done(outcome)
    return require_any(result)


def require_any(result: Each) -> Each:
    """The outcome; UnreadableInput where there was nothing to read."""
    if not result.documents and not result.failed:
        raise UnreadableInput("nothing to read", " ".join(result.left_out[:3]))
    return result


def read_one(job: Job, observer: Observer, engine: Engine, source: Source, name: str) -> "Outcome":
    """Reads one file into a document.

    Args:
        job, engine: as of all.
        observer: hears about progress.
        source: the file.
        name: of the document.

    Raises:
        LongctxError: something that would fail for every file.
    """
    source.header = ""  # the only source needs no header
    of_it = replace(job, paths=[str(source.path) if source.path else "-"])
    try:
        _look_into(source)
        return read_sources(of_it, observer, engine, [source], name)
    except NotText as error:
        return str(error)
    except LongctxError as error:
        if type(error) is LongctxError:
            raise
        return Failed(source.name, error.exit_code, str(error))


def _look_into(source: Source) -> None:
    """Raises for an unreadable file before anything is made for it.

    Raises:
        NotText: the user did not name it, and it holds no text.
        UnreadableInput: it cannot be read.
    """
    if source.path is None or not (source.file or source.refused):
        return  # it cannot be read twice
    try:
        with closing(source.blocks()) as blocks:
            next(blocks, None)
    except NotText as error:
        if source.found:
            raise
        raise UnreadableInput(error.what, error.why, error.remedy) from error


def named_sources(
    paths: list[str], rules: Rules, shard: tuple[int, int] = (1, 1)
) -> dict[str, Source]:
    """The sources of a command by the names of their documents, all different.

    Args:
        paths: what the user names.
        rules: what is read from folders and archives.
        shard: (i, n): only the i-th of n parts, which their names decide.

    A name is the path from the folder, pattern or file that the user named; in an English one `-`
    stands for slashes, blanks and the like. If it is too long or taken, it ends in a hash of the
    path.
    """
    check(paths, rules)
    named: dict[str, Source] = {}
    for path in paths:
        for source in open_sources([path], rules):
            label = _label(path, source.name)
            plain = _OTHER.sub("-", label).strip(".-")
            lost = _has_lost(label, plain)
            name, longest = (name_from(label), NAME_BYTES) if lost else (plain, LONGEST)
            size = len(label.encode("utf-8", "surrogatepass")) if lost else len(label)
            if size > longest or name in named:
                mark = hashlib.sha256(f"{path}\0{label}".encode("utf-8", "replace")).hexdigest()[:8]
                name = f"{cut(name, longest - 9)}-{mark}"
            named[name] = source
    part, parts = shard
    return {name: source for name, source in named.items() if _part_of(name, parts) == part - 1}


def _part_of(name: str, parts: int) -> int:
    """In which of so many parts a name is, from 0; the same on every machine."""
    return int.from_bytes(hashlib.sha256(name.encode("utf-8", "replace")).digest()[:8]) % parts


def _has_lost(label: str, name: str) -> bool:
    """Whether a path has letters that its name does not."""
    return not name or any(c.isalnum() and not c.isascii() for c in label)


def _label(path: str, name: str) -> str:
    """The path of a source, starting at what the user named."""
    if path == "-":
        return name
    root = path
    if not os.path.exists(path):  # a pattern: starts at its first part that is not a folder
        root = re.split(r"[*?[]", path)[0] + "x"
    return os.path.relpath(os.path.abspath(name), os.path.dirname(os.path.abspath(root)))
