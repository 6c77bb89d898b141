"""A memory that keeps all layers on one device, for a model whose layers are on several."""

from types import SimpleNamespace

import torch

from longctx.core.contracts.memory import Place
from longctx.core.kv.prompt import Prompt
from longctx.core.kv.scanned import Scanned
from longctx.core.kv.tiered import Tiered
from longctx.core.model.adapter import Decoder
from longctx.core.model.split import SplitDecoder
from longctx.core.model.together import Together


def test_what_a_layer_computes_is_brought_to_the_memory(make_model):
    layers, seen = Decoder(make_model("gpt_oss")).layers, []

    def attend(layer, *given):
        seen.append((layer.sinks.device.type, *(x.device.type for x in given)))
        return torch.zeros(1)  # nothing comes back from the device of this test

    placed = Together(layers, "meta")
    memory = SimpleNamespace(attend=attend, on_one_device=True)
    placed(memory).attend(layers[1], *(torch.zeros(1, 1, 2) for _ in range(3)))
    assert seen == [("meta",) * 4]
    other = SimpleNamespace(attend=attend)
    assert placed(other) is other


def test_only_a_split_model_brings_anything(make_model):
    alone, prompt = Decoder(make_model("llama-default")), Prompt(8)
    assert alone.placed(prompt) is prompt
    parted = SplitDecoder(alone, ["cpu", "cpu"])
    assert parted.placed(prompt) is not prompt


def test_what_is_kept_of_a_layer_is_where_it_computes(make_model):
    """Keys, values and windows; a device without data shows where they are."""
    parted = SplitDecoder(Decoder(make_model("gemma2")), ["cpu", "meta"])
    assert [layer.device for layer in parted.layers] == parted.places
    kept = Scanned(parted.layers, torch.float32, Place(), 4)
    for layer in parted.layers:
        shape = layer.kv_heads, 3, layer.head_dim
        k, v = (torch.zeros(shape, device=layer.device) for _ in range(2))
        if layer.window is None:
            kv = kept.append(layer, k, v)
            keys, values = kv.keys.resident, kv.values
            assert keys is not None
            assert isinstance(values, Tiered)
            values = values.resident
            assert values is not None
            assert {keys.rows.device.type, values.rows.device.type} == {layer.device}
        else:
            assert {x.device.type for x in kept.slide(layer, k, v)} == {layer.device}
    assert {layer.device for layer in parted.layers if layer.window is None} == {"cpu", "meta"}
    places = {name: x.device.type for name, x in kept.rows(0).items()}
    assert {*places.values()} == {"cpu", "meta"}
