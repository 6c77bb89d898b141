"""Many documents read by several processes of one machine, each with a model of its own.

The parent hands out names, the largest file first, to whichever worker is idle; what a worker does
with one is what `many.py` does. A worker that is killed loses nothing: its document goes to another
one, which goes on from the last checkpoint, and a new worker takes its place. Documents do not
depend on one another, so the library has the bytes that one process would have made.
"""

import multiprocessing
import os
import signal
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing import resource_tracker
from multiprocessing.connection import wait
from typing import Any

from longctx.core.common.errors import LongctxError, UsageError, of_parts, parts_of
from longctx.core.engine.choice import Setup
from longctx.core.engine.setup import chosen_devices
from longctx.core.ingest.docket import PAUSE, Docket, for_readers
from longctx.core.ingest.job import NOBODY, Job, Observer, Progress
from longctx.core.ingest.many import Each, named_sources, read_one, require_any

_PATIENCE = 60.0  # seconds in which a worker saves what it has read, when the work ends early


@dataclass
class _Worker:
    """A process that reads documents.

    Attributes:
        process: it.
        connection: to it; it gets names, and sends what happens.
        number: its place among the workers, from 0.
        name: of the document that it is reading; None: it is idle.
        heard: it has said something; before, it has nothing to save.
    """

    process: Any
    connection: Any
    number: int
    name: str | None = None
    heard: bool = False


def read_with_workers(
    job: Job,
    workers: int,
    retry: int = 0,
    observer: Observer = NOBODY,
    result: Each | None = None,
) -> Each:
    """Reads each file into a document of its own, with several processes.

    Args:
        job: as for `read_each`. Where its setup names several devices, each worker has one.
        workers: processes.
        retry: how often a file that failed is tried again.
        observer, result: as for `read_each`.

    Raises:
        UsageError: standard input is to be read, a device's memory is limited, or as `read_each`.
        LongctxError: as `read_each`.
    """
    if "-" in job.paths:
        raise UsageError("cannot read standard input with --workers", "", "Name files.")
    devices = _devices(job.setup) if workers > 1 else ()
    docket = Docket(job, retry, observer, Each() if result is None else result)
    _Fleet(job, docket, devices).run(min(workers, max(1, len(docket))))
    return require_any(docket.result)


class _Fleet:
    """The work, and who is at it.

    Args:
        job, docket: what is read.
        devices: each worker has one of these; empty: what the job's setup says.
    """

    def __init__(self, job: Job, docket: Docket, devices: Sequence[str] = ()):
        self._job, self._docket, self._devices = job, docket, devices
        self._workers: list[_Worker] = []
        # A fresh interpreter: a forked one would share what libraries have started.
        self._context = multiprocessing.get_context("spawn")

    def run(self, count: int) -> None:
        """Reads everything; workers have ended when this returns or raises."""
        try:
            for number in range(count):
                self._hire(number, count)
            while self._workers:
                for worker in [each for each in self._workers if each.name is None]:
                    self._give(worker)
                self._hear(count)
        finally:
            self._end()

    def _hire(self, number: int, count: int) -> None:
        ours, theirs = multiprocessing.Pipe()
        setup = _own_setup(self._job.setup, self._devices, number, count)
        job = replace(for_readers(self._job), setup=setup)
        process = self._context.Process(target=_process, args=(job, theirs), daemon=False)
        _hold_back(True)  # the process inherits that
        try:
            process.start()
        finally:
            _hold_back(False)
        theirs.close()
        self._workers.append(_Worker(process, ours, number))

    def _give(self, worker: _Worker) -> None:
        """The next document for an idle worker; when nothing can come any more it ends."""
        if name := self._docket.next():
            worker.name = name
            with suppress(OSError):  # it has died: `_hear` will see that
                worker.connection.send(worker.name)
        elif not self._docket and not any(each.name for each in self._workers):
            self._workers.remove(worker)
            with suppress(OSError):
                worker.connection.send(None)
            worker.process.join()

    def _hear(self, count: int) -> None:
        """Waits for news of any worker, and takes it in."""
        busy = {each.connection: each for each in self._workers if each.name}
        if not busy and self._docket:
            time.sleep(PAUSE)  # all that is left is read by another command
        for connection in wait([*busy], PAUSE if self._docket else None) if busy else ():
            worker = busy[connection]  # type: ignore[index]
            try:
                kind, told = worker.connection.recv()
            except (EOFError, OSError):
                self._bury(worker, count)
                continue
            worker.heard = True
            name = worker.name or ""
            if kind == "progress":
                self._docket.heard(name, told)
            elif kind == "raised":
                raise of_parts(told)
            else:
                worker.name = None
                self._docket.done(name, told)

    def _bury(self, worker: _Worker, count: int) -> None:
        """A worker has died: another one takes its place, and its document."""
        worker.process.join()
        self._workers.remove(worker)
        self._docket.died(worker.name or "", f"exit {worker.process.exitcode}")
        self._hire(worker.number, count)

    def _end(self) -> None:
        """Ends what still runs; each worker saves what it has read."""
        for worker in self._workers:
            if worker.process.is_alive():
                with suppress(OSError):
                    os.kill(worker.process.pid, signal.SIGINT if worker.heard else signal.SIGTERM)
            worker.connection.close()
        for worker in self._workers:
            worker.process.join(_PATIENCE)
            if worker.process.is_alive():
                worker.process.kill()
                worker.process.join()


