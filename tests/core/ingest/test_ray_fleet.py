"""What a Ray cluster is asked for, and what becomes of its actors' errors."""

import os
import signal
import sys
from dataclasses import replace
from importlib.util import find_spec
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest

from longctx.core.common.errors import LongctxError, UsageError
from longctx.core.engine.choice import Setup
from longctx.core.ingest import ray_fleet as module
from longctx.core.ingest.docket import KILLS, Docket
from longctx.core.ingest.job import NOBODY, Job, Progress
from longctx.core.ingest.many import Each, Failed
from longctx.core.ingest.ray_connection import connected
from longctx.core.ingest.ray_fleet import (
    _Cluster,
    _needs,
    _Reader,
    _room,
    read_with_ray,
)


@pytest.fixture
def job(tmp_path):
    """f(choices of the setup): a job."""
    return lambda **chosen: Job(tmp_path / "library", [str(tmp_path)], Setup("tiny", **chosen))


def cluster(*nodes: dict[str, float], dead: dict[str, float] | None = None) -> Any:
    """What Ray says of a cluster with these nodes, and of one that died."""
    told = [{"Alive": True, "Resources": {"memory": 1e9, **node}} for node in nodes]
    told += [{"Alive": False, "Resources": dead}] if dead else []
    kinds = {kind for node in nodes for kind in node}
    total = {kind: sum(node.get(kind, 0) for node in nodes) for kind in kinds}
    return SimpleNamespace(nodes=lambda: told, cluster_resources=lambda: total)


def test_each_actor_is_on_one_node(job):
    ray = cluster({"CPU": 5.0}, {"CPU": 3.0}, {}, dead={"CPU": 64.0})
    assert _room(ray, job(threads=2)) == 2 + 1
    assert _room(ray, job()) == 8
    assert _room(cluster({"CPU": 8.0, "GPU": 4.0}, {"GPU": 1.0}), job(threads=8)) == 5


def test_what_an_actor_needs(job):
    gpus, cores = cluster({"CPU": 8.0, "GPU": 4.0}), cluster({"CPU": 8.0})
    assert _needs(gpus, job()) == _needs(cores, job(device="cuda")) == ("GPU", 1)
    assert _needs(gpus, job(device="cpu", threads=3)) == ("CPU", 3)
    assert _needs(cores, job()) == ("CPU", 1)


@pytest.mark.parametrize(
    ("chosen", "said"),
    [
        ({"threads": 2}, r"needs 2 of its cores: the largest of its hosts has 1\. .*--threads"),
        ({"device": "cuda"}, r"needs 1 of its GPUs: the largest of its hosts has 0\. .*--device"),
    ],
)
def test_no_host_has_room(job, chosen, said):
    """Ray would wait for such a host for ever."""
    with pytest.raises(UsageError, match=said):
        _room(cluster({"CPU": 1.0}, {"CPU": 1.0}, {"CPU": 1.0}), job(**chosen))


@pytest.mark.parametrize(
    "chosen", [{"devices": "cuda:0,cuda:1"}, {"max_memory": 1 << 30}, {"device": "cuda:1"}]
)
def test_devices_are_rays_to_choose(job, chosen):
    [(name, value)] = chosen.items()
    with pytest.raises(UsageError, match=f"cannot use {name} {value!r} with a Ray cluster"):
        read_with_ray(job(**chosen), "127.0.0.1:1")


# --- what becomes of errors ---


@pytest.fixture
def work(job, tmp_path):
    """Three files that are to be read on a CPU."""
    for name in "abc":
        (tmp_path / f"{name}.txt").write_text(name)
    return replace(job(device="cpu"), paths=[str(tmp_path / f"{name}.txt") for name in "abc"])


class Death(Exception):
    """An actor has died."""


class Raised(Exception):
    """What an actor raised."""

    def __init__(self, cause: Exception):
        self.cause = cause


@pytest.fixture
def fleet(work):
    """f(number of actors): a cluster of Ray's in which `get` gives or raises what it is told."""
    errors = dict.fromkeys(("RayActorError", "WorkerCrashedError", "OutOfMemoryError"), Death)
    ray = MagicMock()
    ray.exceptions = SimpleNamespace(**errors, RayTaskError=Raised)

    def made(count: int) -> tuple[_Cluster, MagicMock]:
        cluster = _Cluster(ray, work, Docket(work, 0, NOBODY, Each()))
        for _ in range(count):
            cluster._hire()
        return cluster, ray.get

    return made


