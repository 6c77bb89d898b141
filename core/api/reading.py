"""Reading files into a library: what can be chosen, and the work itself."""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

from longctx.core.api.defaults import usual_model, wants_vectors
from longctx.core.api.model import Model, running
from longctx.core.api.running import Running
from longctx.core.common.collection import no_collection
from longctx.core.common.errors import LongctxError, UsageError
from longctx.core.store.library import Library as Store
from longctx.core.store.naming import called_after
from longctx.core.store.shards import FOR_WORDS

if TYPE_CHECKING:
    from longctx.core.engine.choice import Setup
    from longctx.core.ingest.ingested import Ingested
    from longctx.core.ingest.job import Job, Observer
    from longctx.core.ingest.many import Each
    from longctx.core.ingest.plan import Estimate
    from longctx.core.sources.rules import Rules
    from longctx.core.store.manifest import Manifest

Paths = Sequence[str | PathLike[str]]


class Reading(TypedDict, total=False):
    """How files are read; each key is the option of `longctx ingest` of that name.

    Attributes:
        model: the model that reads; by default the library's, else the document's own, or the usual
            one for a new document.
        profile, method, device, dtype, threads, devices: as of `Model`, whose values they replace.
        keep_kv: keep the keys and values of every token too.
        kv_dtype: how keys and values are kept: "bf16", "fp16", "fp32" or "int8".
        precision: of a chunk's matrix products: "full", as dtype says, or "fp8".
        hidden: read hidden files of folders too.
        no_ignore: read what .gitignore files leave out.
        raw: read files as text that would be converted.
        max_unpacked, max_parser_memory, max_size: sizes such as "2GB", or numbers of bytes.
        max_parser_time: a time such as "90s", or a number of seconds.
        checkpoint: how often to save: a number of tokens ("64k") or a time ("90s").
        shared: a library that is made now has the usual rights, and is not its owner's alone.
        passing: by path, what files that will not stay are called; their paths are not recorded.
        vectors: a new document also gets a vector for each passage, so that questions in other
            words find it; by default as LONGCTX_VECTORS says, else yes.
    """

    model: Model | str | None
    profile: str | None
    method: str | None
    device: str
    dtype: str
    threads: int | None
    devices: str | None
    keep_kv: bool
    kv_dtype: str | None
    precision: str | None
    hidden: bool
    no_ignore: bool
    raw: bool
    max_unpacked: str | int | None
    max_parser_memory: str | int | None
    max_parser_time: str | int | None
    max_size: str | int | None
    checkpoint: str | int | None
    shared: bool
    passing: Mapping[str, str]
    vectors: bool


MODEL = ("profile", "method", "device", "dtype", "threads", "devices", "max_memory")  # of `Model`
KEPT = ("keep_kv", "kv_dtype", "precision")