def _devices(setup: Setup) -> tuple[str, ...]:
    """The devices that are shared out among several workers; empty: all use what is usual."""
    if setup.devices is not None and setup.max_memory is not None:
        why = "each worker has one device, with the whole model"
        raise UsageError("--max-memory cannot be given with --workers", why, "Leave it out.")
    return chosen_devices(setup)


def _own_setup(setup: Setup, devices: Sequence[str], number: int, count: int) -> Setup:
    """The setup of one worker: a device of its own, and its share of the cores."""
    if devices:
        setup = replace(setup, device=devices[number % len(devices)], devices=None)
    if setup.threads is None:
        setup = replace(setup, threads=max(1, (os.cpu_count() or 1) // count))
    return setup


def _hold_back(wait: bool) -> None:
    """Whether SIGINT waits, which would be a traceback where Python starts or ends."""
    if hasattr(signal, "pthread_sigmask"):
        resource_tracker.ensure_running()  # its start, with the first process, would let them go
        how = signal.SIG_BLOCK if wait else signal.SIG_UNBLOCK
        signal.pthread_sigmask(how, {signal.SIGINT})


def _process(job: Job, connection: Any) -> None:
    """A worker's process, which SIGINT ends while it works."""
    if hasattr(os, "setsid"):
        os.setsid()  # Ctrl-C at the terminal is the parent's, which passes it on once
    with suppress(KeyboardInterrupt):
        try:
            _hold_back(False)
            _work(job, connection)
        finally:
            signal.signal(signal.SIGINT, signal.SIG_IGN)


def _work(job: Job, connection: Any) -> None:
    """Reads the documents whose names come, until none comes any more."""
    from longctx.core.engine.setup import prepare
    from longctx.core.sources import parser

    try:
        named, engine = named_sources(job.paths, job.rules, job.shard), None
        while (name := connection.recv()) is not None:
            engine = engine or prepare(job.setup)
            observer = Observer(partial(_tell, connection))
            connection.send(("done", read_one(job, observer, engine, named[name], name)))
    except LongctxError as error:
        with suppress(OSError):
            connection.send(("raised", parts_of(error)))
    except (EOFError, OSError, KeyboardInterrupt):
        return  # the parent is gone, or has ended the work; what was read is saved
    finally:
        parser.end()


def _tell(connection: Any, progress: Progress, **more: Any) -> None:
    connection.send(("progress", progress))
