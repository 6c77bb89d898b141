"""Reading in fp8: what the products are, what stays as it was, and who is refused."""

import pytest
import torch

from longctx.core.common.errors import LongctxError, UsageError
from longctx.core.kv.prompt import Prompt
from longctx.core.model import narrow
from longctx.core.model.adapter import Decoder
from longctx.core.model.fused_weights import Matrix
from longctx.kernels.door import row_scaled

IDS = torch.randint(0, 61, (48,), generator=torch.Generator().manual_seed(7))
SIZES = {"hidden_size": 64, "head_dim": 16, "intermediate_size": 96}
NAMES = ["llama-default", "gemma2", "olmo2", "qwen3_moe"]


def drawn(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def apart(found, expected):
    """The error as a share of what is expected."""
    return float((found.float() - expected.float()).norm() / expected.float().norm())


@pytest.mark.parametrize("bias", [False, True])
def test_a_product_is_its_definition_and_nearly_that_of_the_weights(bias):
    weight, x = drawn(48, 64).bfloat16(), drawn(5, 64, seed=1).bfloat16()
    x[3] *= 1000  # one token's outlier, which costs the others nothing
    matrix = Matrix(weight, drawn(48, seed=2).bfloat16() if bias else None)
    made, rows = narrow.narrowed(matrix), row_scaled(x)
    found = narrow.scaled_product(rows, made)
    assert found.dtype == torch.bfloat16
    assert torch.allclose(
        found.float(), narrow.product_as_defined(rows, made), rtol=0.01, atol=0.05
    )
    exact = torch.nn.functional.linear(x.float(), weight.float())
    exact = exact if matrix.bias is None else exact + matrix.bias.float()
    for row, expected in zip(found, exact, strict=True):
        assert 1e-4 < apart(row, expected) < 0.06


@pytest.mark.parametrize("name", NAMES)
def test_a_chunk_is_read_nearly_as_in_bf16(make_model, name):
    decoder = Decoder(make_model(name, torch.bfloat16, **SIZES))
    reader = narrow.reader_of(decoder)
    with torch.inference_mode():
        own, found = (one.read(IDS, Prompt(len(IDS)), 1) for one in (decoder, reader))
        # An expert that is chosen by a hair's breadth changes a row.
        assert 1e-3 < apart(found, own) < (0.5 if "moe" in name else 0.15)
        assert apart(decoder.read(IDS, Prompt(len(IDS)), 1), own) == 0  # which is as it was
        few = IDS[:15]
        assert torch.equal(reader.read(few, Prompt(15)), decoder.read(few, Prompt(15)))


def test_a_chunk_is_what_its_definitions_make_of_it(make_model, monkeypatch):
    decoder = Decoder(make_model("llama-default", torch.bfloat16, **SIZES))
    reader = narrow.reader_of(decoder)
    with torch.inference_mode():
        found = reader.read(IDS, Prompt(len(IDS)))
        monkeypatch.setattr(
            narrow, "scaled_product", lambda *given: narrow.product_as_defined(*given).bfloat16()
        )
        expected = reader.read(IDS, Prompt(len(IDS)))
    assert apart(found, expected) < 0.03


def test_what_cannot_be_read_so_is_refused_by_name(make_model, monkeypatch):
    # Plain errors, as of what would fail for every document.
    with pytest.raises(LongctxError, match="in --precision fp8") as caught:
        narrow.reader_of(Decoder(make_model("stablelm", torch.bfloat16, **SIZES)))
    assert type(caught.value) is LongctxError
    assert "made of other parts" in caught.value.why
    assert "full" in caught.value.remedy
    odd = Decoder(make_model("llama-default", torch.bfloat16, **{**SIZES, "intermediate_size": 90}))
    with pytest.raises(LongctxError) as caught:
        narrow.reader_of(odd)
    assert type(caught.value) is LongctxError
    assert "a matrix of 180 by 64" in caught.value.why
    wrong = narrow.scaled_product
    monkeypatch.setattr(narrow, "scaled_product", lambda *given: 1.1 * wrong(*given))
    with pytest.raises(LongctxError, match="this device cannot read"):
        narrow.reader_of(Decoder(make_model("llama-default", torch.bfloat16, **SIZES)))


def test_a_full_memory_is_not_taken_for_a_device_that_cannot(make_model, monkeypatch):
    def full(*_):
        raise torch.OutOfMemoryError("out of memory")

    monkeypatch.setattr(narrow, "scaled_product", full)
    with pytest.raises(torch.OutOfMemoryError):
        narrow.reader_of(Decoder(make_model("llama-default", torch.bfloat16, **SIZES)))


def test_a_device_that_cannot_is_refused_by_name(monkeypatch):
    half = torch.bfloat16
    assert narrow.chosen(None, "cpu", half, False) is None
    assert narrow.chosen("full", "cpu", half, False) is None
    with pytest.raises(UsageError, match="unknown precision 'fp4'"):
        narrow.chosen("fp4", "cpu", half, False)
    with pytest.raises(UsageError, match="cannot read with --precision fp8") as caught:
        narrow.chosen("fp8", "cpu", half, False)
    assert "compute capability 8.9 or more, not cpu" in caught.value.why
    found = (9, 0)
    monkeypatch.setattr(torch.version, "cuda", "12.8")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda place: found)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda place: "NVIDIA A100")
    monkeypatch.delenv(narrow.VARIABLE, raising=False)
    assert narrow.chosen("fp8", "cuda", half, False) == "fp8"
    assert "--dtype is fp16" in str(narrow.refusal("cuda", torch.float16))
    assert "--devices" in str(narrow.refusal("cuda", half, True))
    monkeypatch.setenv(narrow.VARIABLE, "model")
    assert "LONGCTX_CHUNKS=model" in str(narrow.refusal("cuda", half))
    found = (8, 0)
    assert "A100 has compute capability 8.0" in str(narrow.refusal("cuda", half))
