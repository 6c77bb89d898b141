"""How devices are prepared before they are used."""

import os

import pytest
import torch

from longctx.core.common import device


@pytest.fixture
def for_gpus(monkeypatch):
    """A PyTorch that is built for GPUs, and no setting of its allocators."""
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr("sys.platform", "linux")
    for name in device.ALLOCATORS:
        monkeypatch.setenv(name, "")  # restored afterwards
        monkeypatch.delenv(name)


def set_now() -> dict[str, str]:
    return {name: os.environ[name] for name in device.ALLOCATORS if name in os.environ}


def test_memory_is_pinned_in_threads(for_gpus):
    assert device.choose_device("cpu") == "cpu"
    both = "PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"
    assert set_now() == dict.fromkeys(both, device.PINNING)


@pytest.mark.parametrize("name", device.ALLOCATORS)
def test_what_a_user_has_set_stays(for_gpus, monkeypatch, name):
    monkeypatch.setenv(name, "expandable_segments:True")
    device.choose_devices("cpu,cpu")
    assert set_now() == {name: "expandable_segments:True"}


def test_without_gpus_nothing_is_set(for_gpus, monkeypatch):
    monkeypatch.setattr(torch.version, "cuda", None)
    device.choose_device("cpu")
    assert set_now() == {}
