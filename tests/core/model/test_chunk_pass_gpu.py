"""A chunk in few operations on a GPU: the kernels of all parts, and what REFORM keeps."""

import pytest
import torch

from longctx.core.kv.prompt import Prompt
from longctx.core.methods.reform import Method, Options
from longctx.core.model import chunk_pass
from longctx.core.model.adapter import Decoder

pytestmark = pytest.mark.gpu

IDS = torch.randint(0, 61, (80,), generator=torch.Generator().manual_seed(7))
NAMES = [
    "llama-default",
    "gemma2",
    "gpt_oss",
    "qwen3_moe",
    "olmo2",
    "granite",
    "glm4",
    "phi3-window",
]
SIZES = {"hidden_size": 64, "head_dim": 16, "intermediate_size": 96}


def read(model, memory_of):
    """States, by the parts and by the model's own layers."""
    decoder = Decoder(model)
    assert decoder.chunk_pass() is not None
    ours = decoder.read(IDS, memory_of(decoder))
    with decoder.watched(lambda *_: None):
        return ours, decoder.read(IDS, memory_of(decoder))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
def test_states_are_the_models(make_model, name, dtype):
    model = make_model(name, dtype, **SIZES).to("cuda")
    ours, own = read(model, lambda decoder: Prompt(len(IDS)))
    error = (ours.float() - own.float()).norm() / own.float().norm()
    # An expert that is chosen by a hair's breadth changes a row.
    within = 1e-4 if dtype == torch.float32 else 0.2 if "moe" in name or "oss" in name else 0.05
    assert float(error) < within


@pytest.mark.parametrize("name", ["llama-default", "gemma2", "gpt_oss"])
def test_reform_keeps_the_same(make_model, name, monkeypatch):
    decoder = Decoder(make_model(name, **SIZES).to("cuda"))
    options = Options(((1, "k", 0), (3, "v", 1)), chunk=20, budget=24, first=2, last=4, queries=16)
    found = []
    for own in ("", chunk_pass.OWN):
        monkeypatch.setenv(chunk_pass.VARIABLE, own)
        method = Method(options, decoder.layers)
        for chunk in IDS.split(20):
            decoder.read(chunk, method, method.depth)
        found.append(method.snapshot())
    for key, tensor in found[0].items():
        if key.startswith("positions"):
            assert torch.equal(tensor, found[1][key])
        elif key.startswith("keys"):
            assert (tensor - found[1][key]).abs().max() < 1e-3
