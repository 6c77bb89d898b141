"""How devices are prepared before they are used."""

import os

import pytest
import torch

from longctx.core.common import device


@pytest.fixture
def for_gpus(monkeypatch):
    """A PyTorch that is built for GPUs, two of them, and no setting of its allocators."""
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    for name in device.ALLOCATORS:
        monkeypatch.setenv(name, "")  # restored afterwards
        monkeypatch.delenv(name)


def set_now() -> dict[str, str]:
    return {name: os.environ[name] for name in device.ALLOCATORS if name in os.environ}


def test_memory_is_pinned_in_threads(for_gpus):
    assert device.choose_device("cpu") == "cpu"
    assert set_now() == {}
    assert device.choose_device("cuda:1") == "cuda:1"
    both = "PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"
    assert set_now() == dict.fromkeys(both, device.PINNING)


@pytest.mark.parametrize("name", device.ALLOCATORS)
def test_what_a_user_has_set_stays(for_gpus, monkeypatch, name):
    monkeypatch.setenv(name, "expandable_segments:True")
    device.choose_devices("all")
    assert set_now() == {name: "expandable_segments:True"}


@pytest.mark.parametrize(
    ("name", "value"), [("torch.version.cuda", None), ("platform.machine", lambda: "aarch64")]
)
def test_elsewhere_nothing_is_set(for_gpus, monkeypatch, name, value):
    monkeypatch.setattr(name, value)
    assert device.choose_devices("all") == ("cuda:0", "cuda:1")
    assert set_now() == {}
