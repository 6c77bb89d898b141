"""The bytes of a file of tensors are those that safetensors' own writer gives."""

import numpy as np
import pytest
import safetensors.numpy
import safetensors.torch
import torch
from xxhash import xxh3_128_hexdigest

from longctx.core.store.shard_writer import write_arrays, write_tensors
from longctx.core.store.shards import DTYPES

pytestmark = pytest.mark.usefixtures("no_sync")

OURS = "memory-00000.safetensors"
TYPES = [getattr(torch, name) for name, _ in DTYPES.values()]


def test_tensors_of_all_types_and_shapes(tmp_path):
    given = {f"{dtype}.{n}"[6:]: torch.ones(n, 3).to(dtype) for dtype in TYPES for n in (0, 1, 5)}
    given |= {
        "scalar": torch.tensor(7),
        "ä\n": torch.arange(6.0).reshape(2, 3).T,
        "B": torch.ones(2),
    }
    given["same"] = given["B"]
    given |= {f"stride {n}": torch.arange(3).as_strided((n,), (0,)) for n in (0, 1)}
    alone = {name: x.clone().contiguous() for name, x in given.items()}
    for tensors in (alone, {}):
        safetensors.torch.save_file(tensors, tmp_path / "theirs")
        shard = write_tensors(tmp_path, "memory", OURS, given if tensors else {})
        written = (tmp_path / OURS).read_bytes()
        assert written == (tmp_path / "theirs").read_bytes()
        assert (shard.size, *shard.blocks) == (len(written), xxh3_128_hexdigest(written))


def test_arrays(tmp_path):
    given = {"b": np.arange(12).reshape(3, 4)[:, ::2], "a": np.zeros(0, np.uint8), "c": np.ones(3)}
    safetensors.numpy.save_file({k: x.copy() for k, x in given.items()}, tmp_path / "theirs")
    write_arrays(tmp_path, "segment", "segment-00000.safetensors", given)
    assert (tmp_path / "segment-00000.safetensors").read_bytes() == (
        tmp_path / "theirs"
    ).read_bytes()


def test_other_types_are_refused(tmp_path):
    with pytest.raises(ValueError, match="memory: tensor 'x' is complex64, which is not stored"):
        write_tensors(tmp_path, "memory", OURS, {"x": torch.zeros(1, dtype=torch.complex64)})
    assert not list(tmp_path.iterdir())
