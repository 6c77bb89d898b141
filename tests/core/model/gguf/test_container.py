"""Files that are damaged, or made to do harm: a UsageError, quickly, whatever they say."""

import random
import resource
import shutil
import struct
import time
from pathlib import Path

import pytest

from longctx.core.common.errors import UsageError
from longctx.core.model.converted import opened_gguf
from longctx.core.model.gguf import container
from longctx.core.model.gguf.container import open_container
from longctx.core.model.gguf.model import open_gguf


def text(value: str | bytes) -> bytes:
    data = value.encode() if isinstance(value, str) else value
    return struct.pack("<Q", len(data)) + data


def key(name: str, kind: int, value: bytes) -> bytes:
    return text(name) + struct.pack("<I", kind) + value


def tensor(name: str, shape: tuple[int, ...] = (8,), kind: int = 0, offset: int = 0) -> bytes:
    dims = b"".join(struct.pack("<Q", one) for one in shape)
    return text(name) + struct.pack("<I", len(shape)) + dims + struct.pack("<IQ", kind, offset)


def header(tensors: int, keys: int, version: int = 3) -> bytes:
    return b"GGUF" + struct.pack("<IQQ", version, tensors, keys)


def file(folder: Path, *parts: bytes, data: int = 0) -> Path:
    """A file of these parts, filled up to a multiple of 32 bytes, and data behind."""
    head = b"".join(parts)
    path = folder / "model.gguf"
    path.write_bytes(head + bytes(-len(head) % 32) + bytes(data))
    return path


MUCH = 1 << 62
HOSTILE = {
    "no GGUF file": (b"PK\3\4" + bytes(64),),
    "it is no GGUF file": (b"",),
    "big-endian": (b"GGUF" + struct.pack(">IQQ", 3, 0, 0),),
    "GGUF version 1": (header(0, 0, 1),),
    "GGUF version 4,294,967,295": (header(0, 0, 0xFFFFFFFF),),
    "4,611,686,018,427,387,904 tensors": (header(MUCH, 0),),
    "4,611,686,018,427,387,904 keys": (header(0, MUCH),),
    "ends within its header": (header(0, 1), struct.pack("<Q", 400)),
    "a name or text in its header has 4,6": (header(0, 1), struct.pack("<Q", MUCH)),
    "its header has 'a' twice": (header(0, 2), key("a", 0, b"\1"), key("a", 0, b"\1")),
    "unknown type 13": (header(0, 1), key("a", 13, b"")),
    "array of arrays": (header(0, 1), key("a", 9, struct.pack("<IQ", 9, 1) + bytes(64))),
    "more than 2,000,000 strings": (header(0, 1), key("a", 9, struct.pack("<IQ", 8, MUCH))),
    "ends within its header: a copy": (header(0, 1), key("a", 9, struct.pack("<IQ", 12, MUCH))),
    "'t' has 9 dimensions": (header(1, 0), tensor("t", (1,) * 9)),
    "'t' has 0 dimensions": (header(1, 0), tensor("t", ())),
    "'t' has the shape": (header(1, 0), tensor("t", (0, 8))),
    "'t' has the shape .4": (header(1, 0), tensor("t", (MUCH, MUCH, MUCH, MUCH))),
    "'t' has the tensor type 99": (header(1, 0), tensor("t", kind=99)),
    "'t' has rows of 8, not of": (header(1, 0), tensor("t", kind=8)),
    "'t' does not begin at": (header(1, 0), tensor("t", offset=4)),
    "bytes of at least": (header(1, 0), tensor("t", (1 << 38,))),
    "bytes of at least 18": (header(1, 0), tensor("t", offset=(1 << 64) - 32)),
    "has 't' twice": (header(2, 0), tensor("t"), tensor("t", offset=32)),
    "overlaps": (header(2, 0), tensor("t", (16,)), tensor("u", offset=32)),
    "general.alignment is": (header(0, 1), key("general.alignment", 4, struct.pack("<I", 7))),
    "does not say its architecture": (header(1, 0), tensor("t")),
    "split.count is": (header(0, 1), key("split.count", 2, struct.pack("<H", 60_000))),
    "is one of 3 files": (header(0, 1), key("split.count", 2, struct.pack("<H", 3))),
}


