"""Reading in fp8 on a GPU that multiplies such numbers: the kernels and products of all parts."""

import pytest
import torch

from longctx.core.kv.prompt import Prompt
from longctx.core.model import narrow
from longctx.core.model.adapter import Decoder
from longctx.kernels import choice

pytestmark = pytest.mark.gpu

IDS = torch.randint(0, 61, (80,), generator=torch.Generator().manual_seed(7))
SIZES = {"hidden_size": 64, "head_dim": 16, "intermediate_size": 96}


def able() -> bool:
    """Whether this computer has such a GPU."""
    return torch.cuda.is_available() and narrow.refusal("cuda", torch.bfloat16) is None


@pytest.mark.skipif(not able(), reason="no GPU of compute capability 8.9 or more")
@pytest.mark.parametrize("name", ["llama-default", "gemma2", "olmo2", "granite", "glm4"])
def test_a_chunk_is_what_its_definitions_make_of_it(make_model, name, monkeypatch):
    reader = narrow.reader_of(Decoder(make_model(name, torch.bfloat16, **SIZES).to("cuda")))
    found = torch.as_tensor(reader.read(IDS, Prompt(len(IDS)), 1))
    assert not {key for key in choice.broken if key[0] == "row_scaled"}
    monkeypatch.setenv(choice.VARIABLE, "reference")
    monkeypatch.setattr(
        narrow, "scaled_product", lambda *given: narrow.product_as_defined(*given).bfloat16()
    )
    expected = torch.as_tensor(reader.read(IDS, Prompt(len(IDS)), 1))
    error = (found.float() - expected.float()).norm() / expected.float().norm()
    assert float(error) < 0.05
