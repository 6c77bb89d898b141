"""What the tests of the kernels share: a device that runs Triton, and a door that forgets."""

import os

import pytest
import torch

from longctx.kernels import choice as choice_module


@pytest.fixture
def device() -> str:
    """Where kernels run: a GPU, compiled, or the CPU, by Triton's interpreter."""
    pytest.importorskip("triton", reason="Triton is not installed")
    return "cpu" if os.environ.get("TRITON_INTERPRET") == "1" else "cuda"


@pytest.fixture(autouse=True)
def fresh_door(monkeypatch):
    """No choice made and nothing failed before the test, and no variable set."""
    monkeypatch.delenv(choice_module.VARIABLE, raising=False)
    monkeypatch.setattr(choice_module, "broken", {})
    choice_module.tell.cache_clear()


@pytest.fixture
def random_states():
    """f(H, G, W, S, D, dtype, device) -> queries (H, W, D) and keys (G, S, D)."""

    def make(H, G, W, S, D, dtype=torch.float32, device="cpu"):
        generator = torch.Generator().manual_seed(S * 31 + W)
        q = torch.randn(H, W, D, generator=generator)
        k = torch.randn(G, S, D, generator=generator)
        return q.to(device, dtype), k.to(device, dtype)

    return make
