"""Weights made of others: an adapter is W + B A in float32, and rounding comes last."""

import json

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from longctx.core.common.errors import UsageError
from longctx.core.model.merge import merged, write

FORMATS = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}


def weights() -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(5)
    shapes = {"a.q_proj.weight": (6, 4), "a.norm.weight": (4,), "b.q_proj.weight": (3, 4)}
    return {name: torch.randn(shape, generator=generator) for name, shape in shapes.items()}


def adapter(tmp_path, **changes) -> object:
    generator = torch.Generator().manual_seed(6)
    own = {
        "a.q_proj.lora_A": torch.randn(2, 4, generator=generator),
        "a.q_proj.lora_B": torch.randn(6, 2, generator=generator),
        "b.q_proj.weight": torch.randn(3, 4, generator=generator),
    }
    own |= {name.replace("__", "."): value for name, value in changes.items()}
    own = {k: v.to(torch.bfloat16) for k, v in own.items() if v is not None}
    save_file(own, tmp_path / "adapter.safetensors")
    return tmp_path / "adapter.safetensors"


def literal(values, file) -> dict[str, np.ndarray]:
    """W + B A by loops over numbers, in float64; whole matrices replaced."""
    own = {name: value.double().numpy() for name, value in load_file(file).items()}
    result = {name: value.double().numpy().copy() for name, value in values.items()}
    for name, W in result.items():
        A = own.get(name.removesuffix(".weight") + ".lora_A")
        B = own.get(name.removesuffix(".weight") + ".lora_B")
        if A is not None:
            for i in range(W.shape[0]):
                for j in range(W.shape[1]):
                    W[i, j] += sum(B[i, r] * A[r, j] for r in range(A.shape[0]))
        if name in own:
            result[name] = own[name]
    return result


def test_merging_is_the_literal_sum(tmp_path):
    values, file = weights(), adapter(tmp_path)
    found = dict(merged(values.items(), file))
    expected = literal(values, file)
    assert found.keys() == expected.keys()
    for name, value in found.items():
        assert value.dtype == torch.float32
        np.testing.assert_allclose(value.numpy(), expected[name], rtol=0, atol=2e-6)
    assert not torch.equal(found["a.q_proj.weight"], values["a.q_proj.weight"])
    assert torch.equal(found["a.norm.weight"], values["a.norm.weight"])


def test_without_an_adapter_nothing_changes():
    values = weights()
    found = dict(merged(values.items(), None))
    assert all(torch.equal(found[name], values[name]) for name in values)


@pytest.mark.parametrize("dtype", FORMATS)
def test_what_is_written_is_the_sum_rounded_once(tmp_path, dtype):
    values, file = weights(), adapter(tmp_path)
    write(values.items(), file, FORMATS[dtype], tmp_path / "model.safetensors")
    stored = load_file(tmp_path / "model.safetensors")
    for name, value in merged(values.items(), file):
        assert stored[name].dtype == FORMATS[dtype]
        assert torch.equal(stored[name], value.to(FORMATS[dtype]))
    with safe_open(tmp_path / "model.safetensors", framework="pt") as opened:
        assert opened.metadata() == {"format": "pt"}


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"c.q_proj.lora_A": torch.ones(2, 4)}, "c.q_proj.lora_A belongs to no tensor"),
        ({"c.weight": torch.ones(2, 4)}, "c.weight belongs to no tensor"),
        ({"a.norm.lora_A": torch.ones(2, 4)}, "only one of a.norm.lora_A and a.norm.lora_B"),
        ({"a.q_proj.lora_B": None}, "only one of a.q_proj.lora_A and a.q_proj.lora_B"),
        ({"a.q_proj.lora_B": torch.ones(6, 3)}, "is not 6 x 4"),
        ({"a.q_proj.lora_B": torch.ones(5, 2)}, "is not 6 x 4"),
        ({"b.q_proj.weight": torch.ones(4, 3)}, "b.q_proj.weight is 4 x 3, not 3 x 4"),
        ({"b.q_proj.lora_A": torch.ones(1, 4)}, "both b.q_proj.weight in full and changes"),
        ({"a.q_proj.bias": torch.ones(6)}, "'a.q_proj.bias' is no .lora_A, .lora_B or .weight"),
    ],
)
def test_an_adapter_that_does_not_fit_is_refused(tmp_path, changes, why):
    file = adapter(tmp_path, **changes)
    with pytest.raises(UsageError) as caught:
        dict(merged(weights().items(), file))
    assert why in str(caught.value)


@pytest.mark.parametrize("how", ["empty", "half", "text"])
def test_a_damaged_adapter_is_refused(tmp_path, how):
    file = adapter(tmp_path)
    data = file.read_bytes()
    file.write_bytes({"empty": b"", "half": data[: len(data) // 2], "text": b"{" * 99}[how])
    with pytest.raises(UsageError):
        dict(merged(weights().items(), file))


def test_the_header_is_one_that_others_read(tmp_path):
    write(weights().items(), None, torch.float32, tmp_path / "m.safetensors")
    data = (tmp_path / "m.safetensors").read_bytes()
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    ends = [value["data_offsets"][1] for key, value in header.items() if key != "__metadata__"]
    assert max(ends) == len(data) - 8 - length
