"""Documents read by several processes: the library that one process makes, whoever is killed."""

import json
import multiprocessing
import os
import random
import signal
import sys
import threading
import time
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from preloaded import PIPE, Process

import longctx
from longctx.core.common.errors import UsageError
from longctx.core.engine.choice import Setup
from longctx.core.ingest import fleet
from longctx.core.ingest.checkpoints import Cadence
from longctx.core.ingest.docket import Docket
from longctx.core.ingest.fleet import _Fleet, _work, _Worker, read_with_workers
from longctx.core.ingest.job import NOBODY, Job, Observer, Progress
from longctx.core.ingest.many import Each, named_sources, read_each
from longctx.core.ingest.ray_fleet import read_with_ray
from longctx.core.sources.rules import Rules

PROFILE = "profiles/tiny/profile.yaml"
WORDS = ("the", "keeper", "wrote", "in", "his", "book", "that", "a", "boat", "came", "home")


@pytest.fixture
def setup(tmp_path) -> Setup:
    """The bundled model, which starts sooner than others, in chunks of 64 tokens."""
    profile = yaml.safe_load((Path(longctx.__file__).parent / PROFILE).read_text("utf-8"))
    profile["methods"]["reform"].update(chunk=64, budget=256)
    (tmp_path / "chunks.yaml").write_text(yaml.safe_dump(profile))
    chunks = str(tmp_path / "chunks.yaml")
    return Setup(model="tiny", profile=chunks, device="cpu", dtype="fp32", threads=1)


@pytest.fixture
def job(tmp_path, setup) -> Job:
    """Four files of different lengths."""
    folder = tmp_path / "top"
    folder.mkdir()
    chance = random.Random(0)
    for number in range(4):
        words = chance.choices(WORDS, k=400 + 100 * number)
        (folder / f"{number}.txt").write_text(" ".join(words))
    return Job(tmp_path / "one", [str(folder)], setup, cadence=Cadence(tokens=128))


