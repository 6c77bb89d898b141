"""What a Ray cluster is asked for, and what becomes of its actors' errors."""

from types import SimpleNamespace
from typing import Any

import pytest

from longctx.core.common.errors import UsageError
from longctx.core.engine.choice import Setup
from longctx.core.ingest.job import Job
from longctx.core.ingest.ray_fleet import _needs, _room, read_with_ray


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
        ({"threads": 2}, r"needs 2 of its cores: of 3 hosts the largest has 1\. .*--threads"),
        ({"device": "cuda"}, r"needs 1 of its GPUs: of 3 hosts the largest has 0\. .*--device"),
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
