"""Reading over several devices: the same bytes as with one, whatever the split."""

import random
from dataclasses import replace

import pytest
import torch
from sampled import covering

from longctx.core import methods
from longctx.core.common.errors import LongctxError, UsageError
from longctx.core.contracts.method import Method
from longctx.core.engine.choice import Setup
from longctx.core.engine.encode import encode
from longctx.core.engine.setup import prepare
from longctx.core.engine.staying import always
from longctx.core.ingest.ingest import ingest
from longctx.core.model.adapter import Decoder
from longctx.core.model.balance import Reading
from longctx.core.model.load import _WholeWindow
from longctx.core.model.split import SplitDecoder

IDS = torch.randint(0, 61, (150,), generator=torch.Generator().manual_seed(3))
SIZES = {"chunk": 16, "budget": 20}
HEADS = ((0, "v", 0), (1, "q", 1), (3, "k", 0))
OPTIONS = {
    "reform": {**SIZES, "heads": HEADS, "first": 2, "last": 2, "queries": 8, "pool": 2},
    **{name: SIZES for name in ("h2o", "tova", "streaming")},
}


class Rows:
    """Keeps the rows that come."""

    def __init__(self):
        self.kept: list[tuple[str, str, torch.Tensor]] = []

    def append(self, group, rows) -> None:
        self.kept += [(group, name, tensor.clone()) for name, tensor in rows.items()]


def made(decoder: Decoder, name: str) -> Method:
    module = methods.load(name)
    if name == "streaming":
        return module.Method(module.Options(chunk=16, budget=20), decoder.layers)
    return module.Method(module.Options(**OPTIONS[name]), decoder.layers)


def read(decoder: Decoder, name: str, method: Method | None = None, ids=IDS):
    """What a reading gives: its rows, the snapshot after each chunk, and at the end."""
    method, rows, seen = method or made(decoder, name), Rows(), []
    for count in encode(decoder, method, ids[:5], ids.split(23), rows):
        seen.append((count, {n: t.clone() for n, t in method.snapshot().items()}))
    return rows.kept, seen, method.snapshot()


def require_same(ours, theirs) -> None:
    (one, some, last), (other, more, end) = ours, theirs
    assert [each[:2] for each in one] == [each[:2] for each in other]
    assert all(torch.equal(a[2], b[2]) for a, b in zip(one, other, strict=True))
    assert [count for count, _ in some] == [count for count, _ in more]
    for first, second in [*zip(some, more, strict=True), ((0, last), (0, end))]:
        assert first[1].keys() == second[1].keys()
        assert all(torch.equal(first[1][name], second[1][name]) for name in first[1])


@pytest.mark.parametrize(("name", "devices"), covering(OPTIONS, [2, 3, 7], meet=1))
def test_every_chunk_leaves_what_one_device_would(make_model, name, devices):
    alone = read(Decoder(make_model("llama-default")), name)
    parted = SplitDecoder(Decoder(make_model("llama-default")), ["cpu"] * devices)
    require_same(read(parted, name), alone)
    method = made(parted, name)
    parted.spread(Reading(method.depth, 16, 20, method.capabilities.last_in_part), always)
    require_same(read(parted, name), alone)  # again, with layers elsewhere


def test_every_architecture(even_architecture, make_model):
    alone = read(Decoder(make_model(even_architecture)), "reform")
    parted = SplitDecoder(Decoder(make_model(even_architecture)), ["cpu", "cpu"])
    require_same(read(parted, "reform"), alone)


def test_as_a_whole_it_is_the_same_model(odd_architecture, make_model):
    alone = Decoder(make_model(odd_architecture))
    whole = SplitDecoder(Decoder(make_model(odd_architecture)), ["cpu", "cpu"])
    hidden = alone.read(IDS, _WholeWindow())
    assert torch.equal(whole.read(IDS, _WholeWindow()), hidden)
    assert torch.equal(whole.logits(hidden[-1:]), alone.logits(hidden[-1:]))


def test_layers_that_do_not_fit_are_refused(make_model):
    decoder = Decoder(make_model("llama-default"))
    layer = sum(weight.nbytes for weight in decoder._base.layers[0].parameters())
    parted = SplitDecoder(decoder, ["cpu"] * 5, max_memory=layer + layer // 2)
    assert len(parted.places) == 4
    with pytest.raises(LongctxError, match="does not fit"):
        SplitDecoder(decoder, ["cpu"] * 3, max_memory=layer + layer // 2)


# --- documents ---


def written(folder) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "book.txt"
    words = [
        "the",
        "keeper",
        "wrote",
        "in",
        "his",
        "book",
        "that",
        "a",
        "boat",
        "came",
        "home",
        "at",
        "dawn",
        "with",
        "salt",
    ]
    path.write_text(" ".join(random.Random(1).choices(words, k=900)))
    return path


@pytest.mark.parametrize("name", ["reform", "h2o", "streaming", "tova"])
def test_a_document_has_the_same_bytes(text, tmp_path, setup_random, name):
    setup = replace(setup_random, method=name)
    for library, devices in (("one", None), ("two", "cpu,cpu")):
        device = "auto" if devices else "cpu"
        ingest(tmp_path / library, [str(text)], replace(setup, device=device, devices=devices))
    one, two = (tmp_path / library / "documents" / "book" for library in ("one", "two"))
    assert written(one) == written(two)


@pytest.mark.parametrize("devices", ["cpu,", "cpu,nothing", "all"])
def test_devices_that_are_not_there_are_refused(setup_random, devices):
    if devices == "all" and torch.cuda.is_available():
        pytest.skip("there are GPUs")
    with pytest.raises(UsageError):
        prepare(replace(setup_random, device="auto", devices=devices))


def test_devices_and_a_device_are_one_too_many():
    with pytest.raises(UsageError, match="--device"):
        prepare(Setup(device="cpu", devices="cpu,cpu"))