@pytest.mark.parametrize("error", [Death("out of memory"), Raised(MemoryError("out of memory"))])
def test_a_host_that_cannot_begin_is_not_asked_for_ever(fleet, error):
    cluster, get = fleet(2)
    for lost in range(1, KILLS + 3):
        get.side_effect = [("begun", None)]
        cluster._take(cluster._actors[0])  # the good host's actors undo nothing
        cluster._hire()  # one more on the bad host
        before = len(cluster._actors)
        get.side_effect = error
        cluster._take(cluster._actors[-1])
        assert len(cluster._actors) == before - (lost >= KILLS)


def test_a_reader_that_dies_over_a_document_is_replaced(fleet):
    cluster, get = fleet(1)
    cluster._lost = KILLS
    cluster._actors[0].busy = None
    cluster._give(cluster._actors[0])
    get.side_effect = Death("killed")
    cluster._take(cluster._actors[0])
    assert [each.name for each in cluster._actors] == [None]
    assert len(cluster._docket) == 3


def test_where_none_can_begin_it_is_said_why(fleet):
    cluster, get = fleet(1)
    get.side_effect = Raised(MemoryError("the model does not fit\nat all"))
    for _ in range(KILLS - 1):
        cluster._take(cluster._actors[0])
    said = rf"{KILLS} actors ended .* none is left: MemoryError: the model does not fit\. "
    with pytest.raises(LongctxError, match=said):
        cluster._take(cluster._actors[0])


def test_a_host_that_lacks_a_file_fails_that_one(fleet, work):
    cluster, get = fleet(1)
    [actor] = cluster._actors
    actor.name = name = cluster._docket.next()
    get.side_effect = [_Reader(work, ".").read(name)]
    cluster._take(actor)
    [failed] = cluster._docket.result.failed
    assert (failed.source, failed.code) == (work.paths[0], 3)
    assert "sees other files" in failed.message
    assert cluster._actors == [actor]
    assert actor.name is None


def test_what_is_read_to_its_end_is_written_before_an_actor_stops(work, monkeypatch):
    reader, heard = _Reader(work, "."), []

    def read_one(job, observer, *source):
        for processed in (7, 9):
            heard.append(processed)
            observer.progress(Progress(9, 0, processed, 1, 0, 1))
        return heard

    monkeypatch.setattr(module, "read_one", read_one)
    reader._named = {"a": None}
    assert reader.read("a") == ("done", [7, 9])
    heard.clear()
    reader.stop()
    assert reader.read("a") == ("stopped", None)
    assert heard == [7]
    monkeypatch.setattr(
        module,
        "read_one",
        lambda job, observer, *source: observer.progress(Progress(9, 0, 9, 1, 0, 1)),
    )
    assert reader.read("a") == ("done", None)


class Stumbling:
    """A reader of which only the first can begin; it raises over `b.txt`, else tells its process.

    An outcome that is a plain text becomes one of those that are left out.
    """

    def __init__(self, job: Job, folder: str):
        self.first = job.library / "first"

    def begin(self) -> tuple[str, None]:
        self.first.touch(exist_ok=False)
        return "begun", None

    def read(self, name: str) -> tuple[str, str]:
        if name == "b.txt":
            raise ValueError("no such thing\nas this")
        return "done", str(os.getpid())

    def told(self) -> list[Any]:
        return []


@pytest.mark.slow
@pytest.mark.skipif(not find_spec("ray"), reason="needs Ray")
def test_a_real_actor_raises(work, monkeypatch):
    monkeypatch.setattr(module, "_Reader", Stumbling)
    handler = signal.getsignal(signal.SIGTERM)
    with connected("local") as ray:
        assert signal.getsignal(signal.SIGTERM) is handler
        # Its processes cannot import this file.
        ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])
        monkeypatch.setattr(module, "_for_actor", lambda ray, job: (job, {"num_cpus": 0}))
        work.library.mkdir()
        cluster = _Cluster(ray, work, Docket(work, 0, NOBODY, Each()))
        cluster.run(2)
    assert signal.getsignal(signal.SIGTERM) is handler
    result = cluster._docket.result
    assert result.failed == [Failed(work.paths[1], 1, "ValueError: no such thing")]
    before, after = result.left_out
    assert before == after != str(os.getpid())  # one process read all, also after the error
