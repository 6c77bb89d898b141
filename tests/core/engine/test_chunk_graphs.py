"""Chunks that are recorded and replayed leave what the layers leave; here recording only notes."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from held_tables import are_held
from sampled import covering

from longctx.core import methods
from longctx.core.contracts.memory import HERE, Place
from longctx.core.engine import chunk_graphs
from longctx.core.engine.encode import encode
from longctx.core.model import adapter
from longctx.core.model.adapter import Decoder
from longctx.core.model.chunk_pass import ChunkPass
from longctx.core.model.split import SplitDecoder
from longctx.kernels import choice

IDS = torch.randint(0, 61, (330,), generator=torch.Generator().manual_seed(3))
HEADS = ((0, "v", 0), (1, "q", 1), (3, "k", 0))
WHOLE = {"first": 3, "local": 16, "chunk": 12, "top_k": 2, "voted": 4, "span": 4}
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


def read_whole(
    decoder: Decoder, stored: str, expected: int, prefix: int = 5, place: Place = HERE, **more: int
) -> list[torch.Tensor]:
    """The rows of a reading that keeps everything, its snapshot, and a question's votes."""
    module = methods.load("reattention")
    options = module.Options(**{**WHOLE, **more}, kv_dtype=stored)
    method = module.Method(options, decoder.layers, replace(place, tokens=expected))
    rows = Rows()
    for _ in encode(decoder, method, IDS[:prefix], IDS.split(23), rows):
        pass
    asked = method.recall()
    logits = decoder.read(IDS[:9], asked)
    return [*rows.kept, *method.snapshot().values(), asked.scores(len(IDS)).raw, logits]


@pytest.fixture
def replays(monkeypatch):
    """How often recorded work has run, the first time to compare; recording runs nothing.

    What it left the last time is overwritten, as a graph has one place for it.
    """
    ran = [0]

    def capture(device, work):
        part = work.__self__

        @torch.inference_mode()
        def replay():
            ran[0] += 1
            left, taken = part.left, part.taken
            work()
            for name, before in taken.items():
                before.copy_(part.taken[name])
            if left is not None:
                left.copy_(part.left)

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


# Tokens that are expected, and how many of 26 chunks are replayed: those before the shapes have
# settled are not, and where the buffer has grown they settle again; 110 are full when the first
# one would be recorded, 120 after it.
EXPECTED = [
    (400, 25 - chunk_graphs.SETTLED),
    (200, 24 - 2 * chunk_graphs.SETTLED),
    (110, 18 - chunk_graphs.SETTLED),
    (120, 17 - chunk_graphs.SETTLED),
]


@pytest.mark.parametrize(("expected", "stored"), covering(EXPECTED, ["auto", "int8"], meet=1))
def test_a_chunk_is_put_where_there_is_room(make_model, replays, expected, stored):
    """Only the count of tokens tells a replay where; a full buffer grows, and it begins anew."""
    expected, count = expected
    replayed = read_whole(Decoder(make_model("llama-default")), stored, expected)
    assert replays == [count]
    with directly():
        read = read_whole(Decoder(make_model("llama-default")), stored, expected)
    assert_same(replayed, read)