@pytest.fixture
def forked(monkeypatch) -> None:
    """Workers are forked from a process that has imported everything: they begin sooner.

    How they are begun by themselves, `tests/cli/test_each.py` shows.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["longctx.core.ingest.fleet", "longctx.core.model.plain"])
    begin = SimpleNamespace(Pipe=multiprocessing.Pipe, get_context=lambda how: context)
    monkeypatch.setattr(fleet, "multiprocessing", begin)


def written(library: Path) -> dict[str, bytes]:
    """Every file of the documents of a library."""
    folder = library / "documents"
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


def claimant(library: Path, folder: str = "*") -> int | None:
    """The process that is writing a document of which there is a checkpoint."""
    for claim in sorted((library / "locks" / "unfinished").glob(f"{folder}/*.claim")):
        manifest = library / "unfinished" / claim.parent.name / "manifest.json"
        try:
            if json.loads(manifest.read_bytes())["tokens"]:
                return json.loads(claim.read_bytes())["pid"]
        except (OSError, ValueError):
            continue  # it is being made, or is done
    return None


@pytest.mark.slow
def test_a_kill_and_ctrl_c_leave_what_one_process_goes_on_with(job, tmp_path, forked):
    killed: dict[str, int] = {}

    def progress(told, document):
        if document in killed and told.cache:
            raise KeyboardInterrupt  # another worker has gone on with it
        if not killed and told.kept and (pid := claimant(library, document)):
            killed[document] = pid
            os.kill(pid, signal.SIGKILL)

    library, result = tmp_path / "two", Each()
    theirs = replace(job, library=library)
    with pytest.raises(KeyboardInterrupt):
        read_with_workers(theirs, 2, 0, Observer(progress=progress), result)
    assert os.getpid() not in killed.values()
    done = read_each(theirs)
    assert (len(done.documents), done.failed) == (4, [])
    [gone_on] = [each for each in done.documents if each.name in killed]
    assert gone_on.reused_tokens or gone_on.status == "unchanged"
    assert {each.status for each in done.documents} <= {"complete", "unchanged"}
    read_each(job)
    assert written(library) == written(job.library)


@pytest.mark.slow
@pytest.mark.skipif(not find_spec("ray"), reason="needs Ray")
def test_a_cluster_that_loses_an_actor_makes_what_one_process_makes(job, tmp_path, monkeypatch):
    library = tmp_path / "ray"
    model = ["--model", "tiny", "--profile", job.setup.profile]
    how = ["--device", "cpu", "--dtype", "fp32", "--threads", "1", "--checkpoint", "128", *model]
    command = ["ingest", job.paths[0], "--each", "--ray", "local", "--workers", "2", "--json"]
    environment = {**os.environ, "LONGCTX_LIBRARY": str(library)}
    monkeypatch.chdir(tmp_path)
    more = {"env": environment, "stdout": PIPE, "text": True}
    with Process([*command, *how], **more) as driver:
        while driver.poll() is None and not (killed := claimant(library)):
            time.sleep(0.01)
        assert killed not in (None, driver.pid)
        os.kill(killed, signal.SIGKILL)
        *each, of_all = map(json.loads, driver.communicate(timeout=200)[0].splitlines())
    assert driver.returncode == 0
    assert sorted(one["name"] for one in each) == [f"top-{n}.txt" for n in range(4)]
    assert any(one["reused_tokens"] for one in each)
    assert (len(of_all["documents"]), of_all["failed"]) == (4, [])
    read_each(job)
    assert written(library) == written(job.library)


@pytest.mark.skipif(os.name == "nt", reason="Windows holds no signals back")
def test_ctrl_c_ends_a_worker_only_while_it_works(job, monkeypatch):
    """Else it is a traceback: where Python and the libraries start, and at its end."""

    def held() -> bool:
        return signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, [])

    def work(job: Job, connection: Any) -> None:
        seen.append(held())
        raise KeyboardInterrupt

    seen: list[bool] = []
    started = SimpleNamespace(start=lambda: seen.append(held()))
    crew = _Fleet(job, Docket(job, 0, NOBODY, Each()))
    crew._context = SimpleNamespace(Process=lambda **how: started)
    crew._hire(0, 1)
    assert (seen, held()) == ([True], False)
    monkeypatch.setattr(os, "setsid", lambda: None)
    monkeypatch.setattr(fleet, "_work", work)
    handler = signal.getsignal(signal.SIGINT)
    fleet._hold_back(True)
    try:
        fleet._process(job, None)
        assert (seen, signal.getsignal(signal.SIGINT)) == ([True, False], signal.SIG_IGN)
        signal.signal(signal.SIGINT, handler)
        fleet._hold_back(True)
        signal.pthread_kill(threading.get_ident(), signal.SIGINT)  # while the process started
        fleet._process(job, None)
        assert seen == [True, False]
    finally:
        fleet._hold_back(False)
        signal.signal(signal.SIGINT, handler)


def test_workers_share_devices_out(monkeypatch):
    """`all` too; before, each worker spread its model over all of them."""
    monkeypatch.setattr("torch.cuda.device_count", lambda: 3)
    setup = Setup("tiny", devices="all", threads=2)
    devices = fleet._devices(setup)
    own = [fleet._own_setup(setup, devices, number, 4) for number in range(4)]
    assert [each.device for each in own] == ["cuda:0", "cuda:1", "cuda:2", "cuda:0"]
    assert {each.devices for each in own} == {None}
    assert fleet._devices(Setup("tiny", device="cpu")) == ()


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"max_memory": 1 << 30}, "--max-memory cannot be given with --workers"),
        ({"device": "cpu"}, "cannot take both --device and --devices"),
    ],
)
def test_workers_refuse_what_says_more_of_devices(job, more, said):
    setup = replace(job.setup, **{"device": "auto", "devices": "cpu,cpu", **more})
    with pytest.raises(UsageError, match=said):
        read_with_workers(replace(job, setup=setup), 2)


def test_one_worker_has_all_devices(job, monkeypatch):
    """That reads again what fails: a model may need more than one."""
    monkeypatch.setattr(_Fleet, "run", lambda self, count: seen.append(self._devices))
    monkeypatch.setattr(fleet, "require_any", lambda result: result)
    seen: list[Any] = []
    setup = replace(job.setup, device="auto", devices="cpu,cpu")
    for workers in (1, 2):
        read_with_workers(replace(job, setup=setup), workers, 1)
    assert seen == [(), ("cpu", "cpu")]


def test_a_worker_that_has_not_begun_is_ended_at_once(job, monkeypatch):
    """It may take long to import what it needs, and has nothing to save."""
    sent: list[tuple[int, int]] = []
    monkeypatch.setattr(os, "kill", lambda *given: sent.append(given))
    crew, pipes = _Fleet(job, Docket(job, 0, NOBODY, Each())), []
    for number in range(2):
        pipes.append(multiprocessing.Pipe())
        alive = partial(next, iter((True, False)))
        process = SimpleNamespace(pid=number, is_alive=alive, join=lambda seconds: None)
        crew._workers.append(_Worker(process, pipes[-1][0], number, crew._docket.next()))
    pipes[1][1].send(("progress", Progress(1, 0, 0, 0, 0, 0)))
    crew._hear(2)
    crew._end()
    assert sent == [(0, signal.SIGTERM), (1, signal.SIGINT)]


def test_an_error_for_every_file_keeps_its_kind(job):
    """A worker finds what its parent did not: it ends the command with the worker's exit code."""
    docket = Docket(job, 0, NOBODY, Each())
    ours, theirs = multiprocessing.Pipe()
    with ours, theirs:
        _work(replace(job, paths=["gone.txt"]), theirs)
        crew = _Fleet(job, docket)
        crew._workers = [_Worker(None, ours, 0, docket.next())]
        with pytest.raises(UsageError, match=r"gone\.txt"):
            crew._hear(1)


def test_shards_are_disjoint_and_all(job):
    whole = named_sources(job.paths, Rules())
    parts = [named_sources(job.paths, Rules(), (number, 3)) for number in (1, 2, 3)]
    assert sorted(name for part in parts for name in part) == sorted(whole)
    assert sum(map(len, parts)) == len(whole)
    assert max(map(len, parts)) < len(whole)


@pytest.mark.parametrize("read", [read_with_workers, read_with_ray])
def test_standard_input_is_refused(job, read):
    with pytest.raises(UsageError, match="standard input"):
        read(replace(job, paths=["-"]), "local" if read is read_with_ray else 2)


def test_without_ray_it_is_said_how_to_install_it(job, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UsageError, match=r"Run: pip install ray\."):
        read_with_ray(job, "local", observer=NOBODY)