@dataclass
class Work:
    """Reading with one model into one library.

    Attributes:
        library: its folder.
        let_go: closes documents of this process that would be in the way.
        model: the model.
        how: what was chosen.
    """

    library: Path
    let_go: Callable[[Sequence[str]], None]
    model: Model
    how: Reading

    def read(
        self,
        paths: Paths,
        name: str | None = None,
        replace_it: bool = False,
        append: str | None = None,
        units: bool | None = None,
        on_progress: Callable[..., None] | None = None,
    ) -> "tuple[Ingested, str]":
        """Reads into one document, new or appended to; see `Library.ingest`.

        Returns:
            What was done, and the folder's name of the document.
        """
        files = self._checked(paths)
        if append is not None:
            if name is not None or replace_it or units is not None:
                raise UsageError(
                    "cannot append under another name or in another way",
                    "a document that becomes longer is read on as it was begun",
                    "Leave out name, replace and units.",
                )
            append = Store.open(self.library).folder_named(append)
        there = None if replace_it else standing(self.library, files, name, append, not append)
        setup = self.setup(there, append is not None)
        job = self.job(files, append or name, setup, replace_it, units)
        self._make_room(job)
        with no_collection():
            from longctx.core.ingest.append import append as appended
            from longctx.core.ingest.ingest import read
        with self._turn() as run:
            how = read if append is None else appended
            done = how(job, observer(run, progress=on_progress))
        return done, append or Store.open(self.library).place_for(job.called)[0]

    def each(
        self,
        paths: Paths,
        replace_it: bool = False,
        on_progress: Callable[..., None] | None = None,
        on_done: Callable[..., None] | None = None,
        result: "Each | None" = None,
        workers: int | None = None,
        shard: str | None = None,
        retry: int = 0,
        ray: str | None = None,
    ) -> "Each":
        """Makes a document of every file; see `Library.ingest_each`."""
        files, part = self._checked(paths), _part(shard)
        if (workers is not None and workers < 1) or retry < 0:
            what = f"cannot use {workers} workers and {retry} tries more"
            raise UsageError(what, "", "Give 1 or more workers, and no tries below 0.")
        setup = self.setup(None, False)
        job = replace(self.job(files, None, setup, replace_it), shard=part)
        with self._turn() as run:
            hears = observer(run, progress=on_progress, done=on_done)
            if ray is not None:
                from longctx.core.ingest.ray_fleet import read_with_ray

                return read_with_ray(job, ray, workers, retry, hears, result)
            if (workers or 1) > 1 or retry:
                from longctx.core.ingest.fleet import read_with_workers

                return read_with_workers(job, workers or 1, retry, hears, result)
            from longctx.core.ingest.many import read_each

            return read_each(job, hears, result)

    def follow(
        self, paths: Paths, name: str | None, as_wanted: bool, **hears: Callable[..., None] | None
    ) -> "Ingested":
        """Follows the last file until Ctrl-C; see `Library.follow`."""
        files = self._checked(paths)
        setup = self.setup(standing(self.library, files, name), False)
        job = self.job(files, name, setup)
        self._make_room(job)
        with self._turn() as run:
            from longctx.core.ingest.follow import follow

            return follow(job, observer(run, **hears), as_wanted)

    def plan(
        self, paths: Paths, name: str | None, replace_it: bool, units: bool | None
    ) -> "Estimate":
        """What reading would take; see `Library.plan`."""
        files = self._checked(paths)
        there = None if replace_it else standing(self.library, files, name)
        setup = self.setup(there, False)
        with self._turn():
            from longctx.core.ingest.plan import plan

            return plan(self.job(files, name, setup, replace_it, units))

    def setup(self, there: "Manifest | None", appends: bool) -> "Setup":
        """The model and how it reads.

        Args:
            there: the document that the reading goes on with, which has its own model.
            appends: nothing but that document's own model will do.
        """
        with no_collection():
            from longctx.core.engine.choice import Setup

        chosen: dict[str, Any] = {key: getattr(self.model, key) for key in MODEL}
        chosen |= {key: value for key, value in self.how.items() if key in (*MODEL, *KEPT)}
        name = self.model.name
        if name is None and not appends:
            name = usual_model() if there is None else there.model["name"]
        return Setup(model=name, **chosen)

    def job(
        self,
        paths: list[str],
        name: str | None,
        setup: "Setup",
        replace_it: bool = False,
        units: bool | None = None,
    ) -> "Job":
        """What is read, into which document and how."""
        from longctx.core.common.units import parse_bytes, parse_tokens_or_seconds
        from longctx.core.ingest.checkpoints import Cadence
        from longctx.core.ingest.job import Job

        every, most = self.how.get("checkpoint"), self.how.get("max_size")
        if self.how.get("shared"):
            Store.open(self.library, create=True, shared=True)
        return Job(
            library=self.library,
            paths=paths,
            setup=setup,
            name=name,
            replace=replace_it,
            cadence=Cadence.given(*parse_tokens_or_seconds(str(every))) if every else Cadence(),
            max_size=_number(most, parse_bytes),
            rules=rules(self.how),
            units=units,
            vectors=self.how.get("vectors", wants_vectors()),
            passing=self.how.get("passing", {}),
        )

    def _checked(self, paths: Paths) -> list[str]:
        """The paths as text; whether they are there is checked before anything slow."""
        from longctx.core.sources.find import check

        files = [fspath(path) for path in paths]
        if not files:
            raise UsageError("nothing to read", "no file is named", "Name files or folders.")
        check(files, rules(self.how), self.how.get("passing", {}))
        return files

    @contextmanager
    def _turn(self) -> Iterator[Running]:
        with running(self.model).reading():
            yield running(self.model)

    def _make_room(self, job: "Job") -> None:
        """Closes the document that will be replaced, if it is open here."""
        try:
            self.let_go([Store.open(self.library).place_for(job.called)[0]])
        except LongctxError:
            return  # there is none; or reading tells what is wrong


