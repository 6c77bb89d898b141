"""The bytes of a safetensors file, in pieces: its header, and the tensors where they are.

The library's own writer takes a path and one thread; the same bytes are written here in pieces, by
several threads, with checksums on the way (`filling.py`). `docs/format.md` specifies the bytes.
"""

import json
from collections.abc import Mapping

from longctx.core.store.filling import Piece
from longctx.core.store.shards import DTYPES

Parts = Mapping[str, tuple[str, tuple[int, ...], memoryview]]  # dtype, shape, bytes by name

_ORDER = ("I64", "F64", "F32", "I32", "BF16", "F16", "I16", "I8", "U8", "BOOL")  # the library's
_NAMES = {name: short for short, (name, _) in DTYPES.items()}


def in_pieces(parts: Parts) -> list[Piece]:
    """The pieces of a file, one after another: what `safetensors.torch.save_file` writes.

    Args:
        parts: of each tensor its dtype by torch's name, its shape, and its bytes.

    Raises:
        ValueError: a tensor has a type that the format does not.
    """
    for name, (dtype, *_) in parts.items():
        if dtype not in _NAMES:
            raise ValueError(f"tensor {name!r} is {dtype}, which is not stored")
    placed = sorted(parts, key=lambda name: (_ORDER.index(_NAMES[parts[name][0]]), name))
    header, start = {}, 0
    for name in placed:
        dtype, shape, data = parts[name]
        place = {"data_offsets": [start, start := start + len(data)]}
        header[name] = {"dtype": _NAMES[dtype], "shape": shape, **place}
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return [len(text).to_bytes(8, "little") + text, *(parts[name][2] for name in placed)]
