"""Chunks that are recorded and replayed leave what the layers leave; here recording only notes."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from longctx.core import methods
from longctx.core.engine import chunk_graphs
from longctx.core.engine.encode import encode
from longctx.core.model import adapter
from longctx.core.model.adapter import Decoder
from longctx.core.model.chunk_pass import ChunkPass
from longctx.core.model.split import SplitDecoder
from longctx.kernels import choice

IDS = torch.randint(0, 61, (330,), generator=torch.Generator().manual_seed(3))
HEADS = ((0, "v", 0), (1, "q", 1), (3, "k", 0))
OPTIONS = {"heads": HEADS, "first": 2, "last": 2, "queries": 8, "pool": 2, "chunk": 16}


class Rows:
    """Keeps the rows that come, as they are."""

    def __init__(self):
        self.kept: list[torch.Tensor] = []

    def append(self, group, rows) -> None:
        self.kept += rows.values()


def read(
    decoder: Decoder, budget: int = 20, accumulate: bool = False, prefix: int = 5
) -> list[torch.Tensor]:
    """The rows of a reading, and what a snapshot had after each chunk and at the end."""
    module = methods.load("reform")
    options = module.Options(**OPTIONS, budget=budget, accumulate=accumulate)
    method, rows, found = module.Method(options, decoder.layers), Rows(), []
    for _ in encode(decoder, method, IDS[:prefix], IDS.split(23), rows):
        found += method.snapshot().values()
    return [*rows.kept, *found, *method.snapshot().values()]


@pytest.fixture
def replays(monkeypatch):
    """How often recorded work has run, the first time to compare; recording runs nothing."""
    ran = [0]

    def capture(device, work):
        def replay():
            ran[0] += 1
            work()

        return replay

    monkeypatch.setattr(chunk_graphs, "capture_of", lambda decoder, method: capture)
    return ran


@pytest.mark.parametrize("accumulate", [False, True])
def test_a_replayed_reading_leaves_the_same(make_model, replays, accumulate):
    replayed = read(Decoder(make_model("llama-default")), accumulate=accumulate)
    assert replays == [20 - chunk_graphs.SETTLED - 2]  # the first two chunks fill the cache
    assert_same(replayed, read_directly(make_model, accumulate=accumulate))


def test_tokens_of_a_long_prefix_have_no_rows(make_model, replays):
    replayed = read(Decoder(make_model("llama-default")), prefix=200)
    assert 16 * (chunk_graphs.SETTLED + 3) < 200  # it is recorded and replayed within it
    assert_same(replayed, read_directly(make_model, prefix=200))


def test_each_device_has_a_part_of_its_own(make_model, replays, monkeypatch):
    """Two devices are one here; what passes between them is what passes between two."""
    monkeypatch.setattr(adapter, "wanted", lambda device: True)
    whole = read(SplitDecoder(Decoder(make_model("llama-default")), ("cpu", "cpu")))
    in_one, replays[0] = replays[0], 0
    monkeypatch.setattr(ChunkPass, "stretches", lambda self, depth: [(0, 1), (1, 2), (2, depth)])
    parts = read(SplitDecoder(Decoder(make_model("llama-default")), ("cpu", "cpu")))
    assert replays == [3 * in_one]
    assert_same(parts, whole)
    monkeypatch.setattr(chunk_graphs, "capture_of", lambda decoder, method: None)
    assert_same(parts, read(SplitDecoder(Decoder(make_model("llama-default")), ("cpu", "cpu"))))


def test_a_device_without_layers_has_a_part_for_the_embeddings(make_model, replays, monkeypatch):
    """Else the graph of that device would be one of operations on others."""
    monkeypatch.setattr(adapter, "wanted", lambda device: True)
    split = SplitDecoder(Decoder(make_model("llama-default")), ("cpu", "cpu:0"))
    split._place(["cpu:0"] * 4)  # as where the embeddings leave no room for one
    assert [str(part.device) for part in split.stretches(16, 3)] == ["cpu", "cpu:0"]
    parts = read(split)
    assert replays == [2 * (20 - chunk_graphs.SETTLED - 2)]
    monkeypatch.setattr(chunk_graphs, "capture_of", lambda decoder, method: None)
    assert_same(parts, read(split))


def test_layers_that_follow_one_another_on_a_device_are_one_stretch():
    layers = [SimpleNamespace(place=torch.device(kind)) for kind in ("cpu", "cpu", "meta", "cpu")]
    parts: Any = SimpleNamespace(layers=layers)
    chunks = ChunkPass(parts, (), torch.nn.Identity())
    assert chunks.stretches(4) == [(0, 2), (2, 3), (3, 4)]
    assert chunks.stretches(1) == [(0, 1)]


def read_directly(make_model, **how) -> list[torch.Tensor]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chunk_graphs, "capture_of", lambda decoder, method: None)
        return read(Decoder(make_model("llama-default")), **how)


def assert_same(ours, theirs) -> None:
    assert len(ours) == len(theirs)
    assert all(torch.equal(one, other) for one, other in zip(ours, theirs, strict=True))


def test_a_cache_that_still_grows_is_not_recorded(make_model, replays):
    read(Decoder(make_model("llama-default")), budget=400)
    assert replays == [0]


@pytest.mark.parametrize("fails", ["recording", "replaying", "comparing"])
def test_what_cannot_be_replayed_is_read_directly(make_model, monkeypatch, fails):
    def capture(device, work):
        if fails == "recording":
            choice.broken["kernel", torch.device("cpu")] = "it cannot be recorded"
            raise RuntimeError("not here")
        return work if fails == "comparing" else lambda: (work(), work())  # leaves other bits

    def equals(self, rows, method):
        raise torch.OutOfMemoryError("no room for both")

    if fails == "comparing":
        monkeypatch.setattr(chunk_graphs._Replayed, "equals", equals)

    monkeypatch.setattr(chunk_graphs, "capture_of", lambda decoder, method: capture)
    assert_same(read(Decoder(make_model("llama-default"))), read_directly(make_model))
    assert ("kernel", torch.device("cpu")) not in choice.broken


def test_a_cpu_waits_for_no_launches(make_model):
    module = methods.load("reform")
    decoder = Decoder(make_model("llama-default"))
    method = module.Method(module.Options(**OPTIONS, budget=20), decoder.layers)
    assert chunk_graphs.capture_of(decoder, method) is None
