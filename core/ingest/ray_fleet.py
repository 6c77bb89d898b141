"""Many documents read by a Ray cluster: an actor for each GPU, or for so many cores, with a model.

Ray starts actors, carries names and outcomes, and says who has died. What is done, begun and being
read by whom is written in the library, which all hosts see under the same path; so an actor, a
host or this process may die at any moment, and the same command goes on from the checkpoints.
"""

import contextlib
import os
import socket
import threading
from dataclasses import dataclass, replace
from typing import Any

from longctx.core.common.errors import (
    LongctxError,
    UnreadableInput,
    UsageError,
    of_parts,
    parts_of,
)
from longctx.core.engine.choice import Setup
from longctx.core.ingest.docket import KILLS, PAUSE, Docket, for_readers
from longctx.core.ingest.job import NOBODY, Job, Observer, Progress
from longctx.core.ingest.many import Each, Outcome, named_sources, read_one, require_any
from longctx.core.ingest.ray_connection import connected

SAVING = 60.0  # seconds in which an actor saves what it has read, when the work ends early
_NEWS = "news"  # the calls of an actor that are answered while it reads


@dataclass
class _Actor:
    """A reader.

    Attributes:
        handle: of Ray.
        busy: the call that it is at: beginning, or reading.
        name: of the document that it is reading; None: it begins, or is idle.
    """

    handle: Any
    busy: Any
    name: str | None = None


def read_with_ray(
    job: Job,
    address: str,
    actors: int | None = None,
    retry: int = 0,
    observer: Observer = NOBODY,
    result: Each | None = None,
) -> Each:
    """Reads each file into a document of its own, with the actors of a Ray cluster.

    Args:
        job: as for `read_each`. Library and files are found under the same paths on every host.
        address: of the cluster: `auto` for the one that this host belongs to, host:port, or `local`
            for one that is started on this machine.
        actors: at most so many; None: as many as there is room for.
        retry: how often a file that failed is tried again.
        observer, result: as for `read_each`.

    Raises:
        UsageError: standard input is to be read, devices are chosen that Ray chooses, Ray is not
            installed, there is no such cluster, no host of it has room for a reader, or a host
            lacks the files.
        LongctxError: as `read_each`.
    """
    if "-" in job.paths:
        raise UsageError("cannot read standard input with --ray", "", "Name files.")
    _require_rays_devices(job.setup)
    docket = Docket(job, retry, observer, Each() if result is None else result)
    with connected(address) as ray:
        room = _room(ray, job)
        _Cluster(ray, job, docket).run(min(actors or room, room, max(1, len(docket))))
    return require_any(docket.result)


