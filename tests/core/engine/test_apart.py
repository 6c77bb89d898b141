"""A model over two devices never mixes their tensors: the second one is PyTorch's without data.

There an operation with tensors of two devices fails, as it does on two GPUs. What comes back from
the device without data is zeros.
"""

import pytest
import torch

from longctx.core import methods
from longctx.core.ask.recompute import recompute
from longctx.core.contracts.memory import Place
from longctx.core.decode import policies
from longctx.core.decode.decode import Generation
from longctx.core.kv import keys
from longctx.core.methods import reattention
from longctx.core.model.adapter import Decoder, EarlyExit
from longctx.core.model.rope import Rope
from longctx.core.model.split import SplitDecoder
from longctx.core.profile.sampling import Sampling
from longctx.kernels.topk_scan_ref import Top

IDS = torch.randint(0, 61, (112,), generator=torch.Generator().manual_seed(5))
EVICTS = {"chunk": 16, "budget": 20}
BLOCKS = {"first": 2, "local": 16, "chunk": 8, "block": 4, "retrieved": 2, "run": 2}
SELECTS = {"first": 2, "local": 16, "chunk": 8, "top_k": 2, "voted": 3, "span": 4}
TAPS = {"heads": ((0, "v", 0), (1, "q", 1), (3, "k", 0)), "first": 2, "last": 2, "queries": 8}
OPTIONS = {
    "reform": {**EVICTS, **TAPS},
    "h2o": EVICTS,
    "infllm": BLOCKS,
    "ltri": {**BLOCKS, "heads": ((1, 0, 1.0), (2, 0, 1.0))},
    "reattention": SELECTS,
}


@pytest.fixture
def parted(make_model, monkeypatch):
    """The first half of a model on the CPU, the second on the device without data."""
    to = torch.Tensor.to

    def brought(self, *where, **how):
        try:
            return to(self, *where, **how)
        except NotImplementedError:  # nothing can come from there
            return to(torch.zeros(self.shape, dtype=self.dtype), *where, **how)

    monkeypatch.setattr(torch.Tensor, "to", brought)
    monkeypatch.setattr(Rope, "half_split", True)  # is found by looking at numbers
    decoder = SplitDecoder(Decoder(make_model("llama-default")), ["cpu", "meta"])
    assert decoder.places == ["cpu", "cpu", "meta", "meta"]
    return decoder


@pytest.fixture
def counted(monkeypatch):
    """Two operations whose definitions wait for numbers, as their kernels do not."""
    scan = keys.topk_scan

    def scanned(q, rows, k, scales):
        if rows.device.type != "meta":
            return scan(q, rows, k, scales)
        assert q.device == rows.device
        best = q.new_zeros(len(q), q.shape[1], k)
        count = len(rows)
        return Top(best, best.long(), best.new_zeros(count).int(), best.new_zeros(count))

    def attended(q, k, v, scale, total):
        assert len({x.device for x in (q, k, v, total)}) == 1
        return torch.zeros_like(q)

    monkeypatch.setattr(keys, "topk_scan", scanned)
    monkeypatch.setattr(reattention, "window_attention", attended)


class UpTo:
    """A memory that ends with the last layer: no state comes back to the first device."""

    def __init__(self, memory, last):
        self._memory, self._last = memory, last

    def attend(self, layer, *given):
        out = self._memory.attend(layer, *given)
        if layer.index == self._last:
            raise EarlyExit
        return out


@pytest.mark.parametrize("name", OPTIONS)
def test_reading_and_recalling(parted, counted, name):
    module = methods.load(name)
    method, read = module.Method(module.Options(**OPTIONS[name]), parted.layers, Place()), 0
    rows = {}
    for _ in range(4):
        chunk = IDS[read : read + method.chunk]
        parted.read(chunk, UpTo(method, 3), 4)
        read += len(chunk)
        rows = method.rows()
    if name == "reform":
        found = method.embed(lambda memory: parted.read(IDS[:9], memory, method.depth))
        assert {x.device.type for x in found} == {"cpu"}
        return
    memory = method.recall()
    hidden = [parted.read(part, memory) for part in IDS[:9].split(memory.chunk)][-1]
    memory.begin_answer()
    over = policies.load("dense").Recalling(policies.USUAL.options, memory, 64)
    found = Generation(parted, over, hidden[-1:], IDS[:9], Sampling(), 4, set())
    assert len(list(found.tokens())) == 4
    assert len(memory.scores(read).raw) == read
    places = {x.device.type for group in rows.values() for x in group.values()}
    assert places == ({"cpu", "meta"} if rows else set())


@pytest.mark.parametrize("name", policies.names())
def test_answers(parted, name):
    module, options = policies.load(name), policies.choose(name, {}).options
    parts = IDS[:2], IDS[2:92], IDS[92:]
    prompt, hidden = recompute(parted, *parts, 12, options.observed)
    assert {cache.keys.device.type for cache in prompt.caches.values()} == {"cpu"}
    found = Generation(
        parted, module.Policy(options, prompt, 4096), hidden, IDS, Sampling(), 10, set()
    )
    assert len(list(found.tokens())) == 10