@pytest.mark.parametrize("said", HOSTILE)
def test_a_hostile_header(said, tmp_path):
    began = time.monotonic()
    with pytest.raises(UsageError, match=said):
        open_gguf(file(tmp_path, *HOSTILE[said], data=64))
    assert time.monotonic() - began < 5


def test_many_empty_strings_take_little_memory(tmp_path):
    """The most that an array may have, and no more: a file of 16 MB, which must not take GBs."""
    count = container.MOST_STRINGS
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    parts = header(0, 1), key("a", 9, struct.pack("<IQ", 8, count)), bytes(8 * count)
    assert len(open_container(file(tmp_path, *parts)).metadata["a"]) == count
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 400_000  # kB
    parts = header(0, 1), key("a", 9, struct.pack("<IQ", 8, count + 1)), bytes(8 * count + 8)
    with pytest.raises(UsageError, match="strings"):
        open_container(file(tmp_path, *parts))


def test_a_header_beyond_the_limit(tmp_path, monkeypatch):
    monkeypatch.setattr("longctx.core.common.file_limits.GGUF_HEADER", 1000)
    with pytest.raises(UsageError, match="more than 1,000 bytes"):
        open_container(file(tmp_path, header(0, 1), key("a", 8, text(b"x" * 2000))))


def test_what_is_no_file(tmp_path):
    for path in (tmp_path, tmp_path / "none.gguf"):
        with pytest.raises(UsageError, match="cannot read"):
            open_gguf(path)


def test_any_damage_is_a_usage_error(write_gguf, make_model, tmp_path):
    """Thousands of damaged copies: what opens has a header that still describes its model."""
    model = make_model("llama-default", num_hidden_layers=1)
    write_gguf.model(tmp_path / "whole.gguf", model)
    whole = (tmp_path / "whole.gguf").read_bytes()
    head = whole.index(b"output_norm.weight") + 64
    chance, path = random.Random(7), tmp_path / "model.gguf"
    refused = 0
    for _ in range(3000):
        data = bytearray(whole)
        for _ in range(chance.choice((1, 1, 2, 8))):
            at = chance.randrange(head)
            size = chance.choice((1, 4, 8))
            value = chance.choice((0, 1, 255, (1 << 31) - 1, (1 << 64) - 1, chance.getrandbits(64)))
            data[at : at + size] = (value & ((1 << 8 * size) - 1)).to_bytes(size, "little")
        if chance.random() < 0.1:
            data = data[: chance.randrange(len(data))]
        path.write_bytes(data)
        try:
            open_container(path)
            if chance.random() < 0.03:
                open_gguf(path)
        except UsageError:
            refused += 1
    assert refused > 600


# --- several files ---


def split(folder: Path, model, write_gguf) -> list[Path]:
    """A model in two files, written by the package."""
    from gguf import GGUFReader, GGUFWriter

    write_gguf.model(folder / "whole.gguf", model)
    reader = GGUFReader(folder / "whole.gguf")
    writer = GGUFWriter(folder / "model.gguf", "llama", split_max_tensors=20)
    for field in reader.fields.values():
        if not field.name.startswith(("GGUF.", "general.architecture")):
            kind = field.types[-1] if len(field.types) > 1 else None
            writer.add_key_value(field.name, field.contents(), field.types[0], sub_type=kind)
    for one in reader.tensors:
        writer.add_tensor(one.name, one.data)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return sorted(folder.glob("model-*.gguf"))


def test_a_model_in_several_files(write_gguf, make_model, tmp_path):
    model = make_model("llama-default")
    paths = split(tmp_path, model, write_gguf)
    assert [path.name for path in paths] == [f"model-0000{i}-of-00002.gguf" for i in (1, 2)]
    original = dict(model.named_parameters())
    found = dict(open_gguf(paths[0]).tensors())
    assert found.keys() == original.keys()
    assert all((found[name] == weight).all() for name, weight in original.items())
    with pytest.raises(UsageError, match="Name the first one: model-00001-of-00002"):
        open_gguf(paths[1])
    assert opened_gguf(paths[0]).sources() == paths
    shutil.copy(paths[0], tmp_path / "other.gguf")
    with pytest.raises(UsageError, match="not named like one"):
        open_gguf(tmp_path / "other.gguf")
    paths[1].unlink()
    with pytest.raises(UsageError, match="model-00002-of-00002"):
        open_gguf(paths[0])