def test_no_chunk_is_put_where_more_is_than_may_be_on_the_device(make_model, replays):
    """Keys and values of 220 tokens may: of 256 bytes each with four layers."""
    some = Place(room=440 * 256)
    replayed = read_whole(Decoder(make_model("llama-default")), "auto", 100, place=some)
    assert replays == [1 + (220 - 19) // 12 - 14]  # the buffers grow with chunk 7, the 14th counts
    with directly():
        read = read_whole(Decoder(make_model("llama-default")), "auto", 100, place=some)
    assert_same(replayed, read)


def test_rows_of_a_long_prefix_go_to_the_snapshot(make_model, replays):
    replayed = read_whole(Decoder(make_model("llama-default")), "auto", 600, prefix=200)
    assert replays[0] > 20
    with directly():
        assert_same(replayed, read_whole(Decoder(make_model("llama-default")), "auto", 600, 200))


def test_what_a_wrong_replay_has_left_is_read_again(make_model, monkeypatch):
    """Later chunks attend to the buffers in which it has put its keys and values."""
    ran = []

    def capture(device, work):
        part = work.__self__

        @torch.inference_mode()
        def replay():
            work()
            end = int(part.seen)
            ran.append(end)
            for wrong in [*part.taken.values(), *(x[end - 12 : end] for x in part._states)]:
                wrong.fill_(7)

        return replay

    with directly():
        read = read_whole(Decoder(make_model("llama-default")), "auto", 400)
    monkeypatch.setattr(chunk_graphs, "capture_of", lambda decoder, method: capture)
    assert_same(read_whole(Decoder(make_model("llama-default")), "auto", 400), read)
    assert len(ran) == 1


@pytest.mark.parametrize("kind", ["mistral-window", "llama-default"])
def test_what_is_not_all_on_the_device_is_read_directly(make_model, replays, kind):
    """A sliding layer's window is a tensor of its own for each chunk; a question adds to a copy."""
    decoder = Decoder(make_model(kind))
    module = methods.load("reattention")
    room = Place(tokens=400, room=None if kind == "mistral-window" else 20_000)
    method = module.Method(module.Options(**WHOLE), decoder.layers, room)
    for _ in encode(decoder, method, IDS[:5], IDS.split(23), Rows()):
        pass
    assert replays == [0]
    assert method.recall().states() == []


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


@pytest.mark.parametrize("stored", ["auto", "int8"])
def test_each_device_puts_a_chunk_into_its_own_buffers(make_model, replays, monkeypatch, stored):
    monkeypatch.setattr(adapter, "wanted", lambda device: True)
    monkeypatch.setattr(ChunkPass, "stretches", lambda self, depth: [(0, 1), (1, 2), (2, depth)])
    split = SplitDecoder(Decoder(make_model("llama-default")), ("cpu", "cpu"))
    parts = read_whole(split, stored, 400, chunk=16)  # shorter ones pass as one
    assert replays == [3 * (19 - chunk_graphs.SETTLED - 1)]
    with directly():
        assert_same(parts, read_whole(split, stored, 400, chunk=16))


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
    with directly():
        return read(Decoder(make_model("llama-default")), **how)


@contextmanager
def directly() -> Iterator[None]:
    """Inside, no chunk is recorded."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chunk_graphs, "capture_of", lambda decoder, method: None)
        yield


def assert_same(ours, theirs) -> None:
    assert len(ours) == len(theirs)
    assert all(torch.equal(one, other) for one, other in zip(ours, theirs, strict=True))


def test_a_cache_that_still_grows_is_not_recorded(make_model, replays):
    read(Decoder(make_model("llama-default")), budget=400)
    assert replays == [0]


def test_a_recording_holds_the_tables_that_it_reads(make_model, replays):
    """The rotary embedding has few at a time: an answer of another length may take their place."""
    module = methods.load("reform")
    decoder = Decoder(make_model("llama-default"))
    method = module.Method(module.Options(**OPTIONS, budget=20), decoder.layers)
    reader = chunk_graphs.ChunkReader(decoder, method)
    for ids in IDS[:160].split(16):
        reader.read(ids)
        reader.rows(0)
    assert replays[0] > 1
    assert are_held(decoder.layers[0].rope, 36)


@pytest.mark.parametrize(("name", "copies"), [("reform", True), ("reattention", False)])
def test_what_a_recording_takes(make_model, replays, name, copies):
    """Memory of its own to work in, and copies of the states unless it adds to them in place."""
    module = methods.load(name)
    options = WHOLE if name == "reattention" else {**OPTIONS, "budget": 20}
    decoder = Decoder(make_model("llama-default"))
    method = module.Method(module.Options(**options), decoder.layers)
    enough = chunk_graphs.SETTLED + 2
    assert chunk_graphs.recording_bytes(decoder, method, enough, 1000) == 0  # nothing to replay
    for ids in IDS[:64].split(16):
        decoder.read(ids, method, method.depth)
        method.taken()
    held = sum(state.nbytes for state in method.states())
    assert held > 0
    taken = chunk_graphs.recording_bytes(decoder, method, enough, 1000)
    assert taken == 1000 + (held if copies else 0)
    assert chunk_graphs.recording_bytes(decoder, method, enough - 1, 1000) == 0
    with directly():
        assert chunk_graphs.recording_bytes(decoder, method, enough, 1000) == 0


@pytest.mark.parametrize("fails", ["recording", "replaying", "comparing"])
def test_what_cannot_be_replayed_is_read_directly(make_model, monkeypatch, fails):
    def capture(device, work):
        if fails == "recording":
            choice.broken["kernel", torch.device("cpu")] = "it cannot be recorded"
            raise RuntimeError("not here")
        return work if fails == "comparing" else lambda: (work(), work())  # leaves other bits

    def equals(self, taken, method):
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


# Fewer tokens than there are, so that it begins anew; 140 are full when one would be recorded.
@pytest.mark.gpu
@pytest.mark.parametrize(("expected", "times"), [(200, 2), (140, 1)])
@pytest.mark.parametrize("stored", ["auto", "int8"])
def test_a_gpu_replays_what_keeps_everything(make_model, monkeypatch, stored, expected, times):
    told = []
    monkeypatch.setattr(chunk_graphs, "_tell", lambda how, why: told.append((how, why)))
    decoder = Decoder(make_model("llama-default").to("cuda", torch.bfloat16))
    where = {"place": Place("cuda", torch.bfloat16, room=1 << 30), "chunk": 16}
    replayed = read_whole(decoder, stored, expected, **where)
    assert told == [("by replay", "they give the same bits")] * times
    with directly():
        assert_same(replayed, read_whole(decoder, stored, expected, **where))
