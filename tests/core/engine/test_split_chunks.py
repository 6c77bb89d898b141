"""Layers on several devices compute a chunk as one does: in few operations, to the bit."""

import pytest
import torch
from torch import nn

from longctx.core import methods
from longctx.core.common.errors import UsageError
from longctx.core.contracts.method import Method
from longctx.core.engine.encode import encode
from longctx.core.engine.staying import always
from longctx.core.kv.prompt import Prompt
from longctx.core.model import adapter
from longctx.core.model.adapter import Decoder
from longctx.core.model.balance import Reading
from longctx.core.model.chunk_pass import ChunkPass
from longctx.core.model.split import SplitDecoder

IDS = torch.randint(0, 61, (155,), generator=torch.Generator().manual_seed(3))
CHUNK = 24  # the last one has 11 tokens, fewer than pass in few operations
FORMS = ["llama-default", "gemma2", "olmo2", "qwen3_moe", "gpt_oss", "granite"]
SIZES = {"chunk": CHUNK, "budget": 30}
HEADS = ((0, "v", 0), (1, "q", 1), (3, "k", 0))
OPTIONS = {"reform": {**SIZES, "heads": HEADS, "first": 2, "last": 2, "queries": 8}, "h2o": SIZES}


@pytest.fixture
def passed(monkeypatch):
    """Chunks pass in few operations here too; the layers that did so, of how many tokens."""
    monkeypatch.setattr(adapter, "wanted", lambda device: True)
    through, seen = ChunkPass.through, []

    def noted(self, index, part, state, norm, memory, then):
        if isinstance(memory, Method):  # not when it is compared with the model
            seen.append((index, len(state)))
        return through(self, index, part, state, norm, memory, then)

    monkeypatch.setattr(ChunkPass, "through", noted)
    return seen


class Rows:
    def __init__(self):
        self.kept: list[torch.Tensor] = []

    def append(self, group, rows) -> None:
        self.kept += [rows[name].clone() for name in sorted(rows)]


def read(decoder: Decoder, name: str):
    """All that a reading keeps."""
    module, rows = methods.load(name), Rows()
    method = module.Method(module.Options(**OPTIONS[name]), decoder.layers)
    for _ in encode(decoder, method, IDS[:5], IDS[5:].split(23), rows):
        pass
    snapshot = method.snapshot()
    return [*rows.kept, *(snapshot[name] for name in sorted(snapshot))]


def require_same(found, expected) -> None:
    assert len(found) == len(expected)
    assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))


@pytest.mark.parametrize("method", OPTIONS)
@pytest.mark.parametrize("name", FORMS)
def test_a_state_has_the_same_bytes(make_model, passed, name, method):
    alone = read(Decoder(make_model(name)), method)
    used = sorted(passed)
    assert {tokens for _, tokens in used} == {CHUNK}
    passed.clear()
    require_same(read(SplitDecoder(Decoder(make_model(name)), ["cpu"] * 2), method), alone)
    assert sorted(passed) == used


def test_every_architecture(odd_architecture, make_model, passed):
    alone = read(Decoder(make_model(odd_architecture)), "reform")
    used = sorted(passed)
    passed.clear()
    require_same(
        read(SplitDecoder(Decoder(make_model(odd_architecture)), ["cpu"] * 2), "reform"), alone
    )
    assert sorted(passed) == used


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", FORMS)
def test_where_layers_are_cut_changes_no_bit(make_model, name, dtype):
    decoder = Decoder(make_model(name, dtype))
    chunks, count = decoder.chunk_pass(), len(decoder.layers)
    with torch.inference_mode():
        begun = chunks.embed(IDS[None])
        whole = chunks.run(begun, Prompt(len(IDS)), 0, count)
        for cut in range(count + 1):
            memory = Prompt(len(IDS))
            part = chunks.run(begun, memory, 0, cut)
            assert torch.equal(chunks.run(part, memory, cut, count), whole)


def test_as_a_whole_it_passes_so_too(make_model, passed):
    alone, whole = (
        Decoder(make_model("gemma2")),
        SplitDecoder(Decoder(make_model("gemma2")), ["cpu"] * 3),
    )
    assert torch.equal(whole.read(IDS, Prompt(len(IDS))), alone.read(IDS, Prompt(len(IDS))))
    assert whole.chunk_pass() is not None


def test_what_agrees_on_no_device_is_read_by_the_models_own_layers(make_model, passed):
    made = [make_model("llama-default") for _ in range(2)]
    for model in made:
        model.model.layers[1].register_forward_hook(lambda module, args, out: out * 1.01)
    require_same(
        read(SplitDecoder(Decoder(made[0]), ["cpu"] * 2), "h2o"), read(Decoder(made[1]), "h2o")
    )
    assert not passed


def test_layers_that_move_are_taken_where_they_are(make_model, passed, monkeypatch):
    """Fewer layers than all are spread anew, after which other memory holds their weights."""

    def moved(module, place):
        for weight in module.parameters():
            weight.data = weight.data.clone()
        return module

    decoder = SplitDecoder(Decoder(make_model("llama-default")), ["cpu", "cpu:0", "cpu:0"])
    before = decoder.chunk_pass()
    assert decoder.chunk_pass() is before
    with monkeypatch.context() as patch:
        patch.setattr(nn.Module, "to", moved)
        decoder.spread(Reading(2), always)  # the second layer leaves the first device
    after = decoder.chunk_pass()
    assert after is not before
    for part, layer in zip(after._parts.layers, decoder._base.layers, strict=True):
        own = layer.self_attn.q_proj.weight
        assert part.qkv.weight.data_ptr() == own.data_ptr()
        assert part.mlp.before.weight.data_ptr() == layer.post_attention_layernorm.weight.data_ptr()


def test_tokens_without_weights_are_refused(make_model):
    decoder = SplitDecoder(Decoder(make_model("llama-default")), ["cpu"] * 2)
    with pytest.raises(UsageError, match="do not belong together"):
        decoder.read(torch.tensor([3, 10**6]), Prompt(2))