@contextmanager
def reading(
    library: Path, let_go: Callable[[Sequence[str]], None], model: Model, how: Reading
) -> Iterator[Work]:
    """The work of reading; at its end no process that parses files is left.

    Raises:
        TypeError: there is no such option.
    """
    unknown = how.keys() - Reading.__annotations__.keys()
    if unknown:
        raise TypeError(f"no such option of a reading: {', '.join(sorted(unknown))}")
    with _parsing():
        yield Work(library, let_go, model, how)


def standing(
    library: Path,
    paths: Sequence[str],
    name: str | None,
    append: str | None = None,
    partial: bool = True,
) -> "Manifest | None":
    """The manifest of the document that a reading would go on with, or that is in its way.

    Args:
        library: the library's folder.
        paths, name: of the reading.
        append: the document that it extends.
        partial: an unfinished one counts too.

    Raises:
        NotFound: there is no document to append to.
    """
    try:
        store = Store.open(library)
        wanted = store.folder_named(append) if append else name or called_after(paths[0])
        needed = FOR_WORDS if partial else None  # a draft counts as unfinished
        return store.document(wanted, partial, needed).manifest
    except LongctxError:
        if append:
            raise
        return None


def _part(text: str | None) -> tuple[int, int]:
    """The i-th of n parts, from `i/n`; None: the only one.

    Raises:
        UsageError: it is no such part.
    """
    first, _, last = (text or "1/1").partition("/")
    if first.isdecimal() and last.isdecimal() and 1 <= int(first) <= int(last):
        return int(first), int(last)
    raise UsageError(f"cannot use the shard {text!r}", "", "Write 1/4, 2/4, 3/4 or 4/4.")


def rules(how: Reading) -> "Rules":
    """What is read from folders and archives, and how much.

    Raises:
        UsageError: a size or time is none.
    """
    from longctx.core.common.units import parse_bytes, parse_seconds
    from longctx.core.sources.rules import Rules

    return Rules(
        hidden=how.get("hidden", False),
        ignored=how.get("no_ignore", False),
        raw=how.get("raw", False),
        max_unpacked=_number(how.get("max_unpacked"), parse_bytes),
        memory=_number(how.get("max_parser_memory"), parse_bytes),
        seconds=_number(how.get("max_parser_time"), parse_seconds),
    )


def _number(given: str | int | None, parse: Callable[[str], int]) -> int | None:
    """A number, or the text of one with a unit; None: none."""
    if given is None or given == "":
        return None
    return given if isinstance(given, int) else parse(given)


def observer(run: Running, **hears: Callable[..., None] | None) -> "Observer":
    """Who hears how a reading goes; after each chunk, others who want the model go first."""
    from longctx.core.ingest.job import Observer

    told = {name: hear for name, hear in hears.items() if hear is not None}
    progress = told.pop("progress", None)

    def on_progress(*state: Any, **more: Any) -> None:
        if progress is not None:
            progress(*state, **more)
        run.give_way()

    return Observer(on_progress, **told)


_lock, _open = threading.Lock(), [0]  # readings in this process


@contextmanager
def _parsing() -> Iterator[None]:
    """At the end of the last of these contexts, the child process that parses files ends."""
    with _lock:
        _open[0] += 1
    try:
        yield
    finally:
        with _lock:
            _open[0] -= 1
            if not _open[0]:
                from longctx.core.sources import parser

                parser.end()
