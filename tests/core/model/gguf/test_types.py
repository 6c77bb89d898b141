"""Tensor types: ours decode as the package gguf does, the others through it."""

import subprocess
import sys

import gguf
import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType as Kind
from gguf.quants import dequantize, quantize

from longctx.core.model.gguf.model import open_gguf
from longctx.core.model.gguf.types import DECODED, TYPES, decoded

ROWS = np.random.default_rng(3).standard_normal((6, 512)).astype(np.float32)
WRITTEN = [kind for kind in TYPES if TYPES[kind].name not in ("F32", "F16", "BF16")]


def encoded(number: int) -> bytearray:
    """Bytes of this type: of real values where the package can write it, else of any."""
    kind = Kind(number)
    try:
        return bytearray(quantize(ROWS, kind).tobytes())
    except NotImplementedError:  # the package reads this type, and cannot write it
        _, block, size = TYPES[number]
        random = np.random.default_rng(number)
        data = random.integers(0, 128, ROWS.size // block * size, dtype=np.uint8)
        return bytearray(data.tobytes())


def test_the_sizes_are_llama_cpps():
    assert {number: gguf.GGML_QUANT_SIZES[Kind(number)] for number in TYPES} == {
        number: (block, size) for number, (_, block, size) in TYPES.items()
    }
    assert {number: Kind(number).name for number in TYPES} == {n: t.name for n, t in TYPES.items()}


def test_six_types_need_no_package():
    assert sorted(DECODED) == ["BF16", "F16", "F32", "Q4_0", "Q4_1", "Q8_0"]


@pytest.mark.parametrize("number", WRITTEN, ids=lambda number: TYPES[number].name)
def test_blocks_are_decoded_as_by_the_package(number, monkeypatch):
    monkeypatch.setattr("longctx.core.model.gguf.types.PART", 256)  # in several parts
    data = encoded(number)
    rows = np.frombuffer(bytes(data), np.uint8).reshape(len(ROWS), -1)
    ours = decoded(data, number, ROWS.shape)
    assert ours.dtype == torch.float32
    with np.errstate(all="ignore"):
        theirs = dequantize(rows, Kind(number))
    assert np.array_equal(ours.numpy(), theirs, equal_nan=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_plain_values_keep_their_type(dtype):
    values = torch.from_numpy(ROWS).to(dtype)
    number = {torch.float32: 0, torch.float16: 1, torch.bfloat16: 30}[dtype]
    ours = decoded(bytearray(values.view(torch.uint8).numpy().tobytes()), number, ROWS.shape)
    assert ours.dtype == dtype
    assert torch.equal(ours, values)


@pytest.mark.parametrize("kind", [Kind.Q8_0, Kind.Q4_0, Kind.BF16, Kind.F16, Kind.Q5_1])
def test_a_quantized_model_is_read(kind, write_gguf, make_model, tmp_path):
    """Each value is as near as its type allows; rows of q and k are still in their order."""
    model = make_model("llama-default", intermediate_size=64)

    def values(name, tensor):
        if tensor.ndim < 2:
            return tensor.float().numpy(), None
        return quantize(np.ascontiguousarray(tensor.float().numpy()), kind), kind

    write_gguf.model(tmp_path / "model.gguf", model, values)
    original = dict(model.named_parameters())
    opened = open_gguf(tmp_path / "model.gguf")
    for name, tensor in opened.tensors():
        expected = original[name].detach()
        unit = {"Q8_0": 1 / 127, "Q4_0": 1 / 7, "Q5_1": 1 / 15}.get(kind.name, 1 / 128)
        assert (tensor.float() - expected).abs().max() <= unit * expected.abs().max(), name
        plain = {"BF16": torch.bfloat16, "F16": torch.float16}.get(kind.name, torch.float32)
        assert tensor.dtype == (torch.float32 if expected.ndim == 1 else plain)


def test_without_the_package_the_type_is_named(write_gguf, make_model, tmp_path):
    def values(name, tensor):
        array = np.ascontiguousarray(tensor.float().numpy())
        large = tensor.ndim == 2
        return (quantize(array, Kind.Q5_1), Kind.Q5_1) if large else (array, None)

    path = tmp_path / "model.gguf"
    write_gguf.model(path, make_model("llama-default", intermediate_size=64), values)
    code = (
        "import sys; sys.modules['gguf'] = None; sys.modules['gguf.quants'] = None\n"
        "import importlib.util as util\n"
        "find = util.find_spec\n"
        "util.find_spec = lambda name, *a: None if name == 'gguf' else find(name, *a)\n"
        "from pathlib import Path\n"
        "from longctx.core.common.errors import UsageError\n"
        "from longctx.core.model.gguf.model import open_gguf\n"
        "try: open_gguf(Path(sys.argv[1]))\n"
        "except UsageError as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True)
    assert "tensors are Q5_1, which needs the package gguf" in done.stdout, done.stderr
    assert "Run: pip install gguf." in done.stdout