class _Cluster:
    """The work, and the actors that are at it."""

    def __init__(self, ray: Any, job: Job, docket: Docket):
        self._ray, self._docket = ray, docket
        self._job, needs = _for_actor(ray, job)
        # Two groups of calls with a thread each: one reads, the other one answers meanwhile.
        self._class = ray.remote(**needs, concurrency_groups={_NEWS: 1}, max_restarts=0)(_Reader)
        self._actors: list[_Actor] = []
        self._lost = 0  # actors that died before they could read; one that can does not undo it
        errors = ray.exceptions
        self._deaths = (errors.RayActorError, errors.WorkerCrashedError, errors.OutOfMemoryError)

    def run(self, count: int) -> None:
        """Reads everything; the actors have ended when this returns or raises."""
        try:
            for _ in range(count):
                self._hire()
            while self._docket or any(each.name for each in self._actors):
                for actor in [each for each in self._actors if each.busy is None]:
                    self._give(actor)
                self._hear()
        finally:
            self._end()

    def _hire(self) -> None:
        """Asks for one more actor; it reads once there is room for it and it has begun."""
        handle = self._class.remote(self._job, os.getcwd())
        self._actors.append(_Actor(handle, handle.begin.remote()))

    def _give(self, actor: _Actor) -> None:
        if name := self._docket.next():
            actor.name, actor.busy = name, actor.handle.read.remote(name)

    def _hear(self) -> None:
        """Waits a moment for what has been done, and asks how far the others are."""
        busy = {each.busy: each for each in self._actors if each.busy is not None}
        if not busy:
            threading.Event().wait(PAUSE)  # all that is left is read by another command
            return
        done, _ = self._ray.wait([*busy], num_returns=1, timeout=PAUSE / 4)
        for call in done:
            self._take(busy[call])
        self._ask_how_far([each for each in self._actors if each.name])

    def _take(self, actor: _Actor) -> None:
        name = actor.name
        kind: str
        told: Any  # what belongs to the kind
        try:
            kind, told = self._ray.get(actor.busy)
        except self._deaths as error:
            self._bury(actor, str(error).partition("\n")[0])
            return
        except self._ray.exceptions.RayTaskError as error:  # the actor lives, and can read others
            if name is None:
                self._bury(actor, _reason(error))  # but not if it could not begin
                return
            kind, told = "failed", (_reason(error), LongctxError.exit_code)
        actor.name = actor.busy = None
        if kind == "raised":
            raise of_parts(told)
        if name is not None and kind == "failed":
            self._docket.failed(name, *told)
        elif name is not None:
            self._docket.done(name, told)

    def _bury(self, actor: _Actor, why: str) -> None:
        """An actor has died: another one takes its place, and its document.

        Where too many could not begin none takes the place of one more: its host would be asked
        again and again, beside others that can.

        Raises:
            LongctxError: none is left.
        """
        self._actors.remove(actor)
        self._ray.kill(actor.handle)  # it may only be out of reach
        if actor.name is not None:
            self._docket.died(actor.name, "its actor died")
        else:
            self._lost += 1
        if actor.name is not None or self._lost < KILLS:
            self._hire()
        elif not self._actors:
            raise LongctxError(
                f"{self._lost} actors ended while they loaded the model, and none is left",
                why,
                "Look into Ray's logs; the host may lack memory, or longctx of this version.",
            )

    def _ask_how_far(self, actors: list[_Actor]) -> None:
        asked = {
            each.handle.told.options(concurrency_group=_NEWS).remote(): each for each in actors
        }
        if not asked:
            return
        answered, _ = self._ray.wait([*asked], num_returns=len(asked), timeout=PAUSE)
        for call in answered:
            with contextlib.suppress(self._ray.exceptions.RayError):  # `_take` hears of its death
                for name, told in self._ray.get(call):
                    self._docket.heard(name, told)

    def _end(self) -> None:
        """Ends all actors; those that are reading save first what they have."""
        reading = [each for each in self._actors if each.name]
        with contextlib.suppress(self._ray.exceptions.RayError):
            for actor in reading:
                actor.handle.stop.options(concurrency_group=_NEWS).remote()
            if reading:
                calls = [each.busy for each in reading]
                self._ray.wait(calls, num_returns=len(calls), timeout=SAVING)
        for actor in self._actors:
            self._ray.kill(actor.handle)


class _Reader:
    """What runs as an actor: a model, and one document at a time.

    Args:
        job: what is read and how.
        folder: where paths begin that are not absolute.
    """

    def __init__(self, job: Job, folder: str):
        self._job, self._folder = job, folder
        self._engine: Any = None
        self._named: dict[str, Any] = {}
        self._told: dict[str, Progress] = {}
        self._stopped = threading.Event()

    def begin(self) -> tuple[str, Any]:
        """Finds the files and loads the model; what would fail for every file is returned."""
        from longctx.core.engine.setup import prepare

        try:
            self._go_there()
            self._named = named_sources(self._job.paths, self._job.rules, self._job.shard)
            self._engine = prepare(self._job.setup)
        except LongctxError as error:
            return "raised", parts_of(error)
        return "begun", None

    def read(self, name: str) -> tuple[str, Outcome | tuple[Any, ...] | None]:
        """Reads a document; returns what became of it, or what would fail for every file."""
        if name not in self._named:
            why = f"the host {socket.gethostname()} finds no such file: it sees other files than"
            return "failed", (f"{why} the host of the command", UnreadableInput.exit_code)

        def progress(told: Progress) -> None:
            self._told[name] = told
            whole = told.total is not None and told.processed >= told.total
            if self._stopped.is_set() and not whole:  # else only writing it is left
                raise KeyboardInterrupt  # as at a terminal: what was read is saved

        try:
            observer = Observer(progress)
            return "done", read_one(self._job, observer, self._engine, self._named[name], name)
        except LongctxError as error:
            return "raised", parts_of(error)
        except KeyboardInterrupt:
            return "stopped", None
        finally:
            self._told.pop(name, None)

    def told(self) -> list[tuple[str, Progress]]:
        """How far the document is that is being read."""
        return [*self._told.items()]

    def stop(self) -> None:
        """Ends the reading where its next chunk ends."""
        self._stopped.set()

    def _go_there(self) -> None:
        host = socket.gethostname()
        try:
            os.chdir(self._folder)
        except OSError as error:
            raise UsageError(
                f"no folder '{self._folder}' on the host {host}",
                error.strerror,
                "Files and library must have the same paths on every host of the cluster.",
            ) from error
        if not self._job.library.is_dir():
            raise UsageError(
                f"no library '{self._job.library}' on the host {host}",
                "",
                "It must be on a file system that all hosts of the cluster share, under one path.",
            )


def _reason(error: Any) -> str:
    """In a line, what was raised in an actor."""
    cause = error.cause
    return f"{type(cause).__name__}: {cause}".partition("\n")[0]


def _require_rays_devices(setup: Setup) -> None:
    """UsageError where devices are chosen by number, or the memory on each."""
    chosen = {"devices": setup.devices, "max_memory": setup.max_memory}
    chosen["device"] = setup.device if setup.device.startswith("cuda:") else None
    for name, value in chosen.items():
        if value is not None:
            why = "Ray gives each process a GPU, or so many cores as it has threads"
            remedy = "Leave it out, or name no more than the kind of device: cuda or cpu."
            raise UsageError(f"cannot use {name} {value!r} with a Ray cluster", why, remedy)


def _for_actor(ray: Any, job: Job) -> tuple[Job, dict[str, Any]]:
    """The job as an actor has it, and what it needs: a GPU, or so many cores."""
    from longctx.core.store.library import Library

    Library.open(job.library, create=True)
    (kind, count), job = _needs(ray, job), for_readers(job)
    if kind == "GPU":  # Ray shows each actor its own alone, as cuda:0; by default it adds a core
        return replace(job, setup=replace(job.setup, device="cuda")), {"num_gpus": 1, "num_cpus": 0}
    return replace(job, setup=replace(job.setup, threads=count)), {"num_cpus": count}


def _needs(ray: Any, job: Job) -> tuple[str, int]:
    """What an actor needs of a node, as Ray calls it, and how many of these."""
    device = job.setup.device
    there = device == "auto" and ray.cluster_resources().get("GPU", 0) >= 1
    return ("GPU", 1) if there or device.startswith("cuda") else ("CPU", job.setup.threads or 1)


def _room(ray: Any, job: Job) -> int:
    """How many actors the nodes of the cluster have room for; each is on one of them.

    Raises:
        UsageError: no node has room for one.
    """
    kind, count = _needs(ray, job)
    nodes = [int(node["Resources"].get(kind, 0)) for node in ray.nodes() if node["Alive"]]
    if room := sum(has // count for has in nodes):
        return room
    noun, option = ("GPUs", "--device") if kind == "GPU" else ("cores", "--threads")
    raise UsageError(
        f"no host of the Ray cluster has room for a reader, which needs {count} of its {noun}",
        f"the largest of its hosts has {max(nodes, default=0)}",
        f"Give another {option}, or start the cluster with such hosts.",
    )
